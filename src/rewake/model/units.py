"""Durations as people write them ("10s", "250ms") in the integer unit of a time column."""

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
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def duration_ns(text: str) -> int:
    """Nanoseconds of a duration such as "1.5s"; raises `InvalidWindow` for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in _NANOSECONDS:
        raise InvalidWindow(
            f"{text!r} is not a duration; write a number and one of {', '.join(_NANOSECONDS)}, "
            'for example "10s" or "250ms"'
        )
    whole, _, fraction = match[1].partition(".")
    scale = _NANOSECONDS[match[2]]
    # Integer arithmetic: a float would misplace window borders for large units.
    parts: int = int(fraction or 0) * scale // 10 ** len(fraction)
    return int(whole) * scale + parts


def duration_in_unit(duration: str | int, unit_ns: int) -> int:
    """A duration in the unit of a time column; an integer is taken to be in that unit already."""
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
