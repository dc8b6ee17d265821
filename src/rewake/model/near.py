"""What a user may have meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Words to add to an error, "; did you mean 'price'?", or none; case does not matter."""
    known = {each.lower(): each for each in names}
    near = get_close_matches(str(name).lower(), list(known), 1, 0.5)
    return f"; did you mean {known[near[0]]!r}?" if near else ""
