"""The state of aggregate functions as columns: what `Aggregation` writes, by name and type.

nulls_x                       how many values were null, for each column
sum_x, min_x, max_x           of the values so far; null where all were null
first_x, first_x_at           and the input position of that value; the same for last
count_x, mean_x, squares_x    for a standard deviation: the squares of distances from the mean
NAME_0, NAME_1, ...           the numbers of a user-defined function's state
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import UsageError
from rewake.operators.arrays import Array
from rewake.operators.functions import (
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
from rewake.spark.datasource.state_layout import other_operator

__all__ = ["FunctionState", "Stored", "as_kind", "function_states"]


class Stored(NamedTuple):
    """A stored state column: its name and type, and how the stored numbers become values."""

    name: str
    kind: pa.DataType
    # The column that it is of: null where the window has seen no value of it.
    of: str | None = None
    # A position that is stored one higher, so that 0 says that there is none.
    arrival: bool = False

    def values(self, by_name: Mapping[str, Array], tuples: Array) -> pa.Array:
        """The numbers as values; `tuples`: how many each of the windows has seen."""
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
            found.append(FunctionState(function, _accumulated(function, kind_of(function))))
    return found


def _accumulated(function: AggregateFunction, kind: pa.DataType | None) -> list[Stored]:
    """The state columns of one function over values of a type."""
    column, whole, real = function.column, pa.int64(), pa.float64()
    match function:
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
