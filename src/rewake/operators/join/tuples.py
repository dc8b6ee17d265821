"""The tuples that a join holds of one of its inputs, as columns in the order of their positions.

A tuple is known by its row.  Columns of fixed width are kept as their bits; all others stay in
batches.

Invariants: rows rise with position; `settled` is set for a tuple that has met a partner, or whose
pane has been decided, and never unset; the rows of a part are linked, the newest first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from rewake.operators.columns.arrays import (
    Array,
    Int32s,
    Int64s,
    arrow_array,
    capacity_for,
    grown,
    values_view,
)
from rewake.operators.kit.tuples import HeldBatches

# Batches of at least so many tuples are left as they are.
_LARGE = 65_536
# Room for more than so many times what is held is given back.
_MOST_SPARE = 8


@njit(cache=True, nogil=True)
def _link(slots, row, newest, older):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        older[row + i] = newest[slots[i]]
        newest[slots[i]] = row + i


@njit(cache=True, nogil=True)
def _count_linked(slots, newest, older, counts):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        row = newest[slots[i]]
        while row >= 0:
            counts[i] += 1
            row = older[row]


@njit(cache=True, nogil=True)
def _gather_linked(slots, newest, older, ends, rows):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        place = ends[i]
        row = newest[slots[i]]
        while row >= 0:
            place -= 1
            rows[place] = row
            row = older[row]


def _flags(array: pa.Array) -> Array:
    flags: Array = array.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _kept(array: Array, rows: Array) -> Array:
    """Chosen values at the start, in room that is warm already unless most of it would be spare."""
    if array.size > _MOST_SPARE * rows.size:
        return array[rows]
    array[: rows.size] = array[rows]
    return array


class _FixedColumn:
    """A column of fixed width: bits, and flags once there was a null."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._values = np.zeros(0, f"u{kind.bit_width // 8}")
        self._valid: Array | None = None

    def put(self, row: int, array: pa.Array, capacity: int) -> None:
        if capacity > self._values.size:
            self._values = grown(self._values, capacity)
            self._valid = None if self._valid is None else grown(self._valid, capacity, 1)
        end = row + len(array)
        self._values[row:end] = values_view(array, self._values.dtype)
        if self._valid is None and array.null_count:
            self._valid = np.ones(self._values.size, np.bool_)
        if self._valid is not None:
            self._valid[row:end] = _flags(array) if array.null_count else True

    def take(self, rows: Array, missing: Array | None) -> pa.Array:
        if self._values.size == 0:
            return pa.nulls(rows.size, self._kind)
        valid = None if self._valid is None else self._valid[rows]
        if missing is not None:
            valid = ~missing if valid is None else valid & ~missing
        return arrow_array(self._values[rows], self._kind, valid)

    def keep(self, rows: Array) -> None:
        self._values = _kept(self._values, rows)
        if self._valid is not None:
            self._valid = None if self._valid[rows].all() else _kept(self._valid, rows)


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind)) and kind.bit_width in (8, 16, 32, 64)


class HeldTuples:
    """The tuples of one input, of a schema without dictionaries."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        self.times = np.zeros(0, np.int64)
        self.positions = np.zeros(0, np.int64)
        self.keys = np.zeros(0, np.int32)
        self.slots = np.zeros(0, np.int32)
        self.settled = np.zeros(0, np.bool_)
        self._older = np.zeros(0, np.int32)
        # By slot: the newest row of a part, -1 if it has none.
        self._newest = np.zeros(0, np.int32)
        self._fixed = {
            place: _FixedColumn(each.type)
            for place, each in enumerate(schema)
            if _is_fixed(each.type)
        }
        self._places = [place for place in range(len(schema)) if place not in self._fixed]
        others = pa.schema([schema.field(place) for place in self._places])
        self._others = HeldBatches(others, _LARGE)

    def ensure_slots(self, capacity: int) -> None:
        """Make room for parts in slots below this."""
        self._newest = grown(self._newest, capacity, -1)

    def opened(self, slots: Int32s) -> None:
        """New parts are in these slots."""
        self._newest[slots] = -1

    def put(
        self, batch: pa.RecordBatch, positions: Int64s, times: Int64s, keys: Int32s, slots: Int32s
    ) -> int:
        """Append tuples, none of them settled; returns the row of the first."""
        row, count = self.count, batch.num_rows
        if row + count > self.times.size:
            self._grow(capacity_for(row + count, self.times.size))
        end = self.count = row + count
        self.positions[row:end] = positions
        self.times[row:end] = times
        self.keys[row:end] = keys
        self.slots[row:end] = slots
        self.settled[row:end] = False
        _link(slots, row, self._newest, self._older)
        for place, column in self._fixed.items():
            column.put(row, batch.column(place), self.times.size)
        if self._places:
            self._others.append(batch.select(self._places))
        return row

    def _grow(self, capacity: int) -> None:
        for name in ("times", "positions", "keys", "slots", "settled", "_older"):
            setattr(self, name, grown(getattr(self, name), capacity))

    def rows_of(self, slots: Int32s) -> tuple[Int64s, Int64s]:
        """The rows of parts, one part after the other, in the order of positions; and how many."""
        counts = np.zeros(slots.size, np.int64)
        _count_linked(slots, self._newest, self._older, counts)
        ends = np.cumsum(counts)
        rows = np.empty(int(counts.sum()), np.int64)
        _gather_linked(slots, self._newest, self._older, ends, rows)
        return rows, counts

    def take(self, rows: Array, places: list[int]) -> list[pa.Array]:
        """These columns of these rows; a row below 0 is of nulls."""
        absent = rows < 0
        missing = absent if absent.any() else None
        taken: dict[int, pa.Array] = {}
        others = [place for place in places if place not in self._fixed]
        if others:
            taken = dict(zip(self._places, self._others.take(rows, missing).columns, strict=True))
        for place in places:
            if place in self._fixed:
                taken[place] = self._fixed[place].take(rows, missing)
        return [taken[place] for place in places]

    def batch(self, rows: Array) -> pa.RecordBatch:
        """All columns of these rows."""
        columns = self.take(rows, list(range(len(self.schema))))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def keep(self, live: Array) -> Int32s:
        """Forget the tuples that are not marked; by old row, the new one."""
        rows = np.flatnonzero(live)
        renumbered = np.cumsum(live, dtype=np.int32) - np.int32(1)
        for name in ("times", "positions", "keys", "slots", "settled", "_older"):
            setattr(self, name, _kept(getattr(self, name), rows))
        self._newest[:] = -1
        _link(self.slots[: rows.size], 0, self._newest, self._older)
        for column in self._fixed.values():
            column.keep(rows)
        if self._places:
            self._others.keep(rows)
        self.count = rows.size
        return renumbered

    def view(self, name: str) -> Any:
        """A column of what is known of each tuple, without spare room."""
        return getattr(self, name)[: self.count]
