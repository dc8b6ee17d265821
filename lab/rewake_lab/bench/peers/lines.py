"""What a contender says on standard output, a line at a time; all else that it prints is ignored.

    @ready                               it runs; its source waits for the gun, if it is paced
    @rows 1200000 1700000000123.4        so many rows were taken in since it started, at that time
    @rows/1 1200000 1700000000123.4      the same of one of several processes: their rows add up
    @results 1700000000123.4 7,1700000000000010,41.5 8,...
                                         results came out at that time (milliseconds): item, when
                                         (microseconds of event time), average

"When" is the time of the result's last tuple; of a time window, where it starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rewake.model.errors import OperatingFault


class Result(NamedTuple):
    """One result of a watched item."""

    item: int
    when_us: int
    average: float


@dataclass(frozen=True, slots=True)
class Ready:
    """It runs."""


@dataclass(frozen=True, slots=True)
class Rows:
    """So many rows have been taken in."""

    rows: int
    at_ms: float
    part: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """These came out together."""

    at_ms: float
    results: tuple[Result, ...]


Line = Ready | Rows | Results


def parsed(line: str) -> Line | None:
    """What a line says; None for one that is not meant for us."""
    if not line.startswith("@"):
        return None
    kind, *words = line.split()
    try:
        if kind == "@ready":
            return Ready()
        if kind.startswith("@rows"):
            return Rows(int(words[0]), float(words[1]), kind.partition("/")[2])
        if kind == "@results":
            return Results(float(words[0]), tuple(map(_result, words[1:])))
    except (ValueError, IndexError) as error:
        raise OperatingFault(
            f"a contender said {line[:200]!r}, which is no line: {error}"
        ) from None
    return None


def _result(word: str) -> Result:
    item, when, average = word.split(",")
    return Result(int(item), int(when), float(average))


def rows_line(rows: int, at_ms: float) -> str:
    """For a program."""
    return f"@rows {rows} {at_ms:.1f}"


def results_line(results: Iterable[Result], at_ms: float) -> str:
    """For a program."""
    words = " ".join(f"{item},{when},{average!r}" for item, when, average in results)
    return f"@results {at_ms:.1f} {words}"
