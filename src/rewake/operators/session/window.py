"""Session windows: tuples of a key that follow each other closely enough in event time."""

from __future__ import annotations

from dataclasses import dataclass

from rewake.model.errors import InvalidWindow
from rewake.model.units import check_duration, duration_in_unit
from rewake.operators.windows.specs import check_reach


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Windows of tuples each closer than `gap` to another, in the time column's unit."""

    gap: str | int

    def __post_init__(self) -> None:
        check_duration("the gap of sessions", self.gap)

    def in_unit(self, unit_ns: int) -> int:
        """The gap as an integer in the time column's unit."""
        gap = duration_in_unit(self.gap, unit_ns)
        if isinstance(gap, bool) or gap <= 0:
            raise InvalidWindow(f"the gap of sessions must be longer than nothing, not {gap!r}")
        check_reach("the gap of sessions", gap)
        return gap


def session_window(gap: str | int) -> SessionWindow:
    """Windows of tuples of a key with less than `gap` between them: `session_window("30s")`."""
    return SessionWindow(gap)
