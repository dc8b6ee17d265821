"""Session windows: tuples of a key that are close to each other in event time.

Tuples of a key less than `gap` apart belong to one session; one that lies between two sessions
makes them one.  The clock is that of time windows: the largest event time seen less the slack, or a
punctuation that is further; it moves with every tuple.  A session closes when the clock reaches
`last time + gap`, its end.  A tuple that belongs to no open session and whose own would have ended
is late.  Results are ordered by when they close, by window end, then by the session's first tuple;
they are a function of the tuples in order and of where watermarks stand, never of how the input was
cut.

A part is a key with all of its open sessions, for a tuple may make one of two of them; its slot is
the key.  It opens with the tuple that starts a session of a key without any, and ends with its last
session.  The places of the functions' state are those of panes (see `session_kernels`).

What a part's sessions are depends on its own tuples and on what the clock was at each: which
sessions were still open, and what was late.  A footprint holds the clock of its time (an OPEN that
of just before its tuple), and all tuples after T are replayed, so the replayed clock falls short
only by watermarks, which may not come again where they were.  A part for which the clock decided
what tuples alone would not have decided (a session closed beside another, or a tuple was late)
therefore leaves a CHECK with that turn (`Routing.unrepeatable`).  At tc the log's clock closes what
it has passed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, capacity_for, grown, with_room
from rewake.operators.columns.values import check_clocks
from rewake.operators.kit.slots import SlotPool
from rewake.operators.stateful import NO_IDS
from rewake.operators.windows import session_kernels as kernels
from rewake.operators.windows.kernel_tables import CLOSINGS, ENDED, LATE, OPENED, Table
from rewake.operators.windows.routing import OPEN, PartRows, Router, Routing

# The row of a free slot.
_NOBODY = np.array([-1] + [0] * (kernels.WIDTH - 1), np.int64)
# What a snapshot says of each pane: its id; of its session first and last time, and tuples.
_PANE_COLUMNS = (kernels.ID, kernels.START, kernels.LAST, kernels.COUNT)


class _Output:
    """Tables that a kernel fills."""

    def __init__(self, rows: int, sessions: int, panes: int) -> None:
        self.slots = np.empty(rows, np.int32)
        self.closings: Table = np.empty((sessions + rows, kernels.CLOSING_WIDTH), np.int64)
        self.panes = np.empty(panes + rows, np.int64)


class SessionRouter(Router):
    """Keeps the open sessions.  Invariant: an open part has at least one, but during a replay."""

    # The clock of the footprint, and how many panes; then what each pane is.
    columns_of_parts = 2

    def __init__(self, gap: int, slack: int) -> None:
        super().__init__()
        registers = self.registers
        registers[kernels.GAP], registers[kernels.SLACK] = gap, slack
        registers[kernels.TOLD] = NO_TIME
        self._opened_at = np.zeros(0, np.int64)
        self._opening_clock = np.zeros(0, np.int64)
        self._heads = np.zeros(0, np.int64)
        self._pool: Table = np.zeros((0, kernels.WIDTH), np.int64)
        self._slots = SlotPool(registers, kernels.FREE, self._grow)
        self._heap: Table = np.zeros((0, 3), np.int64)
        # While replaying: the clock so far, and by key that of its footprint.
        self._replay_clock = NO_TIME
        self._floor = NO_IDS

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self._opened_at

    @property
    def live_keys(self) -> int:
        """How many keys have open sessions: each is a part."""
        return self.open_parts

    @property
    def capacity(self) -> int:
        """All slots of panes are below this."""
        return len(self._pool)

    def key_is_live(self, id_limit: int) -> Array:
        """For each key id below `id_limit`, whether it has open sessions."""
        self._ensure_keys(id_limit)
        return self._opened_at[:id_limit] >= 0

    def common_clock(self, clocks: Sequence[int]) -> int:
        """The earliest: what the others have passed is still to be said of some keys."""
        return min(clocks)

    def _ensure_keys(self, id_limit: int) -> None:
        """Make room for keys below `id_limit`."""
        if id_limit > self._opened_at.size:
            capacity = capacity_for(id_limit, self._opened_at.size)
            self._opened_at = grown(self._opened_at, capacity, -1)
            self._opening_clock = grown(self._opening_clock, capacity, NO_TIME)
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

    def _begin_turn(self) -> None:
        self.registers[: kernels.FLAGGED + 1] = 0

    def route(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, id_limit: int
    ) -> Routing:
        """See `Router.route`."""
        rows, registers = keys.size, self.registers
        self._ensure_keys(id_limit)
        self._ensure_panes(rows)
        self._begin_turn()
        panes = self._slots.used
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
            self._opened_at,
            self._opening_clock,
            output.slots,
            output.closings,
            output.panes,
            late,
            opened,
            ended,
            flagged,
        )
        closed = output.closings[: registers[CLOSINGS]]
        closings, order = _in_order(closed, output.panes)
        closed = closed[order]
        closing_keys = closed[:, kernels.CLOSING_KEY].astype(np.int32)
        opened = opened[: registers[OPENED]]
        opened = opened[self._opened_at[keys[opened]] == opened + position]
        ended = ended[: registers[ENDED]]
        flagged = np.unique(flagged[: registers[kernels.FLAGGED]])
        return Routing(
            slots=output.slots,
            closings=closings,
            closing_keys=closing_keys,
            closing_counts=closed[:, kernels.CLOSING_COUNT].copy(),
            opened_slots=keys[opened],
            opened_rows=opened,
            ended_ids=ended[ended < position],
            late_rows=late[: registers[LATE]].copy(),
            closing_starts=closed[:, kernels.CLOSING_START].copy(),
            closing_ends=closed[:, kernels.CLOSING_END].copy(),
            touched=np.concatenate([keys, closing_keys]),
            unrepeatable=flagged[self._opened_at[flagged] >= 0],
        )

    # --- footprints --------------------------------------------------------------------------

    def opening_columns(self, slots: Array) -> list[Array]:
        """The clock just before the tuple that opened the part."""
        return [self._opening_clock[slots]]

    def snapshot(self, slots: Array) -> tuple[list[Array], Array]:
        """The clock, how many panes, and what each of them is; then where the panes are."""
        lengths = np.empty(slots.size, np.int64)
        kernels.count_panes(slots, self._pool, self._heads, lengths)
        total = int(lengths.sum())
        panes, roots = np.empty(total, np.int64), np.empty(total, np.int64)
        kernels.list_panes(slots, self._pool, self._heads, panes, roots)
        of_panes = [self._pool[panes, kernels.ID]]
        of_panes += [self._pool[roots, column] for column in _PANE_COLUMNS[1:]]
        clocks = np.full(slots.size, self.clock, np.int64)
        return [clocks, lengths.astype(np.uint32), *of_panes], panes

    # --- recovery ----------------------------------------------------------------------------

    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> tuple[Int32s, Array]:
        """See `Router.restore`."""
        self._ensure_keys(id_limit)
        keys = np.concatenate([opened.keys, snapshots.keys])
        checked, lengths, *columns = snapshots.columns
        clocks = np.concatenate([*opened.columns, checked])
        check_clocks(clocks)
        _check_sessions(keys, lengths, columns)
        starts = columns[1]
        self._ensure_heap(starts.size)
        slots = self._slots.take(starts.size).astype(np.int64)
        of_key = np.repeat(snapshots.keys, lengths)
        for column, values in zip(_PANE_COLUMNS, columns, strict=True):
            self._pool[slots, column] = values
        self._pool[slots, kernels.KEY] = of_key
        kernels.link_panes(of_key, starts, slots, self._pool, self._heads)
        self._opened_at[keys] = np.concatenate([opened.ids, snapshots.ids])
        self.registers[OPEN] = keys.size
        self._floor = np.full(self._opened_at.size, NO_TIME, np.int64)
        self._floor[keys] = clocks
        self._opening_clock[keys] = clocks
        return keys, slots

    def replay(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, applied: Int64s
    ) -> tuple[Int32s, Closings]:
        """See `Router.replay`."""
        self._ensure_panes(keys.size)
        self._begin_turn()
        registers, panes = self.registers, self._slots.used
        output = _Output(keys.size, panes, panes)
        clock = kernels.replay(
            keys, times, position, self._replay_clock, self._floor, applied,
            registers, self._pool, self._slots.free, self._heads, self._opened_at,
            output.slots, output.closings, output.panes,
        )  # fmt: skip
        if times.size:
            told = int(times.max()) - int(registers[kernels.SLACK])
            registers[kernels.TOLD] = max(int(registers[kernels.TOLD]), told)
        self._replay_clock = max(int(clock), watermark)
        return output.slots, self._closed(output)

    def _closed(self, output: _Output) -> Closings:
        return _in_order(output.closings[: self.registers[CLOSINGS]], output.panes)[0]

    def finish_replay(self) -> tuple[Array, Closings]:
        """Close what the log's clock has passed; a part without a session is wrong."""
        self._begin_turn()
        keys, panes = np.flatnonzero(self._opened_at >= 0), self._slots.used
        output = _Output(0, panes, panes)
        kernels.drop_all_over(
            self.registers, self._pool, self._slots.free, self._heads,
            output.closings, output.panes, keys,
        )  # fmt: skip
        self._wait_again()
        return keys[self._heads[keys] < 0], self._closed(output)

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


def _check_sessions(keys: Int32s, lengths: Array, columns: list[Array]) -> None:
    """Refuse parts and panes that cannot be."""
    if np.unique(keys).size != keys.size:
        raise DamagedFrame("the log holds the open sessions of one key twice")
    if np.any(lengths < 1):
        raise DamagedFrame("a footprint holds a key without sessions")
    identities, starts, lasts, counts = columns
    out_of_range = (starts <= -TIME_LIMIT) | (lasts >= TIME_LIMIT) | (starts > lasts)
    if np.any(out_of_range | (counts < 1) | (identities < 0)):
        raise DamagedFrame("the log holds a session that cannot be")


def _in_order(closed: Table, panes: Int64s) -> tuple[Closings, Array]:
    """Closings by when they close, their end, and their first tuple; and how they were ordered."""
    last = closed[:, kernels.CLOSING_PANES]
    first = np.concatenate([NO_IDS, [0], last[:-1]]) if last.size else NO_IDS
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
