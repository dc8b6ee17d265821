"""What a benchmark reports, and how two things are measured side by side.

Absolute times are noise on a shared machine.  Contenders take turns in short rounds, and a ratio is
the median over the rounds of the ratio within a round, so that a slow minute hurts both alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
