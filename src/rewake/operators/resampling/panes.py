"""The panes of a resample: stretches of time of one input, the parts that leave footprints.

A pane's mark is twice its number, plus the port of its input.  Its slot is an id of a table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import TIME_LIMIT
from rewake.operators.columns.arrays import Int32s, Int64s, grown
from rewake.operators.columns.key_tables import IntegerTable

__all__ = ["Panes", "Touched"]


class Touched(NamedTuple):
    """The slots of a stream event's tuples, and which of them opened with it."""

    slots: Int32s
    opened: Int32s


class Panes:
    """Open panes of `size` units of time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._table = IntegerTable()
        # By slot: the position of the tuple that opened it (-1: none), and its mark.
        self.ids = np.full(1, -1, np.int64)
        self.marks = np.zeros(1, np.int64)
        self.open_parts = 0

    def marks_of(self, times: Int64s, port: int) -> Int64s:
        """The marks of the panes that tuples belong to."""
        return 2 * (times // self._size) + port

    def find(self, marks: Int64s) -> Int32s:
        """Slots of panes, -1 for those that are not open."""
        return self._table.find(marks)

    def open(self, marks: Int64s, positions: Int64s) -> Touched:
        """The slots of tuples at these positions; panes that are not open are opened."""
        known = self._table.size
        slots = self._table.intern(marks)
        if self._table.size == known:
            return Touched(slots, np.zeros(0, np.int32))
        self._ensure()
        fresh = np.flatnonzero(self.ids[slots] < 0)
        _, first = np.unique(slots[fresh], return_index=True)
        opening = fresh[np.sort(first)]
        opened = slots[opening]
        self.ids[opened] = positions[opening]
        self.marks[opened] = marks[opening]
        self.open_parts += opened.size
        return Touched(slots, opened)

    def _ensure(self) -> None:
        limit = self._table.id_limit
        self.ids = grown(self.ids, limit, -1)
        self.marks = grown(self.marks, limit)

    def end(self, horizons: tuple[int, int]) -> Int64s:
        """End the panes that lie before the horizon of their port; their ids."""
        slots = np.flatnonzero(self.ids >= 0)
        last = (self.marks[slots] // 2 + 1) * self._size - 1
        over = last < np.where(self.marks[slots] % 2, horizons[1], horizons[0])
        slots = slots[over]
        if not slots.size:
            return np.zeros(0, np.int64)
        ids = self.ids[slots]
        self.ids[slots] = -1
        self.open_parts -= slots.size
        self._table.keep(self.ids[: self._table.id_limit] >= 0)
        return ids

    def restore(self, ids: Int64s, marks: Int64s) -> Int32s:
        """Open panes of a log; their slots."""
        most = TIME_LIMIT // self._size + 1
        numbers = marks // 2
        if np.any((numbers > most) | (numbers < -most)):
            raise DamagedFrame("the log has a pane beyond all times")
        slots = self._table.intern(marks)
        if self._table.size != marks.size:
            raise DamagedFrame("the log has two footprints of one pane")
        self._ensure()
        self.ids[slots] = ids
        self.marks[slots] = marks
        self.open_parts = ids.size
        return slots
