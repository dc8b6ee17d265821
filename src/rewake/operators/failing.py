"""Finding what a user's function fails for: it is called again on halves, until one is left."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["first_failing"]


def first_failing(call: Callable[[int, int], object], count: int) -> tuple[int, Exception] | None:
    """The first of `count` things that a call with (start, end) fails for, and how it fails.

    None where it fails for several together and for none of them alone.
    """
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        if _failure(call, start, middle) is not None:
            end = middle
        elif _failure(call, middle, end) is not None:
            start = middle
        else:
            return None
    error = _failure(call, start, end) if count else None
    return None if error is None else (start, error)


def _failure(call: Callable[[int, int], object], start: int, end: int) -> Exception | None:
    try:
        call(start, end)
    except Exception as error:
        return error
    return None
