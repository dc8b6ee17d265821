"""The state of aggregate functions as columns: what `Aggregation` writes, by name and type.

nulls_x                       how many values were null, for each column
sum_x, min_x, max_x           of the values so far; null where all were null
first_x, first_x_at           and the input position of that value; the same for last
count_x, mean_x, squares_x    for a standard deviation: the squares of distances from the mean
NAME_0, NAME_1, ...           the numbers of a user-defined function's state

A decimal is stored as two columns, its halves, and a text as two, lengths and bytes; here each is
one column again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import UsageError
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
from rewake.operators.columns.arrays import Array
from rewake.operators.columns.byte_rows import holds_bytes, offsets_of
from rewake.operators.columns.values import ValueColumn
from rewake.operators.columns.wide import (
    DecimalColumn,
    TextColumn,
    decimal_results,
    decimal_summed,
    value_column,
)
from rewake.operators.kit.footprints import other_operator

__all__ = ["FunctionState", "Stored", "as_kind", "function_states", "one_of_each"]


class Stored(NamedTuple):
    """A stored state column: its name and type, and how the stored numbers become values."""

    name: str
    kind: pa.DataType
    # The column that it is of: null where the window has seen no value of it.
    of: str | None = None
    # A position that is stored one higher, so that 0 says that there is none.
    arrival: bool = False

    @property
    def width(self) -> int:
        """In how many columns it is stored."""
        return 1 if type(value_column(pa.field(self.name, self.kind), 0)) is ValueColumn else 2

    def one_column(self, stored: Sequence[Array]) -> Any:
        """Stored columns as one: numbers, or else an Arrow array of the column's type."""
        column = value_column(pa.field(self.name, self.kind), 0)
        if isinstance(column, DecimalColumn):
            if any(each.dtype != np.int64 for each in stored):
                raise other_operator()
            return column.to_arrow(np.stack(stored, axis=1), None)
        if isinstance(column, TextColumn):
            lengths, data = stored
            if data.size and not holds_bytes(data):
                raise other_operator()
            present = lengths >= 0
            texts = offsets_of(np.where(present, lengths, 0)), data.astype(np.uint8, copy=False)
            return column.to_arrow(texts, None if present.all() else present)
        return stored[0]

    def values(self, by_name: Mapping[str, Any], tuples: Array) -> pa.Array:
        """The numbers as values; `tuples`: how many each of the windows has seen."""
        if isinstance(by_name[self.name], pa.Array):
            unseen = pa.array(by_name[f"nulls_{self.of}"] >= tuples)
            return pc.if_else(unseen, pa.scalar(None, self.kind), by_name[self.name])
        values = np.ascontiguousarray(by_name[self.name])
        if self.arrival:
            return pa.array(values - 1, mask=values == 0)
        mask: Any = None
        if self.of is not None:
            mask = by_name[f"nulls_{self.of}"] >= tuples
        return as_kind(pa.array(values, mask=mask), self.kind)


class FunctionState(NamedTuple):
    """The columns of one function's state; None: the numbers of nulls."""

    function: AggregateFunction | None
    columns: list[Stored]


def function_states(
    aggregates: Sequence[AggregateFunction], schema: pa.Schema, *, of_input: bool
) -> list[FunctionState]:
    """The states of functions, in the order in which `Aggregation` writes them.

    Types are those of `schema`: the columns of the input, or else of the results.
    """

    def kind_of(function: AggregateFunction) -> pa.DataType | None:
        place = schema.get_field_index(function.column if of_input else function.result_name())
        return None if place < 0 else schema.field(place).type

    functions = [each for each in aggregates if each.column]
    columns = list(dict.fromkeys(each.column for each in functions))
    found = [FunctionState(None, [Stored(f"nulls_{name}", pa.int64())]) for name in columns]
    shared: set[tuple[str, str]] = set()
    for number, function in enumerate(functions):
        if isinstance(function, Count):
            continue
        kind = "Sum" if isinstance(function, Avg) else type(function).__name__
        # Each user-defined function has a state of its own; the others share theirs.
        key = (f"{kind}{number}" if isinstance(function, UserDefined) else kind, function.column)
        if key not in shared:
            shared.add(key)
            accumulated = _accumulated(function, kind_of(function), of_input=of_input)
            found.append(FunctionState(function, accumulated))
    return found


def one_of_each(stored: Sequence[Stored], columns: Sequence[Array]) -> list[Any]:
    """Stored columns as one for each of these."""
    rest, found = list(columns), []
    for each in stored:
        found.append(each.one_column(rest[: each.width]))
        rest = rest[each.width :]
    return found


def _sum_kind(function: AggregateFunction, kind: pa.DataType, *, of_input: bool) -> pa.DataType:
    """The type of sums of decimals, by that of the values or of the function's results."""
    if of_input:
        return decimal_results(kind)[0]
    return kind if isinstance(function, Sum) else decimal_summed(kind)


def _accumulated(
    function: AggregateFunction, kind: pa.DataType | None, *, of_input: bool
) -> list[Stored]:
    """The state columns of one function over values of a type."""
    column, whole, real = function.column, pa.int64(), pa.float64()
    if kind is not None and pa.types.is_dictionary(kind):
        kind = kind.value_type
    match function:
        case Sum() | Avg() if kind is not None and pa.types.is_decimal128(kind):
            total = _sum_kind(function, kind, of_input=of_input)
            return [Stored(f"sum_{column}", total, column)]
        case Sum() | Avg():
            exact = kind is not None and pa.types.is_integer(kind)
            return [Stored(f"sum_{column}", whole if exact else real, column)]
        case Min() | Max():
            return [Stored(f"{type(function).__name__.lower()}_{column}", kind or real, column)]
        case First() | Last():
            name = f"{type(function).__name__.lower()}_{column}"
            return [
                Stored(name, kind or real, column),
                Stored(f"{name}_at", whole, arrival=True),
            ]
        case Stddev():
            names = (("count", whole), ("mean", real), ("squares", real))
            return [Stored(f"{name}_{column}", each) for name, each in names]
        case UserDefined():
            name = function.result_name()
            return [Stored(f"{name}_{place}", real) for place in range(len(function.initial))]
    raise UsageError(f"the state of {function!r} is not known to this version")


def as_kind(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The stored numbers in the column's own type; times and truths are stored as integers."""
    if array.type == kind:
        return array
    try:
        if pa.types.is_boolean(kind):
            return array.cast(pa.int8()).cast(kind)
        if pa.types.is_date32(kind) or pa.types.is_time32(kind):
            return array.cast(pa.int32()).cast(kind)
        return array.cast(kind, safe=pa.types.is_temporal(kind))
    except pa.ArrowException as error:
        raise other_operator() from error
