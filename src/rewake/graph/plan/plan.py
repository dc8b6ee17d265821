"""The plan of a query: which nodes there are, what each runs, and which channels join them.

A plan is made once, from the graph, on the driver; every node gets its own part of it.  Plain
values only: hosts and the simulator build the working objects from them.

Positions: all outputs of a fragment share one line of positions.  A fragment that logs numbers its
output tuples over all outputs (positions of its log); one that does not keeps its input's
positions.  A stream event on one output covers the positions that went to the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rewake.graph.plan.servers import Server, assign, checked_servers
from rewake.log.retention import Retention
from rewake.model.connectors import Sink, Source
from rewake.recovery.approach import Approach, Kept

if TYPE_CHECKING:
    from rewake.operators.fragment import FragmentProgram


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input channel of a node.

    Exactly one is set: `upstream` (a node, with the number of its output), `source`, or neither:
    then producers connect to the node from outside, and the channel is theirs.
    """

    name: str
    schema: pa.Schema
    upstream: str | None = None
    output: int = 0
    source: Source | None = None
    # The input of the program that its tuples go to: 0 unless that has several.
    port: int = 0
    # Whether its tuples are late ones: then watermarks, which have passed them, mean nothing here.
    late: bool = False
    # How long nothing may come from outside before nobody waits for it any more.
    idle_after_ms: float | None = None
    # Whether its upstream is on a cycle with this node, and whether it closes a loop there.
    inside: bool = False
    around: bool = False

    @property
    def produced(self) -> bool:
        """Whether producers connect from outside."""
        return self.upstream is None and self.source is None


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """One output of a node: a stream (or one shard's part of it) and the nodes that need it."""

    stream: str
    schema: pa.Schema
    consumers: tuple[str, ...] = ()
    # Whether its time is told by watermarks.
    watermarks: bool = False
    # Whether it is what a function failed for.
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a node must know of the cycles that it is on: all that share nodes count as one.

    `heads`: how many of its nodes read a channel that closes a loop.  `at_most`: so many tuples may
    a node add to what goes around while there is no room for more.
    """

    heads: int
    at_most: int


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What one node runs: one shard of one fragment."""

    name: str
    fragment: str
    shard: int
    shards: int
    inputs: tuple[InputPlan, ...]
    outputs: tuple[OutputPlan, ...]
    program: FragmentProgram
    approach: Approach
    # Where output that has left memory can be had again, and the reason in words.
    kept: Kept
    kept_because: str
    sink: Sink | None = None
    # Whether the log is kept as history beyond what recovery needs.
    keeps_history: bool = False
    # How much of it.
    retention: Retention = field(default_factory=Retention)
    # The type of the times of its output, where there is one.
    time: pa.DataType | None = None
    # In how many processes it runs: one takes turns, the others stand by.
    places: int = 1
    # Where its output comes back to it.
    cycle: Cycle | None = None

    @property
    def input_schemas(self) -> tuple[pa.Schema, ...]:
        """The columns of each input of the program."""
        by_port = {each.port: each.schema for each in self.inputs}
        return tuple(by_port[port] for port in sorted(by_port))


@dataclass(frozen=True, slots=True)
class Plan:
    """All nodes of a query in topological order (cycles broken anywhere)."""

    query: str
    nodes: tuple[NodePlan, ...]
    # The streams that clients may subscribe to: name -> ((node, output), ...) by shard.
    streams: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    fingerprint: str = ""
    # What it was when it counted where every sink writes: folders of then have it.
    former_fingerprint: str = ""
    # How many servers host the nodes; None: each node has one of its own.
    servers: int | None = None

    @property
    def hosting(self) -> tuple[Server, ...]:
        """The servers, and what each hosts."""
        return assign(self.nodes, self.servers)

    def on(self, servers: int | None) -> Plan:
        """The same on so many servers; None: as many as it says itself."""
        given = checked_servers(servers)
        return self if given is None else replace(self, servers=given)

    def begun_as(self, fingerprint: object) -> bool:
        """Whether that is the fingerprint of this query, now or formerly."""
        return fingerprint in (self.fingerprint, self.former_fingerprint or self.fingerprint)

    def columns_of(self, stream: str) -> pa.Schema:
        """What subscribers of a stream read."""
        node, output = self.streams[stream][0]
        return self.node(node).outputs[output].schema

    @property
    def entries(self) -> dict[str, pa.Schema]:
        """What producers write, by entry."""
        return {
            each.name: each.schema for node in self.nodes for each in node.inputs if each.produced
        }

    def places(self, name: str) -> tuple[tuple[str, int], ...]:
        """Where clients find a stream, or an entry that is offered to nobody: by shard."""
        entered = (
            (node.name, 0)
            for node in self.nodes
            if any(each.produced and each.name == name for each in node.inputs)
        )
        return self.streams.get(name) or tuple(entered)

    def node(self, name: str) -> NodePlan:
        """The node of that name."""
        return next(each for each in self.nodes if each.name == name)
