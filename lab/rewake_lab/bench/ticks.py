"""What the host of a virtual machine takes from its processors, as the system tells it."""

from __future__ import annotations

from typing import NamedTuple, Self

__all__ = ["Ticks"]


class Ticks(NamedTuple):
    """What the host had taken at a time of the wall clock, and all that there was, in ticks.

    Nothing of either where the system does not tell.
    """

    wall_ms: float
    taken: int = 0
    total: int = 0

    @classmethod
    def at(cls, wall_ms: float) -> Self:
        """As it is now, which is `wall_ms`."""
        try:
            with open("/proc/stat", encoding="ascii") as file:
                ticks = [int(each) for each in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return cls(wall_ms)
        return cls(wall_ms, ticks[-1], sum(ticks))

    def stolen_until(self, later: Ticks) -> float:
        """The share of the time from here that the host took."""
        return (later.taken - self.taken) / max(later.total - self.total, 1)
