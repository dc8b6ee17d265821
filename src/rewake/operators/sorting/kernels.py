"""Compiled buffers of a sort: heaps of row numbers, and the parts their rows belong to.

A buffer is a binary heap of at most `limit` rows, the smallest at its root.  When it is full its
root has left already: it is the greatest tuple that has, kept to tell what comes out of order.

A row costs a heap some ten comparisons of which none can be foreseen.  Where many rows come at once
and none of them out of order, they are sorted, and merged with those that wait: which leave is then
known, and what stays is in order, which is a heap as well.

Rows are numbers of places in the tables `keys`, `positions` and `parts`; a row whose part is -1 is
nobody's and may be dropped.  Tables are passed one by one (see `tables`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Counts that the kernels keep: free slots, places of the arena that are taken, rows in heaps, open
# parts; the block that is being filled and its slot; tuples out of order; then those of the turn.
FREE, ARENA, HELD, OPEN, BLOCK, BLOCK_SLOT, DISORDER, EMITTED, OPENED, TOUCHED, ENDED = range(11)
REGISTERS = 11

_SMALLEST_HEAP = 8


@njit(cache=True, nogil=True, inline="always")
def _before(keys, positions, one, other):  # type: ignore[no-untyped-def]
    """Whether a row leaves before another: by the ordering columns, then by arrival."""
    for column in range(keys.shape[1]):
        if keys[one, column] != keys[other, column]:
            return keys[one, column] < keys[other, column]
    return positions[one] < positions[other]


@njit(cache=True, nogil=True)
def _sink(keys, positions, heap, base, size):  # type: ignore[no-untyped-def]
    """Let the root of a heap sink to where it belongs."""
    row = heap[base]
    place = 0
    child = 1
    while child < size:
        if child + 1 < size and _before(
            keys, positions, heap[base + child + 1], heap[base + child]
        ):
            child += 1
        if not _before(keys, positions, heap[base + child], row):
            break
        heap[base + place] = heap[base + child]
        place = child
        child = 2 * place + 1
    heap[base + place] = row


@njit(cache=True, nogil=True)
def _rise(keys, positions, heap, base, place):  # type: ignore[no-untyped-def]
    """Let the row at a place of a heap rise to where it belongs."""
    row = heap[base + place]
    while place > 0:
        parent = (place - 1) // 2
        if not _before(keys, positions, row, heap[base + parent]):
            break
        heap[base + place] = heap[base + parent]
        place = parent
    heap[base + place] = row


@njit(cache=True, nogil=True)
def make_room(registers, limit, heap, starts, rooms, sizes, buffer, needed):  # type: ignore[no-untyped-def]
    """Room for so many rows in a buffer; False when the arena must grow first."""
    if needed <= rooms[buffer]:
        return True
    room = min(limit, max(_SMALLEST_HEAP, 2 * rooms[buffer], needed))
    if registers[ARENA] + room > heap.size:
        return False
    start = registers[ARENA]
    heap[start : start + sizes[buffer]] = heap[starts[buffer] : starts[buffer] + sizes[buffer]]
    starts[buffer] = start
    rooms[buffer] = room
    registers[ARENA] += room
    return True


@njit(cache=True, nogil=True, inline="always")
def _push(registers, keys, positions, parts, heap, starts, sizes, counts, buffer, row, slot):  # type: ignore[no-untyped-def]
    heap[starts[buffer] + sizes[buffer]] = row
    sizes[buffer] += 1
    _rise(keys, positions, heap, starts[buffer], sizes[buffer] - 1)
    parts[row] = slot
    counts[slot] += 1
    registers[HELD] += 1


@njit(cache=True, nogil=True, inline="always")
def _replace(keys, positions, parts, heap, starts, sizes, counts, buffer, row, slot):  # type: ignore[no-untyped-def]
    """Put a row in the place of a buffer's root; the slot that lost a row."""
    base = starts[buffer]
    lost = parts[heap[base]]
    parts[heap[base]] = -1
    counts[lost] -= 1
    heap[base] = row
    _sink(keys, positions, heap, base, sizes[buffer])
    parts[row] = slot
    counts[slot] += 1
    return lost


@njit(cache=True, nogil=True, inline="always")
def _emit(registers, emitted, row):  # type: ignore[no-untyped-def]
    emitted[registers[EMITTED]] = row
    registers[EMITTED] += 1


@njit(cache=True, nogil=True, inline="always")
def _touch(registers, touched, slot):  # type: ignore[no-untyped-def]
    touched[registers[TOUCHED]] = slot
    registers[TOUCHED] += 1


@njit(cache=True, nogil=True, inline="always")
def _open(registers, span, slot_of, ids, marks, opened, slot, mark, position):  # type: ignore[no-untyped-def]
    """Take the last free slot for a part."""
    registers[FREE] -= 1
    registers[OPEN] += 1
    ids[slot] = position
    marks[slot] = mark
    opened[registers[OPENED]] = slot
    registers[OPENED] += 1
    if span:
        registers[BLOCK] = mark
        registers[BLOCK_SLOT] = slot
    else:
        slot_of[mark] = slot


@njit(cache=True, nogil=True, inline="always")
def _slot_for(registers, span, slot_of, mark):  # type: ignore[no-untyped-def]
    """The slot of a block or key, -1 when it has none."""
    if span == 0:
        return np.int64(slot_of[mark])
    return registers[BLOCK_SLOT] if registers[BLOCK] == mark else np.int64(-1)


@njit(cache=True, nogil=True)
def arrive(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    registers, limit, span, owners, passed, row, i, keys, positions, parts,
    heap, starts, rooms, sizes, slot_of, ids, marks, counts, free, opened, touched, emitted
):  # fmt: skip
    """Let tuples in from number `i` on; returns where the arena was full.

    `span` is the length of a block, and 0 where each owner (key) has a buffer.  The first tuple is
    at `row`; `passed` says which leave at once because the clock has passed them.  Rows that leave
    out of order are told as their complement.
    """
    for i in range(i, passed.size):  # noqa: B020, PLR1704
        new = row + i
        mark = positions[new] // span if span else np.int64(owners[i])
        slot = _slot_for(registers, span, slot_of, mark)
        buffer = np.int64(0) if span else slot
        full = buffer >= 0 and sizes[buffer] == limit
        if passed[i] or (full and _before(keys, positions, new, heap[starts[buffer]])):
            registers[DISORDER] += 1
            _emit(registers, emitted, ~new)
            continue
        fresh = slot < 0
        if fresh:
            slot = np.int64(free[registers[FREE] - 1])
            buffer = np.int64(0) if span else slot
        if not full and not make_room(
            registers, limit, heap, starts, rooms, sizes, buffer, sizes[buffer] + 1
        ):
            return i
        if fresh:
            _open(registers, span, slot_of, ids, marks, opened, slot, mark, positions[new])
        _touch(registers, touched, slot)
        if full:
            lost = _replace(keys, positions, parts, heap, starts, sizes, counts, buffer, new, slot)
            _touch(registers, touched, lost)
        else:
            _push(registers, keys, positions, parts, heap, starts, sizes, counts, buffer, new, slot)
        if sizes[buffer] == limit:
            _emit(registers, emitted, heap[starts[buffer]])
    return passed.size


@njit(cache=True, nogil=True)
def merge(limit, waiting, order, row, keys, positions, merged):  # type: ignore[no-untyped-def]
    """Merge rows that come with those that wait; False when one of them comes out of order.

    `waiting` is in order, `order` are the numbers of those that come, in theirs.  Before number i
    comes, as many have left as are then more than the buffer holds, the one included that is
    remembered.  They were the smallest: it is out of order iff it is among so many smallest of all.
    """
    old, new = 0, 0
    for place in range(merged.size):
        if new == order.size or (
            old < waiting.size and _before(keys, positions, waiting[old], row + order[new])
        ):
            merged[place] = waiting[old]
            old += 1
            continue
        if place < waiting.size + order[new] - limit + 1:
            return False
        merged[place] = row + order[new]
        new += 1
    return True


@njit(cache=True, nogil=True)
def arrive_in_order(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    registers, limit, span, row, merged, positions, parts, heap, starts, sizes, slot_of, ids, marks,
    counts, free, opened, touched, emitted
):  # fmt: skip
    """Let the rows from `row` on in that were merged with those that wait; as `arrive` does."""
    waiting = sizes[0]
    for new in range(row, row + merged.size - waiting):
        mark = positions[new] // span
        slot = _slot_for(registers, span, slot_of, mark)
        if slot < 0:
            slot = np.int64(free[registers[FREE] - 1])
            _open(registers, span, slot_of, ids, marks, opened, slot, mark, positions[new])
        _touch(registers, touched, slot)
        parts[new] = slot
        counts[slot] += 1
    remembered = max(merged.size - limit, 0)
    for place in range(remembered):
        lost = parts[merged[place]]
        parts[merged[place]] = -1
        counts[lost] -= 1
        _touch(registers, touched, lost)
    if merged.size >= limit:
        # The first has left already where the buffer was full.
        for place in range(1 if waiting == limit else 0, remembered + 1):
            _emit(registers, emitted, merged[place])
    sizes[0] = merged.size - remembered
    heap[starts[0] : starts[0] + sizes[0]] = merged[remembered:]
    registers[HELD] += sizes[0] - waiting


@njit(cache=True, nogil=True)
def refill(  # type: ignore[no-untyped-def]
    registers, limit, blocks, slots, row, i, keys, positions, parts, heap, starts, rooms, sizes,
    counts
):  # fmt: skip
    """Put rows of restored parts into their buffers from number `i` on, keeping the greatest.

    Emits nothing; returns where the arena was full.
    """
    for i in range(i, slots.size):  # noqa: B020, PLR1704
        new = row + i
        slot = np.int64(slots[i])
        buffer = np.int64(0) if blocks else slot
        if sizes[buffer] < limit:
            if not make_room(
                registers, limit, heap, starts, rooms, sizes, buffer, sizes[buffer] + 1
            ):
                return i
            _push(registers, keys, positions, parts, heap, starts, sizes, counts, buffer, new, slot)
        elif _before(keys, positions, heap[starts[buffer]], new):
            _replace(keys, positions, parts, heap, starts, sizes, counts, buffer, new, slot)
    return slots.size


@njit(cache=True, nogil=True)
def release(  # type: ignore[no-untyped-def]
    registers, limit, everything, clock, keys, positions, parts, heap, starts, sizes, counts,
    buffers, touched, emitted
):  # fmt: skip
    """Let all rows leave that the clock has passed, buffer by buffer, each in order."""
    for buffer in range(buffers):
        gone = sizes[buffer] == limit  # the root has left already
        base = starts[buffer]
        while sizes[buffer] > 0 and (everything or keys[heap[base], 0] < clock):
            row = heap[base]
            slot = parts[row]
            _touch(registers, touched, slot)
            counts[slot] -= 1
            parts[row] = -1
            if not gone:
                _emit(registers, emitted, row)
            gone = False
            registers[HELD] -= 1
            sizes[buffer] -= 1
            heap[base] = heap[base + sizes[buffer]]
            if sizes[buffer] > 0:
                _sink(keys, positions, heap, base, sizes[buffer])


@njit(cache=True, nogil=True)
def settle(registers, position, span, slot_of, ids, marks, counts, free, touched, opened, ended):  # type: ignore[no-untyped-def]
    """End the parts that hold nothing any more; leave only those still open among the opened."""
    for place in range(registers[TOUCHED]):
        slot = touched[place]
        if ids[slot] < 0 or counts[slot] > 0:
            continue
        if ids[slot] < position:
            ended[registers[ENDED]] = ids[slot]
            registers[ENDED] += 1
        if span == 0:
            slot_of[marks[slot]] = -1
        elif registers[BLOCK] == marks[slot]:
            registers[BLOCK] = -1
        ids[slot] = -1
        free[registers[FREE]] = slot
        registers[FREE] += 1
        registers[OPEN] -= 1
    still = 0
    for place in range(registers[OPENED]):
        if ids[opened[place]] >= 0:
            opened[still] = opened[place]
            still += 1
    registers[OPENED] = still


@njit(cache=True, nogil=True)
def renumber(numbers, heap, starts, sizes, buffers):  # type: ignore[no-untyped-def]
    """Rows have moved: put their new numbers into the heaps."""
    for buffer in range(buffers):
        for place in range(starts[buffer], starts[buffer] + sizes[buffer]):
            heap[place] = numbers[heap[place]]
