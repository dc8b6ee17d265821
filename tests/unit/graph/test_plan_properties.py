"""What holds of the plan of every graph: random small graphs, with unions, shards and loops."""

from collections import Counter
from typing import Any

from graph_vocabulary import ITEMS, Folder, Numbers
from hypothesis import given, note
from hypothesis import strategies as st

from rewake.graph import Plan, Query, Stream, count_window, time_window
from rewake.recovery.amnesia import Amnesia
from rewake.recovery.approach import Keeper, Kept
from rewake.recovery.eventual.approach import ContinuousEventual

KINDS = ("source", "entry", "filter", "map", "union", "aggregate")
# (kind, number that picks the inputs, shards, approach, whether the output is kept)
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 1000),
        st.integers(1, 3),
        st.sampled_from([None, ContinuousEventual(), Amnesia()]),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def next_step(query: Query, streams: list[Stream], name: str, step: Any) -> Stream:
    kind, pick, shards, approach, _ = step
    options = {"name": name, "shards": shards, "approach": approach}
    if kind == "entry":
        return query.entry(name, ITEMS, shards=shards, approach=approach)
    if kind == "source" or not streams:
        return query.source(name, Numbers(), shards=shards, approach=approach)
    stream = streams[pick % len(streams)]
    if kind == "filter":
        return stream.filter("item_price < 500", partition_by="item_id", **options)
    if kind == "map":
        same = {column: column for column in ITEMS.names}
        return stream.map(same, partition_by="item_id", **options)
    other = streams[(pick // 7) % len(streams)]
    if kind == "union" and other is not stream:
        return stream.union(other, partition_by=["item_id", "item_price"], **options)
    sums = stream.aggregate(
        by="item_id",
        window=time_window("1s") if pick % 2 else count_window(5),
        time="item_time",
        max=["item_price", "item_time"],
        route_late=pick % 3 == 0,
        **options,
    )
    return sums.map(
        item_id="item_id",
        item_price="max_item_price",
        item_time="max_item_time",
        name=f"{name}-again",
    )


def _remembering(step: Any) -> Any:
    """What forgets cannot be on a cycle."""
    return (*step[:3], None, step[4]) if step[3] == Amnesia() else step


def build(described: list[Any], with_loop: bool) -> Query:
    query = Query("random")
    streams: list[Stream] = []
    loop = query.loop("loop", ITEMS) if with_loop else None
    if loop is not None:
        streams.append(query.source("first", Numbers()).union(loop, name="entrance"))
    for number, step in enumerate(map(_remembering, described) if with_loop else described):
        streams.append(next_step(query, streams, f"s{number}", step))
        if step[4]:
            streams[-1].to_stream()
    for number, stream in enumerate(streams):
        stream.to(Folder(str(number)), name=f"sink{number}")
    if loop is not None:
        loop.close_with(streams[-1])
    return query


def check_channels(plan: Plan) -> None:
    """Every input names an output that is there, and every output names who reads it."""
    nodes = {node.name: node for node in plan.nodes}
    assert len(nodes) == len(plan.nodes)
    read: dict[tuple[str, int], list[str]] = {}
    for node in plan.nodes:
        assert len({channel.name for channel in node.inputs}) == len(node.inputs)
        for channel in node.inputs:
            if channel.upstream is not None:
                upstream = nodes[channel.upstream]
                assert channel.output < len(upstream.outputs)
                assert channel.schema.equals(upstream.outputs[channel.output].schema)
                read.setdefault((channel.upstream, channel.output), []).append(node.name)
    for node in plan.nodes:
        assert len(node.outputs) == len(node.program.routes) <= 256
        for number, output in enumerate(node.outputs):
            # In any order: behind a loop, nodes are not in the order of the steps.
            assert sorted(output.consumers) == sorted(read.get((node.name, number), []))


def check_delivery(plan: Plan) -> None:
    """A fragment that reads another gets each of its tuples exactly once, over all shards."""
    nodes = {node.name: node for node in plan.nodes}
    parts: dict[tuple[str, str, int], Counter[tuple[str, Any, int, int]]] = {}
    for node in plan.nodes:
        for channel in node.inputs:
            if channel.upstream is None:
                continue
            upstream = nodes[channel.upstream]
            route = upstream.program.routes[channel.output]
            read = parts.setdefault((node.fragment, upstream.fragment, route.port), Counter())
            read[upstream.name, route.keys, route.part, route.parts] += 1
    for (_, fragment, _), read in parts.items():
        assert set(read.values()) == {1}
        (division,) = {(keys, total) for _, keys, _, total in read}
        shards = [node.name for node in plan.nodes if node.fragment == fragment]
        assert {(node, part) for node, _, part, _ in read} == {
            (node, part) for node in shards for part in range(division[1])
        }


def reached(plan: Plan, start: str, *, all_of_them: bool) -> set[str]:
    """The nodes that are fed by one, directly or not; perhaps only ahead of where loops close."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        here = waiting.pop()
        for node in plan.nodes:
            fed = any(
                each.upstream == here and (all_of_them or not each.around) for each in node.inputs
            )
            if fed and node.name not in found:
                found.add(node.name)
                waiting.append(node.name)
    return found


@given(steps)
def test_every_cycle_is_closed_by_a_channel_for_which_nobody_waits(described: list[Any]) -> None:
    """Without those nothing comes back; who reads one has another input, whose time it goes by."""
    plan = build(described, with_loop=True).plan()
    for node in plan.nodes:
        assert node.name not in reached(plan, node.name, all_of_them=False)
        comes_back = node.name in reached(plan, node.name, all_of_them=True)
        assert (node.cycle is not None) == comes_back
        assert not node.inputs or not all(each.around for each in node.inputs)
        for each in node.inputs:
            assert each.inside or not each.around


@given(steps, st.booleans())
def test_every_plan_is_the_same_again_and_its_channels_fit(
    described: list[Any], with_loop: bool
) -> None:
    """Planning is a function of the graph; channels join what is there; shuffles are whole."""
    query = build(described, with_loop)
    plan = query.plan()
    note(query.explain())
    again = build(described, with_loop).plan()
    assert [node.name for node in plan.nodes] == [node.name for node in again.nodes]
    assert (plan.nodes, plan.streams, plan.fingerprint) == (
        again.nodes,
        again.streams,
        again.fingerprint,
    )
    check_channels(plan)
    check_delivery(plan)
    nodes = {node.name: node for node in plan.nodes}
    for outputs in plan.streams.values():
        assert all(output < len(nodes[node].outputs) for node, output in outputs)
    assert query.picture().count("<br/>") > len(plan.nodes) // 3


@given(steps)
def test_nodes_come_after_those_that_feed_them(described: list[Any]) -> None:
    """In a graph without cycles; and what needs no log has one input that can be read again."""
    plan = build(described, with_loop=False).plan()
    placed: set[str] = set()
    for node in plan.nodes:
        assert all(channel.upstream in placed | {None} for channel in node.inputs)
        placed.add(node.name)
        if node.kept is Kept.UPSTREAM:
            assert len(node.inputs) == 1
            assert not node.inputs[0].produced
        if (
            node.kept is not Kept.IN_LOG
            and node.sink is None
            and node.approach.keeper is Keeper.LOG
        ):
            assert node.kept is Kept.UPSTREAM
