"""Streams: what a step of a query gives, and the steps that can follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewake.graph import joins, lookups, processes, resamples, sorts
from rewake.graph.checks import (
    check_aggregate,
    check_key,
    checked_shards,
    checked_sink,
    checked_split,
    diverting,
    of_step,
    ports_differ,
    united_schema,
)
from rewake.graph.event_time import carried_behind, on_one_clock
from rewake.graph.promised import AS_QUERY, approach_of_step
from rewake.graph.steps import FURTHER, LATE, Carried, Kind, Port, Step
from rewake.model.connectors import Sink
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.given import check_flag, shown
from rewake.model.names import checked_name
from rewake.model.stream_event import no_tuples
from rewake.model.units import check_duration
from rewake.operators.aggregate.functions import AggregateFunction, asked_for, listed
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.columns.plain import plain_schema
from rewake.operators.expressions.expression import (
    ArrowFunction,
    BatchFunction,
    Computed,
    expression,
)
from rewake.operators.fragment import FilterStep, MapStep
from rewake.operators.stateful import StatefulSpec
from rewake.operators.windows.specs import Window
from rewake.recovery.approach import Approach, checked_approach

if TYPE_CHECKING:
    from rewake.graph.query import Query

Columns = str | Sequence[str]
Value = str | Computed | BatchFunction


class Stream:
    """The tuples that leave a step.  Each method adds one step to the query.

    Options that all steps have: `name` (of the step, its stream and its nodes), `shards` (how many
    nodes share the work; a filter or map takes over those of its input), `approach` (how it
    recovers), `fragment` (steps that give the same name and follow each other run, fail and recover
    as one), and where it matters `partition_by` (the columns to divide the input by).
    """

    def __init__(self, query: Query, port: Port) -> None:
        self._query = query
        self._port = port

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        return self._port.schema

    @property
    def name(self) -> str:
        """The name of the step it leaves, with `.late` for late tuples."""
        return self._port.name

    def __repr__(self) -> str:
        columns = ", ".join(f"{each.name}: {each.type}" for each in self.schema)
        return f"<Stream {self.name!r}: {columns}>"

    # --- without state -----------------------------------------------------------------------

    def filter(
        self,
        predicate: Value,
        *,
        on_error: str = "stop",
        name: str | None = None,
        shards: int | None = None,
        approach: Approach | None = None,
        fragment: str | None = None,
        partition_by: Columns | None = None,
    ) -> Stream:
        """The tuples for which a predicate holds (not those for which it is false or null).

        With `on_error="divert"`, tuples for which it cannot be computed go to `output("dead")`.
        """
        name = self._named(name, Kind.FILTER)
        condition = expression(predicate)
        kind = condition.bind(self.schema, name).type
        if not pa.types.is_boolean(kind):
            raise SchemaMismatch(
                f"step {name!r}: {condition.text!r} is of type {kind}; a filter needs a truth "
                "value, for example a comparison"
            )
        options = self._options(name, shards, approach, fragment, partition_by)
        stateless, further = diverting(name, FilterStep(condition, name), on_error, self.schema)
        return self._add(
            Kind.FILTER,
            self.schema,
            stateless=stateless,
            further=further,
            computes=(("", condition),),
            keys=self._port.step.keys,
            **options,
        )

    def split(
        self,
        predicates: Mapping[str, Value],
        *,
        rest: str | None = None,
        name: str | None = None,
        shards: int | None = None,
        approach: Approach | None = None,
        fragment: str | None = None,
        partition_by: Columns | None = None,
    ) -> dict[str, Stream]:
        """One stream for each predicate: a tuple goes to the first that holds for it.

        Those for which none holds go to the stream named by `rest`, or nowhere.
        """
        name = self._named(name, Kind.SPLIT)
        split = checked_split(name, predicates, rest, self.schema)
        port = self._add(
            Kind.SPLIT,
            self.schema,
            split=split,
            further=tuple((each, plain_schema(self.schema)) for each in split.names),
            computes=tuple((each, step.predicate) for each, step in split.outputs),
            keys=self._port.step.keys,
            **self._options(name, shards, approach, fragment, partition_by),
        )._port
        return {
            each: Stream(self._query, Port(port.step, FURTHER + number))
            for number, each in enumerate(split.names)
        }

    def map(
        self,
        columns: Mapping[str, Value] | Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
        /,
        *,
        many: bool = False,
        on_error: str = "stop",
        name: str | None = None,
        shards: int | None = None,
        approach: Approach | None = None,
        fragment: str | None = None,
        partition_by: Columns | None = None,
        **named: Value,
    ) -> Stream:
        """Tuples of new columns: SQL text or a function for each, or one function for all.

        With `many`, one function for all may give any number of tuples, which are logged.  With
        `on_error="divert"`, tuples for which it cannot be computed go to `output("dead")`.  A
        column whose name is that of an option is given in the mapping:
        `map({"name": "upper(name)"})`; where `name=` could be meant for one, it is refused.
        """
        if columns is None:
            self._refuse_lost_columns(name=name, fragment=fragment)
        name = self._named(name, Kind.MAP)
        options = self._options(name, shards, approach, fragment, partition_by)
        check_flag(f"step {name!r}: many", many)
        if callable(columns):
            if named:
                raise UsageError(f"step {name!r}: give one function for all columns, or columns")
            step = MapStep((("", columns),), name, many=many)
            computes: tuple[tuple[str, Computed], ...] = (("", ArrowFunction(columns)),)
            schema = step.output_schema(self.schema)
            stateless, further = diverting(name, step, on_error, self.schema)
            return self._add(
                Kind.MAP, schema, stateless=stateless, further=further, computes=computes, **options
            )
        if many:
            raise UsageError(
                f"step {name!r}: columns give one tuple for each; with many=True give one function "
                "of a batch, which gives a batch"
            )
        if columns is not None and not isinstance(columns, Mapping):
            raise UsageError(
                f"step {name!r}: columns are given by name, as in {{'total': 'a + b'}}, or one "
                f"function of a batch, not {shown(columns)}"
            )
        computes = _computed(name, dict(columns or {}), named)
        empty = no_tuples(self.schema)
        for _, computed in computes:
            computed.bind(self.schema, name, empty)
        step = MapStep(computes, name)
        stateless, further = diverting(name, step, on_error, self.schema)
        return self._add(
            Kind.MAP,
            step.output_schema(self.schema),
            stateless=stateless,
            further=further,
            computes=computes,
            keys=_keys_after_map(self._port.step.keys, computes),
            **options,
        )

    def _refuse_lost_columns(self, **options: str | None) -> None:
        """Where columns are given by keyword, an option may be meant as one: say so."""
        for option, value in options.items():
            if value is not None and (option in self.schema.names or value in self.schema.names):
                raise UsageError(
                    f"map({option}={value!r}, ...): is this the step's {option}, or a column? For "
                    f"a column write map({{{option!r}: {value!r}, ...}}); for the step's, give the "
                    f"columns in such a mapping and {option}= beside it"
                )

    def union(
        self,
        *others: Stream,
        name: str | None = None,
        shards: int = 1,
        approach: Approach | None = None,
        fragment: str | None = None,
        partition_by: Columns | None = None,
    ) -> Stream:
        """The tuples of several streams of one schema, in the order in which they meet."""
        name = self._named(name, Kind.UNION)
        if not others:
            raise UsageError(f"step {name!r}: a union needs at least one other stream")
        ports = [self._port, *(self._from_here(other, name) for other in others)]
        for place, port in enumerate(ports):
            if port in ports[:place]:
                raise UsageError(
                    f"step {name!r}: {port.name!r} is united with itself; unite it with a map of "
                    "it instead"
                )
        schema = united_schema(name, ports)
        keys = {port.step.keys for port in ports}
        return self._add(
            Kind.UNION,
            schema,
            inputs=tuple(ports),
            keys=keys.pop() if len(keys) == 1 else None,
            **self._options(name, shards, approach, fragment, partition_by),
        )

    # --- with state --------------------------------------------------------------------------

    def aggregate(
        self,
        *,
        by: Columns,
        window: Window,
        avg: Columns = (),
        sum: Columns = (),  # noqa: A002
        min: Columns = (),  # noqa: A002
        max: Columns = (),  # noqa: A002
        first: Columns = (),
        last: Columns = (),
        stddev: Columns = (),
        count: bool | Columns = False,
        functions: Sequence[AggregateFunction] = (),
        time: str | None = None,
        timeout: str | int | None = None,
        slack: str | int | None = None,
        route_late: bool = False,
        null_keys: str = "group",
        on_error: str = "stop",
        name: str | None = None,
        shards: int = 1,
        approach: Approach | None = None,
        recover_within: str | None = AS_QUERY,
        checkpoint_budget: str | float = "5%",
        fragment: str | None = None,
    ) -> Stream:
        """Functions over windows of each key's tuples: count, time or session windows.

        The result of `avg="price"` is the column `avg_price`; `functions=[Avg("price", "mean")]`
        gives full control.  `time`, `timeout`, `slack`, `route_late`, `null_keys` and `on_error`
        are those of `AggregateSpec`; null_keys="drop" puts a filter before the step, which leaves
        out tuples without a key.  `recover_within` and `checkpoint_budget` are those of `Query`,
        for this step alone.
        """
        name = self._named(name, Kind.AGGREGATE)
        approach = self._chosen(approach, recover_within, checkpoint_budget)
        keys = listed(by)
        if null_keys == "drop":
            self, null_keys = self._with_keys(name, keys), "group"  # noqa: PLW0642
        with of_step(name):
            asked = asked_for(
                count, functions,
                avg=avg, sum=sum, min=min, max=max, first=first, last=last, stddev=stddev,
            )  # fmt: skip
            spec = AggregateSpec(
                keys,
                window,
                asked,
                time=time,
                timeout=timeout,
                null_keys=null_keys,
                route_late=route_late,
                on_error=on_error,
            )
        check_aggregate(name, spec, self.schema)
        return self.add_stateful(
            Kind.AGGREGATE,
            spec,
            name=name,
            shards=shards,
            approach=approach,
            fragment=fragment,
            slack=slack,
        )

    @property
    def late(self) -> Stream:
        """The second output of a step that goes by event time: tuples that came too late for it."""
        if self._port.port == LATE or self._port.step.late_schema is None:
            raise UsageError(
                f"step {self.name!r} has no output of late tuples; aggregates, sorts, resamples "
                "and keyed processing have one with route_late=True, a join has "
                "output('late-left') and output('late-right')"
            )
        return Stream(self._query, Port(self._port.step, LATE))

    def aggregates(
        self,
        windows: Mapping[str, Window],
        *,
        name: str | None = None,
        **rest: Any,
    ) -> dict[str, Stream]:
        """The same functions over windows of several kinds or sizes at once: a stream for each.

        The rest is that of `aggregate`; steps are called by `name` and the window's.
        """
        name = self._named(name, Kind.AGGREGATE)
        given: object = windows  # by callers whose types nobody checks
        if not isinstance(given, Mapping):
            raise UsageError(f"step {name!r}: windows are given by name, not as {given!r}")
        return {
            each: self.aggregate(window=window, name=f"{name}-{each}", **rest)
            for each, window in windows.items()
        }

    def output(self, name: str) -> Stream:
        """An output that a step has besides its results, such as the dead letters of `process`."""
        step = self._port.step
        names = [each for each, _ in step.further]
        if name not in names:
            raise UsageError(
                f"step {step.name!r} has no output {name!r}; besides its results it has "
                f"{', '.join(names) or 'none'}"
            )
        return Stream(self._query, Port(step, FURTHER + names.index(name)))

    # Steps that have a module of their own.
    bsort = sorts.bsort
    join = joins.join
    lookup = lookups.lookup
    process = processes.process
    resample = resamples.resample

    # --- where streams end -------------------------------------------------------------------

    def to_stream(
        self,
        name: str | None = None,
        *,
        keep_for: str | int | None = None,
        keep_bytes: int | None = None,
        require: str | None = None,
    ) -> Stream:
        """Keep it as a stream that others can read, also later, under a name.

        All of its history, unless said otherwise: with `keep_for`, tuples may go that are so much
        older, in its own time, than the latest; with `keep_bytes`, the oldest when each of its
        nodes has kept more.  They go by whole segments of 64 MiB; what recovery or a node needs
        stays.  `require`, such as "precise": the query is refused where this would give less after
        a crash.
        """
        name = self.name if name is None else name
        with of_step(name):
            if keep_for is not None:
                check_duration("keep_for", keep_for)
            if keep_bytes is not None and (type(keep_bytes) is not int or keep_bytes < 0):
                raise UsageError(f"keep_bytes is a number of bytes, not {keep_bytes!r}")
        self._query.add_stream(name, self._port, keep_for, keep_bytes)
        self._query.require(f"stream {name!r}", require)
        return self

    def to(
        self,
        sink: Sink,
        *,
        name: str | None = None,
        shards: int = 1,
        partition_by: Columns | None = None,
        require: str | None = None,
    ) -> None:
        """Write it to a system outside of Rewake, exactly once.

        `require`, such as "precise": the query is refused where this would give less after a crash.
        """
        name = self._named(name, Kind.SINK)
        checked_sink(name, sink)
        options = self._options(name, shards, None, None, partition_by)
        self._add(Kind.SINK, self.schema, sink=sink, **options)
        self._query.require(f"sink {name!r}", require)

    # --- shared ------------------------------------------------------------------------------

    def _with_keys(self, name: str, keys: tuple[str, ...]) -> Stream:
        """The tuples whose keys are all there: what a step with null_keys="drop" is given."""
        for key in keys:
            check_key(name, key, self.schema)
        there = " AND ".join(f'"{key}" IS NOT NULL' for key in keys)
        return self.filter(there, name=f"{name}-keyed") if keys else self

    def add_stateful(
        self,
        kind: Kind,
        spec: StatefulSpec,
        *others: Stream,
        name: str,
        shards: int,
        approach: Approach | None,
        fragment: str | None,
        slack: str | int | None = None,
    ) -> Stream:
        """A step with state over this stream and others, checked by building its operator."""
        inputs = (self._port, *(self._from_here(other, name) for other in others))
        spec = on_one_clock(name, spec, slack, inputs)
        schemas = tuple(port.schema for port in inputs)
        try:
            operator = spec.operator(*schemas)
            further = tuple(
                (each, spec.further_schema(each, *schemas)) for each in spec.further_outputs
            )
        except UsageError as error:
            raise type(error)(f"step {name!r}: {error}") from error
        return self._add(
            kind,
            operator.output_schema,
            inputs=inputs,
            spec=spec,
            keys=spec.keys(0) or None,
            late_schema=plain_schema(self.schema) if spec.route_late else None,
            further=further,
            **self._options(name, shards, approach, fragment, None),
        )

    def _chosen(
        self, approach: Approach | None, recover_within: str | None, budget: str | float
    ) -> Approach | None:
        """How a step recovers; None: as the query does."""
        return approach_of_step(self._query.approach, approach, recover_within, budget)

    def _named(self, name: str | None, kind: Kind) -> str:
        return self._query.free_name(kind) if name is None else checked_name(name)

    def _options(
        self,
        name: str,
        shards: int | None,
        approach: Approach | None,
        fragment: str | None,
        partition_by: Columns | None,
    ) -> dict[str, Any]:
        keys = None if partition_by is None else listed(partition_by)
        for key in keys or ():
            check_key(name, key, self.schema)
        return {
            "name": name,
            "shards": self._port.step.shards if shards is None else checked_shards(name, shards),
            "approach": checked_approach(approach),
            "fragment": None if fragment is None else checked_name(fragment),
            "partition_by": keys or None,
        }

    def _add(self, kind: Kind, schema: pa.Schema, **rest: Any) -> Stream:
        rest.setdefault("inputs", (self._port,))
        carries = carried_behind(rest["inputs"], rest.get("spec"))
        # Tuples leave a fragment without dictionaries, whichever steps it will hold.
        step = Step(kind=kind, schema=plain_schema(schema), carries=carries, **rest)
        return Stream(self._query, Port(self._query.add(step)))

    def _from_here(self, other: Stream, name: str) -> Port:
        if not isinstance(other, Stream):
            raise UsageError(f"step {name!r}: {other!r} is not a stream")
        if other._query is not self._query:
            raise UsageError(
                f"step {name!r}: stream {other.name!r} belongs to another query, "
                f"{other._query.name!r}; read it from there as a source"
            )
        return other._port


class LoopStream(Stream):
    """A stream whose tuples come from further down; used before they are made."""

    def close_with(self, other: Stream) -> None:
        """Say where its tuples come from."""
        loop = self._port.step
        port = self._from_here(other, loop.name)
        if port.step.kind is Kind.LOOP:
            raise UsageError(
                f"loop {loop.name!r} cannot be closed with loop {port.name!r}: there is no step "
                "between them"
            )
        problem = ports_differ(self._port, port)
        if problem:
            raise SchemaMismatch(f"loop {loop.name!r} cannot be closed: {problem}")
        if loop.carries is Carried.BY_ALL and port.carries is not Carried.BY_ALL:
            raise UsageError(
                f"loop {loop.name!r} is said to carry watermarks, but {port.name!r} does not: let "
                "all that enters carry them, or leave watermarks out"
            )
        self._query.close_loop(loop, port)


def _computed(
    name: str, columns: Mapping[str, Value], named: Mapping[str, Value]
) -> tuple[tuple[str, Computed], ...]:
    for each in columns:
        if not isinstance(each, str) or not each:
            raise UsageError(
                f"step {name!r}: {shown(each)} is no name of a column; give text, as in "
                "{'total': 'a + b'}"
            )
    twice = sorted(set(columns) & set(named))
    if twice:
        raise UsageError(f"step {name!r}: column {twice[0]!r} is given twice")
    if not columns and not named:
        raise UsageError(f"step {name!r}: a map needs at least one column, such as total='a + b'")
    try:
        return tuple((column, expression(value)) for column, value in {**columns, **named}.items())
    except UsageError as error:
        raise type(error)(f"step {name!r}: {error}") from error


def _keys_after_map(
    keys: tuple[str, ...] | None, computes: tuple[tuple[str, Computed], ...]
) -> tuple[str, ...] | None:
    unchanged = {column for column, computed in computes if computed.text == column}
    return keys if keys is not None and unchanged.issuperset(keys) else None
