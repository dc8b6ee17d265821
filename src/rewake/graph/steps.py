"""The graph of a query as values: steps, the ports that join them, and what is asked of each.

A step is checked when it is made: its expressions fit the schema of its input, and its own schema
is known.  Steps only name steps that were there before, except through a loop; so the order in
which steps were added is a topological order of all edges but the loops'.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa

from rewake.model.connectors import Sink, Source
from rewake.operators.dead_letters import DEAD
from rewake.operators.expressions.expression import Computed
from rewake.operators.fragment import StatelessStep
from rewake.operators.splitting import SplitStep
from rewake.operators.stateful import FURTHER_PORTS, LATE_PORT, RESULTS_PORT, StatefulSpec
from rewake.recovery.approach import Approach

RESULTS, LATE, FURTHER = RESULTS_PORT, LATE_PORT, FURTHER_PORTS


class Kind(StrEnum):
    """What a step does."""

    SOURCE = "source"
    ENTRY = "entry"
    FILTER = "filter"
    MAP = "map"
    SPLIT = "split"
    UNION = "union"
    LOOKUP = "lookup"
    AGGREGATE = "aggregate"
    JOIN = "join"
    SORT = "sort"
    RESAMPLE = "resample"
    PROCESS = "process"
    LOOP = "loop"
    SINK = "sink"
    # Keeps what comes as it is, for clients.
    STREAM = "stream"


class Carried(StrEnum):
    """By which of the streams that come together in one watermarks are carried."""

    BY_ALL = "all"
    BY_SOME = "some"
    BY_NONE = "none"


class Port(NamedTuple):
    """One output of a step: its results, its late tuples, or another that it has."""

    step: Step
    port: int = RESULTS

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        if self.port >= FURTHER:
            return self.step.further[self.port - FURTHER][1]
        schema = self.step.schema if self.port == RESULTS else self.step.late_schema
        assert schema is not None, "only a step that routes late tuples has this port"
        return schema

    @property
    def late(self) -> bool:
        """Whether its tuples are those that watermarks have passed: there they mean nothing."""
        further = self.port >= FURTHER and self.step.spec is not None
        return self.port == LATE or (further and self.suffix.startswith(".late"))

    @property
    def dead(self) -> bool:
        """Whether its tuples are those that a function failed for."""
        return self.step.split is None and self.suffix == f".{DEAD}"

    @property
    def carries(self) -> Carried:
        """Whether its time is told by watermarks."""
        return Carried.BY_NONE if self.late else self.step.carries

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.step.name + self.suffix

    @property
    def suffix(self) -> str:
        """What tells it from the results of its step."""
        if self.port == RESULTS:
            return ""
        return ".late" if self.port == LATE else f".{self.step.further[self.port - FURTHER][0]}"


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One step of a query.  Two steps are the same only if they are one object.

    The inputs of a step with state have numbers of their own; a union's are one.
    """

    name: str
    kind: Kind
    inputs: tuple[Port, ...]
    schema: pa.Schema
    shards: int = 1
    # None: the query's approach.
    approach: Approach | None = None
    # None: the planner decides with which steps it shares a fragment.
    fragment: str | None = None
    # The columns to divide its input by, when the user has said so.
    partition_by: tuple[str, ...] | None = None
    # Columns whose equal values belong together, as far as is known.
    keys: tuple[str, ...] | None = None
    late_schema: pa.Schema | None = None
    # Outputs besides: their names and columns.
    further: tuple[tuple[str, pa.Schema], ...] = ()
    source: Source | None = None
    sink: Sink | None = None
    # How long a source or entry may be silent before nobody waits for its time any more.
    idle_after_ms: float | None = None
    spec: StatefulSpec | None = None
    stateless: StatelessStep | None = None
    split: SplitStep | None = None
    # By which of its inputs, or of those behind them, watermarks are carried.
    carries: Carried = Carried.BY_NONE
    # Of a loop: how many tuples may be added to it while there is no room for more.
    at_most: int = 0
    # What a filter, split or map computes, by result column ("" when it is not a column).
    computes: tuple[tuple[str, Computed], ...] = ()

    @property
    def ports(self) -> tuple[Port, ...]:
        """All of its outputs."""
        results = () if self.split is not None else (Port(self),)
        late = () if self.late_schema is None else (Port(self, LATE),)
        return (*results, *late, *(Port(self, FURTHER + n) for n in range(len(self.further))))


@dataclass(frozen=True, slots=True)
class Graph:
    """All of a query: its steps in the order they were added, and what closes each loop."""

    query: str
    approach: Approach
    steps: tuple[Step, ...]
    loops: dict[Step, Port] = field(default_factory=dict)
    streams: dict[str, Port] = field(default_factory=dict)
    # How much of a stream is kept, where somebody said: for how long, and how many bytes.
    kept: dict[str, tuple[str | int | None, int | None]] = field(default_factory=dict)
    # How many servers host its nodes; None: each node has one of its own.
    servers: int | None = None

    def origin(self, port: Port) -> Port:
        """Where the tuples of a port come from: a loop is only a name for what closes it."""
        return self.loops[port.step] if port.step.kind is Kind.LOOP else port

    def inputs(self, step: Step) -> tuple[Port, ...]:
        """The origins of a step's inputs."""
        return tuple(self.origin(port) for port in step.inputs)
