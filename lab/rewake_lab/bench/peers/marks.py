"""When how much had been taken in and written, and which stretch of that is fair to measure.

Some work in fits and starts: Spark batch by batch, Bytewax from snapshot to snapshot.  Between the
end of a fit and the end of the pause after it lie no rows and much time.  What always holds: a fair
stretch begins and ends at the same point of such a cycle, just after a pause.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from rewake_lab.bench.peers.lines import Rows
from rewake_lab.bench.peers.written import Timeline

_APART_MS: Final = 400.0
_PAUSE_MS: Final = 900.0


class Mark(NamedTuple):
    """So many rows, and so many bytes for fault tolerance, by then."""

    at_ms: float
    rows: int
    written: int


class Marks:
    """Marks in the order of time, over all parts of a program; not too many."""

    def __init__(self, written: Timeline) -> None:
        self._written = written
        self._parts: dict[str, int] = {}
        self._marks: list[Mark] = []

    def hear(self, line: Rows) -> None:
        """Take note of rows, and of how much was written by then."""
        self._parts[line.part] = line.rows
        if not self._marks or line.at_ms - self._marks[-1].at_ms >= _APART_MS:
            rows = sum(self._parts.values())
            self._marks.append(Mark(line.at_ms, rows, self._written.bytes_at(line.at_ms)))

    def stretch(self, *, fair: bool = True) -> tuple[Mark, Mark] | None:
        """The longest stretch that is fair, or if need be any; None without one."""
        resumed = [
            later for earlier, later in pairwise(self._marks)
            if later.at_ms - earlier.at_ms > _PAUSE_MS
        ]  # fmt: skip
        marks = resumed if resumed and (fair or len(resumed) > 1) else self._marks
        return (marks[0], marks[-1]) if len(marks) > 1 else None
