"""Durations as people write them ("10s", "250ms") in the integer unit of a time column.

Also as Spark writes them: "10 minutes", "1 hour 30 minutes".  Months and years are none: they are
not always as long.
"""

from __future__ import annotations

import re

from rewake.model.errors import InvalidWindow, UsageError

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
# In words, of either number and in any letters, as Spark takes them.
_IN_WORDS = {
    "nanosecond": 1,
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
    "week": 7 * 86400 * 10**9,
}
_TERM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_DURATION = re.compile(rf"(?:{_TERM.pattern})+")


def duration_ns(text: str) -> int:
    """Nanoseconds of a duration such as "1.5s"; raises `InvalidWindow` for anything else."""
    given: object = text  # by callers whose types nobody checks
    if not isinstance(given, str) or _DURATION.fullmatch(given) is None:
        raise _no_duration(given)
    return sum(_term_ns(text, *match.groups()) for match in _TERM.finditer(text))


def _term_ns(text: str, number: str, unit: str) -> int:
    scale = _NANOSECONDS.get(unit) or _IN_WORDS.get(unit.lower().removesuffix("s"))
    if scale is None:
        raise _no_duration(text)
    whole, _, fraction = number.partition(".")
    # Integer arithmetic: a float would misplace window borders for large units.
    parts: int = int(fraction or 0) * scale // 10 ** len(fraction)
    return int(whole) * scale + parts


def _no_duration(given: object) -> InvalidWindow:
    return InvalidWindow(
        f"{given!r} is not a duration; write a number and one of {', '.join(_NANOSECONDS)}, "
        'for example "10s" or "250ms", or in words: "10 minutes", "1 hour 30 minutes"'
    )


def check_duration(what: str, duration: str | int) -> None:
    """Refuse what is no duration in whatever unit: text, or a whole number in the column's."""
    given: object = duration
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise InvalidWindow(
            f'{what} is a duration such as "10s" or "10 minutes", or a whole number in the unit '
            f"of the time column, not {given!r}"
        )
    if (duration_ns(given) if isinstance(given, str) else given) <= 0:
        raise InvalidWindow(f"{what} must be longer than nothing, not {given!r}")


def duration_in_unit(duration: str | int, unit_ns: int) -> int:
    """A duration in the unit of a time column; an integer is taken to be in that unit already."""
    if isinstance(duration, bool):
        raise _no_duration(duration)
    if isinstance(duration, int):
        return duration
    nanoseconds = duration_ns(duration)
    if nanoseconds % unit_ns:
        raise InvalidWindow(
            f"{duration!r} is not a whole number of the time column's units ({unit_ns} ns each); "
            "use a longer duration or a finer time column"
        )
    return nanoseconds // unit_ns


def share(value: str | float) -> float:
    """A share such as "5%" or 0.05; raises `UsageError` for anything else."""
    try:
        if isinstance(value, str):
            number = value.strip()
            return float(number[:-1]) / 100 if number.endswith("%") else float(number)
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f'{value!r} is not a share; write for example "5%" or 0.05') from None
