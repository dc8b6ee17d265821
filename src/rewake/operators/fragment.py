"""The program of a fragment: steps, perhaps one with state, further steps, then outputs.

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
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.plain import plain_batch, plain_schema
from rewake.operators.shuffle import Shuffle
from rewake.operators.splitting import SplitStep
from rewake.operators.stateful import (
    FURTHER_PORTS,
    LATE_PORT,
    RESULTS_PORT,
    Emissions,
    Outcome,
    StatefulOperator,
    StatefulSpec,
)
from rewake.operators.stateless import (
    FilterStep,
    MapStep,
    StatelessOperator,
    StatelessStep,
    apply_steps,
    divide_by_steps,
    least_class,
    must_log,
    schema_after,
)
from rewake.operators.stepped import SteppedOperator, check_room

__all__ = [
    "FilterStep",
    "FragmentProgram",
    "MapStep",
    "OutputRoute",
    "StatelessStep",
]


@dataclass(frozen=True, slots=True)
class OutputRoute:
    """What an output gets: one part by key of what a port gives.

    Ports: results (0), late tuples (1), and what else a step emits (from 2 on).
    """

    port: int = RESULTS_PORT
    keys: tuple[str, ...] | None = None
    part: int = 0
    parts: int = 1

    def __post_init__(self) -> None:
        if self.port < 0:
            raise UsageError(f"ports of a fragment are numbered from 0, not {self.port}")
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
    """The routings of all ports, made when needed; copies of a program start without them."""

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
    stateful: StatefulSpec | None = None
    after: tuple[StatelessStep, ...] = ()
    routes: tuple[OutputRoute, ...] = (OutputRoute(),)
    # Divides the results by predicates, each with a port of its own; no results then are left.
    split: SplitStep | None = None
    _routings: _Routes = field(default_factory=_Routes, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        late = any(route.port == LATE_PORT for route in self.routes)
        if late and (self.stateful is None or not self.stateful.route_late):
            raise UsageError("an output for late tuples needs a step with route_late=True")
        if self.split is not None and self.stateful is not None:
            raise UsageError("a split divides the results of steps without state")

    @property
    def stateless(self) -> bool:
        """Whether nothing is kept between stream events."""
        return self.stateful is None

    @property
    def must_log(self) -> str:
        """Why its output, without state, still cannot be made again; mostly nothing."""
        return must_log(self.steps)

    def operator_class(self, inputs: int = 1) -> OperatorClass:
        """What a restart from nothing would do to its output; `inputs`: how many are united."""
        if self.stateful is None and inputs > 1:
            return OperatorClass.ARBITRARY  # who comes first is chance
        known = [least_class(self.steps)]
        known += [] if self.stateful is None else [self.stateful.operator_class]
        known += [] if self.split is None else [self.split.operator_class]
        return min(known)

    def output_schema(self, *schemas: pa.Schema) -> pa.Schema:
        """The columns of the results, for inputs of these columns."""
        schema, *others = self.given_schemas(*schemas)
        if self.stateful is not None:
            schema = self.stateful.operator(schema, *others).output_schema
        return plain_schema(schema_after(self.after, schema))

    def given_schemas(self, *schemas: pa.Schema) -> tuple[pa.Schema, ...]:
        """The columns that the state is given, which are also those of late tuples."""
        if not self.before:
            return tuple(plain_schema(schema) for schema in schemas)
        (schema,) = schemas
        return (plain_schema(schema_after(self.before, schema)),)

    def operator(self, *schemas: pa.Schema) -> StatefulOperator:
        """A new operator: the steps before, and the state if there is any."""
        if self.stateful is not None and not self.before:
            return self.stateful.operator(*schemas)
        (schema,) = schemas
        if self.stateful is None:
            return StatelessOperator(self.before, schema)
        inner = self.stateful.operator(schema_after(self.before, schema))
        return SteppedOperator(self.before, inner, schema)

    def emit(self, outcome: Outcome) -> Emissions:
        """A turn's outputs: results through the steps after, late tuples as they are."""
        emissions: list[tuple[int, pa.RecordBatch]] = []
        if outcome.results is not None:
            emissions += self._routed(plain_batch(apply_steps(self.after, outcome.results)))
        if outcome.late is None and not outcome.others:
            return emissions
        late = [] if outcome.late is None else [(LATE_PORT, outcome.late)]
        for port, batch in (*late, *outcome.others):
            emissions += self._routings.of(self.routes, port).emit(plain_batch(batch))
        return sorted(emissions, key=_output)

    def _routed(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if self.split is None:
            return self._routings.of(self.routes, RESULTS_PORT).emit(batch)
        emissions: list[tuple[int, pa.RecordBatch]] = []
        for number, part in enumerate(self.split.divide(batch)):
            emissions += self._routings.of(self.routes, FURTHER_PORTS + number).emit(part)
        return sorted(emissions, key=_output)

    def early(self, operator: StatefulOperator) -> pa.RecordBatch | None:
        """What open parts come to so far, as results of the fragment; `UsageError` if unknown."""
        batch = operator.early()
        return None if batch is None else plain_batch(apply_steps(self.after, batch))

    def apply(self, batch: pa.RecordBatch, covered: int | None = None) -> Emissions:
        """The outputs of a stateless fragment that is not logged.

        Its output has its input's positions, so there can be no more tuples than the `covered`
        positions of the stream event: as many as it holds, unless said otherwise.
        """
        assert self.stateful is None, "a fragment with state is driven by its approach"
        if batch.num_rows == 0:
            return []
        result, dead = divide_by_steps(self.steps, batch)
        check_room(result.num_rows, batch.num_rows if covered is None else covered, self.steps)
        emissions = self._routed(plain_batch(result))
        if dead is None:
            return emissions
        emissions += self._routings.of(self.routes, FURTHER_PORTS).emit(dead)
        return sorted(emissions, key=_output)

    @property
    def steps(self) -> tuple[StatelessStep, ...]:
        """All steps, in order."""
        return self.before + self.after


def _output(emission: tuple[int, Any]) -> int:
    return emission[0]
