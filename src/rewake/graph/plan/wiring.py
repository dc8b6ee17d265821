"""Wiring: which output of which node each input of each node reads.

A fragment's outputs are numbered the same on all of its shards.  Consumers that want a port divided
in the same way share outputs; each other way adds some.  Invariant: input `upstream, output` of a
node exists, and the node is among that output's consumers.
"""

from __future__ import annotations

from typing import NamedTuple

from rewake.graph.plan.fragments import Fragment
from rewake.graph.plan.plan import InputPlan, OutputPlan
from rewake.graph.steps import RESULTS, Carried, Graph, Kind, Port, Step
from rewake.model.errors import UsageError
from rewake.operators.fragment import OutputRoute

MAX_OUTPUTS = 256


class Division(NamedTuple):
    """How a port is divided among outputs: by a hash of keys, or not at all."""

    port: int
    keys: tuple[str, ...] | None = None
    parts: int = 1


class Link(NamedTuple):
    """One input of a fragment: where it comes from, how it is divided, and which input it is."""

    upstream: Fragment
    port: Port
    division: Division
    number: int


class Wiring:
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
                self._link(fragment, port, number)
                for number, port in enumerate(graph.inputs(fragment.head))
            ]
        for fragment in fragments:
            self._note_consumers(fragment)

    def _link(self, fragment: Fragment, port: Port, number: int) -> Link:
        upstream = self._owner[port.step]
        division = _division(fragment, upstream, port, number)
        if division not in self._divisions[upstream]:
            self._divisions[upstream].append(division)
        return Link(upstream, port, division, number)

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
            schema, idle = head.source.schema, head.idle_after_ms
            return (InputPlan(head.name, schema, source=head.source, idle_after_ms=idle),)
        if head.kind is Kind.ENTRY:
            return (InputPlan(head.name, head.schema, idle_after_ms=head.idle_after_ms),)
        found = []
        for upstream, port, division, number in self._links[fragment]:
            united = head.kind is Kind.UNION
            schema = head.schema if united else head.inputs[number].schema
            input_number = number if head.spec is not None else 0
            around = head.inputs[number].step.kind is Kind.LOOP
            output = self._first_output(upstream, division)
            divided = division.keys is not None
            one_to_one = not divided and fragment.shards > 1
            for other, node in enumerate(upstream.nodes):
                if not one_to_one or other == shard:
                    place = output + shard if divided else output
                    name = node + port.suffix
                    found.append(
                        InputPlan(
                            name,
                            schema,
                            node,
                            place,
                            port=input_number,
                            late=port.late,
                            around=around,
                        )
                    )
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
            marked = port.carries is Carried.BY_ALL
            found.append(OutputPlan(port.name, port.schema, consumers, marked, port.dead))
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
        owner = fragment.stateful or fragment.tail
        return Port(owner, port)

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
            owner = fragment.stateful or fragment.tail
            besides = [port for port in owner.ports if port.port != RESULTS]
            results = [] if fragment.tail.split is not None else [Port(fragment.tail)]
            for port in (*results, *besides) if fragment in logged else besides:
                self._claim(ports, port)
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


def _division(fragment: Fragment, upstream: Fragment, port: Port, number: int) -> Division:
    """How a fragment wants an upstream's port divided among its shards."""
    head = fragment.head
    if fragment.shards == 1:
        return Division(port.port)
    if head.spec is not None:
        return Division(port.port, _keys_of(head, number), fragment.shards)
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


def _keys_of(step: Step, number: int) -> tuple[str, ...]:
    assert step.spec is not None, "a step with state knows what belongs together"
    keys = step.spec.keys(number)
    if not keys:
        raise UsageError(
            f"step {step.name!r} ({step.kind}) has {step.shards} shards, but nothing says which of "
            "its tuples belong together: give it key columns, or one shard"
        )
    return keys
