"""Value columns of a stream event, as 64-bit integers or floats, with their nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import DamagedFrame, SchemaMismatch
from rewake.model.near import no_column
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.columns.arrays import Array, Int64s, arrow_array, dtype_of, values_view

_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def clamped(watermark: int | None, behind: int = 0) -> int:
    """A watermark, or a time behind it, in the range in which durations can be added to times.

    At the end of a stream nothing is behind.
    """
    if watermark is None or watermark <= -TIME_LIMIT + behind:
        return NO_TIME
    return TIME_LIMIT if watermark >= TIME_LIMIT else watermark - behind


def check_clocks(clocks: npt.ArrayLike) -> None:
    """Refuse event times of a log that no clock has shown."""
    told = np.atleast_1d(np.asarray(clocks, np.int64))
    wrong = told[(told != NO_TIME) & ((told > TIME_LIMIT) | (told <= -TIME_LIMIT))]
    if wrong.size:
        raise DamagedFrame(f"the log's event time {wrong[0]} is out of range")


def place_of(schema: pa.Schema, name: str, use: str) -> int:
    """Where a column is; a `SchemaMismatch` with a near name when it is not there."""
    places = list(schema.get_all_field_indices(name)) if isinstance(name, str) else []
    if len(places) != 1:
        raise SchemaMismatch(f"{use}: {no_column(name, list(schema.names), places)}")
    return int(places[0])


def field_of(schema: pa.Schema, name: str, use: str) -> pa.Field:
    """The field of that name."""
    return schema.field(place_of(schema, name, use))


def overflow_remedy(wider: str) -> str:
    """Words for an error about a number that does not fit: what to do about it."""
    return (
        f"cast the column upstream to {wider}, or to DOUBLE, or filter such tuples out. What was "
        "computed before is right and stays; the changed query starts in a folder of its own"
    )


def check_names(names: Sequence[str], remedy: str = "give one a name of its own") -> None:
    """Refuse result columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaMismatch(f"two result columns are named {twice[0]!r}; {remedy}")


class ValueColumn:
    """A column that aggregates read: numbers, and for order and arrival also times."""

    def __init__(self, field: pa.Field, place: int) -> None:
        self.name: str = field.name
        self.kind: pa.DataType = field.type
        self._place = place
        self.numeric = bool(pa.types.is_integer(self.kind) or pa.types.is_floating(self.kind))
        self.ordered = self.numeric or _is_timelike(self.kind) or pa.types.is_boolean(self.kind)
        if pa.types.is_uint64(self.kind) or pa.types.is_float16(self.kind):
            self.numeric = self.ordered = False
        floating = self.ordered and pa.types.is_floating(self.kind)
        self._stored = dtype_of(self.kind)
        self.dtype: np.dtype[Any] = np.dtype(np.float64 if floating else np.int64)

    def _array(self, batch: pa.RecordBatch) -> pa.Array:
        array = batch.column(self._place)
        return array.dictionary_decode() if pa.types.is_dictionary(self.kind) else array

    def nulls(self, batch: pa.RecordBatch) -> int:
        """How many of a stream event's values are null."""
        return int(self._array(batch).null_count)

    def is_null(self, batch: pa.RecordBatch) -> Array:
        """One flag per value."""
        flags: Array = pc.is_null(self._array(batch)).to_numpy(zero_copy_only=False)
        return flags

    def values(self, batch: pa.RecordBatch) -> Array:
        """The values; where they are null, anything."""
        array = batch.column(self._place)
        if pa.types.is_boolean(self.kind):
            array = array.cast(pa.int8())
        assert self._stored is not None, "whose values are not of one width is asked otherwise"
        return values_view(array, self._stored)

    def to_arrow(self, values: Array, valid: Array | None) -> pa.Array:
        """Aggregated values as a column of the original type."""
        if pa.types.is_boolean(self.kind):
            return arrow_array(values.astype(np.int8), pa.int8(), valid).cast(pa.bool_())
        assert self._stored is not None, "whose values are not of one width is made otherwise"
        return arrow_array(values.astype(self._stored), self.kind, valid)


def _is_timelike(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


class TimeColumn:
    """The event-time column of a stream: a timestamp, or integers in any unit."""

    def __init__(self, schema: pa.Schema, name: str) -> None:
        field = field_of(schema, name, "event time")
        if not (pa.types.is_timestamp(field.type) or pa.types.is_int64(field.type)):
            raise SchemaMismatch(
                f"event time: column {name!r} is of type {field.type}; use a timestamp, or int64 "
                "with window sizes in the same unit"
            )
        self.name = name
        self.kind: pa.DataType = field.type
        self.unit_ns = _UNIT_NS[field.type.unit] if pa.types.is_timestamp(field.type) else 1
        self._place = schema.get_field_index(name)

    def times(self, batch: pa.RecordBatch, position: int) -> Int64s:
        """Event times of a stream event; nulls and times out of range are refused."""
        array = batch.column(self._place)
        if array.null_count:
            row = int(np.flatnonzero(pc.is_null(array).to_numpy(zero_copy_only=False))[0])
            raise SchemaMismatch(
                f"event time {self.name!r} is null in the tuple at position {position + row}; "
                "every tuple needs one: filter such tuples out upstream"
            )
        times = values_view(array, np.int64)
        if times.size and (times.max() >= TIME_LIMIT or times.min() <= -TIME_LIMIT):
            raise SchemaMismatch(
                f"event time {self.name!r} has values beyond 2**62 near position {position}; "
                "check the unit of the column"
            )
        return times
