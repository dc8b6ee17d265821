"""Hash shuffle: the tuples of a batch into parts by key, the same everywhere and for ever.

Which part a tuple goes to is a function of its key's values alone: not of the process, the version
of Python, the batch, or the width of the column (equal integers of int32 and int64 columns, equal
floats, equal decimals of any precision and scale, equal texts of string and large_string columns go
together).  Nulls are a key like others.
The numbers are part of what a query's logs mean: changing them moves keys between shards.

    hash of a row: fold over the key columns, h = mix(h ^ v), starting with a constant
    v:             the value as 64 bits (floats: their bits, one zero and one NaN; times: their
                   number), FNV-1a of the bytes of a text, or a constant for null; of a decimal
                   low ^ mix(high ^ mix(scale)), of its digits without zeros at their end: the two
                   halves of 128 bits, and the scale that is left (0 for zero)
    mix:           the finaliser of MurmurHash3
    part:          the upper 32 bits of the hash times the number of parts, divided by 2**32

It has nothing in common with the hash of the key tables, so that a shard's keys spread over its
table as any others.

Invariants: parts are disjoint and together complete; within a part, tuples keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from rewake.operators.aggregate.wide_kernels import without_zeros
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.keys import KeyColumn
from rewake.operators.columns.values import field_of
from rewake.operators.columns.wide import decimal_view

_SEED = np.uint64(0x243F6A8885A308D3)
_NULL = np.uint64(0x13198A2E03707344)
_MURMUR_1 = np.uint64(0xFF51AFD7ED558CCD)
_MURMUR_2 = np.uint64(0xC4CEB9FE1A85EC53)
_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
_SHIFT_33, _SHIFT_32 = np.uint64(33), np.uint64(32)
_ALL_VALID = np.zeros(0, np.bool_)


@njit(cache=True, nogil=True, inline="always")
def _mix(bits):  # type: ignore[no-untyped-def]
    bits ^= bits >> _SHIFT_33
    bits *= _MURMUR_1
    bits ^= bits >> _SHIFT_33
    bits *= _MURMUR_2
    return bits ^ (bits >> _SHIFT_33)


@njit(cache=True, nogil=True, inline="always")
def _part_of(bits, parts):  # type: ignore[no-untyped-def]
    return np.int64(((bits >> _SHIFT_32) * np.uint64(parts)) >> _SHIFT_32)


@njit(cache=True, nogil=True)
def _mix_fixed(values, valid, hashes):  # type: ignore[no-untyped-def]
    for i in range(hashes.size):
        present = valid.size == 0 or valid[i]
        hashes[i] = _mix(hashes[i] ^ (np.uint64(np.int64(values[i])) if present else _NULL))


@njit(cache=True, nogil=True)
def _mix_variable(ends, data, valid, hashes):  # type: ignore[no-untyped-def]
    for i in range(hashes.size):
        value = _NULL
        if valid.size == 0 or valid[i]:
            value = _FNV_OFFSET
            for j in range(ends[i], ends[i + 1]):
                value = (value ^ np.uint64(data[j])) * _FNV_PRIME
        hashes[i] = _mix(hashes[i] ^ value)


@njit(cache=True, nogil=True)
def _mix_decimals(digits, scales, valid, hashes):  # type: ignore[no-untyped-def]
    for i in range(hashes.size):
        value = _NULL
        if valid.size == 0 or valid[i]:
            value = _mix(np.uint64(digits[i, 1]) ^ _mix(np.uint64(scales[i])))
            value ^= np.uint64(digits[i, 0])
        hashes[i] = _mix(hashes[i] ^ value)


@njit(cache=True, nogil=True)
def _number_parts(hashes, parts, numbers, ends):  # type: ignore[no-untyped-def]
    for i in range(hashes.size):
        part = _part_of(hashes[i], parts)
        numbers[i] = part
        ends[part + 1] += 1


@njit(cache=True, nogil=True)
def _number_integers(values, parts, numbers, ends):  # type: ignore[no-untyped-def]
    """The same from one column of integers without nulls, in one go."""
    for i in range(values.size):
        part = _part_of(_mix(_SEED ^ np.uint64(np.int64(values[i]))), parts)
        numbers[i] = part
        ends[part + 1] += 1


@njit(cache=True, nogil=True)
def _order_parts(numbers, ends, rows):  # type: ignore[no-untyped-def]
    """A stable counting sort; counts behind each part become the parts' ends."""
    parts = ends.size - 1
    for part in range(parts):
        ends[part + 1] += ends[part]
    places = ends[:parts].copy()
    for i in range(numbers.size):
        rows[places[numbers[i]]] = i
        places[numbers[i]] += 1


class Shuffle:
    """Divides batches of one schema into `parts` by the values of the key columns."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], parts: int) -> None:
        self._parts = parts
        self._columns = [KeyColumn(field_of(schema, name, "partition by")) for name in keys]
        self._places = [schema.get_field_index(name) for name in keys]
        only = self._columns[0]
        self._one_integer = len(keys) == 1 and only.dtype is not None and only.dtype.kind in "iu"

    def split(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The parts, empty ones too."""
        if self._parts == 1:
            return [batch]
        numbers, ends = self._numbers(batch)
        rows = np.empty(numbers.size, np.int32)
        _order_parts(numbers, ends, rows)
        if np.count_nonzero(np.diff(ends)) <= 1:
            gathered = batch  # all tuples in one part, or none at all
        else:
            gathered = pc.take(batch, pa.array(rows), boundscheck=False)
        return [gathered.slice(start, end - start) for start, end in pairwise(ends.tolist())]

    def part_numbers(self, batch: pa.RecordBatch) -> Int32s:
        """The part of each tuple."""
        return self._numbers(batch)[0]

    def _numbers(self, batch: pa.RecordBatch) -> tuple[Int32s, Int64s]:
        """The part of each tuple, and behind each part how many it has."""
        numbers = np.empty(batch.num_rows, np.int32)
        ends = np.zeros(self._parts + 1, np.int64)
        arrays = [
            column.plain(batch.column(place))
            for column, place in zip(self._columns, self._places, strict=True)
        ]
        if batch.num_rows == 0:
            return numbers, ends
        if self._one_integer and arrays[0].null_count == 0:
            _number_integers(self._integers(0, arrays[0]), self._parts, numbers, ends)
        else:
            _number_parts(self._hashes(arrays), self._parts, numbers, ends)
        return numbers, ends

    def _hashes(self, arrays: list[pa.Array]) -> Array:
        hashes = np.full(len(arrays[0]), _SEED)
        for place, (column, array) in enumerate(zip(self._columns, arrays, strict=True)):
            valid = _ALL_VALID
            if array.null_count:
                valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
            if pa.types.is_decimal128(column.kind):
                digits, scales = np.empty((len(array), 2), np.int64), np.empty(len(array), np.int64)
                without_zeros(decimal_view(array), column.kind.scale, digits, scales)
                _mix_decimals(digits, scales, valid, hashes)
            elif column.dtype is None:
                ends, data = column.bytes(array)
                _mix_variable(ends, data, valid, hashes)
            else:
                _mix_fixed(self._integers(place, array), valid, hashes)
        return hashes

    def _integers(self, place: int, array: pa.Array) -> Array:
        values = self._columns[place].integers(array)
        # Two widths are enough to compile kernels for.
        return values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)
