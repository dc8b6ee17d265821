"""The aggregate functions a user can ask for: values only, no state.

Nulls are not aggregated: a function over a column sees the tuples where it is not null, and its
result is null when there are none (`Count` gives 0).  `First` and `Last` go by arrival.  A NaN
makes every result that depends on it NaN, `Min` and `Max` included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rewake.model.errors import UsageError

FloatState = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A function over one column; `name` is the result column's name."""

    column: str
    name: str = ""

    def result_name(self) -> str:
        """The result column's name: as given, or `function_column`."""
        return self.name or f"{type(self).__name__.lower()}_{self.column}"

    def describe(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        function = type(self).__name__.lower()
        return {"function": function, "column": self.column, "name": self.name}

    @property
    def words(self) -> str:
        """For people."""
        text = f"{type(self).__name__.lower()}({self.column or '*'})"
        return f"{text} as {self.name}" if self.name else text


@dataclass(frozen=True, slots=True)
class Count(AggregateFunction):
    """How many tuples, or, given a column, how many where it is not null."""

    column: str = ""

    def result_name(self) -> str:
        """The result column's name: as given, `count`, or `count_column`."""
        return self.name or (f"count_{self.column}" if self.column else "count")


@dataclass(frozen=True, slots=True)
class Sum(AggregateFunction):
    """The sum; of integers a 64-bit integer, of decimals exact, both checked for overflow."""


@dataclass(frozen=True, slots=True)
class Avg(AggregateFunction):
    """The arithmetic mean, as a float; of decimals a decimal, rounded half up."""


@dataclass(frozen=True, slots=True)
class Min(AggregateFunction):
    """The smallest value; of texts by their bytes."""


@dataclass(frozen=True, slots=True)
class Max(AggregateFunction):
    """The largest value; of texts by their bytes."""


@dataclass(frozen=True, slots=True)
class First(AggregateFunction):
    """The value that arrived first."""


@dataclass(frozen=True, slots=True)
class Last(AggregateFunction):
    """The value that arrived last."""


@dataclass(frozen=True, slots=True)
class Stddev(AggregateFunction):
    """The sample standard deviation as a float; null for fewer than two values."""


@dataclass(frozen=True, slots=True)
class UserDefined(AggregateFunction):
    """A function of the user's own, over a fixed-length tuple of floats as its state.

    `update(state, value)` and `merge(older, newer)` return the next state, `result(state)` a
    float.  They are compiled (numba nopython mode), so plain arithmetic on their arguments only;
    the same `update` calls are made after a recovery, so they must be functions of their
    arguments alone.  Values come in order of arrival within a pane; panes are merged in the order
    of the windows' time or count, so over overlapping time windows order should not matter.
    """

    initial: FloatState = ()
    update: Callable[[FloatState, float], FloatState] | None = field(default=None, compare=False)
    merge: Callable[[FloatState, FloatState], FloatState] | None = field(
        default=None, compare=False
    )
    result: Callable[[FloatState], float] | None = field(default=None, compare=False)

    def describe(self) -> dict[str, Any]:
        """Its name and initial state, without the code."""
        described = AggregateFunction.describe(self)
        return described | {"initial": list(self.initial)}


_BY_NAME: dict[str, type[AggregateFunction]] = {
    "avg": Avg,
    "sum": Sum,
    "min": Min,
    "max": Max,
    "first": First,
    "last": Last,
    "stddev": Stddev,
}


def listed(columns: str | Sequence[str]) -> tuple[str, ...]:
    """One column or several, as several."""
    given: object = (
        (columns,) if isinstance(columns, str) else columns
    )  # by callers whose types nobody checks
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise UsageError(f"give the name of a column, or several in a list, not {given!r}")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise UsageError(f"the name of a column is text, not {name!r}")
    return names


def asked_for(
    count: bool | str | Sequence[str],
    functions: Sequence[AggregateFunction],
    **columns: str | Sequence[str],
) -> tuple[AggregateFunction, ...]:
    """What a user means by `avg="price", count=True, functions=[...]`, in a fixed order."""
    chosen = [kind(name) for each, kind in _BY_NAME.items() for name in listed(columns[each])]
    if count is True:
        chosen.append(Count())
    elif count is not False:
        chosen += [Count(name) for name in listed(count)]
    given: object = functions
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise UsageError(f"functions is a list, such as [Avg('price')], not {given!r}")
    for each in functions:
        if not isinstance(each, AggregateFunction):
            raise UsageError(f"functions has {each!r}, which is no function such as Avg('price')")
    return (*chosen, *functions)


def code_of(functions: Sequence[AggregateFunction]) -> list[Callable[..., Any]]:
    """What users wrote themselves of some functions."""
    return [
        each
        for function in functions
        if isinstance(function, UserDefined)
        for each in (function.update, function.merge, function.result)
        if each is not None
    ]


def columns_that_matter(
    schema: pa.Schema, by: Sequence[str], functions: Sequence[AggregateFunction], time: str | None
) -> list[str]:
    """The columns that functions over windows read, in the schema's order."""
    read = {*by, *(function.column for function in functions), time}
    return [name for name in schema.names if name in read]
