"""Numbers for the keys of a join: equal keys of both inputs have one, whichever came first.

Keys are compared and never stored, so how they are looked up is free: columns that together take
at most 64 bits become one integer, which is found several times faster than a row of bytes.

A key with a null in it is equal to none, itself included: it has no number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.key_tables import IntegerTable
from rewake.operators.columns.keys import IntegerKeys, InternedKeys, KeyColumn, RowKeys

__all__ = ["NO_KEY", "JoinKeys"]

NO_KEY = np.int32(-1)
_WORD = 64


class _PackedKeys(InternedKeys):
    """Keys of several columns of integers that fit one word, in which each has its own bits."""

    def __init__(self, columns: Sequence[KeyColumn]) -> None:
        self._columns = list(columns)
        self._table: IntegerTable = IntegerTable()

    def intern(self, arrays: Sequence[pa.Array]) -> Int32s:
        words: Int64s = np.zeros(len(arrays[0]), np.int64)
        for column, array in zip(self._columns, arrays, strict=True):
            bits = _bits(column)
            words <<= bits
            words |= column.integers(array).astype(np.int64) & ((1 << bits) - 1)
        return self._table.intern(words)


def _bits(column: KeyColumn) -> int:
    """How many a column of integers takes in a word; of any other, more than there are."""
    kind = column.dtype
    return 8 * kind.itemsize if kind is not None and kind.kind in "iu" else _WORD + 1


def _table(columns: Sequence[KeyColumn]) -> _PackedKeys | IntegerKeys | RowKeys:
    if len(columns) == 1 and columns[0].dtype is not None:
        return IntegerKeys(columns[0])
    if sum(map(_bits, columns)) <= _WORD:
        return _PackedKeys(columns)
    return RowKeys(columns)


class JoinKeys:
    """The keys of both inputs, whose columns have the same types."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self.table = _table([KeyColumn(field) for field in fields])

    def numbers(self, columns: Sequence[pa.Array], valid: Array | None) -> Int32s:
        """The numbers of keys, `NO_KEY` where `valid` says that there is a null among them."""
        if valid is None:
            return self.table.intern(columns)
        chosen = pa.array(valid)
        numbers = np.full(valid.size, NO_KEY, np.int32)
        numbers[valid] = self.table.intern([column.filter(chosen) for column in columns])
        return numbers
