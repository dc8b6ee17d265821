"""Queries: what is computed, written down step by step.

    query = Query("average-price")
    items = query.source("items", source)
    cheap = items.filter("item_price < 500", name="cheap")
    averages = cheap.aggregate(by="item_id", window=count_window(10), avg="item_price",
                               name="averages", shards=2)
    averages.to_stream("averages")

Every step is checked when it is added: columns, types, names.  What depends on the whole graph
(streams that nobody uses, cycles, how shards are joined) is checked by `plan`.  A query is a
description and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rewake.graph.checks import checked_shards
from rewake.graph.plan.guarantees import check_required, guarantee_named
from rewake.graph.plan.plan import Plan
from rewake.graph.plan.planning import make_plan
from rewake.graph.plan.servers import checked_servers
from rewake.graph.promised import RECOVER_WITHIN, approach_of_query
from rewake.graph.showing.explain import explain
from rewake.graph.showing.picture import picture
from rewake.graph.steps import Carried, Graph, Kind, Port, Step
from rewake.graph.stream import LoopStream, Stream
from rewake.model.connectors import Source, Watermarked
from rewake.model.errors import UsageError
from rewake.model.given import batches_of, check_flag, shown
from rewake.model.names import checked_name
from rewake.model.units import duration_ns
from rewake.operators.columns.plain import plain_schema
from rewake.recovery.approach import Approach, Guarantee, checked_approach

__all__ = ["Query"]


class Query:
    """A query under construction.

    `approach` is how its fragments recover unless a step says otherwise; by default continuous
    eventual checkpointing.  `recover_within`, such as "1s", is how long a crash may cost beyond the
    restart of a process; at most `checkpoint_budget` of the time is spent on keeping to it.  Who
    says nothing is promised ten seconds, unless the approach leaves CHECKs by a rule of its own or
    cannot promise; with None there are no CHECKs, and a crash may replay any amount of input.

    `servers` is how many processes or Spark tasks share the nodes, at most one for each; unless it
    is given, every node has one of its own.  It may change from start to start.

    `require`, such as "precise", refuses a query one of whose streams or sinks would give less
    after a crash; streams and sinks may require something of their own.
    """

    def __init__(
        self,
        name: str,
        *,
        approach: Approach | None = None,
        recover_within: str | None = RECOVER_WITHIN,
        checkpoint_budget: str | float = "5%",
        servers: int | None = None,
        require: str | None = None,
    ) -> None:
        self.name = checked_name(name)
        self.approach = approach_of_query(approach, recover_within, checkpoint_budget)
        self.servers = checked_servers(servers)
        self._required = None if require is None else guarantee_named(require)
        self._steps: dict[str, Step] = {}
        self._loops: dict[Step, Port] = {}
        self._streams: dict[str, Port] = {}
        self._kept: dict[str, tuple[str | int | None, int | None]] = {}
        # By stream or sink: what it must give, where that was said.
        self._required_of: dict[str, Guarantee] = {}

    # --- where streams begin -----------------------------------------------------------------

    def source(
        self,
        name: str,
        source: Source,
        *,
        shards: int = 1,
        approach: Approach | None = None,
        fragment: str | None = None,
        idle_after: str | None = None,
    ) -> Stream:
        """A stream that can be read again from any position.

        After `idle_after` (such as "5s") without tuples nobody waits for its time any more: windows
        over several streams close by the time of the others.
        """
        _check_source(name, source)
        schema = _checked_schema(name, source.schema)
        options = (shards, approach, fragment, idle_after)
        marked = isinstance(source, Watermarked) and source.watermarks
        return self._begin(name, Kind.SOURCE, schema, *options, source, watermarks=marked)

    def entry(
        self,
        name: str,
        schema: pa.Schema,
        *,
        shards: int = 1,
        approach: Approach | None = None,
        fragment: str | None = None,
        idle_after: str | None = None,
        watermarks: bool = False,
    ) -> Stream:
        """A stream that producers outside of Rewake write; it is logged as it arrives.

        With `watermarks` producers say how far time has come (`Producer.send`), and the steps
        behind it go by that.
        """
        schema = _checked_schema(name, schema)
        check_flag(f"entry {name!r}: watermarks", watermarks)
        options = (shards, approach, fragment, idle_after)
        return self._begin(name, Kind.ENTRY, schema, *options, watermarks=watermarks)

    def loop(
        self,
        name: str,
        schema: pa.Schema,
        *,
        shards: int = 1,
        watermarks: bool = False,
        at_most: int = 100_000_000,
    ) -> LoopStream:
        """A stream that will be closed with one made further down, by `close_with`.

        `shards` is what steps on it take over when they do not say; give that of the closing step.
        With `watermarks` it is closed with one that carries them, and steps on it go by those of
        the streams that enter.  What goes around beyond what fits into memory waits in logs; a step
        that adds `at_most` tuples while there is no room for more ends the query.
        """
        schema = _checked_schema(name, schema)
        check_flag(f"loop {name!r}: watermarks", watermarks)
        if isinstance(at_most, bool) or not isinstance(at_most, int) or at_most < 1:
            raise UsageError(
                f"loop {name!r}: at_most is how many tuples may be added while there is no room, a "
                f"whole number above 0, not {at_most!r}"
            )
        step = Step(
            name,
            Kind.LOOP,
            (),
            schema,
            checked_shards(name, shards),
            at_most=at_most,
            carries=Carried.BY_ALL if watermarks else Carried.BY_NONE,
        )
        return LoopStream(self, Port(self.add(step)))

    def _begin(
        self,
        name: str,
        kind: Kind,
        schema: pa.Schema,
        shards: int,
        approach: Approach | None,
        fragment: str | None,
        idle_after: str | None,
        source: Source | None = None,
        *,
        watermarks: bool,
    ) -> Stream:
        step = Step(
            name,
            kind,
            (),
            schema,
            checked_shards(name, shards),
            checked_approach(approach),
            checked_name(fragment) if fragment is not None else None,
            source=source,
            idle_after_ms=None if idle_after is None else _silence_ms(name, idle_after),
            carries=Carried.BY_ALL if watermarks else Carried.BY_NONE,
        )
        return Stream(self, Port(self.add(step)))

    # --- what streams call -------------------------------------------------------------------

    def add(self, step: Step) -> Step:
        """Take a step in, unless its name is taken."""
        name = checked_name(step.name)
        other = self._steps.get(name)
        if other is not None:
            raise UsageError(
                f"two steps are named {name!r}: {_article(other.kind)} and {_article(step.kind)}; "
                "give one of them a name of its own"
            )
        self._steps[name] = step
        return step

    def free_name(self, kind: Kind) -> str:
        """A name for a step that was given none, the same whenever the query is written down."""
        number = 1
        while f"{kind}-{number}" in self._steps:
            number += 1
        return f"{kind}-{number}"

    def close_loop(self, loop: Step, port: Port) -> None:
        """Make `port` what a loop's stream consists of."""
        if loop in self._loops:
            raise UsageError(
                f"loop {loop.name!r} is already closed with {self._loops[loop].name!r}; unite the "
                "streams first and close it with their union"
            )
        self._loops[loop] = port

    def require(self, what: str, guarantee: str | None) -> None:
        """Have `what` (such as "stream 'averages'") give this much; None: as much as the query."""
        if guarantee is not None:
            self._required_of[what] = guarantee_named(guarantee)

    def add_stream(
        self,
        name: str,
        port: Port,
        keep_for: str | int | None = None,
        keep_bytes: int | None = None,
    ) -> None:
        """Publish a port as a stream."""
        known = self._streams.get(checked_name(name))
        if known is not None and known != port:
            raise UsageError(
                f"two streams are named {name!r}: the outputs of steps {known.name!r} and "
                f"{port.name!r}; give one of them a name of its own"
            )
        self._streams[name] = port
        self._kept[name] = (keep_for, keep_bytes)

    # --- what becomes of it ------------------------------------------------------------------

    def graph(self) -> Graph:
        """The query as it stands, as a value."""
        steps = tuple(self._steps.values())
        loops, streams, kept = dict(self._loops), dict(self._streams), dict(self._kept)
        return Graph(self.name, self.approach, steps, loops, streams, kept, self.servers)

    def plan(self) -> Plan:
        """The nodes that run it and the channels between them; raises when it is not complete."""
        plan = make_plan(self.graph())
        check_required(plan, self._requirements(plan))
        return plan

    def _requirements(self, plan: Plan) -> Iterator[tuple[str, str, Guarantee]]:
        """What is to give how much: in words, its fragment, the guarantee."""
        fragments = {node.name: node.fragment for node in plan.nodes}
        outputs = {
            f"stream {name!r}": fragments[places[0][0]] for name, places in plan.streams.items()
        }
        sinks = [node.fragment for node in plan.nodes if node.sink is not None]
        outputs |= {f"sink {name!r}": name for name in sinks}
        for what, fragment in outputs.items():
            wanted = self._required_of.get(what, self._required)
            if wanted is not None:
                yield what, fragment, wanted

    def explain(self) -> str:
        """The plan as text: fragments, shards, channels, what is logged and why."""
        return explain(self.plan())

    def picture(self) -> str:
        """The plan as a picture: the text of a Mermaid flowchart."""
        return picture(self.plan())

    def __repr__(self) -> str:
        return f"<Query {self.name!r}: {', '.join(self._steps) or 'no steps'}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        # A notebook shows a query while it is being written, so it need not be complete.
        try:
            return {"text/vnd.mermaid": self.picture(), "text/plain": self.explain()}
        except UsageError as error:
            return {"text/plain": f"{self!r}\nnot complete: {error}"}


def _check_source(name: str, source: object) -> None:
    """Refuse what cannot be opened; a table has columns, too."""
    if isinstance(source, type) or not (hasattr(source, "schema") and hasattr(source, "open")):
        rows = batches_of(source)
        raise UsageError(
            f"source {name!r}: {shown(source)} (of type {type(source).__name__}) is no source; "
            + (f"write {rows}" if rows else "give one such as rewake.Files(...)")
        )


def _checked_schema(name: str, schema: Any) -> pa.Schema:
    if not isinstance(schema, pa.Schema):
        raise UsageError(f"step {name!r}: a schema is a pyarrow.Schema, not {shown(schema)}")
    twice = {each for each in schema.names if schema.names.count(each) > 1}
    if twice:
        raise UsageError(f"step {name!r}: two columns are named {sorted(twice)[0]!r}; rename one")
    return plain_schema(schema.remove_metadata())


def _silence_ms(name: str, idle_after: str) -> float:
    milliseconds = duration_ns(idle_after) / 1e6
    if milliseconds <= 0:
        raise UsageError(f"step {name!r}: idle_after must be longer than nothing")
    return milliseconds


def _article(kind: Kind) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
