"""Which windows a log that is read backwards has decided: found, or known to have ended.

A bit for each position of the input tells it of the windows that opened there; there are far more
positions than windows, but bits are small, need not be moved when there are more of them, and are
found without searching.
Positions further back than `REACH` are in a hash table all the same: a window that has been open
for years must not take memory for each of them, and neither must a log that lies.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.operators.columns.arrays import Array, Int64s, capacity_for, grown
from rewake.operators.columns.key_tables import IntegerTable

__all__ = ["Decided"]

# 64 MiB of bits, of which untouched ones take no memory.
REACH = 1 << 29
_ALL = np.zeros(0, np.int64)


@njit(cache=True, nogil=True)
def _unset(ages, since, bits, rows):  # type: ignore[no-untyped-def]
    """Rows of the ages whose bit is not set; those without a bit are none of them."""
    count = 0
    for i in range(ages.size):
        age = since + np.int64(ages[i])
        if age < 8 * bits.size and not (bits[age >> 3] >> (age & 7)) & 1:
            rows[count] = i
            count += 1
    return count


@njit(cache=True, nogil=True)
def _set(ages, rows, since, bits):  # type: ignore[no-untyped-def]
    """Set the bits of some ages, or without rows of all; how many were not set before."""
    count = 0
    for n in range(rows.size if rows.size else ages.size):
        age = since + np.int64(ages[rows[n] if rows.size else n])
        bit = np.uint8(1 << (age & 7))
        count += (bits[age >> 3] & bit) == 0
        bits[age >> 3] |= bit
    return count


class Decided:
    """Windows by their age: by how many positions before the end of the log they opened.

    Ages of a section are given as it states them, as of a time `since` positions before the end,
    with the largest of them.
    """

    def __init__(self) -> None:
        self._bits = np.zeros(min(1024, REACH // 8), np.uint8)
        self._beyond = IntegerTable()

    def add(self, ages: Array, since: int, oldest: int, rows: Int64s = _ALL) -> int:
        """All of these are decided, or those of some rows; how many of them were not before."""
        if not ages.size:
            return 0
        if since + oldest < REACH:
            self._make_room(since + oldest)
            return int(_set(ages, rows, since, self._bits))
        chosen = ages.astype(np.int64)[rows] if rows.size else ages.astype(np.int64)
        is_far, before = since + chosen >= REACH, self._beyond.size
        self._beyond.intern(since + chosen[is_far])
        near = chosen[~is_far]
        self._make_room(since + int(near.max(initial=-since)))
        return self._beyond.size - before + int(_set(near, _ALL, since, self._bits))

    def missing(self, ages: Array, since: int, oldest: int) -> Int64s:
        """Rows of those that are not decided, in order."""
        if not ages.size:
            return _ALL
        self._make_room(min(since + oldest, REACH - 1))
        rows = np.empty(ages.size, np.int64)
        found = rows[: _unset(ages, since, self._bits, rows)]
        if since + oldest < REACH:
            return found
        all_ages = since + ages.astype(np.int64)
        is_far = np.flatnonzero(all_ages >= REACH)
        return np.sort(np.concatenate([found, is_far[self._beyond.find(all_ages[is_far]) < 0]]))

    def _make_room(self, age: int) -> None:
        if age >= 8 * self._bits.size:
            needed = capacity_for(age // 8 + 1, 2 * self._bits.size)
            self._bits = grown(self._bits, min(needed, REACH // 8))
