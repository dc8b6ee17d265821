"""Channels: which output of which node each input of each node reads.

A fragment's outputs are numbered the same on all of its shards.  Consumers that want a port divided
in the same way share outputs; each other way adds some.  Invariant: input `upstream, output` of a
node exists, and the node is among that output's consumers.
"""

from __future__ import annotations

from typing import NamedTuple

from rewake.graph.fragments import Fragment
from rewake.graph.plan import InputPlan, OutputPlan
from rewake.graph.steps import LATE, RESULTS, Graph, Kind, Port, Step
from rewake.model.errors import UsageError
from rewake.operators.fragment import OutputRoute

MAX_OUTPUTS = 256


class Division(NamedTuple):
    """How a port is divided among outputs: by a hash of keys, or not at all."""

    port: int
    keys: tuple[str, ...] | None = None
    parts: int = 1


class Link(NamedTuple):
    """One input of a fragment: where it comes from, and how it is divided."""

    upstream: Fragment
    port: Port
    division: Division


class Channels:
    """All channels of a graph, by fragment and shard."""

    def __init__(
        self, graph: Graph, fragments: tuple[Fragment, ...], owner: dict[Step, Fragment]
    ) -> None:
        self._graph = graph
        self._fragments = fragments
        self._owner = owner
        # The divisions of each fragment's ports, in the order of their outputs.
        self._divisions: dict[Fragment, list[Division]] = {each: [] for each in fragments}
        self._links: dict[Fragment, list[Link]] = {}
        self._consumers: dict[tuple[str, int], list[str]] = {}
        for fragment in fragments:
            self._links[fragment] = [
                self._link(fragment, port) for port in graph.inputs(fragment.head)
            ]
        for fragment in fragments:
            self._note_consumers(fragment)

    def _link(self, fragment: Fragment, port: Port) -> Link:
        upstream = self._owner[port.step]
        division = _division(fragment, upstream, port)
        if division not in self._divisions[upstream]:
            self._divisions[upstream].append(division)
        return Link(upstream, port, division)

    def _note_consumers(self, fragment: Fragment) -> None:
        for shard, node in enumerate(fragment.nodes):
            for channel in self.inputs(fragment, shard):
                if channel.upstream is None:
                    continue
                known = self._consumers.setdefault((channel.upstream, channel.output), [])
                if node in known:
                    raise UsageError(
                        f"step {fragment.head.name!r} would read {channel.name!r} twice; read a "
                        "map of it instead"
                    )
                known.append(node)

    # --- what nodes are told -----------------------------------------------------------------

    def inputs(self, fragment: Fragment, shard: int) -> tuple[InputPlan, ...]:
        """The input channels of one node."""
        head = fragment.head
        if head.source is not None:
            return (InputPlan(head.name, head.source.schema, source=head.source),)
        if head.kind is Kind.ENTRY:
            return (InputPlan(head.name, head.schema),)
        schema = head.schema if head.kind is Kind.UNION else head.inputs[0].schema
        found = []
        for upstream, port, division in self._links[fragment]:
            output = self._first_output(upstream, division)
            divided = division.keys is not None
            one_to_one = not divided and fragment.shards > 1
            suffix = ".late" if port.port == LATE else ""
            for place, node in enumerate(upstream.nodes):
                if not one_to_one or place == shard:
                    number = output + shard if divided else output
                    found.append(InputPlan(node + suffix, schema, node, number))
        return tuple(found)

    def upstream(self, fragment: Fragment) -> str:
        """The name of the fragment that feeds one with a single input."""
        (link,) = self._links[fragment]
        return link.upstream.name

    def outputs(self, fragment: Fragment, shard: int) -> tuple[OutputPlan, ...]:
        """The outputs of one node, with the nodes that need each."""
        node = fragment.nodes[shard]
        found = []
        for number, route in enumerate(self.routes(fragment)):
            port = self._port(fragment, route.port)
            consumers = tuple(self._consumers.get((node, number), ()))
            found.append(OutputPlan(port.name, port.schema, consumers))
        return tuple(found)

    def routes(self, fragment: Fragment) -> tuple[OutputRoute, ...]:
        """How a fragment's results become its outputs."""
        return tuple(
            OutputRoute(division.port, division.keys, part, division.parts)
            for division in self._divisions[fragment]
            for part in range(division.parts)
        )

    def _first_output(self, fragment: Fragment, division: Division) -> int:
        divisions = self._divisions[fragment]
        return sum(each.parts for each in divisions[: divisions.index(division)])

    def _port(self, fragment: Fragment, port: int) -> Port:
        if port == RESULTS:
            return Port(fragment.tail)
        assert fragment.aggregate is not None
        return Port(fragment.aggregate, LATE)

    def check_width(self) -> None:
        """No fragment has more outputs than a node can serve."""
        for fragment in self._fragments:
            width = len(self.routes(fragment))
            if width > MAX_OUTPUTS:
                raise UsageError(
                    f"step {fragment.tail.name!r} would have {width} outputs, and a node serves "
                    f"{MAX_OUTPUTS}; give the steps that read it fewer shards, or let them divide "
                    "it by the same keys"
                )

    # --- streams -----------------------------------------------------------------------------

    def streams(self, logged: set[Fragment]) -> dict[str, tuple[tuple[str, int], ...]]:
        """The streams that clients may read: those asked for, and the output of logged fragments.

        A stream is all of its outputs together.  One that is divided by keys for a consumer is
        offered divided, because writing it a second time would double the log.
        """
        ports = dict(self._graph.streams)
        for fragment in self._fragments:
            late = fragment.aggregate is not None and fragment.aggregate.late_schema is not None
            for port in (RESULTS, LATE) if late else (RESULTS,):
                known = self._port(fragment, port)
                if port == LATE or fragment in logged:
                    self._claim(ports, known)
        return {name: self._offered(port) for name, port in ports.items()}

    def _claim(self, ports: dict[str, Port], port: Port) -> None:
        other = ports.setdefault(port.name, port)
        if other != port:
            raise UsageError(
                f"the output of step {other.name!r} is to be stream {port.name!r}, but that is the "
                "name of another step whose output is logged; choose another name for the stream"
            )

    def _offered(self, port: Port) -> tuple[tuple[str, int], ...]:
        fragment = self._owner[port.step]
        divisions = self._divisions[fragment]
        fitting = [each for each in divisions if each.port == port.port]
        if not fitting:
            fitting = [Division(port.port)]
            divisions.append(fitting[0])
        division = min(fitting, key=lambda each: each.parts)
        first = self._first_output(fragment, division)
        return tuple(
            (node, first + part) for node in fragment.nodes for part in range(division.parts)
        )


def _division(fragment: Fragment, upstream: Fragment, port: Port) -> Division:
    """How a fragment wants an upstream's port divided among its shards."""
    head = fragment.head
    if fragment.shards == 1:
        return Division(port.port)
    if head.spec is not None:
        return Division(port.port, tuple(head.spec.by), fragment.shards)
    if head.partition_by is not None:
        return Division(port.port, head.partition_by, fragment.shards)
    if upstream.shards == fragment.shards:
        return Division(port.port)
    keys = port.step.keys
    if keys is None or not set(keys) <= set(port.schema.names):
        raise UsageError(
            f"step {head.name!r} has {fragment.shards} shards, but step {port.step.name!r}, which "
            f"feeds it, has {upstream.shards}: say by which columns its tuples are to be divided, "
            f"with partition_by=..., or give both the same number of shards; columns: "
            f"{', '.join(port.schema.names)}"
        )
    return Division(port.port, keys, fragment.shards)
