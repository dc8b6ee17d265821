"""One writer's hold on a folder of parts: files appear whole, and only the latest writer's do.

A writer drafts its files in a folder of its own, `.drafts-<token>`, syncs them there, and moves
them into place.  Whoever opens the folder later removes the drafts of all others first and only
then looks how far the files reach.  From then on an earlier writer can neither draft (its folder is
gone) nor move (its draft is gone): it is fenced, also if it slept in between.  What it moved before
is seen by its successor.

The host must open at most one writer per folder that is meant to work: of two that open at the same
moment, both may find themselves fenced.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from rewake.model.errors import Fenced, StorageFault, StorageFull
from rewake.stores import LocalStore

__all__ = ["PartFolder"]

_DRAFTS: Final = ".drafts-"
_ATTEMPTS: Final = 100
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

MakeStore = Callable[[Path], LocalStore]


def _local_store(path: Path) -> LocalStore:
    return LocalStore(path, create=True, private=False)


class PartFolder:
    """A folder into which finished files are moved."""

    def __init__(self, path: Path, make_store: MakeStore = _local_store) -> None:
        self.path = path
        drafts = path / f"{_DRAFTS}{secrets.token_hex(8)}"
        with ExitStack() as stack:
            self._store = make_store(path)
            stack.callback(self._store.close)
            self._drafts = make_store(drafts)
            stack.callback(self._drafts.close)
            for name in self._store.names():
                if name.startswith(_DRAFTS) and name != drafts.name:
                    self._fence(path / name)
            stack.pop_all()  # `close` releases them from now on

    def names(self) -> list[str]:
        """The names of all files."""
        return self._store.names()

    def draft(self, name: str, data: bytes) -> None:
        """Write a file that nobody sees yet, durably."""
        with self._fenced_when_gone():
            try:
                self._drafts.create(name, data)
            except FileExistsError:  # of an attempt that failed for want of room
                self._drafts.delete(name)
                self._drafts.create(name, data)
            self._drafts.sync(name)

    def publish(self, name: str) -> None:
        """Move a draft into place, replacing an equal one; durable after `settle`."""
        with self._fenced_when_gone():
            self._move(self._drafts.path / name, self.path / name)

    def settle(self) -> None:
        """Make what was published durable."""
        self._store.sync_directory()

    def discard(self, name: str) -> None:
        """Remove a file that another one has replaced."""
        with suppress(FileNotFoundError):
            self._store.delete(name)

    def close(self) -> None:
        """Remove the drafts and release the folder; idempotent."""
        self._drafts.close()
        with suppress(OSError, StorageFault):
            self._fence(self._drafts.path)
        self._store.close()

    def _move(self, old: Path, new: Path) -> None:
        try:
            os.rename(old, new)
        except FileNotFoundError:
            raise
        except OSError as error:
            kind = StorageFull if error.errno in _FULL else StorageFault
            raise kind(
                f"cannot move {old.name} into {new.parent}: {error.strerror}; check the disk"
            ) from error

    def _fence(self, drafts: Path) -> None:
        """Remove a folder of drafts although its writer may go on adding to it."""
        for _ in range(_ATTEMPTS):
            try:
                for name in os.listdir(drafts):
                    with suppress(FileNotFoundError):
                        os.unlink(drafts / name)
                os.rmdir(drafts)
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise StorageFault(
                        f"cannot remove {drafts}: {error.strerror}; check its permissions"
                    ) from error
        raise StorageFault(
            f"another process keeps writing to {drafts}; stop it, then open the folder again"
        )

    @contextmanager
    def _fenced_when_gone(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise Fenced(
                f"another writer has opened {self.path} (or removed it): this one is superseded "
                "and has written nothing since"
            ) from error
