"""State is its owner's: folders of 0700, files of 0600, made that way, whatever the umask.

State is what a query or an operator keeps for itself: logs, tokens, the coordinator's files, rates,
streams.  What is meant for others (the files of a file sink, reports) goes by the umask.

A folder that holds state and is open to others was made by an older version, or by hand.  It is
put right when it is opened by its owner: the folder, and what we make in it; nothing else there.
"""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

__all__ = [
    "FILE_MODE",
    "FOLDER_MODE",
    "exposed",
    "make_private_folder",
    "private_opener",
    "put_right",
]

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_LOGS: Final = ("LOG", "STRIPE")
# What says that a folder holds state: of a log, a query, an operator, a stream.
_STATE: Final = (*_LOGS, "coordinator.json", "operator.json", "stream.json")
# What we make in the folder of a query, an operator or a stream, beside logs.
_FILES: Final = ("*.json", "*token*", "lock", "told")
_FOLDERS: Final = (
    "nodes", "origins", "rates", "recoveries", "faults", "hosts", "shard-*", "staging",
)  # fmt: skip

_log = logging.getLogger("rewake.stores")


def make_private_folder(path: Path) -> None:
    """Make the folder, and those above it that are missing, for this user alone.

    One that is there already and empty becomes so, too: it was made for this.
    """
    if path.is_dir() and _is_open(path) and not os.listdir(path):
        with suppress(OSError):
            path.chmod(FOLDER_MODE)
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        try:
            each.mkdir(FOLDER_MODE)
        except FileExistsError:
            if not each.is_dir():
                raise


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: a file that is made is for this user alone."""
    return os.open(path, flags, FILE_MODE)


def exposed(folder: Path) -> list[Path]:
    """What of this user's state in a folder others can reach by its mode; outermost first."""
    return [each for each in _ours(folder) if _is_open(each)]


def put_right(folder: Path) -> None:
    """Keep others out of the state in a folder, if it is this user's and open to them."""
    # What an outer folder keeps from others need not be looked at, file by file, at each opening.
    if not _is_open(folder):
        return
    changed = 0
    for each in exposed(folder):
        with suppress(OSError):
            each.chmod(FOLDER_MODE if each.is_dir() else FILE_MODE)
            changed += 1
    if changed:
        _log.warning("others could read state in %s: %d modes were put right", folder, changed)


def _is_open(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        return False
    # A sticky folder (/tmp) is shared on purpose.
    shared = bool(found.st_mode & stat.S_ISVTX)
    return bool(found.st_mode & _OTHERS) and found.st_uid == os.geteuid() and not shared


def _ours(folder: Path) -> Iterator[Path]:
    """The folder, if it holds state, and what of it is state."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    if not any(name in names for name in _STATE):
        return
    yield folder
    is_log = any(name in names for name in _LOGS)
    for name in names:
        path = folder / name
        if path.is_symlink():
            continue
        if path.is_dir() and any(fnmatch(name, pattern) for pattern in _FOLDERS):
            yield from _all_below(path)
        elif path.is_file() and (is_log or any(fnmatch(name, pattern) for pattern in _FILES)):
            yield path


def _all_below(folder: Path) -> Iterator[Path]:
    yield folder
    for where, folders, files in os.walk(folder):
        yield from (Path(where) / each for each in (*folders, *files))
