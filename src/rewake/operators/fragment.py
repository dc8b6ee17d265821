"""The program of a fragment: steps, perhaps an aggregate, further steps, then outputs.

A fragment is what fails, checkpoints and recovers together (Hwang 4.2's checkpoint unit).  Its
program is a value that is part of a query's plan; `operator` and `emit` make the working parts that
a recovery approach drives, `apply` is all there is to a stateless fragment that is not logged.

What always holds: results are a function of the input in order; every tuple of a port goes to
exactly one of the parts of each shuffle of that port; a batch of an output has no dictionaries, so
that it stands alone in a frame or packet.

Steps before the state work on whole stream events.  Where they leave tuples out, the others move to
the last of the positions that the stream event covers; the host must deliver stream events with the
same ends when it replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate import Aggregate, AggregateSpec
from rewake.operators.shuffle import Shuffle
from rewake.operators.stateful import Emissions, Outcome, StatefulOperator
from rewake.operators.stateless import (
    FilterStep,
    MapStep,
    StatelessOperator,
    StatelessStep,
    apply_steps,
    check_schema,
    one_to_one,
    plain_batch,
    plain_schema,
    schema_after,
)

__all__ = [
    "FilterStep",
    "FragmentProgram",
    "MapStep",
    "OutputRoute",
    "StatelessStep",
]

RESULTS_PORT, LATE_PORT = 0, 1


@dataclass(frozen=True, slots=True)
class OutputRoute:
    """What an output gets: of the results (port 0) or late tuples (port 1), one part by key."""

    port: int = RESULTS_PORT
    keys: tuple[str, ...] | None = None
    part: int = 0
    parts: int = 1

    def __post_init__(self) -> None:
        if self.port not in (RESULTS_PORT, LATE_PORT):
            raise UsageError(f"a fragment has ports 0 (results) and 1 (late), not {self.port}")
        if not 0 <= self.part < self.parts:
            raise UsageError(f"part {self.part} is not one of {self.parts} parts")
        if self.parts > 1 and not self.keys:
            raise UsageError(f"{self.parts} parts need key columns to divide tuples by")


class _Routing:
    """Divides a port's batches over the outputs; shuffles are made when the first batch comes."""

    def __init__(self, routes: Sequence[OutputRoute], port: int) -> None:
        wanted: dict[tuple[tuple[str, ...] | None, int], list[tuple[int, int]]] = {}
        for output, route in enumerate(routes):
            if route.port == port:
                keys = route.keys if route.parts > 1 else None
                wanted.setdefault((keys, route.parts), []).append((output, route.part))
        self._wanted = list(wanted.items())
        self._schema: pa.Schema | None = None
        self._shuffles: list[Shuffle | None] = []

    def emit(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if self._schema is None or not batch.schema.equals(self._schema):
            self._schema = batch.schema
            self._shuffles = [
                Shuffle(batch.schema, keys, parts) if keys is not None else None
                for (keys, parts), _ in self._wanted
            ]
        if batch.num_rows == 0:
            return []
        emissions = []
        for shuffle, (_, outputs) in zip(self._shuffles, self._wanted, strict=True):
            parts = [batch] if shuffle is None else shuffle.split(batch)
            emissions += [(output, parts[part]) for output, part in outputs if parts[part].num_rows]
        return emissions if len(self._wanted) == 1 else sorted(emissions, key=_output)


class _Routes:
    """The routings of both ports, made when needed; copies of a program start without them."""

    def __init__(self) -> None:
        self._ports: dict[int, _Routing] = {}

    def of(self, routes: Sequence[OutputRoute], port: int) -> _Routing:
        if port not in self._ports:
            self._ports[port] = _Routing(routes, port)
        return self._ports[port]

    def __reduce__(self) -> tuple[type[_Routes], tuple[()]]:
        return _Routes, ()


@dataclass(frozen=True)
class FragmentProgram:
    """What a fragment computes, and what goes to which of its outputs."""

    before: tuple[StatelessStep, ...] = ()
    stateful: AggregateSpec | None = None
    after: tuple[StatelessStep, ...] = ()
    routes: tuple[OutputRoute, ...] = (OutputRoute(),)
    _routings: _Routes = field(default_factory=_Routes, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        late = any(route.port == LATE_PORT for route in self.routes)
        if late and (self.stateful is None or not self.stateful.route_late):
            raise UsageError("an output for late tuples needs an aggregate with route_late=True")

    @property
    def stateless(self) -> bool:
        """Whether nothing is kept between stream events."""
        return self.stateful is None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the results, for input of this schema."""
        schema = schema_after(self.before, schema)
        if self.stateful is not None:
            schema = Aggregate(self.stateful, schema).output_schema
        return plain_schema(schema_after(self.after, schema))

    def late_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of late tuples: what the aggregate is given."""
        if self.stateful is None:
            raise UsageError("a fragment without windows has no late tuples")
        return plain_schema(schema_after(self.before, schema))

    def operator(self, schema: pa.Schema) -> StatefulOperator:
        """A new operator: the steps before, and the state if there is any."""
        if self.stateful is None:
            return StatelessOperator(self.before, schema)
        if not self.before:
            return Aggregate(self.stateful, schema)
        return SteppedAggregate(self.before, self.stateful, schema)

    def emit(self, outcome: Outcome) -> Emissions:
        """A turn's outputs: results through the steps after, late tuples as they are."""
        emissions: list[tuple[int, pa.RecordBatch]] = []
        if outcome.results is not None:
            emissions += self._emit_results(outcome.results)
        if outcome.late is not None:
            emissions += self._routings.of(self.routes, LATE_PORT).emit(plain_batch(outcome.late))
        return emissions if outcome.late is None else sorted(emissions, key=_output)

    def _emit_results(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        batch = plain_batch(apply_steps(self.after, batch))
        return self._routings.of(self.routes, RESULTS_PORT).emit(batch)

    def apply(self, batch: pa.RecordBatch, covered: int | None = None) -> Emissions:
        """The outputs of a stateless fragment that is not logged.

        Its output has its input's positions, so there can be no more tuples than the `covered`
        positions of the stream event: as many as it holds, unless said otherwise.
        """
        assert self.stateful is None, "a fragment with state is driven by its approach"
        if batch.num_rows == 0:
            return []
        result = plain_batch(apply_steps(self.steps, batch))
        check_room(result.num_rows, batch.num_rows if covered is None else covered, self.steps)
        return self._routings.of(self.routes, RESULTS_PORT).emit(result)

    @property
    def steps(self) -> tuple[StatelessStep, ...]:
        """All steps, in order."""
        return self.before + self.after


def _output(emission: tuple[int, Any]) -> int:
    return emission[0]


def check_room(tuples: int, covered: int, steps: Sequence[StatelessStep]) -> None:
    """Refuse more tuples than there are positions for them."""
    if tuples > covered:
        names = ", ".join(repr(step.name) for step in steps)
        raise UsageError(
            f"the steps {names} made {tuples} tuples of a stream event of {covered} positions; a "
            "step that multiplies tuples must be in a fragment that logs its output: keep it as a "
            "stream of its own, or put it behind the aggregate"
        )


class SteppedAggregate(Aggregate):
    """An aggregate behind stateless steps, which work on whole stream events."""

    def __init__(
        self, steps: Sequence[StatelessStep], spec: AggregateSpec, schema: pa.Schema
    ) -> None:
        super().__init__(spec, schema_after(steps, schema))
        self._steps = tuple(steps)
        self._input_schema = schema
        self._divisible = one_to_one(steps)

    @property
    def divisible(self) -> bool:
        """Whether each tuple keeps its position."""
        return self._divisible and not self.running

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of stream events, before the steps."""
        return self._input_schema

    @property
    def columns_read(self) -> Sequence[str]:
        """All: which of them the steps read is the steps' business."""
        return list(self._input_schema.names)

    def process(self, event: StreamEvent) -> Outcome:
        """Apply the steps, then the aggregate."""
        return super().process(self._stepped(event))

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        return super().replay(self._stepped(event))

    def _stepped(self, event: StreamEvent) -> StreamEvent:
        check_schema(event, self._input_schema)
        batch = apply_steps(self._steps, event.batch)
        check_room(batch.num_rows, event.end - event.start, self._steps)
        return event.holding(batch)
