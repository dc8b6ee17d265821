"""Sessions in compiled code: a pool of panes, the sessions made of them, and who closes next.

The pool is a table, a row per slot; a slot is where aggregate functions keep a pane's state.  A
session is a list of panes: it starts as one, and when a tuple joins two sessions, the panes of the
younger go behind those of the older, and are merged when the session closes.  The first pane, its
*root*, says what is known of the session; it is the one that tuples are added to, and the one with
the smallest id.  The sessions of a key form a list (`heads[key]`, then `OLDER`).

Sessions wait for the clock in a heap, by an end that was theirs once: ends only rise, so whoever
comes up too early goes back with the end it has now.
"""

from __future__ import annotations

from numba import njit

from rewake.operators.windows.kernel_tables import CLOSINGS, ENDED, LATE, OPENED, PARTS, POSITION
from rewake.operators.windows.routing import CLOCK, OPEN, OWN

# Columns of the pool: the position of the pane's first tuple (-1 in a free slot), the key; of a
# root: first and last time, tuples (0: not a root), the next session of the key; then the next pane
# of the session, and of a root its last pane.  Eight make a cache line.
ID, KEY, START, LAST, COUNT, OLDER, PANE, TAIL = range(8)
WIDTH = 8

# The registers of this router alone: free slots, waiting sessions, what tuples alone have told of
# the clock, gap and slack.  What a turn put out has one more number than that of other routers.
FREE, WAITING, TOLD, GAP, SLACK = range(OWN, OWN + 5)
FLAGGED = POSITION

# Columns of the heap.
_END, _SLOT, _ID = range(3)
# Columns of the closings: rows before it, key, tuples, start, end, id, end of its panes.
AT, CLOSING_KEY, CLOSING_COUNT, CLOSING_START, CLOSING_END, CLOSING_ID, CLOSING_PANES = range(7)
CLOSING_WIDTH = 7


@njit(cache=True, nogil=True)
def _sift_up(heap, place):  # type: ignore[no-untyped-def]
    while place > 0:
        above = (place - 1) // 2
        if heap[above, _END] <= heap[place, _END]:
            return
        for j in range(3):
            heap[above, j], heap[place, j] = heap[place, j], heap[above, j]
        place = above


@njit(cache=True, nogil=True)
def _sift_down(heap, size):  # type: ignore[no-untyped-def]
    place = 0
    while True:
        least = place
        for below in range(2 * place + 1, min(2 * place + 3, size)):
            if heap[below, _END] < heap[least, _END]:
                least = below
        if least == place:
            return
        for j in range(3):
            heap[least, j], heap[place, j] = heap[place, j], heap[least, j]
        place = least


@njit(cache=True, nogil=True)
def _wait(registers, heap, end, slot, identity):  # type: ignore[no-untyped-def]
    place = registers[WAITING]
    heap[place, _END] = end
    heap[place, _SLOT] = slot
    heap[place, _ID] = identity
    registers[WAITING] += 1
    _sift_up(heap, place)


@njit(cache=True, nogil=True)
def _unlink(pool, heads, key, slot):  # type: ignore[no-untyped-def]
    """Take a session from its key's list."""
    if heads[key] == slot:
        heads[key] = pool[slot, OLDER]
        return
    before = heads[key]
    while pool[before, OLDER] != slot:
        before = pool[before, OLDER]
    pool[before, OLDER] = pool[slot, OLDER]


@njit(cache=True, nogil=True)
def _merge(pool, heads, one, other):  # type: ignore[no-untyped-def]
    """Make one session of two of a key; its root."""
    if pool[other, ID] < pool[one, ID]:
        one, other = other, one
    _unlink(pool, heads, pool[one, KEY], other)
    pool[one, START] = min(pool[one, START], pool[other, START])
    pool[one, LAST] = max(pool[one, LAST], pool[other, LAST])
    pool[one, COUNT] += pool[other, COUNT]
    pool[other, COUNT] = 0
    pool[pool[one, TAIL], PANE] = other
    pool[one, TAIL] = pool[other, TAIL]
    return one


@njit(cache=True, nogil=True)
def _add(pool, heads, key, time, gap):  # type: ignore[no-untyped-def]
    """Add a tuple to the session it belongs to, joining two if it does; the root, or -1."""
    root = -1
    slot = heads[key]
    while slot >= 0:
        older = pool[slot, OLDER]
        if time < pool[slot, LAST] + gap and time > pool[slot, START] - gap:
            root = slot if root < 0 else _merge(pool, heads, root, slot)
        slot = older
    if root >= 0:
        pool[root, START] = min(pool[root, START], time)
        pool[root, LAST] = max(pool[root, LAST], time)
        pool[root, COUNT] += 1
    return root


@njit(cache=True, nogil=True)
def _begin(registers, pool, free, heads, key, time, identity):  # type: ignore[no-untyped-def]
    """A new session of one tuple; there is a free slot."""
    registers[FREE] -= 1
    slot = free[registers[FREE]]
    pool[slot, ID] = identity
    pool[slot, KEY] = key
    pool[slot, START] = time
    pool[slot, LAST] = time
    pool[slot, COUNT] = 1
    pool[slot, OLDER] = heads[key]
    pool[slot, PANE] = -1
    pool[slot, TAIL] = slot
    heads[key] = slot
    return slot


@njit(cache=True, nogil=True)
def _close(registers, pool, free, heads, closings, panes, slot, at):  # type: ignore[no-untyped-def]
    """Put a session out and give its slots back."""
    key = pool[slot, KEY]
    _unlink(pool, heads, key, slot)
    number = registers[CLOSINGS]
    closings[number, AT] = at
    closings[number, CLOSING_KEY] = key
    closings[number, CLOSING_COUNT] = pool[slot, COUNT]
    closings[number, CLOSING_START] = pool[slot, START]
    closings[number, CLOSING_END] = pool[slot, LAST] + registers[GAP]
    closings[number, CLOSING_ID] = pool[slot, ID]
    pane = slot
    while pane >= 0:
        panes[registers[PARTS]] = 2 * pane + 1
        registers[PARTS] += 1
        pool[pane, ID] = -1
        pool[pane, COUNT] = 0
        free[registers[FREE]] = pane
        registers[FREE] += 1
        pane = pool[pane, PANE]
    closings[number, CLOSING_PANES] = registers[PARTS]
    registers[CLOSINGS] += 1


@njit(cache=True, nogil=True)
def _advance(registers, pool, free, heads, heap, opened_at, closings, panes, ended, flagged, at):  # type: ignore[no-untyped-def]
    """Close the sessions that end at or before the clock."""
    while registers[WAITING] > 0 and heap[0, _END] <= registers[CLOCK]:
        slot, identity = heap[0, _SLOT], heap[0, _ID]
        waits = pool[slot, ID] == identity and pool[slot, COUNT] > 0
        end = pool[slot, LAST] + registers[GAP]
        if waits and end > registers[CLOCK]:
            heap[0, _END] = end
            _sift_down(heap, registers[WAITING])
            continue
        registers[WAITING] -= 1
        for j in range(3):
            heap[0, j] = heap[registers[WAITING], j]
        _sift_down(heap, registers[WAITING])
        if not waits:
            continue
        key = pool[slot, KEY]
        _close(registers, pool, free, heads, closings, panes, slot, at)
        if heads[key] < 0:
            ended[registers[ENDED]] = opened_at[key]
            registers[ENDED] += 1
            registers[OPEN] -= 1
            opened_at[key] = -1
        elif end > registers[TOLD]:
            flagged[registers[FLAGGED]] = key
            registers[FLAGGED] += 1


@njit(cache=True, nogil=True)
def route(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    keys, times, position, watermark, registers, pool, free, heads, heap, opened_at, opening_clock,
    slots, closings, panes, late, opened, ended, flagged,
):  # fmt: skip
    """Route a stream event's tuples to sessions, closing those whose time is over.

    There is a free slot and room in the heap for every tuple, and in every output for all there can
    be.
    """
    gap = registers[GAP]
    for i in range(keys.size):
        key, time = keys[i], times[i]
        slot = _add(pool, heads, key, time, gap)
        if slot < 0 and time + gap <= registers[CLOCK]:
            late[registers[LATE]] = i
            registers[LATE] += 1
            if opened_at[key] >= 0 and time + gap > registers[TOLD]:
                flagged[registers[FLAGGED]] = key
                registers[FLAGGED] += 1
        elif slot < 0:
            slot = _begin(registers, pool, free, heads, key, time, position + i)
            _wait(registers, heap, time + gap, slot, position + i)
            if opened_at[key] < 0:
                opened_at[key] = position + i
                opening_clock[key] = registers[CLOCK]
                opened[registers[OPENED]] = i
                registers[OPENED] += 1
                registers[OPEN] += 1
        slots[i] = slot
        registers[TOLD] = max(registers[TOLD], time - registers[SLACK])
        if registers[TOLD] > registers[CLOCK]:
            registers[CLOCK] = registers[TOLD]
            _advance(
                registers, pool, free, heads, heap, opened_at, closings, panes, ended, flagged,
                i + 1,
            )  # fmt: skip
    if watermark > registers[CLOCK]:
        registers[CLOCK] = watermark
        _advance(
            registers, pool, free, heads, heap, opened_at, closings, panes, ended, flagged,
            keys.size,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def drop_over(registers, pool, free, heads, closings, panes, key, clock, at):  # type: ignore[no-untyped-def]
    """Close a key's sessions that end at or before `clock`."""
    slot = heads[key]
    while slot >= 0:
        older = pool[slot, OLDER]
        if pool[slot, LAST] + registers[GAP] <= clock:
            _close(registers, pool, free, heads, closings, panes, slot, at)
        slot = older


@njit(cache=True, nogil=True)
def replay(  # type: ignore[no-untyped-def]
    keys,
    times,
    position,
    clock,
    floor,
    applied,
    registers,
    pool,
    free,
    heads,
    opened_at,
    slots,
    closings,
    panes,
):
    """Route tuples again to parts that have not seen them; the clock that tuples have told."""
    gap = registers[GAP]
    for i in range(keys.size):
        key, time = keys[i], times[i]
        slot = -1
        if key >= 0 and opened_at[key] >= 0 and position + i > applied[key]:
            now = max(clock, floor[key])
            drop_over(registers, pool, free, heads, closings, panes, key, now, i)
            slot = _add(pool, heads, key, time, gap)
            if slot < 0 and time + gap > now:
                slot = _begin(registers, pool, free, heads, key, time, position + i)
        slots[i] = slot
        clock = max(clock, time - registers[SLACK])
    return clock


@njit(cache=True, nogil=True)
def drop_all_over(registers, pool, free, heads, closings, panes, keys):  # type: ignore[no-untyped-def]
    """Close the sessions of these keys that end at or before the clock."""
    for i in range(keys.size):
        drop_over(registers, pool, free, heads, closings, panes, keys[i], registers[CLOCK], 0)


@njit(cache=True, nogil=True)
def count_panes(keys, pool, heads, lengths):  # type: ignore[no-untyped-def]
    """How many panes the sessions of each key have."""
    for i in range(keys.size):
        lengths[i] = 0
        slot = heads[keys[i]]
        while slot >= 0:
            pane = slot
            while pane >= 0:
                lengths[i] += 1
                pane = pool[pane, PANE]
            slot = pool[slot, OLDER]


@njit(cache=True, nogil=True)
def list_panes(keys, pool, heads, slots, roots):  # type: ignore[no-untyped-def]
    """The panes of the keys' sessions, session by session, and the root of each."""
    place = 0
    for i in range(keys.size):
        slot = heads[keys[i]]
        while slot >= 0:
            pane = slot
            while pane >= 0:
                slots[place] = pane
                roots[place] = slot
                place += 1
                pane = pool[pane, PANE]
            slot = pool[slot, OLDER]


@njit(cache=True, nogil=True)
def link_panes(keys, starts, slots, pool, heads):  # type: ignore[no-untyped-def]
    """Make sessions of restored panes: those of one key with one start, which follow each other."""
    root = -1
    for i in range(slots.size):
        slot = slots[i]
        pool[slot, PANE] = -1
        pool[slot, OLDER] = -1
        if i > 0 and keys[i] == keys[i - 1] and starts[i] == starts[i - 1]:
            pool[slot, COUNT] = 0
            pool[slots[i - 1], PANE] = slot
        else:
            root = slot
            pool[root, OLDER] = heads[keys[i]]
            heads[keys[i]] = root
        pool[root, TAIL] = slot
