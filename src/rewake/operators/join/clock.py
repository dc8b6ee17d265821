"""The event-time clock of a join, and what it says of panes.

Event time is cut into panes of the width of the join's window: pane `p` is `[p * w, (p + 1) * w)`.
A tuple's partners are in its own pane or in a neighbouring one.  The clock is a watermark, or the
largest time seen minus the slack on the input that is behind, if that is further.  It moves with
every tuple, so what is late does not depend on how tuples were cut into stream events.

When the clock reaches the end of a pane, the pane is *sealed*: its further tuples are late.  One
width later it is *decided*: its neighbours are sealed, too, so none of its tuples will meet another
partner.
"""

from __future__ import annotations

import numpy as np

from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.columns.arrays import Array, Int64s
from rewake.operators.columns.values import clamped
from rewake.operators.windows.specs import Slack

# By how many widths the clock is behind a pane's start when the pane is sealed and decided, and
# when nobody needs it any more to find out who had met a partner.
SEALED, DECIDED, UNNEEDED = 1, 2, 3


class JoinClock:
    """`now`, and how far each of the two inputs has come."""

    def __init__(self, within: int, slack: Slack) -> None:
        self._within = within
        self._slack, self._behind = slack
        self.now = NO_TIME
        self._reached = [NO_TIME, NO_TIME]

    def panes(self, times: Int64s) -> Int64s:
        """The panes of times."""
        numbers: Int64s = times // self._within
        return numbers

    def start(self, pane: int) -> int:
        """The first time of a pane, or the last time there is."""
        return min(pane * self._within, TIME_LIMIT)

    def readings(self, side: int, times: Int64s) -> Int64s:
        """What the clock would show at each of these tuples of an input."""
        reached: Int64s = np.maximum.accumulate(times) - self._slack
        np.maximum(reached, self._reached[side], out=reached)
        np.minimum(reached, self._reached[1 - side], out=reached)
        np.maximum(reached, self.now, out=reached)
        return reached

    def advance(self, side: int, times: Int64s, watermark: int | None) -> None:
        """Take over these tuples of an input, and the watermark behind them."""
        if times.size:
            self._reached[side] = max(self._reached[side], int(times.max()) - self._slack)
        self.now = max(self.now, min(self._reached), clamped(watermark, self._behind))
        self._reached = [max(reached, self.now) for reached in self._reached]

    def border(self, widths: int, clock: int) -> int:
        """At this clock, all panes below this one are past by so many widths."""
        if clock >= TIME_LIMIT:
            return TIME_LIMIT
        return max(clock, -TIME_LIMIT) // self._within - widths + 1

    def sealed(self, panes: Int64s, readings: Int64s) -> Array:
        """Whether these panes were sealed at these readings."""
        borders = np.maximum(readings, -TIME_LIMIT) // self._within
        flags: Array = (panes < borders) | (readings >= TIME_LIMIT)
        return flags

    def reached_at(self, widths: int, panes: Int64s, readings: Int64s) -> Int64s:
        """The first of some readings at which panes were past by so many widths."""
        borders = np.minimum((panes + widths) * self._within, TIME_LIMIT)
        return np.searchsorted(readings, borders).astype(np.int64)
