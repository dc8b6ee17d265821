"""The tuples of a stream event put together by key, keys in the order of their first tuples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from rewake.operators.columns.arrays import Array, Int32s, Int64s


class Grouped(NamedTuple):
    """Rows by key: those of `slots[j]` are `order[offsets[j]:offsets[j + 1]]`, in rising order."""

    slots: Int32s
    order: Int64s
    offsets: Int64s

    @property
    def first_rows(self) -> Int64s:
        """Of each key: its first row; they rise."""
        return self.order[self.offsets[:-1]]


@njit(cache=True, nogil=True)
def _number(keys, place, numbers, slots, counts):  # type: ignore[no-untyped-def]
    """Number the keys by first arrival; how many there are.  `place` is all -1, before and after.

    Rows whose key is -1 are left out.
    """
    found = 0
    for i in range(keys.size):
        key = keys[i]
        if key < 0:
            numbers[i] = -1
            continue
        number = place[key]
        if number < 0:
            number = found
            place[key] = number
            slots[number] = key
            counts[number] = 0
            found += 1
        numbers[i] = number
        counts[number] += 1
    for j in range(found):
        place[slots[j]] = -1
    return found


@njit(cache=True, nogil=True)
def _put_in_order(numbers, places, order):  # type: ignore[no-untyped-def]
    for i in range(numbers.size):
        number = numbers[i]
        if number >= 0:
            order[places[number]] = i
            places[number] += 1


def grouped(keys: Array, place: Int32s) -> Grouped:
    """Group rows by their keys' slots; `place` has room for every slot and is all -1."""
    numbers = np.empty(keys.size, np.int32)
    slots = np.empty(keys.size, np.int32)
    counts = np.empty(keys.size, np.int64)
    found = _number(keys, place, numbers, slots, counts)
    offsets = np.zeros(found + 1, np.int64)
    np.cumsum(counts[:found], out=offsets[1:])
    order = np.empty(int(offsets[-1]), np.int64)
    _put_in_order(numbers, offsets[:-1].copy(), order)
    return Grouped(slots[:found].copy(), order, offsets)
