"""From a graph to a plan: nodes, channels, what is logged and why.

Planning is a function of the graph alone: the same query always has the same nodes, outputs and
fingerprint, so a node that starts again after a crash finds itself in the plan it left.

How n shards feed m: into one node everything; into as many nodes one to one, unless keys decide;
otherwise by a hash of key columns.  A consumer with windows always gets its input by its keys.
Dividing tuples by where they stand would be cheaper, but where they stand may differ when a
fragment that merges inputs starts again, and a tuple must not change its shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rewake.graph.plan.cycles import Edges, check_cycles, on_cycles
from rewake.graph.plan.fingerprint import fingerprint
from rewake.graph.plan.fragments import Fragment, form_fragments, users
from rewake.graph.plan.plan import NodePlan, Plan
from rewake.graph.plan.read_again import check_read_again
from rewake.graph.plan.wiring import Wiring
from rewake.graph.steps import Graph, Kind, Port, Step
from rewake.graph.times import retention_of, time_of
from rewake.model.connectors import RecordingSink
from rewake.model.errors import UsageError
from rewake.operators.stateless import must_log
from rewake.recovery.approach import Keeper, Kept, default_approach


def make_plan(graph: Graph) -> Plan:
    """The plan of a complete graph; `UsageError` says what is missing or cannot be."""
    _check_complete(graph)
    _check_apart(graph)
    fragments = form_fragments(graph)
    owner = {step: fragment for fragment in fragments for step in fragment.steps}
    feeds: Edges = {fragment: [] for fragment in fragments}
    for fragment in fragments:
        for port in graph.inputs(fragment.head):
            feeds[owner[port.step]].append(fragment)
    _check_reached(fragments, feeds)
    channels = Wiring(graph, fragments, owner)
    kept = {each: _kept(graph, each, channels) for each in fragments}
    if fleeting := _fleeting(graph, owner, kept):
        return make_plan(_keeping(graph, fleeting))
    _keep_for_consumers(kept, feeds)
    check_cycles(feeds, {each: kept[each][0] for each in fragments})
    check_read_again(kept, feeds, channels)
    logged = {each for each in fragments if kept[each][0] is Kept.IN_LOG}
    streams = channels.streams(logged)
    channels.check_width()
    nodes = [
        node
        for fragment in _in_order(fragments, feeds)
        for node in _nodes(graph, fragment, channels, *kept[fragment])
    ]
    nodes = on_cycles(nodes, _closing_loops(graph, owner))
    now, former = (fingerprint(graph, fragments, with_places=each) for each in (False, True))
    return Plan(graph.query, tuple(nodes), streams, now, former, graph.servers)


def _closing_loops(graph: Graph, owner: dict[Step, Fragment]) -> dict[str, int]:
    """The fragments that close loops, and how many tuples each may add while there is no room."""
    found: dict[str, int] = {}
    for loop, port in graph.loops.items():
        closing = owner[port.step].name
        found[closing] = min(loop.at_most, found.get(closing, loop.at_most))
    return found


def _nodes(
    graph: Graph, fragment: Fragment, channels: Wiring, kept: Kept, why: str
) -> Iterable[NodePlan]:
    program = fragment.program(channels.routes(fragment))
    is_stream = any(port.step in fragment.steps for port in graph.streams.values())
    time = time_of(graph, fragment.tail)
    retention = retention_of(graph, fragment.steps, time)
    for shard, name in enumerate(fragment.nodes):
        yield NodePlan(
            name,
            fragment.name,
            shard,
            fragment.shards,
            channels.inputs(fragment, shard),
            channels.outputs(fragment, shard),
            program,
            fragment.approach,
            kept,
            why,
            fragment.head.sink,
            keeps_history=kept is Kept.IN_LOG and is_stream,
            retention=retention,
            time=time,
            places=fragment.approach.places if kept is Kept.IN_QUEUE else 1,
        )


def _kept(graph: Graph, fragment: Fragment, channels: Wiring) -> tuple[Kept, str]:
    """Where a fragment's output can be had again, and the reason in words."""
    if fragment.head.sink is not None:
        return Kept.NOWHERE, "it commits what it writes by position"
    reasons = _must_keep(fragment, channels)
    if reasons is None:
        logs = fragment.approach.keeper is Keeper.LOG
        if logs and any(port in graph.streams.values() for port in fragment.tail.ports):
            return Kept.IN_LOG, "the stream is kept"
        (channel,) = channels.inputs(fragment, 0)
        of_a_source = channel.source is not None
        origin = f"source {channel.name}" if of_a_source else channels.upstream(fragment)
        return Kept.UPSTREAM, f"it can produce it again from {origin}"
    why, lost = reasons
    if fragment.approach.keeper is Keeper.NOBODY:
        why = f"{fragment.approach.name} keeps nothing: a crash loses {lost}"
    elif fragment.approach.keeper is Keeper.STANDBY:
        why = f"{fragment.approach.name} keeps it in the memory of {_places(fragment)} processes"
    elif fragment.approach.keeper is Keeper.COORDINATOR:
        why = f"{fragment.approach.name} makes it again from its input, which is kept upstream"
    return fragment.approach.retains, why


def _fleeting(
    graph: Graph, owner: dict[Step, Fragment], kept: dict[Fragment, tuple[Kept, str]]
) -> list[str]:
    """The streams that would be in memory, and only until no node needs them."""
    return [
        name for name, port in graph.streams.items() if kept[owner[port.step]][0] is Kept.IN_QUEUE
    ]


def _keeping(graph: Graph, streams: list[str]) -> Graph:
    """The same, with a step behind each of these streams that keeps it in a log.

    Clients come when they like and hold nothing back, so what they read must be in one.
    """
    steps, ports = list(graph.steps), dict(graph.streams)
    for stream in streams:
        port = graph.streams[stream]
        name = f"{stream}-stream"
        if any(each.name == name for each in steps):
            raise UsageError(
                f"stream {stream!r} of a step whose output is kept in memory gets a step of its "
                f"own, {name!r}, but there is one of that name; rename it"
            )
        step = Step(
            name,
            Kind.STREAM,
            (port,),
            port.schema,
            port.step.shards,
            default_approach(),
            keys=port.step.keys,
            carries=port.carries,
        )
        steps.append(step)
        ports[stream] = Port(step)
    return replace(graph, steps=tuple(steps), streams=ports)


def _places(fragment: Fragment) -> str:
    return {2: "two", 3: "three"}.get(fragment.approach.places, str(fragment.approach.places))


def _must_keep(fragment: Fragment, channels: Wiring) -> tuple[str, str] | None:
    """Why output cannot be made again, and what a crash loses that nobody keeps; None: it can."""
    if fragment.stateful is not None:
        what, verb = _memory(fragment.stateful)
        return f"its {what} {verb} rebuilt from its output log", f"what is in its {what}"
    if fragment.head.kind is Kind.ENTRY:
        return "producers cannot be asked twice", "what producers sent and nobody has yet"
    on_its_way = "what is on its way"
    if len(channels.inputs(fragment, 0)) > 1:
        return "the order in which inputs met is chance", on_its_way
    steps = [step.stateless for step in fragment.steps if step.stateless is not None]
    return (why, on_its_way) if (why := must_log(steps)) else None


def _memory(step: Step) -> tuple[str, str]:
    return ("windows", "are") if step.kind is Kind.AGGREGATE else ("state", "is")


def _keep_for_consumers(kept: dict[Fragment, tuple[Kept, str]], feeds: Edges) -> None:
    """Log the output of fragments that forget their state but whose consumers must not.

    A fragment that is rebuilt asks for its input again; one that forgets cannot make it again.
    """
    for fragment, (where, _) in kept.items():
        if where is not Kept.NOWHERE or fragment.head.sink is not None:
            continue
        asking = _rebuilt_from(fragment, kept, feeds)
        if asking is not None:
            why = f"{fragment.approach.name} forgets its state, but {asking.name} may ask for its"
            kept[fragment] = (Kept.IN_LOG, f"{why} output again")


def _rebuilt_from(
    fragment: Fragment, kept: dict[Fragment, tuple[Kept, str]], feeds: Edges
) -> Fragment | None:
    """A fragment that is rebuilt from this one's output, directly or through those that pass on."""
    waiting, seen = list(feeds[fragment]), {fragment}
    while waiting:
        fed = waiting.pop(0)
        if fed in seen:
            continue
        seen.add(fed)
        where, _ = kept[fed]
        if where in (Kept.IN_LOG, Kept.IN_QUEUE) and fed.approach.keeper is not Keeper.NOBODY:
            return fed
        if where is Kept.UPSTREAM:
            waiting += feeds[fed]
    return None


# --- what a whole graph must keep to ---------------------------------------------------------


def _check_complete(graph: Graph) -> None:
    if not any(step.kind is not Kind.LOOP for step in graph.steps):
        raise UsageError(f"query {graph.query!r} has no steps; begin with query.source(...)")
    for step in graph.steps:
        if step.kind is Kind.LOOP and step not in graph.loops:
            raise UsageError(
                f"loop {step.name!r} is open: say where its tuples come from with "
                f"{step.name}.close_with(stream)"
            )
    direct = {port for step in graph.steps for port in step.inputs}
    used = {*direct, *users(graph), *graph.streams.values()}
    for step in graph.steps:
        if step.kind is not Kind.SINK and used.isdisjoint(step.ports):
            raise UsageError(
                f"step {step.name!r} ({step.kind}): nobody uses its output; send it to a sink with "
                f".to(...), keep it with .to_stream({step.name!r}), or leave the step out"
            )
    for name, port in graph.streams.items():
        if port.step.kind is Kind.LOOP:
            raise UsageError(
                f"stream {name!r}: keep the stream that closes loop {port.step.name!r} instead"
            )


def _check_apart(graph: Graph) -> None:
    """Two sinks that share a record of how far they are would skip what the other has written."""
    seen: dict[str, str] = {}
    for step in graph.steps:
        if isinstance(step.sink, RecordingSink):
            other = seen.setdefault(step.sink.recorded_at, step.name)
            if other != step.name:
                raise UsageError(
                    f"sinks {other!r} and {step.name!r} write to one place "
                    f"({step.sink.recorded_at}): each records there how far it is, and would skip "
                    "what the other has written; give each a place of its own, or unite the "
                    "streams and write that"
                )


def _check_reached(fragments: tuple[Fragment, ...], feeds: Edges) -> None:
    waiting = [each for each in fragments if not each.head.inputs]
    reached = set(waiting)
    while waiting:
        for fed in feeds[waiting.pop()]:
            if fed not in reached:
                reached.add(fed)
                waiting.append(fed)
    for fragment in fragments:
        if fragment not in reached:
            raise UsageError(
                f"step {fragment.head.name!r}: nothing ever enters its loop; unite the loop with a "
                "stream that comes from a source or an entry"
            )


def _in_order(fragments: tuple[Fragment, ...], feeds: Edges) -> list[Fragment]:
    """Fragments after those that feed them, as far as cycles let; otherwise as they were added."""
    missing = dict.fromkeys(fragments, 0)
    for each in feeds.values():
        for fed in each:
            missing[fed] += 1
    waiting = list(fragments)
    ordered: list[Fragment] = []
    while waiting:
        ready = [each for each in waiting if missing[each] == 0]
        # Steps only name earlier ones, so what was added first waits for nothing but a loop.
        chosen = ready[0] if ready else waiting[0]
        waiting.remove(chosen)
        ordered.append(chosen)
        for fed in feeds[chosen]:
            missing[fed] -= 1
    return ordered
