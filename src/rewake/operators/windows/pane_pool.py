"""A pool of window parts: panes of any number of keys, one cache line each.

The pool is a table of integers, a row per slot.  The parts of a key form a list from the newest to
the oldest pane (`heads[key]`, then `OLDER`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.operators.columns.arrays import Int32s, Int64s, grown, with_room
from rewake.operators.kit.slots import SlotPool
from rewake.operators.windows.kernel_tables import POSITION, Table, add_ended, add_opened
from rewake.operators.windows.routing import KEYS, OPEN, OWN, PartRows

# Columns of the pool: the id (-1 in a free slot), the key, the next older part of the key, the
# pane's number, its tuples, and the next part of the same pane.  Eight make a cache line.
ID, KEY, OLDER, ORDINAL, COUNT, SIBLING = range(6)
POOL_WIDTH = 8
# The row of a free slot.
_NOBODY = np.array([-1] + [0] * (POOL_WIDTH - 1), np.int64)

# The registers of this router alone: the slack, free slots, the live panes.
SLACK, FREE, PANES, CLOSED, NEXT = range(OWN, OWN + 5)


@njit(cache=True, nogil=True, inline="always")
def open_part(registers, pool, free, opened, key, ordinal, row):  # type: ignore[no-untyped-def]
    """Take a free slot (there is one) for a part opened by the tuple at `row`; not yet linked."""
    registers[FREE] -= 1
    slot = free[registers[FREE]]
    pool[slot, ID] = registers[POSITION] + row
    pool[slot, KEY] = key
    pool[slot, OLDER] = -1
    pool[slot, ORDINAL] = ordinal
    pool[slot, COUNT] = 0
    pool[slot, SIBLING] = -1
    registers[OPEN] += 1
    add_opened(registers, opened, slot, row)
    return np.int64(slot)


@njit(cache=True, nogil=True, inline="always")
def end_part(registers, pool, free, ended, slot):  # type: ignore[no-untyped-def]
    """Give a slot back; the caller has unlinked the part, or is about to."""
    add_ended(registers, ended, pool[slot, ID])
    pool[slot, ID] = -1
    free[registers[FREE]] = slot
    registers[FREE] += 1
    registers[OPEN] -= 1


@njit(cache=True, nogil=True)
def _link_keys(registers, pool, heads, slots_by_ordinal):  # type: ignore[no-untyped-def]
    """Build the lists of all keys from parts given in rising order of their ordinals."""
    for i in range(slots_by_ordinal.size):
        slot = slots_by_ordinal[i]
        key = pool[slot, KEY]
        if heads[key] < 0:
            registers[KEYS] += 1
        pool[slot, OLDER] = heads[key]
        heads[key] = slot


class PartPool:
    """The pool with its slots, and the heads of the keys' lists; registers are its router's."""

    def __init__(self, registers: Int64s) -> None:
        self.registers = registers
        self.table: Table = np.empty((0, POOL_WIDTH), np.int64)
        self.slots = SlotPool(registers, FREE, self._grow)
        self.heads = np.zeros(0, np.int64)

    def _grow(self, capacity: int) -> None:
        self.table = grown(self.table, capacity, _NOBODY)

    def ensure_keys(self, id_limit: int) -> None:
        """Make room for key ids below `id_limit`."""
        self.heads = with_room(self.heads, id_limit, -1)

    def restore(self, opened: PartRows, snapshots: PartRows) -> Int32s:
        """Fill an empty pool; router columns are the pane's number, and in snapshots its count."""
        total = opened.ids.size + snapshots.ids.size
        slots = self.slots.take(total)
        table = self.table
        table[slots, ID] = np.concatenate([opened.ids, snapshots.ids])
        table[slots, KEY] = np.concatenate([opened.keys, snapshots.keys])
        table[slots, OLDER] = -1
        table[slots, SIBLING] = -1
        table[slots, COUNT] = 0
        numbers = [rows.columns[0] for rows in (opened, snapshots) if rows.ids.size]
        if numbers:
            table[slots, ORDINAL] = np.concatenate(numbers)
        if snapshots.ids.size:
            table[slots[opened.ids.size :], COUNT] = snapshots.columns[-1]
        self.registers[OPEN] = total
        by_ordinal = slots[np.argsort(table[slots, ORDINAL], kind="stable")]
        _link_keys(self.registers, table, self.heads, by_ordinal)
        return slots
