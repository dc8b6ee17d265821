"""Whether a full disk has room again."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["has_room"]

# What the beginning of an attempt writes: a claim, the header of a segment, marks.
_ENOUGH_BYTES: Final = 64 << 10


def has_room(folder: Path) -> bool:
    """Try, beside the folder: what a file system says of its space knows of no quota."""
    path = folder.parent / f".{folder.name}.room"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(bytes(_ENOUGH_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        with suppress(OSError):
            path.unlink()
    return True
