"""The parts of a join's state: panes of held tuples, and the marks of sealed panes.

A pane is open from its first tuple until nobody needs its tuples.  It is sealed before that, and
tuples that come then are late; but whether a tuple was late cannot be told when it is replayed,
since the clock of that moment is gone.  So the first late tuple of a pane that is still open leaves
a *mark*, a part without state whose id is that tuple's position: all tuples of the pane from there
on were late.  A mark ends with its pane.

Invariants: the panes of an input are sorted by number, and they end from the lowest on; a mark has
an open pane; a slot is in use iff `opened_at` has an id for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rewake.model.errors import DamagedFrame
from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown
from rewake.operators.kit.slots import SlotPool

# What a part is: a pane of input 0 or 1, or a mark of such a pane.
MARK = 2
KINDS = 4
NEVER = 2**63 - 1


class Slots:
    """Which slots are in use, by which part."""

    def __init__(self) -> None:
        self.opened_at = np.zeros(0, np.int64)
        self.kinds = np.zeros(0, np.int8)
        self.numbers = np.zeros(0, np.int64)
        self._pool = SlotPool(np.zeros(1, np.int64), 0, self._grow)

    @property
    def used(self) -> int:
        """How many parts there are."""
        return self._pool.used

    def take(self, ids: Int64s, kinds: Array | int, numbers: Int64s) -> Int32s:
        """Slots for new parts."""
        slots = self._pool.take(ids.size)
        self.opened_at[slots], self.kinds[slots], self.numbers[slots] = ids, kinds, numbers
        return slots

    def _grow(self, capacity: int) -> None:
        self.opened_at = grown(self.opened_at, capacity, -1)
        self.kinds = grown(self.kinds, capacity)
        self.numbers = grown(self.numbers, capacity)

    def give_back(self, slots: Int32s) -> None:
        """The parts in these slots have ended."""
        self.opened_at[slots] = -1
        self._pool.give_back(slots)


class Panes(NamedTuple):
    """The open panes of one input, by number; without a mark, its slot is -1 and `sealed` NEVER."""

    numbers: Int64s
    slots: Int32s
    marks: Int32s
    sealed: Int64s

    @classmethod
    def none(cls) -> Panes:
        """No panes."""
        longs, shorts = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(longs, shorts, shorts, longs)

    def with_new(self, numbers: Int64s, slots: Int32s) -> Panes:
        """These and others."""
        places = np.searchsorted(self.numbers, numbers)
        return Panes(
            np.insert(self.numbers, places, numbers),
            np.insert(self.slots, places, slots),
            np.insert(self.marks, places, np.int32(-1)),
            np.insert(self.sealed, places, NEVER),
        )

    def places(self, numbers: Int64s) -> Int64s:
        """Where panes of these numbers are, -1 for those that are not open."""
        if self.numbers.size == 0:
            return np.full(numbers.size, -1, np.int64)
        places = np.searchsorted(self.numbers, numbers).astype(np.int64)
        places[places == self.numbers.size] = 0
        return np.where(self.numbers[places] == numbers, places, -1)

    def split(self, number: int) -> tuple[Panes, Panes]:
        """Those below a number, and the others."""
        place = int(np.searchsorted(self.numbers, number))
        return self._cut(slice(place)), self._cut(slice(place, None))

    def _cut(self, which: slice) -> Panes:
        return Panes(self.numbers[which], self.slots[which], self.marks[which], self.sealed[which])

    @property
    def all_slots(self) -> Int32s:
        """Of panes and of marks."""
        return np.concatenate([self.slots, self.marks[self.marks >= 0]])


class JoinParts:
    """The parts of both inputs."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.panes = [Panes.none(), Panes.none()]

    def open_panes(self, side: int, numbers: Int64s, ids: Int64s) -> Int32s:
        """Slots of the panes of these numbers (sorted); those that were not open open now."""
        panes = self.panes[side]
        new = panes.places(numbers) < 0
        if new.any():
            slots = self.slots.take(ids[new], side, numbers[new])
            panes = self.panes[side] = panes.with_new(numbers[new], slots)
        return panes.slots[panes.places(numbers)]

    def mark(self, side: int, numbers: Int64s, positions: Int64s) -> Int32s:
        """Late tuples came for panes of these numbers; slots of the marks that this opened."""
        panes = self.panes[side]
        places = panes.places(numbers)
        new = places >= 0
        new[new] = panes.marks[places[new]] < 0
        slots = self.slots.take(positions[new], MARK + side, numbers[new])
        panes.marks[places[new]] = slots
        panes.sealed[places[new]] = positions[new]
        return slots

    def end(self, side: int, number: int) -> Int32s:
        """End the panes below a number, and their marks; their slots, which are still theirs."""
        ended, self.panes[side] = self.panes[side].split(number)
        return ended.all_slots

    def restore(self, ids: Int64s, kinds: Array, numbers: Int64s) -> Int32s:
        """Take these as the open parts; their slots.  A mark without its pane is damage."""
        slots = self.slots.take(ids, kinds, numbers)
        for side in range(2):
            own = np.flatnonzero(kinds == side)
            own = own[np.argsort(numbers[own], kind="stable")]
            if np.any(numbers[own][1:] == numbers[own][:-1]):
                raise DamagedFrame("a footprint names a pane of a join that is open already")
            self.panes[side] = Panes.none().with_new(numbers[own], slots[own])
            self._restore_marks(side, np.flatnonzero(kinds == MARK + side), ids, numbers, slots)
        return slots

    def _restore_marks(
        self, side: int, own: Array, ids: Int64s, numbers: Int64s, slots: Int32s
    ) -> None:
        panes = self.panes[side]
        places = panes.places(numbers[own])
        if np.any(places < 0) or np.unique(places).size != places.size:
            raise DamagedFrame("a footprint marks a pane of a join that is not open, or twice")
        panes.marks[places] = slots[own]
        panes.sealed[places] = ids[own]
