"""Small files that appear whole: written beside their place, under a name of the writer's own.

Whoever reads sees what was there before or all of the new content, and two writers at once do not
meet in one draft.  For files of a store that others may look into as well there is
`rewake.log.store.publish`.  Errors are those of the system: the caller says what they mean.

With `rewake.stores.local`, the only places that sync.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from rewake.stores.private import private_opener

__all__ = ["create_file", "has_room", "replace_file", "sync_folder", "synced_file"]

# What the beginning of an attempt writes: a claim, the header of a segment, marks.
_ENOUGH_BYTES: Final = 64 << 10


def replace_file(path: Path, data: bytes, *, durable: bool = True, private: bool = True) -> None:
    """Put a file in its place, whatever was there; `durable` also after power loss."""
    with _drafted(path, data, durable=durable, private=private) as draft:
        os.replace(draft, path)
    if durable:
        sync_folder(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """Put a file in its place, durably, unless there is one: the first to come has it."""
    with _drafted(path, data) as draft, suppress(FileExistsError):
        os.link(draft, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def has_room(folder: Path) -> bool:
    """Whether a full disk has room again, tried beside the folder.

    What a file system says of its space knows of no quota.
    """
    path = folder.parent / f".{folder.name}.room"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with synced_file(path) as file:
            file.write(bytes(_ENOUGH_BYTES))
    except OSError:
        return False
    finally:
        with suppress(OSError):
            path.unlink()
    return True


@contextmanager
def synced_file(path: Path, *, durable: bool = True, private: bool = True) -> Iterator[BinaryIO]:
    """A file to write, whose bytes are durable when the block ends; its name need not be."""
    with open(path, "wb", opener=private_opener if private else None) as file:
        yield file
        file.flush()
        if durable:
            os.fsync(file.fileno())


@contextmanager
def _drafted(
    path: Path, data: bytes, *, durable: bool = True, private: bool = True
) -> Iterator[Path]:
    """A draft, for this user alone if it is `private`, which is gone afterwards."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with synced_file(draft, durable=durable, private=private) as file:
            file.write(data)
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
