"""What callers give whose types nobody checks: shown in errors at bearable length, and checked.

A wrong value is said to be wrong where it is given, with its type; one that is a million tuples
long is not repeated.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from reprlib import Repr
from typing import Any, Final

from rewake.model.errors import UsageError

__all__ = ["batches_of", "check_flag", "check_number", "check_whole", "shown"]

_MOST_CHARACTERS: Final = 80


def shown(value: object) -> str:
    """A value for a message, on one line and not long."""
    brief = Repr()
    brief.maxstring = brief.maxother = brief.maxlong = _MOST_CHARACTERS
    text = " ".join(brief.repr(value).split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def check_flag(what: str, value: object) -> None:
    """Refuse what is not a truth value: "no" would be true."""
    if not isinstance(value, bool):
        raise UsageError(f"{what} is True or False, not {shown(value)}")


def check_whole(what: str, value: object) -> None:
    """Refuse what is not a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{what} is a whole number, such as 1000, not {shown(value)}")


def check_number(what: str, value: object) -> None:
    """Refuse what is not a number that can be reckoned with."""
    finite = isinstance(value, Integral) or (isinstance(value, Real) and math.isfinite(value))
    if isinstance(value, bool) or not finite:
        raise UsageError(f"{what} is a number, such as 0.5, not {shown(value)}")


def batches_of(value: Any) -> str:
    """How rows at hand are made a source, for what was given in its place; "" if it is no rows."""
    module = type(value).__module__.partition(".")[0]
    if module == "pyarrow":
        return "rewake.Batches(table)"
    if module == "pandas":
        return "rewake.Batches(pa.Table.from_pandas(frame))"
    if module == "polars":
        return "rewake.Batches(frame.to_arrow())"
    if isinstance(value, dict):
        return "rewake.Batches(pa.table(columns))"
    if isinstance(value, list | tuple) and value:
        several = type(value[0]).__module__.partition(".")[0] == "pyarrow"
        made = "pa.concat_tables(tables)" if several else "pa.Table.from_pylist(rows)"
        return f"rewake.Batches({made})"
    return ""
