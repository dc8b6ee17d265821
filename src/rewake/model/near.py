"""What a user may have meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

__all__ = ["did_you_mean", "no_column"]


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Words to add to an error, "; did you mean 'price'?", or none; case does not matter."""
    known = {each.lower(): each for each in names}
    near = get_close_matches(str(name).lower(), list(known), 1, 0.5)
    return f"; did you mean {known[near[0]]!r}?" if near else ""


def no_column(name: str, names: list[str], places: Sequence[int] = ()) -> str:
    """Words for an error about a column that is not there: a near name, and all there are."""
    if places:
        return f"there are {len(places)} columns named {name!r}; rename all but one upstream"
    given: object = name  # by callers whose types nobody checks
    if not isinstance(given, str):
        return f"the name of a column is text, not {name!r}; columns: {', '.join(names) or 'none'}"
    hint = did_you_mean(name, names) or ";"
    return f"no column {name!r}{hint} columns: {', '.join(names) or 'none'}"
