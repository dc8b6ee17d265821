"""The sessions of all keys: routing stream events to them, and their footprints.

A part is a key with all of its open sessions, and its slot is the key; the slots of aggregate
functions are those of panes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, capacity_for, grown, with_room
from rewake.operators.kit.slots import SlotPool
from rewake.operators.session import kernels
from rewake.operators.windows.kernel_tables import Table

_NOTHING = np.zeros(0, np.int64)
# The row of a free slot.
_NOBODY = np.array([-1] + [0] * (kernels.WIDTH - 1), np.int64)
# What a snapshot says of each pane: its id; of its session first and last time, and tuples.
_PANE_COLUMNS = (kernels.ID, kernels.START, kernels.LAST, kernels.COUNT)


class RoutedSessions(NamedTuple):
    """A routed turn: the panes of its tuples (-1: late), and what opened, closed and ended."""

    slots: Int32s
    closings: Closings
    keys: Int32s
    counts: Int64s
    starts: Int64s
    ends: Int64s
    opened_rows: Int64s
    ended_ids: Int64s
    late_rows: Int64s
    # Keys of which a watermark decided something that tuples alone would not.
    flagged: Int32s


class _Output:
    """Tables that a kernel fills."""

    def __init__(self, rows: int, sessions: int, panes: int) -> None:
        self.slots = np.empty(rows, np.int32)
        self.closings: Table = np.empty((sessions + rows, kernels.CLOSING_WIDTH), np.int64)
        self.panes = np.empty(panes + rows, np.int64)


class SessionRouter:
    """Keeps the open sessions.  Invariant: an open part has at least one, but during a replay."""

    def __init__(self, gap: int, slack: int) -> None:
        self.registers = np.zeros(kernels.REGISTERS, np.int64)
        self.registers[kernels.GAP] = gap
        self.registers[kernels.SLACK] = slack
        self.clock = self.told_by_tuples = NO_TIME
        self.opened_at = np.zeros(0, np.int64)
        self.opening_clock = np.zeros(0, np.int64)
        self._heads = np.zeros(0, np.int64)
        self._pool: Table = np.zeros((0, kernels.WIDTH), np.int64)
        self._slots = SlotPool(self.registers, kernels.FREE, self._grow)
        self._heap: Table = np.zeros((0, 3), np.int64)
        # While replaying: the clock so far, and by key that of its footprint.
        self._replay_clock = NO_TIME
        self._floor = np.zeros(0, np.int64)

    @property
    def clock(self) -> int:
        """The event-time clock."""
        return int(self.registers[kernels.CLOCK])

    @clock.setter
    def clock(self, clock: int) -> None:
        self.registers[kernels.CLOCK] = clock

    @property
    def told_by_tuples(self) -> int:
        """What tuples alone have told of the clock."""
        return int(self.registers[kernels.TOLD])

    @told_by_tuples.setter
    def told_by_tuples(self, clock: int) -> None:
        self.registers[kernels.TOLD] = clock

    @property
    def open_parts(self) -> int:
        """How many keys have open sessions."""
        return int(self.registers[kernels.PARTS])

    @property
    def pane_capacity(self) -> int:
        """All slots of panes are below this."""
        return len(self._pool)

    @property
    def _panes(self) -> int:
        return self._slots.used

    def ensure_keys(self, id_limit: int) -> None:
        """Make room for keys below `id_limit`."""
        if id_limit > self.opened_at.size:
            capacity = capacity_for(id_limit, self.opened_at.size)
            self.opened_at = grown(self.opened_at, capacity, -1)
            self.opening_clock = grown(self.opening_clock, capacity, NO_TIME)
            self._heads = grown(self._heads, capacity, -1)

    def _ensure_panes(self, least: int) -> None:
        """At least `least` free slots, and so much room in the heap."""
        self._slots.ensure_free(least)
        self._ensure_heap(least)

    def _grow(self, capacity: int) -> None:
        self._pool = grown(self._pool, capacity, _NOBODY)

    def _ensure_heap(self, least: int) -> None:
        self._heap = with_room(self._heap, int(self.registers[kernels.WAITING]) + least)

    # --- the normal path ---------------------------------------------------------------------

    def route(self, keys: Int32s, times: Int64s, position: int, watermark: int) -> RoutedSessions:
        """Route a stream event's tuples, then its watermark; there is room for the keys."""
        rows, registers = keys.size, self.registers
        self._ensure_panes(rows)
        registers[kernels.CLOSINGS :] = 0
        panes = self._panes
        output = _Output(rows, panes, panes)
        late, opened = np.empty(rows, np.int64), np.empty(rows, np.int64)
        ended = np.empty(panes + rows, np.int64)
        flagged = np.empty(panes + 2 * rows, np.int32)
        kernels.route(
            keys,
            times,
            position,
            watermark,
            registers,
            self._pool,
            self._slots.free,
            self._heads,
            self._heap,
            self.opened_at,
            self.opening_clock,
            output.slots,
            output.closings,
            output.panes,
            late,
            opened,
            ended,
            flagged,
        )
        closed = output.closings[: registers[kernels.CLOSINGS]]
        closings, order = _in_order(closed, output.panes)
        closed = closed[order]
        return RoutedSessions(
            slots=output.slots,
            closings=closings,
            keys=closed[:, kernels.CLOSING_KEY].astype(np.int32),
            counts=closed[:, kernels.CLOSING_COUNT].copy(),
            starts=closed[:, kernels.CLOSING_START].copy(),
            ends=closed[:, kernels.CLOSING_END].copy(),
            opened_rows=opened[: registers[kernels.OPENED]].copy(),
            ended_ids=ended[: registers[kernels.ENDED]].copy(),
            late_rows=late[: registers[kernels.LATE]].copy(),
            flagged=np.unique(flagged[: registers[kernels.FLAGGED]]),
        )

    # --- footprints --------------------------------------------------------------------------

    def panes_of(self, keys: Array) -> tuple[Int64s, Int64s, Int64s]:
        """How many panes each key has; their slots, session by session, and their roots'."""
        lengths = np.empty(keys.size, np.int64)
        kernels.count_panes(keys, self._pool, self._heads, lengths)
        total = int(lengths.sum())
        slots, roots = np.empty(total, np.int64), np.empty(total, np.int64)
        kernels.list_panes(keys, self._pool, self._heads, slots, roots)
        return lengths, slots, roots

    def pane_columns(self, slots: Int64s, roots: Int64s) -> list[Array]:
        """What a snapshot says of panes besides the functions' state."""
        ids = self._pool[slots, kernels.ID]
        return [ids, *(self._pool[roots, column] for column in _PANE_COLUMNS[1:])]

    # --- recovery ----------------------------------------------------------------------------

    def restore(
        self, keys: Int32s, ids: Int64s, clocks: Int64s, lengths: Int64s, columns: list[Array]
    ) -> Int64s:
        """Take these keys as the open parts, with so many panes each; the slots of the panes."""
        if np.unique(keys).size != keys.size:
            raise DamagedFrame("the log holds the open sessions of one key twice")
        identities, starts, lasts, counts = columns
        out_of_range = (starts <= -TIME_LIMIT) | (lasts >= TIME_LIMIT) | (starts > lasts)
        if np.any(out_of_range | (counts < 1) | (identities < 0)):
            raise DamagedFrame("the log holds a session that cannot be")
        self._ensure_heap(starts.size)
        slots = self._slots.take(starts.size).astype(np.int64)
        of_key = np.repeat(keys, lengths)
        for column, values in zip(_PANE_COLUMNS, columns, strict=True):
            self._pool[slots, column] = values
        self._pool[slots, kernels.KEY] = of_key
        kernels.link_panes(of_key, starts, slots, self._pool, self._heads)
        self.opened_at[keys] = ids
        self.registers[kernels.PARTS] = keys.size
        self._floor = np.full(self.opened_at.size, NO_TIME, np.int64)
        self._floor[keys] = clocks
        self.opening_clock[keys] = clocks
        return slots

    def replay(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, applied: Int64s
    ) -> tuple[Int32s, Closings]:
        """Panes of tuples to apply again; closings are of sessions that the log has closed."""
        self._ensure_panes(keys.size)
        self.registers[kernels.CLOSINGS :] = 0
        output = _Output(keys.size, self._panes, self._panes)
        clock = kernels.replay(
            keys,
            times,
            position,
            self._replay_clock,
            self._floor,
            applied,
            self.registers,
            self._pool,
            self._slots.free,
            self._heads,
            self.opened_at,
            output.slots,
            output.closings,
            output.panes,
        )
        if times.size:
            told = int(times.max()) - int(self.registers[kernels.SLACK])
            self.told_by_tuples = max(self.told_by_tuples, told)
        self._replay_clock = max(int(clock), watermark)
        closed = output.closings[: self.registers[kernels.CLOSINGS]]
        return output.slots, _in_order(closed, output.panes)[0]

    def end_replay(self) -> tuple[int, Closings]:
        """Close what the log's clock has passed; how many parts have no session, which is wrong."""
        keys = np.flatnonzero(self.opened_at >= 0)
        self.registers[kernels.CLOSINGS :] = 0
        output = _Output(0, self._panes, self._panes)
        empty = kernels.drop_all_over(
            self.registers,
            self._pool,
            self._slots.free,
            self._heads,
            output.closings,
            output.panes,
            keys,
        )
        self._wait_again()
        closed = output.closings[: self.registers[kernels.CLOSINGS]]
        return int(empty), _in_order(closed, output.panes)[0]

    def _wait_again(self) -> None:
        pool = self._pool
        roots = np.flatnonzero((pool[:, kernels.ID] >= 0) & (pool[:, kernels.COUNT] > 0))
        ends = pool[roots, kernels.LAST] + self.registers[kernels.GAP]
        # What is sorted is a heap.
        order = np.argsort(ends, kind="stable")
        self.registers[kernels.WAITING] = 0
        self._ensure_heap(roots.size)
        self._heap[: roots.size] = np.stack([ends, roots, pool[roots, kernels.ID]], axis=1)[order]
        self.registers[kernels.WAITING] = roots.size


def _in_order(closed: Table, panes: Int64s) -> tuple[Closings, Array]:
    """Closings by when they close, their end, and their first tuple; and how they were ordered."""
    last = closed[:, kernels.CLOSING_PANES]
    first = np.concatenate([_NOTHING, [0], last[:-1]]) if last.size else _NOTHING
    order = np.lexsort(
        (closed[:, kernels.CLOSING_ID], closed[:, kernels.CLOSING_END], closed[:, kernels.AT])
    )
    lengths = (last - first)[order]
    offsets = np.zeros(last.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    # The panes of each closing are a stretch: where it starts, and how far into it.
    within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
    taken = panes[np.repeat(first[order], lengths) + within]
    return Closings(closed[order, kernels.AT], offsets, taken), order
