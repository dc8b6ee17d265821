"""Names that become file names: one small alphabet, so that none can leave its folder."""

import re
from typing import Final

from rewake.model.errors import InvalidName

__all__ = ["MAX_NAME_LENGTH", "checked_name"]

MAX_NAME_LENGTH: Final = 200

# \Z, not $: the latter also matches before a final newline.
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}\Z")


def checked_name(name: str) -> str:
    """Return `name` if it is safe as a file name; raise InvalidName otherwise."""
    if isinstance(name, str) and _NAME.match(name):
        return name
    raise InvalidName(
        f"{name!r} is no valid name; use 1 to {MAX_NAME_LENGTH} of A-Z a-z 0-9 . _ - and do not "
        "begin with a dot"
    )
