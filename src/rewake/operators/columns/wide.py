"""Value columns that no 64 bits hold: decimals, exact to the last digit, and texts of any length.

What functions over decimals yield is what Spark yields: a sum has ten digits more before the point,
an average four more behind it, rounded half up; neither has more than 38 digits altogether.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rewake.model.errors import ArithmeticOverflow, SchemaMismatch
from rewake.operators.aggregate.wide_kernels import averages
from rewake.operators.columns.arrays import (
    Array,
    Bytes,
    Int64s,
    arrow_array,
    is_large,
    is_text,
    text_array,
    text_view,
    values_view,
)
from rewake.operators.columns.values import ValueColumn, overflow_remedy

__all__ = [
    "DecimalColumn",
    "TextColumn",
    "TextValues",
    "decimal_results",
    "decimal_summed",
    "decimal_view",
    "halves",
    "largest_and_smallest",
    "value_column",
]

# Where values end (one before the first), and the bytes.
TextValues = tuple[Array, Bytes]

_MOST_DIGITS = 38
_SUM_DIGITS, _AVERAGE_DIGITS = 10, 4


def decimal_results(kind: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    """The types of sums and of averages of decimals of a type."""
    digits, scale = kind.precision, kind.scale
    more = max(scale, min(_MOST_DIGITS, scale + _AVERAGE_DIGITS))
    return (
        pa.decimal128(min(_MOST_DIGITS, digits + _SUM_DIGITS), scale),
        pa.decimal128(min(_MOST_DIGITS, digits + _AVERAGE_DIGITS), more),
    )


def decimal_summed(average: pa.DataType) -> pa.DataType:
    """A type for the sums behind averages of a type, whatever the values had."""
    return pa.decimal128(_MOST_DIGITS, average.scale - _AVERAGE_DIGITS)


def halves(number: int) -> tuple[int, int]:
    """The lower and upper 64 bits of a number, as signed integers."""
    low, high = number % 2**64, number >> 64
    return low - 2**64 if low >= 2**63 else low, high


def largest_and_smallest(digits: int) -> Int64s:
    """The halves of the largest number of so many digits, and of its negative."""
    return np.array([*halves(10**digits - 1), *halves(1 - 10**digits)], np.int64)


def decimal_view(array: pa.Array) -> Int64s:
    """Lower and upper halves of decimals, without a copy."""
    return values_view(array, "V16").view(np.int64).reshape(-1, 2)


class _WideColumn(ValueColumn):
    """A column whose dictionary, if it has one, is a transport encoding."""

    def __init__(self, field: pa.Field, place: int) -> None:
        super().__init__(field, place)
        self.ordered = True
        if pa.types.is_dictionary(self.kind):
            self.kind = self.kind.value_type

    def _array(self, batch: pa.RecordBatch) -> pa.Array:
        array = batch.column(self._place)
        return array if array.type == self.kind else array.cast(self.kind)


class DecimalColumn(_WideColumn):
    """Decimals of up to 38 digits."""

    def __init__(self, field: pa.Field, place: int) -> None:
        super().__init__(field, place)
        self.numeric = True
        self.sum_kind, self.average_kind = decimal_results(self.kind)

    def values(self, batch: pa.RecordBatch) -> Array:
        """Lower and upper halves; where values are null, anything."""
        return decimal_view(self._array(batch))

    def floats(self, batch: pa.RecordBatch) -> Array:
        """The values as floats, for functions that yield one."""
        return values_view(self._array(batch).cast(pa.float64()), np.float64)

    def to_arrow(self, values: Array, valid: Array | None) -> pa.Array:
        """Aggregated values as a column of the original type."""
        return _decimals(values, self.kind, valid)

    def sums(self, sums: Array, valid: Array | None) -> pa.Array:
        """Sums as a column."""
        return _decimals(sums, self.sum_kind, valid)

    def averages(self, sums: Array, counts: Array, valid: Array | None) -> pa.Array:
        """Sums of so many values as their averages."""
        kind = self.average_kind
        out = np.empty((len(sums), 2), np.int64)
        most = largest_and_smallest(kind.precision)
        divisors = np.maximum(counts, 1).astype(np.int64)
        if averages(sums, divisors, kind.scale - self.kind.scale, most, out):
            raise ArithmeticOverflow(
                f"an average of column {self.name!r} has more digits than {kind} holds; "
                + overflow_remedy("a decimal with fewer digits")
            )
        return _decimals(out, kind, valid)


def _decimals(values: Array, kind: pa.DataType, valid: Array | None) -> pa.Array:
    if valid is not None:
        # What lies behind a null is nobody's business; what is logged must not depend on it.
        values = np.where(valid[:, None], values, 0)
    return arrow_array(np.ascontiguousarray(values).reshape(-1).view("V16"), kind, valid)


class TextColumn(_WideColumn):
    """Strings or binaries, in the order of their bytes."""

    def values(self, batch: pa.RecordBatch) -> TextValues:  # type: ignore[override]
        """Where values end, and the bytes; where values are null, anything."""
        return text_view(self._array(batch))

    def to_arrow(self, values: TextValues, valid: Array | None) -> pa.Array:  # type: ignore[override]
        """Aggregated values as a column of the original type."""
        offsets, data = values
        if not is_large(self.kind) and data.size > np.iinfo(np.int32).max:
            raise SchemaMismatch(
                f"column {self.name!r}: the texts of a turn's results are too long for "
                f"{self.kind}; cast it to its large form upstream, or use smaller stream events"
            )
        return text_array(self.kind, offsets, data, valid)


def value_column(field: pa.Field, place: int) -> ValueColumn:
    """The column as aggregates read it."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_decimal128(kind):
        return DecimalColumn(field, place)
    return TextColumn(field, place) if is_text(kind) else ValueColumn(field, place)
