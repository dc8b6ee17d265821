"""Where a key's tuples are, in the order of event time: what the other input of a join probes.

Each key has a segment of one arena: times and rows of its tuples, sorted by time and then by row.
The tuples within a window around a time are thus neighbours, found by two binary searches, and the
tuples of panes that have ended are at the segment's start, where they are passed over.

Invariants: segments do not overlap and lie below `used`; a segment is sorted; segments of keys
without tuples take no room after `regroup`.  Rows rise with position, so sorting by row is sorting
by position.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch

# By key: where its segment begins in the arena, how long it may get, its first tuple, its tuples.
_BEGIN, _ROOM, _FIRST, _COUNT, _WIDTH = 0, 1, 2, 3, 4
_SMALLEST = 4
_SPARE = 1024
_NO_ROWS = np.zeros(0, np.int32)


@njit(cache=True, nogil=True, inline="always")
def _make_room(segments, at, times, rows, used):  # type: ignore[no-untyped-def]
    """Let a segment that is full grow by one; False when the arena is full."""
    begin, first, count = segments[at + _BEGIN], segments[at + _FIRST], segments[at + _COUNT]
    target = begin
    if 2 * count > segments[at + _ROOM] or segments[at + _ROOM] == 0:
        room = max(np.int64(_SMALLEST), 2 * count)
        if used[0] + room > times.size:
            return False
        target = used[0]
        used[0] += room
        segments[at + _ROOM] = room
        segments[at + _BEGIN] = target
    for j in range(count):
        times[target + j] = times[first + j]
        rows[target + j] = rows[first + j]
    segments[at + _FIRST] = target
    return True


@njit(cache=True, nogil=True, inline="always")
def _pass_over(segments, at, times, low):  # type: ignore[no-untyped-def]
    """Forget the tuples of a segment that are older than `low`."""
    while segments[at + _COUNT] > 0 and times[segments[at + _FIRST]] < low:
        segments[at + _FIRST] += 1
        segments[at + _COUNT] -= 1


@njit(cache=True, nogil=True)
def _insert(new_keys, new_times, row, low, start, segments, times, rows, used):  # type: ignore[no-untyped-def]
    """Insert tuples from `start` on; returns where the arena was full."""
    for i in range(start, new_keys.size):
        if i + AHEAD < new_keys.size:
            prefetch(segments, max(new_keys[i + AHEAD], 0) * _WIDTH)
        if i + AHEAD // 2 < new_keys.size:
            ahead = np.int64(max(new_keys[i + AHEAD // 2], 0)) * _WIDTH
            end = segments[ahead + _FIRST] + segments[ahead + _COUNT]
            prefetch(times, end)
            prefetch(rows, end)
        if new_keys[i] < 0:
            continue
        at = np.int64(new_keys[i]) * _WIDTH
        _pass_over(segments, at, times, low)
        place = segments[at + _FIRST] + segments[at + _COUNT]
        if place == segments[at + _BEGIN] + segments[at + _ROOM]:
            if not _make_room(segments, at, times, rows, used):
                return i
            place = segments[at + _FIRST] + segments[at + _COUNT]
        # Tuples are mostly in order: the place is mostly the last.
        while place > segments[at + _FIRST] and times[place - 1] > new_times[i]:
            times[place] = times[place - 1]
            rows[place] = rows[place - 1]
            place -= 1
        times[place] = new_times[i]
        rows[place] = row + i
        segments[at + _COUNT] += 1
    return new_keys.size


@njit(cache=True, nogil=True)
def _regroup(segments, low, old_times, old_rows, renumbered, times, rows):  # type: ignore[no-untyped-def]
    """Move all segments to another arena, one behind the other; returns how much they take."""
    used = np.int64(0)
    for at in range(0, segments.size, _WIDTH):
        _pass_over(segments, at, old_times, low)
        first, count = segments[at + _FIRST], segments[at + _COUNT]
        for j in range(count):
            row = old_rows[first + j]
            times[used + j] = old_times[first + j]
            rows[used + j] = renumbered[row] if renumbered.size else row
        segments[at + _BEGIN] = used
        segments[at + _FIRST] = used
        segments[at + _ROOM] = count + count // 2 + 2 if count else 0
        used += segments[at + _ROOM]
    return used


@njit(cache=True, nogil=True)
def _least_room(segments):  # type: ignore[no-untyped-def]
    """The arena that `_regroup` needs at most."""
    total = np.int64(0)
    for at in range(0, segments.size, _WIDTH):
        count = segments[at + _COUNT]
        total += count + count // 2 + 2 if count else 0
    return total


@njit(cache=True, nogil=True, inline="always")
def _first_from(times, first, count, time):  # type: ignore[no-untyped-def]
    """The first place of a segment whose time is at least this."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _ranges(keys, around, within, segments, times, begins, ends):  # type: ignore[no-untyped-def]
    """For each tuple the places of those of its key that are less than `within` away."""
    total = np.int64(0)
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch(segments, max(keys[i + AHEAD], 0) * _WIDTH)
        if i + AHEAD // 2 < keys.size and keys[i + AHEAD // 2] >= 0:
            ahead = np.int64(keys[i + AHEAD // 2]) * _WIDTH
            prefetch(times, segments[ahead + _FIRST])
        begins[i] = 0
        ends[i] = 0
        if keys[i] < 0:
            continue
        at = np.int64(keys[i]) * _WIDTH
        first, count = segments[at + _FIRST], segments[at + _COUNT]
        if count == 0:
            continue
        begins[i] = _first_from(times, first, count, around[i] - within + 1)
        left = first + count - begins[i]
        ends[i] = _first_from(times, begins[i], left, around[i] + within)
        total += ends[i] - begins[i]
    return total


@njit(cache=True, nogil=True)
def _fill(begins, ends, rows, start, arriving, partners):  # type: ignore[no-untyped-def]
    """All pairs of ranges, by arriving tuple and then by the partner's row."""
    count = 0
    for i in range(begins.size):
        first = count
        rising = True
        for place in range(begins[i], ends[i]):
            arriving[count] = start + i
            partners[count] = rows[place]
            rising &= count == first or rows[place] > partners[count - 1]
            count += 1
        if not rising:
            partners[first:count].sort()


class KeyIndex:
    """The tuples of one input by key and time; rows are places in the input's `HeldTuples`."""

    def __init__(self) -> None:
        self._segments = np.zeros(_SPARE * _WIDTH, np.int64)
        self._times = np.zeros(_SPARE, np.int64)
        self._rows = np.zeros(_SPARE, np.int32)
        self._used = np.zeros(1, np.int64)

    def ensure(self, keys: int) -> None:
        """Make room for keys below this id."""
        if keys * _WIDTH > self._segments.size:
            self._segments = grown(self._segments, (keys + keys // 2) * _WIDTH)

    def insert(self, keys: Int32s, times: Int64s, row: int, low: int) -> None:
        """Tuples at `row` and the rows behind it; what is older than `low` may be forgotten.

        Keys below 0 are no keys: their tuples are never found.
        """
        done = 0
        while True:
            done = _insert(
                keys, times, row, low, done, self._segments, self._times, self._rows, self._used
            )
            if done == keys.size:
                return
            self.regroup(low, keys.size - done)

    def regroup(self, low: int, more: int = 0, renumbered: Int32s = _NO_ROWS) -> None:
        """Close the gaps, forget what is older than `low`, and give rows other numbers."""
        room = 2 * _least_room(self._segments) + _SMALLEST * more + _SPARE
        times, rows = np.empty(room, np.int64), np.empty(room, np.int32)
        self._used[0] = _regroup(
            self._segments, low, self._times, self._rows, renumbered, times, rows
        )
        self._times, self._rows = times, rows

    def has_tuples(self, keys: int) -> Array:
        """By key below `keys`: whether it has any."""
        counts: Array = self._segments[_COUNT::_WIDTH][:keys]
        return counts > 0

    def ranges(self, keys: Int32s, times: Int64s, within: int) -> tuple[Int64s, Int64s, int]:
        """By tuple where its partners begin and end, and how many there are together."""
        begins, ends = np.empty(keys.size, np.int64), np.empty(keys.size, np.int64)
        total = _ranges(keys, times, within, self._segments, self._times, begins, ends)
        return begins, ends, int(total)

    def pairs(self, begins: Int64s, ends: Int64s, start: int, total: int) -> tuple[Int32s, Int32s]:
        """Numbers of tuples, counted from `start`, and the rows of their partners."""
        arriving, partners = np.empty(total, np.int32), np.empty(total, np.int32)
        _fill(begins, ends, self._rows, start, arriving, partners)
        return arriving, partners
