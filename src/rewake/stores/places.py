"""What a user gives as a folder or a file, as a path of this machine; anything else is refused.

A path is a path.  `file:///a/b` and `file:/a/b` are `/a/b`.  Every other scheme (s3a:, hdfs:,
dbfs:, https:, ...) is refused in words: taken for a path it would be a folder of that name under
the current one, on one machine, and nobody would know.
"""

import os
import re
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

from rewake.model.errors import UsageError

__all__ = ["PathLike", "local_path", "refuse_foreign"]

PathLike: TypeAlias = str | os.PathLike[str]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
# What is left of a URL once it has been made a path: `s3a://bucket` became `s3a:/bucket`.
_COLLAPSED: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(/|\Z)")
_FILE: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.DOTALL | re.IGNORECASE)


# How the names of files begin or end that are nobody's: drafts, and what systems leave behind.
_NOBODYS: Final = (".tmp", ".crc")


def refuse_foreign(folder: Path, own: frozenset[str], what: str) -> None:
    """Raise UsageError when files lie in a folder that whoever makes `what` there does not make.

    Mixed with state, they could not be read any more, and who removes either takes both.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except FileNotFoundError:
        return
    foreign = [
        name
        for name in names
        if name not in own and not name.startswith(".") and not name.endswith(_NOBODYS)
    ]
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise UsageError(
            f"{folder} holds other files ({', '.join(foreign[:3])}{more}) and is not {what}; give "
            "a folder of its own, new or empty"
        )


def local_path(given: PathLike) -> Path:
    """The path of this machine that is meant; UsageError for one that is not of this machine."""
    if isinstance(given, bytes) or not isinstance(given, str | os.PathLike):
        raise UsageError(f"{given!r} is no path; give a string or a pathlib.Path")
    text = os.fspath(given).strip() if isinstance(given, str) else os.fspath(given)
    if not text:
        raise UsageError("the path is empty; write . for the current folder")
    found = (_SCHEME if isinstance(given, str) else _COLLAPSED).match(text)
    if found is None:
        path = Path(text)
        # `./a:b` is a path, and must stay one when it is looked at again without its dot.
        return path.absolute() if _SCHEME.match(str(path)) else path
    scheme = found[1].lower()
    of_file = _FILE.fullmatch(text) if scheme == "file" else None
    if of_file is not None:
        return Path(unquote(of_file[1]))
    if scheme == "file":
        raise UsageError(f"{given!s} names no file of this machine; write file:///absolute/path")
    raise UsageError(
        f"{given!s} is on {scheme}:, and only local or mounted file systems are supported: mount "
        "it, and give the path that all machines of the query see, or a file:/// URL. (A local "
        f"name with a colon is written ./{text}, or as an absolute path.)"
    )
