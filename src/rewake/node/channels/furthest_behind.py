"""Who of many is furthest behind in time, without looking at all of them at every step.

What always holds: `least` is the least watermark of those who have not ended, `running` is how many
these are.  A step costs the logarithm of their number, on average: every name has one entry in a
heap, at a time that it has reached; an entry that was overtaken is moved only once it is on top.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import NamedTuple, Protocol

__all__ = ["FurthestBehind"]


class Reached(Protocol):
    """How far somebody has come."""

    @property
    def watermark(self) -> int:
        """In time."""

    @property
    def ended(self) -> bool:
        """Whether no time of it will come."""


class _Entry(NamedTuple):
    watermark: int
    name: str


class FurthestBehind:
    """The watermarks of those in `reached`, which its owner changes and tells of by `moved`."""

    def __init__(self, reached: Mapping[str, Reached]) -> None:
        self._reached = reached
        self._entries: list[_Entry] = []
        self.running = 0
        self._look_at_all()

    @property
    def least(self) -> int | None:
        """The least watermark; None when nobody is left."""
        return self._entries[0].watermark if self._entries else None

    def moved(self, name: str, before: Reached | None) -> None:
        """`name` is where `reached` says now, and was at `before`; None: it was not there."""
        now = self._reached[name]
        if before is None and not now.ended:
            self.running += 1
            heapq.heappush(self._entries, _Entry(now.watermark, name))
        elif before is not None and (before.ended, before.watermark) > (now.ended, now.watermark):
            self._look_at_all()  # it begins again
        elif before is not None and now.ended and not before.ended:
            self.running -= 1
        self._settle()

    def _settle(self) -> None:
        """Let the entry on top be one that is true."""
        while self._entries:
            at, name = self._entries[0]
            now = self._reached[name]
            if now.ended:
                heapq.heappop(self._entries)
            elif now.watermark > at:
                heapq.heapreplace(self._entries, _Entry(now.watermark, name))
            else:
                return

    def _look_at_all(self) -> None:
        self._entries = _entries(self._reached)
        heapq.heapify(self._entries)
        self.running = len(self._entries)

    def check_invariants(self) -> None:
        """What is kept equals what looking at all of them gives."""
        true = _entries(self._reached)
        assert self.running == len(true), "another number of them has ended"
        assert self.least == min((each.watermark for each in true), default=None), "another time"
        names = [each.name for each in self._entries]
        assert len(set(names)) == len(names), "a name has two entries"
        assert {each.name for each in true} <= set(names), "a name has no entry"


def _entries(reached: Mapping[str, Reached]) -> list[_Entry]:
    return [_Entry(each.watermark, name) for name, each in reached.items() if not each.ended]
