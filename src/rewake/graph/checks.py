"""What is checked when a step is added: shards, keys, schemas.  Errors name the step and column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from rewake.graph.steps import Port
from rewake.model.errors import InvalidWindow, SchemaMismatch, UsageError
from rewake.model.given import shown
from rewake.model.names import checked_name
from rewake.model.near import no_column
from rewake.model.schemas import difference
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.columns.keys import KeyColumn
from rewake.operators.columns.plain import plain_schema
from rewake.operators.dead_letters import DEAD, check_on_error, dead_schema, diverts
from rewake.operators.expressions.expression import expression
from rewake.operators.fragment import FilterStep
from rewake.operators.splitting import SplitStep
from rewake.operators.stateless import DivertStep, StatelessStep
from rewake.operators.windows.specs import RunningWindow

MAX_SHARDS = 256


@contextmanager
def of_step(name: str) -> Iterator[None]:
    """Have an error of what is built for a step say which step it is."""
    try:
        yield
    except UsageError as error:
        raise type(error)(f"step {name!r}: {error}") from error


def checked_sink(name: str, sink: object) -> None:
    """Refuse what is no sink where it is said, and not when the query is started."""
    if isinstance(sink, type) or not (hasattr(sink, "open") and hasattr(sink, "describe")):
        raise UsageError(
            f"sink {name!r} is {shown(sink)}, which is no sink; give one such as "
            "rewake.FileSink(folder) or rewake.SqlSink(database, table=..., name=...), or keep the "
            "stream with .to_stream(name)"
        )


def checked_shards(name: str, shards: int) -> int:
    """A number of shards, if it is one."""
    if not isinstance(shards, int) or isinstance(shards, bool) or not 1 <= shards <= MAX_SHARDS:
        raise UsageError(
            f"step {name!r}: shards is a number from 1 to {MAX_SHARDS}, not {shards!r}"
        )
    return shards


def check_key(name: str, key: str, schema: pa.Schema) -> None:
    """Refuse a column that tuples cannot be divided by."""
    if key not in schema.names:
        raise SchemaMismatch(f"step {name!r}: {no_column(key, schema.names)}")
    try:
        KeyColumn(schema.field(key))
    except SchemaMismatch as error:
        raise SchemaMismatch(f"step {name!r}: partition_by: {error}") from error


def check_aggregate(name: str, spec: AggregateSpec, schema: pa.Schema) -> None:
    """Refuse columns that are not there, with near names, and windows that nodes cannot keep."""
    columns = [*spec.by, *(each.column for each in spec.aggregates), spec.time]
    for column in columns:
        if column and column not in schema.names:
            raise SchemaMismatch(f"step {name!r}: {no_column(column, schema.names)}")
    if isinstance(spec.window, RunningWindow):
        # What it emits follows how the input was cut into stream events; replays may cut it anew.
        raise InvalidWindow(
            f"step {name!r}: running windows emit after every stream event, and a query's stream "
            "events are not the same every time; use a count, time or session window, or a "
            "running window inside Structured Streaming"
        )


def checked_split(
    name: str, predicates: Mapping[str, Any], rest: str | None, schema: pa.Schema
) -> SplitStep:
    """A split whose predicates are truth values and whose outputs have different names."""
    given: object = predicates  # by callers whose types nobody checks
    if not predicates or not isinstance(given, Mapping):
        raise UsageError(f"step {name!r}: a split needs at least one predicate, by output name")
    names = [checked_name(each) for each in (*predicates, *([] if rest is None else [rest]))]
    if len(set(names)) < len(names):
        raise UsageError(f"step {name!r}: two outputs are named {rest!r}; rename one")
    outputs = []
    for output, predicate in predicates.items():
        step = FilterStep(expression(predicate), name)
        step.predicate.bind(schema, name)
        step.output_schema(schema)
        outputs.append((output, step))
    return SplitStep(tuple(outputs), rest, name)


def diverting(
    name: str, step: StatelessStep, on_error: str, schema: pa.Schema
) -> tuple[StatelessStep, tuple[tuple[str, pa.Schema], ...]]:
    """A step as its `on_error` asks, and the outputs that it has besides its results."""
    try:
        check_on_error(on_error)
        if not diverts(on_error):
            return step, ()
        return DivertStep(step), ((DEAD, dead_schema(plain_schema(schema))),)
    except UsageError as error:
        raise type(error)(f"step {name!r}: {error}") from error


def united_schema(name: str, ports: Sequence[Port]) -> pa.Schema:
    """The schema of a union; a column may be null if it may be in any of the streams."""
    for port in ports[1:]:
        problem = ports_differ(ports[0], port)
        if problem:
            raise SchemaMismatch(f"step {name!r}: streams of a union need one schema: {problem}")
    columns = zip(*(port.schema for port in ports), strict=True)
    return pa.schema(
        [same[0].with_nullable(any(each.nullable for each in same)) for same in columns]
    )


def ports_differ(first: Port, second: Port) -> str:
    """What tells the schemas of two streams apart, in words; nothing when they are the same."""
    return difference(first.schema, second.schema, repr(first.name), repr(second.name))
