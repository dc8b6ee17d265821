"""The open parts of keyed processing: keys with their state and timers, and their footprints.

A part's slot is its key; slot `k` is open iff `opened_at[k] >= 0`.  Footprints, where there is
event time: an OPEN is the key and the clock before the turn that opened it; a CHECK is the key, the
clock, the timer, and the columns of the state.  Without event time there are no clock and no timer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.columns.arrays import Array, Int32s, Int64s, capacity_for, grown
from rewake.operators.columns.keys import GroupBy
from rewake.operators.columns.values import check_clocks
from rewake.operators.keyed.calls import NO_TIMER
from rewake.operators.keyed.state import StateColumns, StateField
from rewake.operators.kit.footprints import check_layout
from rewake.operators.stateful import NO_SLOTS, StoredParts


class ReadParts(NamedTuple):
    """Parts as footprints tell them; what is not told is at its default."""

    slots: Int32s
    clocks: Int64s
    timers: Int64s
    states: list[tuple[Int32s, pa.RecordBatch]]


class KeyedParts:
    """State, timer and identity of every key, by slot."""

    def __init__(
        self,
        schema: pa.Schema,
        by: Sequence[str],
        fields: Sequence[StateField],
        *,
        refuse_nulls: bool,
        timed: bool,
    ) -> None:
        self.keys = GroupBy(schema, by, refuse_nulls=refuse_nulls)
        self.state = StateColumns(fields)
        self._key_schema = pa.schema(self.keys.fields)
        self._timed = timed
        self.open_parts = 0
        self.opened_at = np.zeros(0, np.int64)
        # When its timer fires, and the clock before the turn that opened it.
        self.timer = np.zeros(0, np.int64)
        self.opening_clock = np.zeros(0, np.int64)
        # For grouping: all -1.
        self.place = np.zeros(0, np.int32)
        # No timer is set before this.
        self.next_timer = NO_TIMER

    def ensure(self) -> None:
        """Make room for all keys that the table knows."""
        id_limit = self.keys.table.id_limit
        if id_limit > self.opened_at.size:
            capacity = capacity_for(id_limit, self.opened_at.size)
            self.opened_at = grown(self.opened_at, capacity, -1)
            self.timer = grown(self.timer, capacity, NO_TIMER)
            self.opening_clock = grown(self.opening_clock, capacity, NO_TIME)
            self.place = grown(self.place, capacity, -1)
            self.state.ensure(capacity)

    def keys_of(self, slots: Array) -> pa.RecordBatch:
        """The keys of these slots."""
        return pa.RecordBatch.from_arrays(self.keys.table.columns(slots), schema=self._key_schema)

    def make_fresh(self, slots: Int32s) -> None:
        """Give slots that are not open the state of a new key."""
        self.state.open(slots)
        self.timer[slots] = NO_TIMER

    def open(self, slots: Int32s, ids: Int64s, clock: int) -> None:
        """These are open from here on."""
        self.opened_at[slots] = ids
        self.opening_clock[slots] = clock
        self.open_parts += int(slots.size)

    def end(self, slots: Int32s) -> Int64s:
        """These have no state any more; the ids they had."""
        ids = self.opened_at[slots]
        self.opened_at[slots] = -1
        self.timer[slots] = NO_TIMER
        self.state.clear(slots)
        self.open_parts -= int(slots.size)
        return ids

    def put_back(
        self, slots: Int32s, state: pa.RecordBatch, timer: Int64s, opened_at: Int64s
    ) -> None:
        """Undo what happened to these slots."""
        self.opened_at[slots] = opened_at
        self.timer[slots] = timer
        self.state.put(slots, state)

    def forget_idle_keys(self) -> None:
        """Forget keys that are not open, when there are too many of them."""
        self.keys.table.forget_idle(self.open_parts, lambda end: self.opened_at[:end] >= 0)

    # --- timers ------------------------------------------------------------------------------

    def set_timers(self, slots: Int32s, times: Int64s) -> None:
        """When their timers fire, `NO_TIMER` for none."""
        self.timer[slots] = times
        self.next_timer = min(self.next_timer, int(times.min()))

    def due(self, clock: int, floor: Int64s | None) -> Int32s:
        """Slots whose timers the clock, or their own floor, has reached: earliest first."""
        if floor is None and self.next_timer > clock:
            return NO_SLOTS
        reached = self.timer <= clock
        if floor is not None:
            reached |= self.timer <= floor
        due = np.flatnonzero(reached & (self.timer != NO_TIMER)).astype(np.int32)
        if not due.size:
            self.next_timer = int(self.timer.min()) if self.timer.size else NO_TIMER
        # The order must not depend on slots, which are others after a recovery.
        return due[np.lexsort((self.opened_at[due], self.timer[due]))]

    # --- footprints --------------------------------------------------------------------------

    def opening_columns(self, slots: Array) -> list[Array]:
        """What an OPEN says."""
        keys = self.keys.table.pack(slots)
        return [*keys, self.opening_clock[slots]] if self._timed else keys

    def snapshot_columns(self, slots: Array, clock: int) -> list[Array]:
        """What a CHECK says."""
        columns = self.keys.table.pack(slots)
        if self._timed:
            columns += [np.full(slots.size, clock, np.int64), self.timer[slots]]
        return [*columns, *self.state.pack(slots)]

    def read(self, parts: StoredParts, *, whole: bool) -> ReadParts:
        """Stored parts, CHECKs if `whole`, else OPENs; there is room for their keys then."""
        layout = self.snapshot_columns(NO_SLOTS, 0) if whole else self.opening_columns(NO_SLOTS)
        width = self.keys.table.footprint_columns
        border = width + (0 if not self._timed else 2 if whole else 1)
        slots, times, states = [NO_SLOTS], [np.zeros((2, 0), np.int64)], []
        check_layout(parts, layout, slice(width, border))
        for columns, rows, total in zip(*parts[2:], strict=True):
            found = self.keys.table.unpack(columns[:width], rows, total)
            told = [column[rows] for column in columns[width:border]]
            untold = [np.full(rows.size, fill, np.int64) for fill in (NO_TIME, NO_TIMER)]
            slots.append(found)
            times.append(np.stack([*told, *untold[len(told) :]]))
            if whole:
                states.append((found, self.state.unpack(columns[border:], rows, total)))
        self.ensure()
        clocks, timers = np.concatenate(times, axis=1)
        check_clocks(clocks)
        if np.any((timers != NO_TIMER) & ((timers >= TIME_LIMIT) | (timers <= -TIME_LIMIT))):
            raise DamagedFrame("a timer of the log is out of range")
        return ReadParts(np.concatenate(slots), clocks, timers, states)
