"""The buffers of a sort as tables: what the kernels of `sorting_kernels` work on.

Without keys there is one buffer, and a part is a block of positions: those of which
`position // span` is the same.  With keys each has a buffer, which is its part.
"""

from __future__ import annotations

import numpy as np

from rewake.operators.columns.arrays import Array, Int32s, Int64s, capacity_for, grown, with_room
from rewake.operators.kit.slots import SlotPool
from rewake.operators.sorting import kernels
from rewake.operators.sorting.kernels import (
    ARENA,
    BLOCK,
    BLOCK_SLOT,
    DISORDER,
    EMITTED,
    ENDED,
    FREE,
    HELD,
    OPEN,
    OPENED,
    REGISTERS,
    TOUCHED,
)

# Whose tuples are whose, where there are no keys.
NO_OWNERS = np.zeros(0, np.int32)
# So many tuples are worth being sorted, unless so many times more are waiting.
MANY, _TOO_MANY = 64, 64


class SortBuffers:
    """Heaps of rows, and parts.  `limit` tuples make a buffer full; `span` 0 means by key."""

    def __init__(self, limit: int, span: int, columns: int) -> None:
        self.limit = limit
        self.span = span
        self.registers = np.zeros(REGISTERS, np.int64)
        self.registers[BLOCK] = -1
        self.slots = SlotPool(self.registers, FREE, self._grow)
        # By row.
        self.keys = np.zeros((0, columns), np.int64)
        self.positions = np.zeros(0, np.int64)
        self.parts = np.zeros(0, np.int32)
        # By slot: the id of a part (-1: none), its key or block, how many tuples it holds.
        self.ids = np.zeros(0, np.int64)
        self.marks = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        # By buffer, which is a slot where there are keys: its heap's place in the arena.
        self._starts = np.zeros(1, np.int64)
        self._rooms = np.zeros(1, np.int64)
        self._sizes = np.zeros(1, np.int64)
        self._heap = np.zeros(0, np.int64)
        # Whether the one buffer that there is without keys is in order from its root on.
        self._sorted = True
        # By key.
        self.slot_of = np.full(1, -1, np.int32)

    @property
    def held(self) -> int:
        """How many tuples are in buffers, those included that have left and are remembered."""
        return int(self.registers[HELD])

    @property
    def open_parts(self) -> int:
        """How many parts there are."""
        return int(self.registers[OPEN])

    @property
    def disorder(self) -> int:
        """How many tuples came too late to leave in order."""
        return int(self.registers[DISORDER])

    @disorder.setter
    def disorder(self, count: int) -> None:
        self.registers[DISORDER] = count

    # --- room --------------------------------------------------------------------------------

    def add_rows(self, row: int, keys: Int64s, positions: Int64s) -> None:
        """Tuples at rows from `row` on, which belong to no part yet."""
        end = row + positions.size
        if end > self.positions.size:
            capacity = capacity_for(end, self.positions.size)
            self.keys = grown(self.keys, capacity)
            self.positions = grown(self.positions, capacity)
            self.parts = grown(self.parts, capacity)
        self.keys[row:end] = keys
        self.positions[row:end] = positions
        self.parts[row:end] = -1

    def ensure_keys(self, id_limit: int) -> None:
        """Make room for key ids below `id_limit`."""
        self.slot_of = with_room(self.slot_of, id_limit, -1)

    def _grow(self, capacity: int) -> None:
        self.ids = grown(self.ids, capacity, -1)
        self.marks = grown(self.marks, capacity)
        self._counts = grown(self._counts, capacity)
        if self.span == 0:
            self._starts = grown(self._starts, capacity)
            self._rooms = grown(self._rooms, capacity)
            self._sizes = grown(self._sizes, capacity)

    def _grow_arena(self, needed: int = 8) -> None:
        # A buffer that is full of its room gets twice as much, or all it may have.
        most = min(self.limit, 2 * int(self._rooms.max()) + needed)
        self._heap = with_room(self._heap, int(self.registers[ARENA]) + most)

    # --- turns -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Nothing has happened yet in this turn."""
        self.registers[EMITTED:] = 0

    def arrive(self, row: int, owners: Int32s, passed: Array) -> tuple[Int64s, Int32s, Int32s]:
        """Let in the tuples from `row` on: rows that leave, slots opened, slots touched.

        Rows that leave out of order are negative, as their complement.
        """
        count = passed.size
        self.slots.ensure_free(count if self.span == 0 else count // self.span + 2)
        opened, touched = np.empty(count, np.int32), np.empty(2 * count, np.int32)
        emitted = np.empty(count, np.int64)
        if not self._arrive_in_order(row, passed, opened, touched, emitted):
            self._arrive_one_by_one(row, owners, passed, opened, touched, emitted)
        return emitted[: self.registers[EMITTED]], opened, touched[: self.registers[TOUCHED]]

    def _arrive_in_order(
        self, row: int, passed: Array, opened: Int32s, touched: Int32s, emitted: Int64s
    ) -> bool:
        """Let in all tuples together, if there are many and none of them is out of order."""
        size, count = int(self._sizes[0]), passed.size
        if self.span == 0 or count < max(MANY, size // _TOO_MANY) or passed.any():
            return False
        waiting = self._heap[self._starts[0] : self._starts[0] + size]
        if not self._sorted:
            waiting = waiting[self._ordered(waiting)]
        merged = np.empty(size + count, np.int64)
        order = self._ordered(slice(row, row + count))
        if not kernels.merge(self.limit, waiting, order, row, self.keys, self.positions, merged):
            return False
        needed = min(merged.size, self.limit)
        while not kernels.make_room(
            self.registers,
            self.limit,
            self._heap,
            self._starts,
            self._rooms,
            self._sizes,
            0,
            needed,
        ):
            self._grow_arena(needed)
        kernels.arrive_in_order(
            self.registers, self.limit, self.span, row, merged, self.positions, self.parts,
            self._heap, self._starts, self._sizes,
            self.slot_of, self.ids, self.marks, self._counts, self.slots.free,
            opened, touched, emitted,
        )  # fmt: skip
        self._sorted = True
        return True

    def _ordered(self, rows: Int64s | slice) -> Int64s:
        """The order of rows by the ordering columns, then by arrival."""
        columns = self.keys[rows].T
        if isinstance(rows, slice) and len(columns) == 1:
            return np.argsort(columns[0], kind="stable")
        return np.lexsort((self.positions[rows], *columns[::-1]))

    def _arrive_one_by_one(
        self,
        row: int,
        owners: Int32s,
        passed: Array,
        opened: Int32s,
        touched: Int32s,
        emitted: Int64s,
    ) -> None:
        self._sorted = False
        done = 0
        while True:
            done = kernels.arrive(
                self.registers, self.limit, self.span, owners, passed, row, done,
                self.keys, self.positions, self.parts,
                self._heap, self._starts, self._rooms, self._sizes,
                self.slot_of, self.ids, self.marks, self._counts, self.slots.free,
                opened, touched, emitted,
            )  # fmt: skip
            if done == passed.size:
                return
            self._grow_arena()

    def release(self, *, everything: bool, clock: int) -> tuple[Int64s, Int32s]:
        """Let tuples leave that the clock has passed: their rows in order, slots touched."""
        held = self.held
        self._sorted = held == 0
        touched, emitted = np.empty(held, np.int32), np.empty(held, np.int64)
        before = self.registers[[EMITTED, TOUCHED]].copy()
        self.registers[[EMITTED, TOUCHED]] = 0
        kernels.release(
            self.registers, self.limit, everything, clock,
            self.keys, self.positions, self.parts,
            self._heap, self._starts, self._sizes, self._counts, self._sizes.size,
            touched, emitted,
        )  # fmt: skip
        rows, touched = emitted[: self.registers[EMITTED]], touched[: self.registers[TOUCHED]]
        self.registers[[EMITTED, TOUCHED]] = before
        if self.span == 0:
            columns = self.keys[rows].T[::-1]
            rows = rows[np.lexsort((self.positions[rows], *columns))]
        return rows, touched

    def settle(self, position: int, opened: Int32s, touched: Int32s) -> tuple[Int32s, Int64s]:
        """End empty parts: slots opened that stay, ids ended that were open before `position`."""
        ended = np.empty(self.open_parts, np.int64)
        self.registers[TOUCHED] = touched.size
        kernels.settle(
            self.registers, position, self.span, self.slot_of,
            self.ids, self.marks, self._counts, self.slots.free, touched, opened, ended,
        )  # fmt: skip
        return opened[: self.registers[OPENED]], ended[: self.registers[ENDED]]

    def live_rows(self, rows: int) -> Int64s:
        """Those of the first `rows` that are in a buffer."""
        return np.flatnonzero(self.parts[:rows] >= 0)

    def keep(self, rows: int, live: Int64s) -> None:
        """Forget all of the first `rows` but the live ones, which get the rows from 0 on."""
        numbers = np.zeros(rows, np.int64)
        numbers[live] = np.arange(live.size)
        kernels.renumber(numbers, self._heap, self._starts, self._sizes, self._sizes.size)
        for name in ("keys", "positions", "parts"):
            table = getattr(self, name)
            table[: live.size] = table[live]

    # --- recovery ----------------------------------------------------------------------------

    def rows_of(self, slots: Array, rows: int) -> tuple[Int64s, Int32s]:
        """Rows of the tuples of parts, part by part in order of arrival, and how many of each."""
        place = np.full(self.ids.size + 1, -1, np.int64)
        place[slots] = np.arange(slots.size)
        live = self.live_rows(rows)
        places = place[self.parts[live]]
        live, places = live[places >= 0], places[places >= 0]
        order = np.lexsort((self.positions[live], places))
        return live[order], np.bincount(places, minlength=slots.size).astype(np.int32)

    def restore_parts(self, ids: Int64s, marks: Int64s) -> Int32s:
        """Open these parts, empty; their slots."""
        slots = self.slots.take(ids.size)
        self.ids[slots] = ids
        self.marks[slots] = marks
        self.registers[OPEN] = ids.size
        if self.span == 0:
            self.slot_of[marks] = slots
        elif ids.size:
            newest = int(np.argmax(marks))
            self.registers[BLOCK], self.registers[BLOCK_SLOT] = marks[newest], slots[newest]
        return slots

    def refill(self, row: int, slots: Int32s) -> None:
        """Put the tuples from `row` on into the buffers of restored parts; the greatest stay."""
        self._sorted = False
        done = 0
        while True:
            done = kernels.refill(
                self.registers, self.limit, self.span > 0, slots, row, done,
                self.keys, self.positions, self.parts,
                self._heap, self._starts, self._rooms, self._sizes, self._counts,
            )  # fmt: skip
            if done == slots.size:
                return
            self._grow_arena()

    def empty_parts(self) -> Int32s:
        """Slots of parts that are open and hold nothing."""
        return np.flatnonzero((self.ids >= 0) & (self._counts == 0)).astype(np.int32)
