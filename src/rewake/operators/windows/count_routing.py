"""Count windows of any size and advance, with timeout.

A key's tuples are counted from the start of its *run*.  Pane `j` holds tuples `[j * pane,
(j + 1) * pane)` of the run; window `k` closes when the run reaches `k * advance + size` tuples, and
panes below the next window's start end with it.  Without overlap (`advance >= size`) a run is one
pane: the window, and the gap behind it, whose tuples are only counted.

A key has at most `size / pane` panes at a time, so each key has a ring of as many slots: the panes
of a closing window lie side by side in memory, which is what makes sliding windows fast.

Timeout: when the clock is `timeout` past the moment a key's oldest window opened, all open windows
of the key close with what they have and the key starts a new run.  The clock is event time, so a
replay comes to the same decisions.  Windows open in clock order, so one queue holds the deadlines.

Invariants: key `k` has open panes `LOW..TOP` iff `TOP >= 0`; all but the top pane are full; the
slot of pane `j` is `k * ring + j % ring`, and the id of a slot without an open pane is -1.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.model.errors import DamagedFrame, UsageError
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, capacity_for, grown, with_room
from rewake.operators.columns.prefetch import AHEAD, prefetch
from rewake.operators.windows.kernel_tables import (
    CLOSINGS,
    ENDED,
    OPENED,
    PARTS,
    POSITION,
    Output,
    add_closing,
    add_ended,
    add_opened,
)
from rewake.operators.windows.routing import (
    ADVANCE,
    CLOCK,
    KEYS,
    NO_CLOSINGS,
    OPEN,
    OWN,
    PANE,
    SIZE,
    PartRows,
    Router,
    Routing,
)
from rewake.operators.windows.specs import CountWindow

# The registers of this router alone: panes in a ring and from window to window, the timeout, the
# queue of deadlines.
RING, STEP, TIMEOUT, HEAD, TAIL = range(OWN, OWN + 5)

# A key's row: tuples in its top pane, lowest and top pane, the top pane's place in the ring (kept,
# because a division per tuple would be felt); then ids and clocks of the ring's panes.
COUNT, LOW, TOP, PLACE, IDS = range(5)


@njit(cache=True, nogil=True, inline="always")
def _place(registers, table, key, pane):  # type: ignore[no-untyped-def]
    """Where in the ring an open pane is."""
    place = table[key, PLACE] - (table[key, TOP] - pane)
    return place if place >= 0 else place + registers[RING]


@njit(cache=True, nogil=True, inline="always")
def _end_pane(registers, table, ended, key, pane):  # type: ignore[no-untyped-def]
    place = _place(registers, table, key, pane)
    add_ended(registers, ended, table[key, IDS + place])
    table[key, IDS + place] = -1
    registers[OPEN] -= 1


@njit(cache=True, nogil=True, inline="always")
def _close(registers, table, closings, parts, key, first, last, keep_from, count, row):  # type: ignore[no-untyped-def]
    """Close the window of panes `first..last`; sums of panes below `keep_from` start over."""
    ring = registers[RING]
    write = registers[PARTS]
    place = _place(registers, table, key, first)
    for pane in range(first, last + 1):
        parts[write] = 2 * (key * ring + place) + (pane < keep_from)
        write += 1
        place += 1
        if place == ring:
            place = 0
    add_closing(registers, closings, row, key, count, 0, last - first + 1)


@njit(cache=True, nogil=True)
def _end_run(registers, table, closings, parts, ended, key, row):  # type: ignore[no-untyped-def]
    """Close all open windows of a key with what they have, oldest first."""
    pane, advance = registers[PANE], registers[ADVANCE]
    low, top = table[key, LOW], table[key, TOP]
    run = top * pane + table[key, COUNT]
    last = top * pane // advance
    for window in range(low * pane // advance, last + 1):
        first = window * advance // pane
        keep_from = top + 1 if window == last else first + advance // pane
        count = run - window * advance
        _close(registers, table, closings, parts, key, first, top, keep_from, count, row)
    for ordinal in range(low, top + 1):
        _end_pane(registers, table, ended, key, ordinal)
    table[key, TOP] = -1
    registers[KEYS] -= 1


@njit(cache=True, nogil=True, inline="always")
def _missing(registers, closings, parts, ended, windows, panes):  # type: ignore[no-untyped-def]
    """Room missing for so many windows of so many panes; 0 or less when there is enough."""
    return max(
        registers[CLOSINGS] + windows - len(closings),
        registers[PARTS] + windows * panes - parts.size,
        registers[ENDED] + panes - len(ended),
    )


@njit(cache=True, nogil=True)
def _expire(registers, table, deadlines, closings, parts, ended, row):  # type: ignore[no-untyped-def]
    """End the runs whose deadline the clock has reached; the room missing, 0 when done."""
    ring = registers[RING]
    while registers[HEAD] < registers[TAIL]:
        slot = deadlines[registers[HEAD], 0]
        key, place = slot // ring, slot % ring
        if table[key, IDS + place] == deadlines[registers[HEAD], 1]:
            if registers[CLOCK] - table[key, IDS + ring + place] < registers[TIMEOUT]:
                break
            panes = table[key, TOP] - table[key, LOW] + 1
            windows = panes * registers[PANE] // registers[ADVANCE] + 1
            missing = _missing(registers, closings, parts, ended, windows, panes)
            if missing > 0:
                return missing
            # In the gap behind a window nothing is open that could time out.
            if registers[ADVANCE] < registers[SIZE] or table[key, COUNT] < registers[SIZE]:
                _end_run(registers, table, closings, parts, ended, key, row)
        registers[HEAD] += 1
    return np.int64(0)


@njit(cache=True, nogil=True, inline="always")
def _open_pane(registers, table, deadlines, opened, key, row):  # type: ignore[no-untyped-def]
    """Open the key's next pane, or the first of a new run."""
    ring = registers[RING]
    place = table[key, PLACE] + 1
    if table[key, TOP] < 0:
        table[key, LOW] = 0
        registers[KEYS] += 1
        place = 0
    pane = table[key, TOP] + 1
    if place == ring:
        place = 0
    table[key, TOP] = pane
    table[key, PLACE] = place
    table[key, COUNT] = 0
    table[key, IDS + place] = registers[POSITION] + row
    registers[OPEN] += 1
    add_opened(registers, opened, key * ring + place, row)
    if registers[TIMEOUT] > 0:
        table[key, IDS + ring + place] = registers[CLOCK]
        if pane * registers[PANE] % registers[ADVANCE] == 0:
            deadlines[registers[TAIL], 0] = key * ring + place
            deadlines[registers[TAIL], 1] = registers[POSITION] + row
            registers[TAIL] += 1


@njit(cache=True, nogil=True, inline="always")
def _after_overlapping(registers, table, closings, parts, ended, key, row):  # type: ignore[no-untyped-def]
    """Close the window that the tuple at `row` has completed with its pane, if it has."""
    top, size, step = table[key, TOP], registers[SIZE], registers[STEP]
    first = top + 1 - registers[RING]
    if first >= 0 and (step == 1 or first % step == 0):
        next_first = first + step
        _close(registers, table, closings, parts, key, first, top, next_first, size, row + 1)
        for ordinal in range(first, next_first):
            _end_pane(registers, table, ended, key, ordinal)
        table[key, LOW] = next_first


@njit(cache=True, nogil=True)
def _after_separate(registers, table, closings, parts, ended, key, row):  # type: ignore[no-untyped-def]
    """The same for windows that do not overlap; a gap's part ends with the gap."""
    count = table[key, COUNT]
    if count == registers[SIZE]:
        _close(registers, table, closings, parts, key, 0, 0, 1, count, row + 1)
    if count == registers[ADVANCE]:
        _end_pane(registers, table, ended, key, 0)
        table[key, TOP] = -1
        registers[KEYS] -= 1


@njit(cache=True, nogil=True)
def _route_count(  # type: ignore[no-untyped-def]
    keys, times, start, registers, table, deadlines, closings, parts, opened, ended, slots
):
    """Route from row `start` on; returns the row reached and the room missing there."""
    overlapping = registers[ADVANCE] < registers[SIZE]
    width = table.shape[1]
    flat = table.reshape(table.size)
    for i in range(start, keys.size):
        if i + AHEAD < keys.size:
            # A row is seldom aligned: its head and its first ids are in two cache lines.
            prefetch(flat, np.int64(keys[i + AHEAD]) * width)
            prefetch(flat, np.int64(keys[i + AHEAD]) * width + IDS + 4)
        missing = _missing(registers, closings, parts, ended, 1, registers[RING])
        if missing <= 0 and times.size:
            registers[CLOCK] = max(registers[CLOCK], times[i])
            missing = _expire(registers, table, deadlines, closings, parts, ended, i)
        if missing > 0:
            return i, missing
        key = np.int64(keys[i])
        if table[key, TOP] < 0 or table[key, COUNT] == registers[PANE]:
            _open_pane(registers, table, deadlines, opened, key, i)
        table[key, COUNT] += 1
        slots[i] = key * registers[RING] + table[key, PLACE]
        if overlapping:
            if table[key, COUNT] == registers[PANE]:
                _after_overlapping(registers, table, closings, parts, ended, key, i)
        else:
            if table[key, COUNT] > registers[SIZE]:
                slots[i] = -1
            _after_separate(registers, table, closings, parts, ended, key, i)
    return keys.size, np.int64(0)


@njit(cache=True, nogil=True)
def _replay_count(keys, registers, table, applied, closings, parts, slots):  # type: ignore[no-untyped-def]
    ring, size = registers[RING], registers[SIZE]
    gapped = registers[ADVANCE] > size
    for i in range(keys.size):
        slots[i] = -1
        key = np.int64(keys[i])
        if key < 0 or key >= len(table) or table[key, TOP] < 0:
            continue
        position = registers[POSITION] + i
        # The tuple belonged to the youngest pane that was open by then; if that has ended,
        # none of the panes that are open now goes back as far as this tuple.
        pane = table[key, TOP]
        while pane >= table[key, LOW] and table[key, IDS + pane % ring] > position:
            pane -= 1
        slot = key * ring + pane % ring
        if pane < table[key, LOW] or position <= applied[slot]:
            continue
        # Panes below the top were full when the log ended, however much of them is replayed.
        if pane == table[key, TOP]:
            table[key, COUNT] += 1
        if not gapped or table[key, COUNT] <= size:
            slots[i] = slot
        if gapped and table[key, COUNT] == size:
            _close(registers, table, closings, parts, key, 0, 0, 1, size, i + 1)


@njit(cache=True, nogil=True)
def _restore_count(registers, table, keys, ids, panes, counts, clocks, slots):  # type: ignore[no-untyped-def]
    """Put parts into their keys' rows; False when two of them want one place."""
    ring = registers[RING]
    for i in range(keys.size):
        key, pane = np.int64(keys[i]), panes[i]
        place = pane % ring
        if table[key, IDS + place] >= 0:
            return False
        table[key, IDS + place] = ids[i]
        if clocks.size:
            table[key, IDS + ring + place] = clocks[i]
        if table[key, TOP] < 0:
            registers[KEYS] += 1
            table[key, LOW] = pane
        table[key, LOW] = min(table[key, LOW], pane)
        if pane > table[key, TOP]:
            table[key, TOP] = pane
            table[key, PLACE] = place
            table[key, COUNT] = counts[i]
        slots[i] = key * ring + place
    registers[OPEN] = keys.size
    return True


@njit(cache=True, nogil=True)
def _possible(registers, table, key):  # type: ignore[no-untyped-def]
    """Whether a restored key's panes can be open together; a replay may still add tuples."""
    ring, pane, size = registers[RING], registers[PANE], registers[SIZE]
    low, top = table[key, LOW], table[key, TOP]
    if top - low >= ring or low * pane % registers[ADVANCE] != 0:
        return False
    for ordinal in range(low, top + 1):
        if table[key, IDS + ordinal % ring] < 0:
            return False
        later = ordinal > low
        if later and table[key, IDS + (ordinal - 1) % ring] >= table[key, IDS + ordinal % ring]:
            return False
    if registers[ADVANCE] >= size:
        return top == 0 and table[key, COUNT] < registers[ADVANCE]
    return table[key, COUNT] <= pane and (top - low) * pane + table[key, COUNT] < size


@njit(cache=True, nogil=True)
def _check_keys(registers, table, least, bad):  # type: ignore[no-untyped-def]
    """Live keys whose panes are impossible, or whose top pane has fewer than `least` tuples."""
    found = 0
    for key in range(len(table)):
        if table[key, TOP] >= 0:
            enough = table[key, COUNT] >= least
            if not (enough and _possible(registers, table, key)):
                bad[found] = key
                found += 1
    return found


@njit(cache=True, nogil=True)
def _gather_ids(slots, ring, table, ids):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        key = np.int64(slots[i]) // ring
        ids[i] = table[key, IDS + slots[i] - key * ring]


@njit(cache=True, nogil=True)
def _gather_panes(slots, ring, table, panes):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        key = np.int64(slots[i]) // ring
        # How far the slot is behind the top pane's, going round.
        behind = table[key, PLACE] - (slots[i] - key * ring)
        panes[i] = table[key, TOP] - (behind if behind >= 0 else behind + ring)


class CountRouter(Router):
    """Routes tuples to count windows of any size and advance."""

    def __init__(self, window: CountWindow, timeout: int = 0) -> None:
        super().__init__()
        registers = self.registers
        registers[SIZE], registers[ADVANCE], registers[PANE] = (
            window.size,
            window.advance,
            window.pane,
        )
        self._ring = max(1, window.size // window.pane)
        registers[RING], registers[TIMEOUT] = self._ring, timeout
        registers[STEP] = max(1, window.advance // window.pane)
        rings = 2 if timeout else 1
        self._table = np.zeros((0, IDS + rings * self._ring), np.int64)
        self._deadlines = np.zeros((0, 2), np.int64)
        # How many part references a row led to in the last turn: room for as many is made at once.
        self._parts_per_row = 1.0

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open pane, or -1."""
        return self._table[:, IDS : IDS + self._ring].ravel()

    @property
    def capacity(self) -> int:
        """All slots are below this."""
        return len(self._table) * self._ring

    def key_is_live(self, id_limit: int) -> Array:
        """For each key id below `id_limit`, whether it has open panes."""
        self._ensure_keys(id_limit)
        return self._table[:id_limit, TOP] >= 0

    def _ensure_keys(self, id_limit: int) -> None:
        old = len(self._table)
        if id_limit > old:
            if capacity_for(id_limit, old) * self._ring >= 2**31:
                raise UsageError(
                    f"{id_limit} keys with {self._ring} panes each are more than one operator can "
                    "hold; use more shards, or an advance that divides the size into fewer panes"
                )
            self._table = with_room(self._table, id_limit)
            self._table[old:, TOP:] = -1

    def _ensure_deadlines(self, more: int) -> None:
        """Room for `more` deadlines; those of panes that have ended are dropped first."""
        registers = self.registers
        if registers[TIMEOUT] and registers[TAIL] + more > len(self._deadlines):
            queue = self._deadlines[registers[HEAD] : registers[TAIL]]
            key, place = queue[:, 0] // self._ring, queue[:, 0] % self._ring
            self._queue_deadlines(queue[self._table[key, IDS + place] == queue[:, 1]], more)

    def _queue_deadlines(self, waiting: Array, more: int) -> None:
        self._deadlines = grown(waiting, capacity_for(2 * len(waiting) + more, 0))
        self.registers[HEAD], self.registers[TAIL] = 0, len(waiting)

    def route(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, id_limit: int
    ) -> Routing:
        """See `Router.route`."""
        registers = self.registers
        self._ensure_keys(id_limit)
        self._ensure_deadlines(keys.size)
        room = int(keys.size * max(self._parts_per_row, 1.0)) + self._ring
        output = Output.for_rows(keys.size, room)
        output.begin_turn(registers, position)
        slots = np.empty(keys.size, np.int32)
        done = 0
        while True:
            done, missing = _route_count(
                keys,
                times,
                done,
                registers,
                self._table,
                self._deadlines,
                output.closings,
                output.parts,
                output.opened,
                output.ended,
                slots,
            )
            if done == keys.size:
                registers[CLOCK] = max(registers[CLOCK], watermark)
                missing = self._expire_at_end(output, done)
                if missing == 0:
                    return self._routing(output, keys, slots)
            output.enlarge(missing)

    def _expire_at_end(self, output: Output, row: int) -> int:
        return int(
            _expire(
                self.registers,
                self._table,
                self._deadlines,
                output.closings,
                output.parts,
                output.ended,
                row,
            )
        )

    def _routing(self, output: Output, keys: Int32s, slots: Int32s) -> Routing:
        registers = self.registers
        if keys.size:
            self._parts_per_row = 1.1 * int(registers[PARTS]) / keys.size
        opened = output.opened[: registers[OPENED]]
        still_open = self.ids_of(opened[:, 0]) == opened[:, 1] + registers[POSITION]
        routing = output.routing(registers, slots, opened[still_open])
        # With a gap a key has one part, whose slot is the key.
        return routing._replace(touched=keys) if registers[ADVANCE] > registers[SIZE] else routing

    def replay(
        self,
        keys: Int32s,
        times: Int64s,  # noqa: ARG002
        position: int,
        watermark: int,  # noqa: ARG002
        applied: Int64s,
    ) -> tuple[Int32s, Closings]:
        """See `Router.replay`; a window that closed before its gap is closed again, unseen."""
        registers = self.registers
        output = Output.for_rows(0, keys.size)
        output.begin_turn(registers, position)
        slots = np.empty(keys.size, np.int32)
        _replay_count(keys, registers, self._table, applied, output.closings, output.parts, slots)
        return slots, output.routing(registers, slots, output.opened[:0]).closings

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open panes."""
        ids = np.empty(slots.size, np.int64)
        _gather_ids(slots, self._ring, self._table, ids)
        return ids

    def keys_of(self, slots: Array) -> Int32s:
        """Key ids of open panes."""
        return (slots // self._ring).astype(np.int32)

    def _panes_of(self, slots: Array) -> Int64s:
        panes = np.empty(slots.size, np.int64)
        _gather_panes(slots, self._ring, self._table, panes)
        return panes

    def opening_columns(self, slots: Array) -> list[Array]:
        """Pane numbers, and the clock when each pane opened if there is a timeout."""
        if not self.registers[TIMEOUT]:
            return [self._panes_of(slots)]
        clocks = self._table[slots // self._ring, IDS + self._ring + slots % self._ring]
        return [self._panes_of(slots), clocks]

    def snapshot(self, slots: Array) -> tuple[list[Array], Array]:
        """As `opening_columns`, and the number of tuples in each pane."""
        row = self._table[slots // self._ring]
        is_top = row[:, TOP] == self._panes_of(slots)
        counts = np.where(is_top, row[:, COUNT], self.registers[PANE])
        return [*self.opening_columns(slots), counts], slots

    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> tuple[Int32s, Array]:
        """See `Router.restore`."""
        self._ensure_keys(id_limit)
        registers = self.registers
        keys = np.concatenate([opened.keys, snapshots.keys])
        ids = np.concatenate([opened.ids, snapshots.ids])
        panes, counts, clocks = _joined(opened, snapshots, clocked=bool(registers[TIMEOUT]))
        if panes.size and not 0 <= int(panes.min()) <= int(panes.max()) < 2**31:
            raise DamagedFrame("a footprint names an impossible pane")
        slots = np.empty(keys.size, np.int32)
        placed = _restore_count(registers, self._table, keys, ids, panes, counts, clocks, slots)
        late_clock = clocks.size and int(clocks.max()) > self.clock
        if not placed or late_clock or self._bad_keys(0).size:
            raise DamagedFrame("footprints of windows that cannot be open together")
        if registers[TIMEOUT]:
            starts = panes * registers[PANE] % registers[ADVANCE] == 0
            waiting = np.stack([slots[starts], ids[starts]], axis=1)
            self._queue_deadlines(waiting[np.argsort(waiting[:, 1], kind="stable")], 0)
        return slots, slots[opened.ids.size :]

    def _bad_keys(self, least: int) -> Int64s:
        bad = np.empty(len(self._table), np.int64)
        return bad[: _check_keys(self.registers, self._table, least, bad)]

    def finish_replay(self) -> tuple[Array, Closings]:
        """See `Router.finish_replay`: the top pane has a tuple, and no window is overdue."""
        keys = self._bad_keys(1)
        slots: Int64s = keys * self._ring + self._table[keys, TOP] % self._ring
        return slots.astype(np.int32), NO_CLOSINGS


def _joined(
    opened: PartRows, snapshots: PartRows, *, clocked: bool
) -> tuple[Int64s, Int64s, Int64s]:
    """Panes, counts and clocks of restored parts; an opened part has seen no tuple yet."""
    nothing = np.zeros(0, np.int64)
    both = [rows.columns for rows in (opened, snapshots) if rows.ids.size]
    panes = np.concatenate([nothing, *[columns[0] for columns in both]])
    clocks = np.concatenate([nothing, *[columns[1] for columns in both if clocked]])
    counts = snapshots.columns[-1] if snapshots.ids.size else nothing
    return panes, np.concatenate([np.zeros(opened.ids.size, np.int64), counts]), clocks
