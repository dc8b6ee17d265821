"""Which windows a log that is read backwards has decided: found, or known to have ended.

A bit for each position of the input tells it of the windows that opened there; there are far more
positions than windows, but bits are small, need not be moved when there are more of them, and are
found without searching.
Positions further back than `_REACH` are in a hash table all the same: a window that has been open
for years must not take memory for each of them, and neither must a log that lies.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.operators.arrays import Int64s, capacity_for, grown
from rewake.operators.key_tables import IntegerTable

__all__ = ["Decided"]

# 64 MiB of bits, of which untouched ones take no memory.
_REACH = 1 << 29


@njit(cache=True, nogil=True)
def _unset(ids, newest, bits, rows):  # type: ignore[no-untyped-def]
    """Rows of the ids whose bit is not set; ids without a bit are none of them."""
    count = 0
    for i in range(ids.size):
        age = newest - ids[i]
        if age < 8 * bits.size and not (bits[age >> 3] >> (age & 7)) & 1:
            rows[count] = i
            count += 1
    return count


@njit(cache=True, nogil=True)
def _set(ids, newest, bits):  # type: ignore[no-untyped-def]
    """Set the bits of ids; how many were not set before."""
    count = 0
    for i in range(ids.size):
        age = newest - ids[i]
        bit = np.uint8(1 << (age & 7))
        count += (bits[age >> 3] & bit) == 0
        bits[age >> 3] |= bit
    return count


class Decided:
    """Ids of windows, none of which opened behind position `newest`."""

    def __init__(self, newest: int) -> None:
        self._newest = newest
        self._bits = np.zeros(min(1024, _REACH // 8), np.uint8)
        self._beyond = IntegerTable()

    def add(self, ids: Int64s) -> int:
        """These are decided; how many of them were not before."""
        if not ids.size:
            return 0
        oldest_age = self._newest - int(ids.min())
        near = ids
        added = 0
        if oldest_age >= _REACH:
            is_far = self._newest - ids >= _REACH
            near, before = ids[~is_far], self._beyond.size
            self._beyond.intern(ids[is_far])
            added = self._beyond.size - before
            oldest_age = self._newest - int(near.min()) if near.size else 0
        self._make_room(oldest_age)
        return added + int(_set(near, self._newest, self._bits))

    def missing(self, ids: Int64s) -> Int64s:
        """Rows of those that are not decided, in order."""
        if not ids.size:
            return np.zeros(0, np.int64)
        oldest_age = self._newest - int(ids.min())
        self._make_room(min(oldest_age, _REACH - 1))
        rows = np.empty(ids.size, np.int64)
        found = rows[: _unset(ids, self._newest, self._bits, rows)]
        if oldest_age < _REACH:
            return found
        is_far = np.flatnonzero(self._newest - ids >= _REACH)
        return np.sort(np.concatenate([found, is_far[self._beyond.find(ids[is_far]) < 0]]))

    def _make_room(self, age: int) -> None:
        if age >= 8 * self._bits.size:
            needed = capacity_for(age // 8 + 1, 2 * self._bits.size)
            self._bits = grown(self._bits, min(needed, _REACH // 8))
