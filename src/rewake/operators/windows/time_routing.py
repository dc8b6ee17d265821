"""Time windows of any size and advance, closed by the event-time clock.

The clock (watermark) is the largest event time seen minus the slack, or a punctuation if that is
further.  It moves with every tuple, so what is late does not depend on stream events.  A window
`[s, s + size)` closes when the clock reaches `s + size`; a tuple is late when every window it would
belong to has closed.  Results are ordered by window end, then by the window's first tuple.

Invariants: after every tuple, all windows that end at or before `CLOSED` are closed; the live
panes are sorted; a pane lives until the last window that contains it closes.
"""

from __future__ import annotations

from math import gcd

import numpy as np
from numba import njit

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.windows.kernel_tables import (
    CLOSINGS,
    ENDED,
    LATE,
    OPENED,
    PARTS,
    POSITION,
    Output,
    add_closing,
)
from rewake.operators.windows.pane_pool import (
    CLOSED,
    COUNT,
    FREE,
    ID,
    KEY,
    NEXT,
    OLDER,
    ORDINAL,
    PANES,
    SIBLING,
    SLACK,
    PartPool,
    end_part,
    open_part,
)
from rewake.operators.windows.routing import (
    ADVANCE,
    CLOCK,
    KEYS,
    NO_CLOSINGS,
    PANE,
    SIZE,
    PartRows,
    Router,
    Routing,
)

_NEVER = 2**63 - 1

# Columns of the table of live panes: number, first and last part (linked by SIBLING), part count.
_NUMBER, _FIRST, _LAST, _COUNT = range(4)


@njit(cache=True, nogil=True, inline="always")
def _last_end(registers, number):  # type: ignore[no-untyped-def]
    """When the last window that contains a pane ends."""
    advance = registers[ADVANCE]
    return number * registers[PANE] // advance * advance + registers[SIZE]


@njit(cache=True, nogil=True, inline="always")
def _next_end(registers, number):  # type: ignore[no-untyped-def]
    """The end of the first window that contains a live pane and has not closed."""
    size, advance = registers[SIZE], registers[ADVANCE]
    after = max(registers[CLOSED], number * registers[PANE])
    return (after - size) // advance * advance + advance + size


@njit(cache=True, nogil=True)
def _insert_pane(registers, panes, place, number):  # type: ignore[no-untyped-def]
    for j in range(registers[PANES], place, -1):
        panes[j] = panes[j - 1]
    panes[place, _NUMBER] = number
    panes[place, _FIRST] = -1
    panes[place, _LAST] = -1
    panes[place, _COUNT] = 0
    registers[PANES] += 1
    registers[NEXT] = min(registers[NEXT], _next_end(registers, number))


@njit(cache=True, nogil=True, inline="always")
def _add_to_pane(registers, pool, panes, slot):  # type: ignore[no-untyped-def]
    """Append a part to its pane; there is room for one more pane."""
    number = pool[slot, ORDINAL]
    # The newest pane is the likeliest.
    place = registers[PANES]
    while place > 0 and panes[place - 1, _NUMBER] >= number:
        place -= 1
    if place == registers[PANES] or panes[place, _NUMBER] != number:
        _insert_pane(registers, panes, place, number)
    if panes[place, _LAST] < 0:
        panes[place, _FIRST] = slot
    else:
        pool[panes[place, _LAST], SIBLING] = slot
    panes[place, _LAST] = slot
    panes[place, _COUNT] += 1


@njit(cache=True, nogil=True, inline="always")
def _part_for(registers, pool, free, heads, panes, opened, key, number, row):  # type: ignore[no-untyped-def]
    """The key's part for a pane, opened and linked in order if there is none."""
    newer = np.int64(-1)
    slot = heads[key]
    while slot >= 0 and pool[slot, ORDINAL] > number:
        newer = slot
        slot = pool[slot, OLDER]
    if slot >= 0 and pool[slot, ORDINAL] == number:
        return slot
    if heads[key] < 0:
        registers[KEYS] += 1
    new = open_part(registers, pool, free, opened, key, number, row)
    pool[new, OLDER] = slot
    if newer >= 0:
        pool[newer, OLDER] = new
    else:
        heads[key] = new
    _add_to_pane(registers, pool, panes, new)
    return new


@njit(cache=True, nogil=True)
def _close_key(registers, pool, free, heads, closings, parts, ended, key, end, row):  # type: ignore[no-untyped-def]
    """Close a key's window that ends at `end`: merge its panes, end those no window needs."""
    count = np.int64(0)
    total = np.int64(0)
    slot = heads[key]
    while slot >= 0:
        if pool[slot, ORDINAL] * registers[PANE] < end:
            count += 1
            total += pool[slot, COUNT]
        slot = pool[slot, OLDER]
    write = registers[PARTS] + count
    kept = np.int64(-1)
    slot = heads[key]
    while slot >= 0:
        older = pool[slot, OLDER]
        ends = _last_end(registers, pool[slot, ORDINAL]) <= end
        if pool[slot, ORDINAL] * registers[PANE] < end:
            write -= 1
            parts[write] = 2 * slot + ends
        if ends:
            end_part(registers, pool, free, ended, slot)
        else:
            kept = slot
        slot = older
    if kept >= 0:
        pool[kept, OLDER] = -1
    else:
        heads[key] = -1
        registers[KEYS] -= 1
    add_closing(registers, closings, row, key, total, end, count)


@njit(cache=True, nogil=True)
def _first_tuple(registers, pool, heads, slot, end):  # type: ignore[no-untyped-def]
    """Position of the first tuple of the window of a part's key that ends at `end`."""
    first = pool[slot, ID]
    other = heads[pool[slot, KEY]]
    while other >= 0:
        if pool[other, ORDINAL] * registers[PANE] < end:
            first = min(first, pool[other, ID])
        other = pool[other, OLDER]
    return first


@njit(cache=True, nogil=True)
def _keys_in_order(registers, pool, heads, panes, covered, total, end):  # type: ignore[no-untyped-def]
    """The keys that have a window ending at `end`, in the order of the windows' first tuples."""
    keys = np.empty(total, np.int64)
    firsts = np.empty(total, np.int64)
    found = 0
    rising = True
    for j in range(covered):
        slot = panes[j, _FIRST]
        while slot >= 0:
            # The oldest part of a key stands for the key.
            if pool[slot, OLDER] < 0:
                keys[found] = pool[slot, KEY]
                firsts[found] = _first_tuple(registers, pool, heads, slot, end)
                rising &= found == 0 or firsts[found] > firsts[found - 1]
                found += 1
            slot = pool[slot, SIBLING]
    if rising:
        return keys[:found]
    return keys[:found][np.argsort(firsts[:found])]


@njit(cache=True, nogil=True)
def _drop_panes(registers, panes, end):  # type: ignore[no-untyped-def]
    """Forget the panes that no window after `end` contains; their parts have ended."""
    dropped = 0
    live = registers[PANES]
    while dropped < live and _last_end(registers, panes[dropped, _NUMBER]) <= end:
        dropped += 1
    for j in range(live - dropped):
        panes[j] = panes[j + dropped]
    registers[PANES] = live - dropped


@njit(cache=True, nogil=True)
def _covered(registers, panes, end):  # type: ignore[no-untyped-def]
    """How many of the live panes a window that ends at `end` covers, and their parts."""
    covered = 0
    parts = np.int64(0)
    while covered < registers[PANES] and panes[covered, _NUMBER] * registers[PANE] < end:
        parts += panes[covered, _COUNT]
        covered += 1
    return covered, parts


@njit(cache=True, nogil=True)
def _close_due(registers, pool, free, heads, panes, closings, parts, ended, row):  # type: ignore[no-untyped-def]
    """Close every window the clock has passed; returns how much room is missing, 0 when done."""
    while registers[PANES] > 0:
        end = _next_end(registers, panes[0, _NUMBER])
        if end > registers[CLOCK]:
            break
        covered, total = _covered(registers, panes, end)
        room = min(
            len(closings) - registers[CLOSINGS],
            parts.size - registers[PARTS],
            len(ended) - registers[ENDED],
        )
        if total > room:
            return total
        keys = _keys_in_order(registers, pool, heads, panes, covered, total, end)
        for key in keys:
            _close_key(registers, pool, free, heads, closings, parts, ended, key, end, row)
        _drop_panes(registers, panes, end)
        registers[CLOSED] = end
    registers[CLOSED] = registers[CLOCK]
    registers[NEXT] = _NEVER
    if registers[PANES] > 0:
        registers[NEXT] = _next_end(registers, panes[0, _NUMBER])
    return np.int64(0)


@njit(cache=True, nogil=True)
def _route_time(  # type: ignore[no-untyped-def]
    keys,
    times,
    start,
    registers,
    pool,
    free,
    heads,
    panes,
    closings,
    parts,
    opened,
    ended,
    late,
    slots,
):
    """Route from row `start` on; returns the row reached and the room missing there."""
    size, advance, pane = registers[SIZE], registers[ADVANCE], registers[PANE]
    for i in range(start, keys.size):
        if registers[FREE] == 0 or registers[PANES] == len(panes):
            return i, np.int64(1)
        time = times[i]
        registers[CLOCK] = max(registers[CLOCK], time - registers[SLACK])
        if registers[CLOCK] >= registers[NEXT]:
            missing = _close_due(registers, pool, free, heads, panes, closings, parts, ended, i)
            if missing > 0:
                return i, missing
        registers[CLOSED] = registers[CLOCK]
        slots[i] = -1
        last_start = time // advance * advance
        if time - last_start >= size:
            continue
        if last_start + size <= registers[CLOCK]:
            late[registers[LATE]] = i
            registers[LATE] += 1
            continue
        slot = _part_for(registers, pool, free, heads, panes, opened, keys[i], time // pane, i)
        pool[slot, COUNT] += 1
        slots[i] = slot
    return keys.size, np.int64(0)


@njit(cache=True, nogil=True)
def _replay_time(keys, times, registers, pool, heads, applied, slots):  # type: ignore[no-untyped-def]
    advance, pane = registers[ADVANCE], registers[PANE]
    for i in range(keys.size):
        slots[i] = -1
        in_gap = times[i] - times[i] // advance * advance >= registers[SIZE]
        if keys[i] < 0 or keys[i] >= heads.size or in_gap:
            continue
        number = times[i] // pane
        slot = heads[keys[i]]
        while slot >= 0 and pool[slot, ORDINAL] > number:
            slot = pool[slot, OLDER]
        same = slot >= 0 and pool[slot, ORDINAL] == number
        if same and registers[POSITION] + i > applied[slot]:
            pool[slot, COUNT] += 1
            slots[i] = slot


@njit(cache=True, nogil=True)
def _restore_panes(registers, pool, panes, slots_by_opening):  # type: ignore[no-untyped-def]
    for i in range(slots_by_opening.size):
        _add_to_pane(registers, pool, panes, slots_by_opening[i])


class TimeRouter(Router):
    """Routes tuples to time windows of any size and advance."""

    def __init__(self, size: int, advance: int, slack: int) -> None:
        super().__init__()
        registers = self.registers
        self._pool = PartPool(registers)
        registers[SIZE], registers[ADVANCE], registers[SLACK] = size, advance, slack
        registers[PANE] = advance if advance >= size else gcd(size, advance)
        registers[CLOSED], registers[NEXT] = NO_TIME, _NEVER
        self._panes = np.zeros((64, 4), np.int64)

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self._pool.table[:, ID]

    def key_is_live(self, id_limit: int) -> Array:
        """For each key id below `id_limit`, whether it has open panes."""
        self._pool.ensure_keys(id_limit)
        return self._pool.heads[:id_limit] >= 0

    def _ensure_pane(self) -> None:
        if self.registers[PANES] == len(self._panes):
            self._panes = np.concatenate([self._panes, np.zeros_like(self._panes)])

    def route(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, id_limit: int
    ) -> Routing:
        """See `Router.route`."""
        pool, registers = self._pool, self.registers
        pool.ensure_keys(id_limit)
        output = Output.for_rows(keys.size, 1024)
        output.begin_turn(registers, position)
        slots = np.empty(keys.size, np.int32)
        done = 0
        while True:
            done, missing = _route_time(
                keys,
                times,
                done,
                registers,
                pool.table,
                pool.slots.free,
                pool.heads,
                self._panes,
                output.closings,
                output.parts,
                output.opened,
                output.ended,
                output.late,
                slots,
            )
            if done == keys.size:
                registers[CLOCK] = max(registers[CLOCK], watermark)
                missing = self._close_at_end(output, done)
                if missing == 0:
                    opened = output.opened[: registers[OPENED]]
                    ids = pool.table[opened[:, 0], ID]
                    still = opened[ids == opened[:, 1] + position]
                    routing = output.routing(registers, slots, still)
                    starts = routing.closing_ends - registers[SIZE]
                    return routing._replace(closing_starts=starts)
            pool.slots.ensure_free(1)
            self._ensure_pane()
            output.enlarge(missing)

    def _close_at_end(self, output: Output, row: int) -> int:
        pool = self._pool
        return int(
            _close_due(
                self.registers,
                pool.table,
                pool.slots.free,
                pool.heads,
                self._panes,
                output.closings,
                output.parts,
                output.ended,
                row,
            )
        )

    def replay(
        self,
        keys: Int32s,
        times: Int64s,
        position: int,
        watermark: int,  # noqa: ARG002
        applied: Int64s,
    ) -> tuple[Int32s, Closings]:
        """See `Router.replay`."""
        pool = self._pool
        Output.begin_turn(self.registers, position)
        slots = np.empty(keys.size, np.int32)
        _replay_time(keys, times, self.registers, pool.table, pool.heads, applied, slots)
        return slots, NO_CLOSINGS

    def keys_of(self, slots: Array) -> Int32s:
        """Key ids of open panes."""
        keys: Int32s = self._pool.table[slots, KEY].astype(np.int32)
        return keys

    def opening_columns(self, slots: Array) -> list[Array]:
        """Pane numbers."""
        return [self._pool.table[slots, ORDINAL]]

    def snapshot(self, slots: Array) -> tuple[list[Array], Array]:
        """Pane numbers, and the number of tuples in each pane."""
        return [self._pool.table[slots, ORDINAL], self._pool.table[slots, COUNT]], slots

    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> tuple[Int32s, Array]:
        """See `Router.restore`; the clock has been set before: windows up to it are closed."""
        pool, registers = self._pool, self.registers
        registers[CLOSED] = registers[CLOCK]
        pool.ensure_keys(id_limit)
        self._check_stored(opened, snapshots)
        slots = pool.restore(opened, snapshots)
        live = np.unique(pool.table[slots, ORDINAL]).size
        self._panes = np.zeros((max(64, 2 * live), 4), np.int64)
        by_opening = slots[np.argsort(pool.table[slots, ID], kind="stable")]
        _restore_panes(registers, pool.table, self._panes, by_opening)
        return slots, slots[opened.ids.size :]

    def _check_stored(self, opened: PartRows, snapshots: PartRows) -> None:
        """Refuse panes that the clock has closed, times out of range, and a pane given twice."""
        registers = self.registers
        size, advance, pane = (int(registers[place]) for place in (SIZE, ADVANCE, PANE))
        numbers = np.concatenate([opened.columns[0], snapshots.columns[0]])
        if numbers.size == 0:
            return
        within = TIME_LIMIT // pane
        if not -within - 1 <= int(numbers.min()) <= int(numbers.max()) <= within:
            raise DamagedFrame("a footprint names a pane beyond all times")
        last_ends = numbers * pane // advance * advance + size
        keys = np.concatenate([opened.keys, snapshots.keys])
        order = np.lexsort((numbers, keys))
        same = (np.diff(keys[order]) == 0) & (np.diff(numbers[order]) == 0)
        if same.any() or int(last_ends.min()) <= self.clock:
            raise DamagedFrame("footprints of panes that cannot be open together")

    def finish_replay(self) -> tuple[Array, Closings]:
        """See `Router.finish_replay`: an open pane has at least one tuple."""
        table = self._pool.table
        empty = (table[:, ID] >= 0) & (table[:, COUNT] < 1)
        return np.flatnonzero(empty).astype(np.int32), NO_CLOSINGS
