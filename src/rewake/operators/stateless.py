"""Stateless steps: filter and map, on whole batches (Hwang 2.2).

A step is a small value, part of a query.  An expression in it is bound to a schema when the first
batch of that schema comes; what is bound is no part of the value's identity and does not travel
with it.  In place of an expression a function may stand: of a batch, giving an array.

Invariants: a filter keeps the order of its input and drops tuples for which the predicate is null;
a map of expressions gives as many tuples as it got.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from rewake.model.errors import (
    DamagedFrame,
    RewakeError,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import NO_TIME, TIME_LIMIT, StreamEvent, no_tuples
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s
from rewake.operators.columns.plain import plain_batch
from rewake.operators.dead_letters import FOR_A_TUPLE, dead_letters
from rewake.operators.failing import failures
from rewake.operators.stateful import (
    FURTHER_PORTS,
    NO_IDS,
    NO_SLOTS,
    Outcome,
    StatefulOperator,
    StoredParts,
)

ArrowFunction: TypeAlias = Callable[[pa.RecordBatch], Any]
# An `Expression`, or a function of a batch.
Formula: TypeAlias = Any


class StatelessStep(Protocol):
    """A step from batch to batch that keeps nothing between them.

    A step whose attribute `one_to_one` is true makes exactly one tuple of each, in its place.  One
    whose output cannot be made again position by position says why in `must_log`.  Without an
    `operator_class` it is taken to be deterministic.
    """

    @property
    def name(self) -> str:
        """For messages and pictures."""

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns after the step; `SchemaMismatch` when it does not fit."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The tuples after the step."""


class _Bindings:
    """The form of a step for the schema it met last; copies start without one."""

    def __init__(self) -> None:
        self._last: tuple[pa.Schema, Any] | None = None

    def get(self, schema: pa.Schema, bind: Callable[[pa.Schema], Any]) -> Any:
        last = self._last
        if last is None or (last[0] is not schema and not last[0].equals(schema)):
            last = self._last = (schema, bind(schema))
        return last[1]

    def __reduce__(self) -> tuple[type[_Bindings], tuple[()]]:
        return _Bindings, ()


def _bindings() -> Any:
    return field(default_factory=_Bindings, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class FilterStep:
    """Keeps the tuples for which the predicate holds."""

    predicate: Formula
    name: str = "filter"
    _bindings: _Bindings = _bindings()

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """The same columns."""
        mask = self._mask(no_tuples(schema))
        if not pa.types.is_boolean(mask.type):
            raise SchemaMismatch(
                f"step {self.name!r}: a filter needs a condition, but its formula is of type "
                f"{mask.type}; compare it with something"
            )
        return schema

    @property
    def operator_class(self) -> OperatorClass:
        """Each tuple is judged by itself; of a function of the user's that is not known."""
        return _class_of([self.predicate])

    def _bind(self, schema: pa.Schema) -> ArrowFunction:
        return _bound(self.predicate, schema, self.name)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        evaluate = self._bindings.get(batch.schema, self._bind)
        return _as_array(_evaluated(evaluate, batch, self.name), batch.num_rows)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The tuples for which the predicate is true."""
        mask = self.flags(batch)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)

    def flags(self, batch: pa.RecordBatch) -> pa.Array:
        """For each tuple whether the predicate is true, false or null."""
        mask = self._mask(batch)
        if len(mask) != batch.num_rows:
            raise UsageError(
                f"step {self.name!r}: its function gave {len(mask)} flags for {batch.num_rows} "
                "tuples; give one for each"
            )
        return mask


@dataclass(frozen=True)
class MapStep:
    """Computes each of its columns; a function that gives a whole batch stands for its columns.

    A function may give fewer tuples than it got, if all of the step's columns agree, and with
    `many` also more.
    """

    columns: tuple[tuple[str, Formula], ...]
    name: str = "map"
    many: bool = False
    _bindings: _Bindings = _bindings()

    @property
    def must_log(self) -> str:
        """More tuples than positions: where they stand must be written down."""
        return "it makes several tuples of one" if self.many else ""

    @property
    def operator_class(self) -> OperatorClass:
        """Each tuple is computed by itself; of a function of the user's that is not known."""
        return _class_of([formula for _, formula in self.columns])

    @property
    def one_to_one(self) -> bool:
        """What is bound gives one value for each tuple; bare functions may give any number."""
        return all(hasattr(formula, "bind") for _, formula in self.columns)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """The computed columns."""
        return self.apply(no_tuples(schema)).schema

    def _bind(self, schema: pa.Schema) -> list[tuple[str, ArrowFunction]]:
        if not self.columns:
            raise UsageError(f"step {self.name!r}: a map needs at least one column")
        empty = no_tuples(schema)
        return [(name, _bound(formula, schema, self.name, empty)) for name, formula in self.columns]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The computed columns of these tuples."""
        names: list[str] = []
        arrays: list[pa.Array] = []
        for name, evaluate in self._bindings.get(batch.schema, self._bind):
            value = _evaluated(evaluate, batch, self.name)
            if isinstance(value, pa.RecordBatch):
                names += value.schema.names
                arrays += value.columns
            else:
                names.append(name)
                arrays.append(_as_array(value, batch.num_rows))
        self._check(names, arrays)
        return pa.RecordBatch.from_arrays(arrays, names)

    def _check(self, names: list[str], arrays: list[pa.Array]) -> None:
        for array in arrays:
            if not isinstance(array, pa.Array):
                raise UsageError(
                    f"step {self.name!r}: a function of a batch gives an Arrow array or a batch, "
                    f"not {type(array).__name__}"
                )
        lengths = {len(array) for array in arrays}
        if len(lengths) > 1:
            counted = ", ".join(f"{n}: {len(a)}" for n, a in zip(names, arrays, strict=True))
            raise UsageError(f"step {self.name!r}: columns of different lengths ({counted})")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatch(f"step {self.name!r}: two columns are named {twice!r}")


@dataclass(frozen=True)
class DivertStep:
    """A step whose failing tuples go to an output of their own, with the error; others go on."""

    inner: StatelessStep

    @property
    def name(self) -> str:
        """That of the step."""
        return self.inner.name

    @property
    def must_log(self) -> str:
        """As the step says."""
        return must_log([self.inner])

    @property
    def operator_class(self) -> OperatorClass:
        """As the step says."""
        return least_class([self.inner])

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """As if nothing failed."""
        return self.inner.output_schema(schema)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the step makes of the tuples that it does not fail for."""
        return self.divide(batch)[0]

    def divide(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The tuples after the step, and those that it fails for, if there are any."""
        try:
            return self.inner.apply(batch), None
        except FOR_A_TUPLE:
            failing = failing_rows(self.inner, batch)
        rows = np.array([row for row, _ in failing])
        kept = np.ones(batch.num_rows, np.bool_)
        kept[rows] = False
        dead = plain_batch(batch.take(pa.array(rows)))
        return (
            self.inner.apply(batch.filter(pa.array(kept))),
            dead_letters(dead, [str(error) for _, error in failing]),
        )


def failing_rows(step: StatelessStep, batch: pa.RecordBatch) -> list[tuple[int, Exception]]:
    """The tuples that a step fails for: each by itself, or several that it fails for together."""

    def apply(start: int, end: int) -> object:
        return step.apply(batch.slice(start, end - start))

    found = failures(apply, 0, batch.num_rows, FOR_A_TUPLE)
    return [(row, each.error) for each in found for row in range(each.start, each.end)]


def _class_of(formulas: Sequence[Formula]) -> OperatorClass:
    alone = all(getattr(formula, "tuple_by_tuple", False) for formula in formulas)
    return OperatorClass.REPEATABLE if alone else OperatorClass.DETERMINISTIC


def _bound(
    formula: Formula, schema: pa.Schema, step: str, empty: pa.RecordBatch | None = None
) -> ArrowFunction:
    if hasattr(formula, "bind"):
        evaluate: ArrowFunction = formula.bind(schema, step, empty).evaluate
        return evaluate
    if callable(formula):
        function: ArrowFunction = formula
        return function
    raise UsageError(f"{formula!r} is neither an expression nor a function of a batch")


def _evaluated(evaluate: ArrowFunction, batch: pa.RecordBatch, step: str) -> Any:
    try:
        return evaluate(batch)
    except RewakeError:
        raise
    except Exception as error:
        raise UsageError(
            f"step {step!r} failed on a batch of {batch.num_rows} tuples: "
            f"{type(error).__name__}: {error}"
        ) from error


def _as_array(value: Any, rows: int) -> pa.Array:
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, rows)
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


# --- a fragment without state ----------------------------------------------------------------


class StatelessOperator(StatefulOperator):
    """Steps as an operator without parts: N is always 0, and nothing has to be replayed.

    So an approach that logs records its results only, and recovers with T = tc.
    """

    clock = NO_TIME
    open_parts = 0
    opened_at = NO_IDS

    def __init__(self, steps: Sequence[StatelessStep], schema: pa.Schema) -> None:
        super().__init__(schema)
        self._steps = tuple(steps)
        self.output_schema = schema_after(steps, schema)

    @property
    def divisible(self) -> bool:
        """Whether each tuple becomes exactly one."""
        return one_to_one(self._steps)

    def process(self, event: StreamEvent) -> Outcome:
        """Apply the steps; all that is left of the tuples are results."""
        self.check_schema(event)
        batch, dead = event.batch, None
        if batch.num_rows:
            batch, dead = divide_by_steps(self._steps, batch)
        if event.watermark is not None:
            self.clock = max(self.clock, min(event.watermark, TIME_LIMIT))
        results = batch if batch.num_rows else None
        others = () if dead is None else ((FURTHER_PORTS, dead),)
        return Outcome(results, None, NO_SLOTS, NO_IDS, NO_IDS, others=others)

    def opening_columns(self, slots: Array) -> list[Array]:  # noqa: ARG002
        """Nothing."""
        return []

    snapshot_columns = opening_columns

    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        """Take over the clock; there can be no parts."""
        if openings.ids.size or snapshots.ids.size or self.late_tuples:
            raise DamagedFrame("the log has windows, but its operator has none: it is another's")
        self.clock = clock
        return NO_SLOTS

    def replay(self, event: StreamEvent) -> int:  # noqa: ARG002
        """Nothing has to be brought up to date."""
        return 0

    def _finish_replay(self) -> Array:
        return NO_SLOTS


def one_to_one(steps: Sequence[StatelessStep]) -> bool:
    """Whether each tuple becomes exactly one, in its place."""
    return all(getattr(step, "one_to_one", False) for step in steps)


def must_log(steps: Sequence[StatelessStep]) -> str:
    """Why the output of some steps cannot be made again, if so."""
    return next((why for step in steps if (why := getattr(step, "must_log", ""))), "")


def least_class(steps: Sequence[StatelessStep]) -> OperatorClass:
    """What is known of some steps together."""
    known = [getattr(step, "operator_class", OperatorClass.DETERMINISTIC) for step in steps]
    return min(known, default=OperatorClass.REPEATABLE)


def schema_after(steps: Sequence[StatelessStep], schema: pa.Schema) -> pa.Schema:
    """The columns after some steps."""
    for step in steps:
        schema = step.output_schema(schema)
    return schema


def apply_steps(steps: Sequence[StatelessStep], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The tuples after some steps; an error names the first tuple that a step fails for."""
    for step in steps:
        try:
            batch = step.apply(batch)
        except FOR_A_TUPLE as error:
            raise _naming(step, batch, error) from error
    return batch


def divide_by_steps(
    steps: Sequence[StatelessStep], batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The tuples after some steps, and those that a diverting step among them fails for."""
    if len(steps) == 1 and isinstance(steps[0], DivertStep):
        return steps[0].divide(batch)
    return apply_steps(steps, batch), None


def _naming(step: StatelessStep, batch: pa.RecordBatch, error: RewakeError) -> RewakeError:
    failing = failing_rows(step, batch)
    if not 0 < len(failing) < max(batch.num_rows, 2):
        return error
    row, first = failing[0]
    (values,) = batch.slice(row, 1).to_pylist()
    return type(error)(
        f"{first}; it fails for {len(failing)} of {batch.num_rows} tuples, the first of which is "
        f"{values}; on_error='divert' sends such tuples elsewhere"
    )
