"""From aggregate functions to the accumulators they need, and from sums to results.

Functions share accumulators: `Avg("price")` and `Sum("price")` keep one sum.  Nulls are counted per
column, and only once the first null has been seen.

Where failures are diverted, a tuple for which a user's function fails is to that function as if it
were not there, and to all others as it is: windows count it, so they stand where they would stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.model.errors import SchemaMismatch, UsageError
from rewake.operators.aggregate.accumulators import (
    Accumulator,
    ArrivalAccumulator,
    Closings,
    ExtremeAccumulator,
    MomentsAccumulator,
    SumAccumulator,
)
from rewake.operators.aggregate.functions import (
    AggregateFunction,
    Avg,
    Count,
    First,
    Last,
    Max,
    Min,
    Stddev,
    Sum,
    UserDefined,
)
from rewake.operators.aggregate.user_accumulator import UserAccumulator, UserCodeFailed
from rewake.operators.aggregate.wide_accumulators import (
    DecimalArrival,
    DecimalExtreme,
    DecimalSum,
    TextArrival,
    TextExtreme,
)
from rewake.operators.columns.arrays import Array, Int32s, arrow_array
from rewake.operators.columns.plain import plain_batch
from rewake.operators.columns.values import ValueColumn, field_of
from rewake.operators.columns.wide import DecimalColumn, TextColumn, value_column
from rewake.operators.dead_letters import check_on_error, dead_letters, diverts
from rewake.operators.stateful import FURTHER_PORTS, Emissions
from rewake.operators.windows.routing import Routing

NO_SLOTS = np.zeros(0, np.int32)
_ORDERED = (Min, Max, First, Last)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A function bound to its column and the place of its accumulator (-1: counts only)."""

    function: AggregateFunction
    column: int
    accumulator: int


class Aggregation:
    """The aggregate columns of one operator: state per part, results per closing window."""

    def __init__(
        self,
        schema: pa.Schema,
        functions: Sequence[AggregateFunction],
        on_error: str = "stop",
    ) -> None:
        self._skips = _checked_skips(on_error, functions)
        self._columns: list[ValueColumn] = []
        self._accumulators: list[Accumulator] = []
        self._inputs: list[int] = []  # the column of each accumulator
        self._readers: list[Callable[[pa.RecordBatch], Any]] = []  # and how it takes its values
        self._shared: dict[tuple[str, int], int] = {}
        self._null_counts: dict[int, SumAccumulator] = {}
        self._capacity = 0
        self._bound = [self._bind(schema, function) for function in functions]
        self.fields = [self._result_field(bound) for bound in self._bound]

    def _bind(self, schema: pa.Schema, function: AggregateFunction) -> _Bound:
        if isinstance(function, Count) and not function.column:
            return _Bound(function, -1, -1)
        column = self._column(schema, function)
        if isinstance(function, Count):
            return _Bound(function, column, -1)
        kind = "Sum" if isinstance(function, Avg) else type(function).__name__
        key = (kind if not isinstance(function, UserDefined) else str(id(function)), column)
        if key not in self._shared:
            self._shared[key] = len(self._accumulators)
            accumulator = _accumulator_for(function, self._columns[column], self._skips)
            self._accumulators.append(accumulator)
            self._inputs.append(column)
            self._readers.append(_reader_for(function, self._columns[column]))
        return _Bound(function, column, self._shared[key])

    def _column(self, schema: pa.Schema, function: AggregateFunction) -> int:
        use = f"aggregate {function.result_name()!r}"
        field = field_of(schema, function.column, use)
        column = value_column(field, schema.get_field_index(field.name))
        usable = column.ordered if isinstance(function, _ORDERED) else column.numeric
        if not usable and not isinstance(function, Count):
            ordered = isinstance(function, _ORDERED)
            wanted = "numbers, booleans, times, strings or binaries" if ordered else "numbers"
            raise SchemaMismatch(
                f"{use}: {type(function).__name__} needs {wanted}, but column {field.name!r} is of "
                f"type {field.type}; cast it upstream"
            )
        for place, known in enumerate(self._columns):
            if known.name == column.name:
                return place
        self._columns.append(column)
        return len(self._columns) - 1

    def _result_field(self, bound: _Bound) -> pa.Field:
        function, kind = bound.function, pa.float64()
        column = self._columns[bound.column] if bound.column >= 0 else None
        if isinstance(function, Count):
            kind = pa.int64()
        elif isinstance(function, _ORDERED):
            kind = self._columns[bound.column].kind
        elif isinstance(column, DecimalColumn) and isinstance(function, Sum | Avg):
            kind = column.sum_kind if isinstance(function, Sum) else column.average_kind
        elif isinstance(function, Sum):
            floating = self._columns[bound.column].dtype.kind == "f"
            kind = pa.float64() if floating else pa.int64()
        return pa.field(function.result_name(), kind, nullable=not isinstance(function, Count))

    def ensure(self, capacity: int) -> None:
        """Make room for part slots below `capacity`."""
        if capacity > self._capacity:
            self._capacity = capacity
            for accumulator in (*self._accumulators, *self._null_counts.values()):
                accumulator.ensure(capacity)

    def run(self, batch: pa.RecordBatch, position: int, routing: Routing) -> list[pa.Array]:
        """Apply a routed stream event; the result columns of the windows that closed."""
        closed, null_counts = self.apply(batch, position, routing.slots, routing.closings)
        counts = routing.closing_counts
        return [self._result(bound, closed, null_counts, counts) for bound in self._bound]

    def apply(
        self, batch: pa.RecordBatch, position: int, slots: Int32s, closings: Closings
    ) -> tuple[list[Any], dict[int, Array]]:
        """Add values to their parts; merged state and null counts of the windows that closed."""
        column_slots = []
        null_counts = {}
        for place, column in enumerate(self._columns):
            if column.nulls(batch) or place in self._null_counts:
                is_null = column.is_null(batch)
                counter = self._null_counter(place)
                flags = is_null.astype(np.int64)
                null_counts[place] = counter.run(slots, flags, position, closings)
                column_slots.append(np.where(is_null, np.int32(-1), slots))
            else:
                column_slots.append(slots)
        try:
            closed = [
                accumulator.run(column_slots[place], read(batch), position, closings)
                for accumulator, place, read in zip(
                    self._accumulators, self._inputs, self._readers, strict=True
                )
            ]
        except UserCodeFailed as failed:
            raise _named(failed, batch, position) from failed.error
        return closed, null_counts

    def dead_letters(self, batch: pa.RecordBatch) -> Emissions:
        """The tuples that functions failed for when `batch` was applied, in order, with errors."""
        if not self._skips:
            return ()
        failed = [
            each
            for accumulator in self._accumulators
            if isinstance(accumulator, UserAccumulator)
            for each in accumulator.failed
        ]
        if not failed:
            return ()
        failed.sort(key=lambda each: each.row)
        dead = plain_batch(batch.take(pa.array([each.row for each in failed], pa.int64())))
        return [(FURTHER_PORTS, dead_letters(dead, [_said(each) for each in failed]))]

    def current(self, nothing: pa.RecordBatch, closings: Closings, counts: Array) -> list[pa.Array]:
        """Result columns of parts that go on; `nothing` is a batch without tuples."""
        closed, null_counts = self.apply(nothing, 0, NO_SLOTS, closings)
        return [self._result(bound, closed, null_counts, counts) for bound in self._bound]

    def _null_counter(self, place: int) -> SumAccumulator:
        if place not in self._null_counts:
            counter = SumAccumulator(np.dtype(np.int64), self._columns[place].name)
            counter.ensure(self._capacity)
            self._null_counts[place] = counter
        return self._null_counts[place]

    def _result(
        self, bound: _Bound, closed: list[Any], null_counts: dict[int, Array], counts: Array
    ) -> pa.Array:
        function = bound.function
        present = counts
        if bound.column in null_counts:
            present = counts - null_counts[bound.column]
        if isinstance(function, Count):
            return arrow_array(present, pa.int64())
        state = closed[bound.accumulator]
        valid = None
        if bound.column in null_counts and not present.all():
            valid = present > 0
        column = self._columns[bound.column]
        if isinstance(function, _ORDERED):
            return column.to_arrow(state, valid)
        if isinstance(column, DecimalColumn) and isinstance(function, Sum | Avg):
            if isinstance(function, Sum):
                return column.sums(state, valid)
            return column.averages(state, present, valid)
        if isinstance(function, Sum):
            kind = pa.int64() if state.dtype.kind == "i" else pa.float64()
            return arrow_array(state, kind, valid)
        if isinstance(function, Avg):
            divisor = present if valid is None else np.maximum(present, 1)
            return arrow_array(state / divisor, pa.float64(), valid)
        if isinstance(function, Stddev):
            enough = present > 1
            spread = np.sqrt(np.where(enough, state, 0.0))
            return arrow_array(spread, pa.float64(), None if enough.all() else enough)
        return arrow_array(state, pa.float64(), valid)

    # --- snapshots ---------------------------------------------------------------------------

    def snapshot(self, slots: Array) -> list[Array]:
        """State columns of parts: null counts per column, then each accumulator's state."""
        nothing = np.zeros(slots.size, np.int64)
        columns: list[Array] = [
            self._null_counts[place].snapshot(slots)[0] if place in self._null_counts else nothing
            for place in range(len(self._columns))
        ]
        for accumulator in self._accumulators:
            columns.extend(accumulator.snapshot(slots))
        return columns

    def restore(self, slots: Array, columns: Sequence[Array]) -> None:
        """Set the state of parts from the columns of a snapshot."""
        rest = list(columns)
        for place in range(len(self._columns)):
            nulls = rest.pop(0)
            if nulls.any():
                self._null_counter(place).load(slots, [nulls])
        for accumulator in self._accumulators:
            width = len(accumulator.snapshot(NO_SLOTS))
            accumulator.load(slots, rest[:width])
            rest = rest[width:]


def _checked_skips(on_error: str, functions: Sequence[AggregateFunction]) -> bool:
    """Whether tuples for which a user's function fails are left out by it."""
    check_on_error(on_error)
    if diverts(on_error) and not any(isinstance(each, UserDefined) for each in functions):
        raise UsageError(
            "on_error='divert' is for functions of your own (UserDefined), and there is none here; "
            "leave it out"
        )
    return diverts(on_error)


def _reader_for(
    function: AggregateFunction, column: ValueColumn
) -> Callable[[pa.RecordBatch], Any]:
    """How a function's values are taken out of a stream event."""
    if isinstance(column, DecimalColumn) and isinstance(function, Stddev | UserDefined):
        return column.floats
    return column.values


def _accumulator_for(function: AggregateFunction, column: ValueColumn, skips: bool) -> Accumulator:
    largest, latest = isinstance(function, Max), isinstance(function, Last)
    match function, column:
        case ((Sum() | Avg()), DecimalColumn()):
            return DecimalSum(column)
        case ((Min() | Max()), DecimalColumn()):
            return DecimalExtreme(largest=largest)
        case ((First() | Last()), DecimalColumn()):
            return DecimalArrival(latest=latest)
        case ((Min() | Max()), TextColumn()):
            return TextExtreme(column, largest=largest)
        case ((First() | Last()), TextColumn()):
            return TextArrival(column, latest=latest)
    match function:
        case Sum() | Avg():
            return SumAccumulator(column.dtype, column.name)
        case Min() | Max():
            return ExtremeAccumulator(column.dtype, largest=largest)
        case First() | Last():
            return ArrivalAccumulator(column.dtype, latest=latest)
        case Stddev():
            return MomentsAccumulator()
        case UserDefined():
            return UserAccumulator(function, skips=skips)
        case _:
            raise UsageError(f"{function!r} is not an aggregate function Rewake knows")


def _said(failed: UserCodeFailed, at: str = "") -> str:
    """Which function failed, and how."""
    cause = f"{type(failed.error).__name__}: {failed.error}"
    return f"the user-defined aggregate {failed.name!r} failed{at}: {cause}"


def _named(failed: UserCodeFailed, batch: pa.RecordBatch, position: int) -> UsageError:
    """The error that stops the query, with the tuple at which it did."""
    at = ""
    if failed.row < batch.num_rows:
        (values,) = batch.slice(failed.row, 1).to_pylist()
        at = f" at the tuple at position {position + failed.row}, {values}"
    return UsageError(
        f"{_said(failed, at)}; nothing of this turn was written: correct the function, divert the "
        "tuples whose update fails (on_error='divert'), or filter such tuples out before"
    )
