"""Hash tables from keys to small dense ids, compiled, for whole columns at a time.

Two kinds: `IntegerTable` for keys of at most 64 bits, `BytesTable` for all others as bytes.  Both
use open addressing with linear probing over `(key or hash, id)` pairs that share a cache line.

Invariants: an id is given to at most one key; ids are below `id_limit`; the table is at most 70%
full.  Keys are removed only by `keep`, in bulk, so that a key that comes back soon costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rewake.operators.columns.arrays import Array, Bytes, Int32s, Int64s, grown, with_room
from rewake.operators.columns.prefetch import AHEAD, prefetch

_SMALLEST = 1024
_NO_ROWS = np.zeros(0, np.uint32)
# Fibonacci hashing: the odd number nearest to 2**64 / golden ratio spreads consecutive integers.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)

# Places in the `counts` array that the kernels update in place.
_USED, _NEXT_ID, _FREE, _ARENA = 0, 1, 2, 3


@njit(cache=True, nogil=True, inline="always")
def _home(key, shift):  # type: ignore[no-untyped-def]
    return np.int64((np.uint64(key) * _GOLDEN) >> shift) * 2


@njit(cache=True, nogil=True)
def _find_integers(keys, entries, shift, ids):  # type: ignore[no-untyped-def]
    """Ids of keys, -1 where a key is unknown."""
    last = entries.size - 1
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch(entries, _home(np.int64(keys[i + AHEAD]), shift))
        place = _home(np.int64(keys[i]), shift)
        while entries[place + 1] >= 0 and entries[place] != keys[i]:
            place = (place + 2) & last
        ids[i] = entries[place + 1]


@njit(cache=True, nogil=True)
def _intern_integers(keys, start, entries, shift, values, free, counts, ids):  # type: ignore[no-untyped-def]
    """Ids of keys from `start` on, new ids for unknown ones; returns where it ran out of room."""
    last = entries.size - 1
    limit = entries.size // 2 * 7 // 10
    for i in range(start, keys.size):
        if i + AHEAD < keys.size:
            prefetch(entries, _home(np.int64(keys[i + AHEAD]), shift))
        key = np.int64(keys[i])
        place = _home(key, shift)
        while entries[place + 1] >= 0 and entries[place] != key:
            place = (place + 2) & last
        if entries[place + 1] < 0:
            if counts[_USED] >= limit:
                return i
            if counts[_FREE] > 0:
                counts[_FREE] -= 1
                new = np.int64(free[counts[_FREE]])
            elif counts[_NEXT_ID] < values.size:
                new = counts[_NEXT_ID]
                counts[_NEXT_ID] += 1
            else:
                return i
            counts[_USED] += 1
            entries[place] = key
            entries[place + 1] = new
            values[new] = key
        ids[i] = entries[place + 1]
    return keys.size


@njit(cache=True, nogil=True)
def _gather_integers(ids, values, keys):  # type: ignore[no-untyped-def]
    nulls = 0
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            prefetch(values, ids[i + AHEAD])
        keys[i] = values[ids[i]]
        nulls += ids[i] == 0
    return nulls


@njit(cache=True, nogil=True)
def _rehash(old, entries, shift, live):  # type: ignore[no-untyped-def]
    """Move entries whose id is marked in `live` (all, when it is empty) into a new table."""
    last = entries.size - 1
    for old_place in range(0, old.size, 2):
        if old[old_place + 1] >= 0 and (live.size == 0 or live[old[old_place + 1]]):
            place = _home(np.int64(old[old_place]), shift)
            while entries[place + 1] >= 0:
                place = (place + 2) & last
            entries[place] = old[old_place]
            entries[place + 1] = old[old_place + 1]


@njit(cache=True, nogil=True, inline="always")
def _word(data, place):  # type: ignore[no-untyped-def]
    """Eight bytes as a number; compiled, this is one load."""
    word = np.uint64(0)
    for j in range(8):
        word |= np.uint64(data[place + np.uint64(j)]) << np.uint64(8 * j)
    return word


@njit(cache=True, nogil=True)
def _hash_rows(offsets, data, hashes):  # type: ignore[no-untyped-def]
    """FNV-1a, eight bytes at a time as long as there are so many."""
    for i in range(hashes.size):
        mixed = _FNV_OFFSET
        place, end = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        while place + np.uint64(8) <= end:
            mixed = (mixed ^ _word(data, place)) * _FNV_PRIME
            # A product carries upwards only.
            mixed ^= mixed >> np.uint64(32)
            place += np.uint64(8)
        while place < end:
            mixed = (mixed ^ np.uint64(data[place])) * _FNV_PRIME
            place += np.uint64(1)
        hashes[i] = np.int64(mixed)


@njit(cache=True, nogil=True, inline="always")
def _same(data, start, end, arena, place, length):  # type: ignore[no-untyped-def]
    if end - start != length:
        return False
    # Mostly they are the same: all bytes at once, by unsigned places, not until one differs.
    here, there = np.uint64(start), np.uint64(place)
    differs = np.uint8(0)
    for j in range(np.uint64(length)):
        differs |= data[here + j] ^ arena[there + j]
    return differs == 0


@njit(cache=True, nogil=True)
def _guess(hashes, entries, shift, ids):  # type: ignore[no-untyped-def]
    """The first id whose key has the same hash, -1 if there is none."""
    last = entries.size - 1
    for i in range(hashes.size):
        if i + AHEAD < hashes.size:
            prefetch(entries, _home(hashes[i + AHEAD], shift))
        place = _home(hashes[i], shift)
        while entries[place + 1] >= 0 and entries[place] != hashes[i]:
            place = (place + 2) & last
        ids[i] = entries[place + 1]


@njit(cache=True, nogil=True)
def _doubtful(offsets, data, ids, starts, lengths, arena, rows):  # type: ignore[no-untyped-def]
    """Rows whose guess is none or, two keys sharing a hash, not theirs.

    A loop of its own, because its misses can be foreseen only once the guesses are made.
    """
    count = 0
    for i in range(ids.size):
        if i + AHEAD < ids.size:
            ahead = max(ids[i + AHEAD], 0)
            prefetch(starts, ahead)
            prefetch(lengths, ahead)
        if i + AHEAD // 2 < ids.size and starts.size:
            prefetch(arena, starts[max(ids[i + AHEAD // 2], 0)])
        known = ids[i]
        if known < 0 or not _same(
            data, offsets[i], offsets[i + 1], arena, starts[known], lengths[known]
        ):
            rows[count] = i
            count += 1
    return count


@njit(cache=True, nogil=True)
def _search(  # type: ignore[no-untyped-def]
    offsets, data, hashes, row, entries, shift, starts, lengths, arena
):
    """Where the key of a row is in the table, or the empty place where it would be."""
    last = entries.size - 1
    place = _home(hashes[row], shift)
    while entries[place + 1] >= 0:
        found = entries[place + 1]
        if entries[place] == hashes[row] and _same(
            data, offsets[row], offsets[row + 1], arena, starts[found], lengths[found]
        ):
            break
        place = (place + 2) & last
    return place


@njit(cache=True, nogil=True)
def _find_bytes(offsets, data, hashes, rows, entries, shift, starts, lengths, arena, ids):  # type: ignore[no-untyped-def]
    for row in rows:
        place = _search(offsets, data, hashes, row, entries, shift, starts, lengths, arena)
        ids[row] = entries[place + 1]


@njit(cache=True, nogil=True)
def _intern_bytes(  # type: ignore[no-untyped-def]
    offsets, data, hashes, rows, begin, entries, shift, starts, lengths, arena, free, counts, ids
):
    """As `_intern_integers`, for chosen rows; stops also when the arena of key bytes is full."""
    limit = entries.size // 2 * 7 // 10
    for number in range(begin, rows.size):
        row = rows[number]
        place = _search(offsets, data, hashes, row, entries, shift, starts, lengths, arena)
        if entries[place + 1] < 0:
            start, end = offsets[row], offsets[row + 1]
            if counts[_USED] >= limit or counts[_ARENA] + end - start > arena.size:
                return number
            if counts[_FREE] > 0:
                counts[_FREE] -= 1
                new = np.int64(free[counts[_FREE]])
            elif counts[_NEXT_ID] < starts.size:
                new = counts[_NEXT_ID]
                counts[_NEXT_ID] += 1
            else:
                return number
            counts[_USED] += 1
            entries[place] = hashes[row]
            entries[place + 1] = new
            starts[new] = counts[_ARENA]
            lengths[new] = end - start
            arena[counts[_ARENA] : counts[_ARENA] + end - start] = data[start:end]
            counts[_ARENA] += end - start
        ids[row] = entries[place + 1]
    return rows.size


@njit(cache=True, nogil=True)
def _gather_rows(ids, starts, lengths, arena, offsets, data):  # type: ignore[no-untyped-def]
    for i in range(ids.size):
        start, length = starts[ids[i]], lengths[ids[i]]
        data[offsets[i] : offsets[i] + length] = arena[start : start + length]


class _Table:
    """What both tables share: slots, ids, growth and removal."""

    def __init__(self, entry_dtype: type[np.signedinteger[Any]] = np.int64) -> None:
        self._entry_dtype = entry_dtype
        self._entries = self._empty(_SMALLEST)
        self._free = np.zeros(0, np.int32)
        self._counts = np.zeros(4, np.int64)

    def _empty(self, capacity: int) -> Array:
        entries = np.zeros(2 * capacity, self._entry_dtype)
        entries[1::2] = -1
        return entries

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(64 - (self._entries.size // 2).bit_length() + 1)

    @property
    def size(self) -> int:
        """How many keys have an id."""
        return int(self._counts[_USED])

    @property
    def id_limit(self) -> int:
        """All ids are below this."""
        return int(self._counts[_NEXT_ID])

    def _rebuild(self, capacity: int, live: Array) -> None:
        old, self._entries = self._entries, self._empty(capacity)
        _rehash(old, self._entries, self._shift, live)

    def reserve(self, more: int) -> None:
        """Make room for so many further keys at once."""
        capacity = self._entries.size // 2
        while self.size + more >= capacity * 7 // 10:
            capacity *= 2
        if capacity > self._entries.size // 2:
            self._rebuild(capacity, np.zeros(0, np.bool_))

    def _grow_entries_if_full(self) -> None:
        if self.size >= self._entries.size // 2 * 7 // 10:
            self._rebuild(self._entries.size, np.zeros(0, np.bool_))

    def _drop(self, live: Array) -> None:
        """Forget keys whose id is not marked in `live`; their ids are given out again."""
        in_use = np.zeros(self.id_limit, np.bool_)
        in_use[self._entries[1::2][self._entries[1::2] >= 0]] = True
        dead = np.flatnonzero(in_use & ~live[: self.id_limit])
        free = self._free[: self._counts[_FREE]]
        self._free = np.concatenate([free, dead.astype(np.int32)])
        self._counts[_FREE] = self._free.size
        self._counts[_USED] -= dead.size
        capacity = _SMALLEST
        while capacity * 7 // 10 <= self.size * 2:
            capacity *= 2
        self._rebuild(capacity, live)


class IntegerTable(_Table):
    """Ids for integer keys.  Id 0 is never given out: it is left to the null key.

    `narrow` is for keys that all fit 32 bits: half the memory, and with many keys fewer misses.
    """

    def __init__(self, *, narrow: bool = False) -> None:
        super().__init__(np.int32 if narrow else np.int64)
        self._values = np.zeros(_SMALLEST, np.int64)
        self._counts[_NEXT_ID] = 1

    def find(self, keys: Array) -> Int32s:
        """The ids of `keys`, -1 for those that have none."""
        ids = np.empty(keys.size, np.int32)
        _find_integers(keys, self._entries, self._shift, ids)
        return ids

    def intern(self, keys: Array) -> Int32s:
        """The ids of `keys`; those that had none get one."""
        ids = np.empty(keys.size, np.int32)
        done = 0
        while True:
            done = _intern_integers(
                keys, done, self._entries, self._shift, self._values, self._free, self._counts, ids
            )
            if done == keys.size:
                return ids
            self._grow_entries_if_full()
            self._values = with_room(self._values, self.id_limit + 1)

    def reserve(self, more: int) -> None:
        """Make room for so many further keys at once."""
        super().reserve(more)
        self._values = grown(self._values, self.id_limit + more)

    def keys(self, ids: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """The keys that have these ids, and the rows where the id is the null key's."""
        keys = np.empty(ids.size, dtype)
        nulls = _gather_integers(ids, self._values, keys)
        return keys, np.flatnonzero(ids == 0).astype(np.uint32) if nulls else _NO_ROWS

    def keep(self, live: Array) -> None:
        """Forget the keys whose id is not marked in `live`."""
        self._drop(live)


class BytesTable(_Table):
    """Ids for keys given as rows of bytes: `data[offsets[i]:offsets[i + 1]]`."""

    def __init__(self) -> None:
        super().__init__()
        self._starts = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int32)
        self._arena = np.zeros(0, np.uint8)

    @staticmethod
    def _hashes(offsets: Int64s, data: Bytes) -> Int64s:
        hashes = np.empty(offsets.size - 1, np.int64)
        _hash_rows(offsets, data, hashes)
        return hashes

    def _guesses(self, offsets: Int64s, data: Bytes, hashes: Int64s) -> tuple[Int32s, Int64s]:
        """Ids by hash alone, and the rows for which those are none or not right."""
        ids = np.empty(hashes.size, np.int32)
        rows = np.empty(hashes.size, np.int64)
        _guess(hashes, self._entries, self._shift, ids)
        count = _doubtful(offsets, data, ids, self._starts, self._lengths, self._arena, rows)
        return ids, rows[:count]

    def find(self, offsets: Int64s, data: Bytes) -> Int32s:
        """The ids of the rows, -1 for those that have none."""
        hashes = self._hashes(offsets, data)
        ids, rows = self._guesses(offsets, data, hashes)
        _find_bytes(
            offsets,
            data,
            hashes,
            rows,
            self._entries,
            self._shift,
            self._starts,
            self._lengths,
            self._arena,
            ids,
        )
        return ids

    def intern(self, offsets: Int64s, data: Bytes) -> Int32s:
        """The ids of the rows; those that had none get one."""
        hashes = self._hashes(offsets, data)
        ids, rows = self._guesses(offsets, data, hashes)
        done = 0
        while True:
            done = _intern_bytes(
                offsets,
                data,
                hashes,
                rows,
                done,
                self._entries,
                self._shift,
                self._starts,
                self._lengths,
                self._arena,
                self._free,
                self._counts,
                ids,
            )
            if done == rows.size:
                return ids
            self._grow_entries_if_full()
            self._make_room(int(offsets[rows[done] + 1] - offsets[rows[done]]))

    def _make_room(self, length: int) -> None:
        self._starts = with_room(self._starts, self.id_limit + 1)
        self._lengths = with_room(self._lengths, self.id_limit + 1)
        self._arena = with_room(self._arena, int(self._counts[_ARENA]) + length)

    def rows(self, ids: Array) -> tuple[Int64s, Bytes]:
        """Offsets and bytes of the keys that have these ids."""
        offsets = np.zeros(ids.size + 1, np.int64)
        np.cumsum(self._lengths[ids], out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        _gather_rows(ids, self._starts, self._lengths, self._arena, offsets, data)
        return offsets, data

    def keep(self, live: Array) -> None:
        """Forget the keys whose id is not marked in `live`, and close the gaps in the arena."""
        self._drop(live)
        ids = np.sort(self._entries[1::2][self._entries[1::2] >= 0])
        offsets, data = self.rows(ids)
        self._starts[ids] = offsets[:-1]
        self._arena = data
        self._counts[_ARENA] = data.size
