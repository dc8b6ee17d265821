"""Filters that Spark leaves to the reader, evaluated by pyarrow on whole batches.

What always holds: a filter is taken over only when the reader's answer is Spark's for every value,
nulls and NaN included (in SQL, NaN equals itself and is above all numbers).  All others go back.
Ranges of `_position` and `_time` also narrow which frames are read at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.stream_event import no_tuples

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["EVERYTHING", "Bounds", "Predicate", "bounds_of", "is_handled"]

_COMPARISONS: Final = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_ABOVE: Final = ("GreaterThan", "GreaterThanOrEqual")
_SEARCHES: Final = {
    "StringStartsWith": pc.starts_with,
    "StringEndsWith": pc.ends_with,
    "StringContains": pc.match_substring,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Unsupported(Exception):
    """A filter that Spark must evaluate itself."""


@dataclass(frozen=True)
class Predicate:
    """The filters that were taken over; a row must pass them all."""

    filters: tuple[Filter, ...] = field(default=())

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which every filter is true."""
        for each in self.filters:
            batch = batch.filter(_mask(each, batch))
        return batch


def is_handled(wanted: Filter, schema: pa.Schema) -> bool:
    """Whether a filter can be evaluated exactly on batches of this schema."""
    nothing = no_tuples(schema)
    try:
        _mask(wanted, nothing)
    except (_Unsupported, pa.ArrowException, TypeError, ValueError, OverflowError, KeyError):
        return False
    return True


# --- evaluating ------------------------------------------------------------------------------


def _mask(wanted: Any, batch: pa.RecordBatch) -> pa.Array:
    """True, false or null for each row, as in SQL."""
    kind = type(wanted).__name__
    if kind == "Not":
        return pc.invert(_mask(wanted.child, batch))
    if len(wanted.attribute) != 1:
        raise _Unsupported  # a field of a struct
    column = batch.column(wanted.attribute[0])
    if kind == "IsNull":
        return pc.is_null(column)
    if kind == "IsNotNull":
        return pc.is_valid(column)
    if kind in _SEARCHES:
        if not pa.types.is_string(column.type) or not isinstance(wanted.value, str):
            raise _Unsupported
        return _SEARCHES[kind](column, wanted.value)
    if kind in _COMPARISONS:
        return _compared(kind, column, wanted.value)
    if kind == "EqualNullSafe":
        if wanted.value is None:
            return pc.is_null(column)
        return pc.fill_null(_compared("EqualTo", column, wanted.value), False)
    if kind == "In":
        values = pa.array([_scalar(each, column.type) for each in wanted.value], column.type)
        found = pc.is_in(column, value_set=values)
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    raise _Unsupported


def _compared(kind: str, column: pa.Array, value: Any) -> pa.Array:
    mask = _COMPARISONS[kind](column, _scalar(value, column.type))
    if pa.types.is_floating(column.type) and kind in _ABOVE:
        return pc.or_(mask, pc.is_nan(column))
    return mask


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """The value in the column's own type; one that would have to be changed for it is refused."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise _Unsupported
    if pa.types.is_timestamp(kind):
        if not isinstance(value, datetime) or (value.tzinfo is None) != (kind.tz is None):
            raise _Unsupported
    elif pa.types.is_date(kind):
        if type(value) is not date:
            raise _Unsupported
    elif isinstance(value, bool) != pa.types.is_boolean(kind) or pa.types.is_nested(kind):
        raise _Unsupported
    scalar = pa.scalar(value, kind)
    if scalar.as_py() != value:
        raise _Unsupported
    return scalar


# --- narrowing -------------------------------------------------------------------------------


class Bounds(NamedTuple):
    """Values from `first` up to but not including `end`; None where there is no limit."""

    first: int | None = None
    end: int | None = None

    def within(self, first: int | None, end: int | None) -> Bounds:
        """Both limits at once."""
        firsts = [each for each in (self.first, first) if each is not None]
        ends = [each for each in (self.end, end) if each is not None]
        return Bounds(max(firsts, default=None), min(ends, default=None))


EVERYTHING: Final = Bounds()


def bounds_of(filters: Iterable[Filter], column: str) -> Bounds:
    """The range of a column outside of which no row passes; times are in microseconds."""
    bounds = EVERYTHING
    for each in filters:
        if getattr(each, "attribute", None) == (column,):
            bounds = bounds.within(*_range(type(each).__name__, getattr(each, "value", None)))
    return bounds


def _range(kind: str, value: Any) -> tuple[int | None, int | None]:
    values = value if isinstance(value, Sequence) and kind == "In" else [value]
    numbers = [number for number in map(_number, values) if number is not None]
    if not numbers or len(numbers) != len(values):
        return None, None
    least, most = min(numbers), max(numbers)
    ranges: dict[str, tuple[int | None, int | None]] = {
        "EqualTo": (least, least + 1),
        "EqualNullSafe": (least, least + 1),
        "In": (least, most + 1),
        "GreaterThan": (least + 1, None),
        "GreaterThanOrEqual": (least, None),
        "LessThan": (None, least),
        "LessThanOrEqual": (None, least + 1),
    }
    return ranges.get(kind, (None, None))


def _number(value: Any) -> int | None:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return value if type(value) is int else None
