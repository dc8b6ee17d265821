"""What a benchmark reports, and how two things are measured side by side.

Absolute times are noise on a shared machine.  Contenders take turns in short rounds, and a ratio is
the median over the rounds of the ratio within a round, so that a slow minute hurts both alike.

What always holds: a benchmark that is interrupted, or in which a part fails, keeps the rows of the
parts that are complete, and says which parts are missing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rewake.model.errors import OperatingFault

if TYPE_CHECKING:
    from rewake.drill.kept import Course

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
    """What was measured; and what was not: `missing` by an interruption, `failed` by itself."""

    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    shown: Shown | None = None


def measure(parts: Sequence[Part], progress: Progress, before: Measured | None = None) -> Measured:
    """Measure part by part, behind those of `before`.

    Ctrl-C ends it early: the rows of the parts that are complete are kept, and of those that come
    behind an interrupted one nothing is begun.  A part that fails leaves its reason, and the others
    go on.
    """
    before = before or Measured()
    rows, missing, failed = list(before.rows), list(before.missing), list(before.failed)
    for name, part in parts:
        if missing:
            missing.append(name)
            continue
        progress(name)
        try:
            rows += part()
        except KeyboardInterrupt:
            missing.append(name)
        except OperatingFault as error:
            failed.append(f"{name}: {error}")
    return Measured(rows, missing, failed)


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


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the true median lies with 95% confidence, by ranks; all of few values' range."""
    ordered = sorted(values)
    reach = math.ceil(0.98 * math.sqrt(len(ordered)))
    middle = (len(ordered) - 1) / 2
    low, high = math.floor(middle - reach), math.ceil(middle + reach)
    return ordered[max(low, 0)], ordered[min(high, len(ordered) - 1)]
