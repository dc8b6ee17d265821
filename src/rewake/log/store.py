"""The one interface between the log and storage: a folder of named files.

What a store promises, and nothing more:

- `create` is exclusive (FileExistsError otherwise); two processes never both succeed.
- A write is durable only after `sync(name)`; until then power loss may keep, drop, tear or reorder
  it.  Creations, renames and deletions are durable only after `sync_directory()`.
- Offsets are explicit, so repeating a write that failed half-way is harmless.
- A failed `sync` leaves the durability of everything unsynced unknown, for ever: stop, reopen.
- Reading or sizing a file that is not there raises FileNotFoundError; having no room raises
  `StorageFull`; every other failure raises `StorageFault`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from rewake.log.frame import Buffer

__all__ = ["Store", "publish"]


class Store(Protocol):
    """A folder of named files, on a disk, in memory, or elsewhere."""

    def create(self, name: str, data: bytes) -> None:
        """Create `name` with `data`; raises FileExistsError when it is already there."""

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one after another from `offset`; zeros fill a hole before it."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end of the file."""

    def size(self, name: str) -> int:
        """The length of the file in bytes."""

    def sync(self, name: str) -> None:
        """Make all bytes written to the file so far durable."""

    def settle(self, name: str, offset: int = 0) -> None:
        """Sync the file and forget its cached pages from `offset` on.

        Reads then return what the medium holds.  After another writer's failed sync, cached pages
        may be clean and yet not on the medium.
        """

    def sync_directory(self) -> None:
        """Make all creations, renames and deletions so far durable."""

    def names(self) -> list[str]:
        """The names of all files."""

    def delete(self, name: str) -> None:
        """Remove the file; raises FileNotFoundError when it is not there."""

    def rename(self, old: str, new: str) -> None:
        """Give the file `old` the name `new`, atomically, replacing what was there."""

    def truncate(self, name: str, size: int) -> None:
        """Cut the file, or extend it with zeros, to `size` bytes."""

    def try_lock(self) -> bool:
        """Take the folder's one advisory lock; False when another holder has it."""

    def unlock(self) -> None:
        """Give the lock back; nothing happens when it is not held here."""

    def close(self) -> None:
        """Release descriptors and the lock; idempotent."""


def publish(
    store: Store, name: str, data: bytes, *, check: Callable[[], None] | None = None
) -> None:
    """Make a whole file appear under `name`, durably: after power loss it is there whole or not.

    Idempotent, so a publication that failed for want of room can simply be repeated.  `check` may
    refuse it at the last moment, when the draft is there.
    """
    draft = name + ".tmp"
    try:
        store.create(draft, data)
    except FileExistsError:
        store.truncate(draft, 0)
        store.write(draft, 0, (data,))
    store.sync(draft)
    if check is not None:
        check()
    store.rename(draft, name)
    store.sync_directory()
