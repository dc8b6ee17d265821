"""Small files that are replaced as a whole: JSON that a person can read, with a checksum.

    {"crc32c": "89abcdef", "body": {...}}

The checksum is over the body without spaces and with its keys sorted, so that whoever only laid it
out anew has not changed it.
"""

import json
from typing import Any

from google_crc32c import value as crc32c

from rewake.model.errors import DamagedData

__all__ = ["sealed", "unsealed"]


def sealed(body: dict[str, Any], *, compact: bool = False) -> bytes:
    """The bytes of the file; `compact` for a long one, which nobody reads and which costs time."""
    whole = {"crc32c": _checksum(body), "body": body}
    if compact:
        return json.dumps(whole, separators=(",", ":"), sort_keys=True).encode()
    return json.dumps(whole, indent=1, sort_keys=True).encode()


def unsealed(data: bytes, name: str, remedy: str) -> dict[str, Any]:
    """What was sealed; `DamagedData`, which says what to do, when it is not as it was written."""
    try:
        whole = json.loads(data)
        body = whole["body"]
        if type(body) is not dict:
            raise TypeError("its body is no object")
        if whole["crc32c"] != _checksum(body):
            raise ValueError("it fails its checksum")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedData(f"{name} is damaged ({reason}); {remedy}") from error
    return dict(body)


def _checksum(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f"{crc32c(text.encode()):08x}"
