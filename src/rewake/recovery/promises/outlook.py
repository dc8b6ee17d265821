"""What a crash would cost as things stand, beside what was promised."""

from __future__ import annotations

from typing import NamedTuple


class Outlook(NamedTuple):
    """What a crash now would cost, in ms, beside the target; without `advice` all is well.

    `at_worst_ms` is what it will hardly exceed: that is what is kept under the target.
    """

    predicted_ms: float
    at_worst_ms: float
    target_ms: float
    best_ms: float
    checks: int
    advice: str = ""

    @property
    def margin_ms(self) -> float:
        """How much sooner than promised."""
        return self.target_ms - self.predicted_ms

    def figures(self) -> dict[str, float]:
        """For people, by name."""
        return {
            "predicted_ms": self.predicted_ms,
            "at_worst_ms": self.at_worst_ms,
            "target_ms": self.target_ms,
            "margin_ms": self.margin_ms,
            "best_ms": self.best_ms,
        }
