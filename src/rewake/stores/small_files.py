"""Small files that appear whole: written beside their place, under a name of the writer's own.

Whoever reads sees what was there before or all of the new content, and two writers at once do not
meet in one draft.  For files of a store that others may look into as well there is
`rewake.log.store.publish`.  Errors are those of the system: the caller says what they mean.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rewake.stores.private import private_opener

__all__ = ["create_file", "replace_file", "sync_folder"]


def replace_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put a file in its place, whatever was there; `durable` also after power loss."""
    with _drafted(path, data, durable=durable) as draft:
        os.replace(draft, path)
    if durable:
        sync_folder(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """Put a file in its place, durably, unless there is one: the first to come has it."""
    with _drafted(path, data, durable=True) as draft, suppress(FileExistsError):
        os.link(draft, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _drafted(path: Path, data: bytes, *, durable: bool) -> Iterator[Path]:
    """A draft for this user alone, which is gone afterwards."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(draft, "xb", opener=private_opener) as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
