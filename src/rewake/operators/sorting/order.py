"""The order of a sort: columns as 64-bit integers that compare as the values do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rewake.model.errors import SchemaMismatch
from rewake.operators.columns.arrays import Array, Int64s
from rewake.operators.columns.values import ValueColumn, place_of

__all__ = ["Ordering"]

_ALL_BUT_SIGN = np.int64(2**63 - 1)


class Ordering:
    """Some columns of a stream, the most important first.

    Numbers, times and booleans have an order here; NaN is the greatest number, and zeros are equal.
    A null has no place in an order and is refused.
    """

    def __init__(self, schema: pa.Schema, by: Sequence[str], *, descending: bool = False) -> None:
        self._descending = descending
        self._columns = []
        for name in by:
            place = place_of(schema, name, "sort by")
            column = ValueColumn(schema.field(place), place)
            if not column.ordered:
                raise SchemaMismatch(
                    f"sort by: column {name!r} of type {column.kind} has no order here; numbers "
                    "(but uint64), times and booleans have: map it to one upstream"
                )
            self._columns.append(column)

    def check(self, batch: pa.RecordBatch, position: int) -> None:
        """Refuse tuples without a place in the order."""
        for column in self._columns:
            if column.nulls(batch):
                row = int(np.flatnonzero(column.is_null(batch))[0])
                raise SchemaMismatch(
                    f"sort by: column {column.name!r} is null in the tuple at position "
                    f"{position + row}; filter such tuples out upstream"
                )

    def keys(self, batch: pa.RecordBatch) -> Int64s:
        """A row for each tuple, an integer for each column, smaller for what leaves earlier."""
        keys = np.empty((batch.num_rows, len(self._columns)), np.int64)
        for number, column in enumerate(self._columns):
            values = column.values(batch)
            keys[:, number] = _float_order(values) if values.dtype.kind == "f" else values
        return np.invert(keys, out=keys) if self._descending else keys


def _float_order(values: Array) -> Int64s:
    canonical = values.astype(np.float64) + 0.0
    canonical[np.isnan(canonical)] = np.nan
    bits = canonical.view(np.int64)
    return bits ^ ((bits >> 63) & _ALL_BUT_SIGN)
