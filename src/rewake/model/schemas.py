"""What tells two schemas apart, in words."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["difference"]


def difference(first: pa.Schema, second: pa.Schema, one: str, other: str) -> str:
    """How the columns of `one` and `other` differ; nothing when they are the same.

    Names, order and types count: bytes are read by them.
    """
    if first.names != second.names:
        return (
            f"{one} has columns {', '.join(first.names)}, but {other} has {', '.join(second.names)}"
        )
    for here, there in zip(first, second, strict=True):
        if here.type != there.type:
            return f"column {here.name!r} is {here.type} in {one}, but {there.type} in {other}"
    return ""
