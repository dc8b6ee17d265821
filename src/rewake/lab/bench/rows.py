"""What a benchmark reports, and how two things are measured side by side.

Absolute times are noise on a shared machine.  Contenders take turns in short rounds, and a ratio is
the median over the rounds of the ratio within a round, so that a slow minute hurts both alike.

What always holds: a benchmark that is interrupted keeps the rows of the parts that are complete,
and says which parts are missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rewake.lab.drill.kept import Course

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.  `target` reads like ">= 15"; a row without one is for information."""

    name: str
    value: float
    unit: str
    target: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the value meets the target; None without one."""
        if not self.target:
            return None
        relation, limit = self.target.split()
        return {
            ">=": self.value >= float(limit),
            "<=": self.value <= float(limit),
            "<": self.value < float(limit),
        }[relation]

    def as_json(self) -> dict[str, Any]:
        """The row for a program."""
        return asdict(self) | {"value": float(f"{self.value:.4g}"), "met": self.met}


Part = tuple[str, Callable[[], list[Row]]]


class Shown(NamedTuple):
    """A run that a page shows over time, and words that say which one it is."""

    words: str
    course: Course


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, and, of a benchmark that was interrupted, what was not."""

    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    shown: Shown | None = None


def measure(parts: Sequence[Part], progress: Progress, before: Measured | None = None) -> Measured:
    """Measure part by part, behind those of `before`.

    Ctrl-C ends it early: the rows of the parts that are complete are kept, and of those that come
    behind an interrupted one nothing is begun.
    """
    rows = [] if before is None else list(before.rows)
    missing = [] if before is None else list(before.missing)
    for name, part in parts:
        if not missing:
            progress(name)
            try:
                rows += part()
                continue
            except KeyboardInterrupt:
                pass
        missing.append(name)
    return Measured(rows, missing)


def alternate(contenders: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Seconds of each contender in each round; who goes first changes from round to round."""
    seconds: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds):
        places = list(range(len(contenders)))
        if number % 2:
            places.reverse()
        for place in places:
            seconds[place].append(contenders[place]())
    return seconds


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios within rounds."""
    pairs = zip(numerators, denominators, strict=True)
    return statistics.median(above / below for above, below in pairs)
