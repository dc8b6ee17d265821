"""Planning: fragments, nodes, channels, what is logged and why, and the fingerprint."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from graph_vocabulary import ITEMS, Folder, Numbers, Straight, items_of

from rewake.graph import Plan, Query, count_window, time_window
from rewake.graph.plan.fingerprint import fingerprint as fingerprint_of
from rewake.graph.steps import Graph, Kind, Step
from rewake.model.errors import UsageError
from rewake.operators.aggregate.functions import UserDefined
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.recovery.amnesia import Amnesia
from rewake.recovery.approach import Kept
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.instant.approach import Instant
from rewake.recovery.policies.targets import Targets


@pytest.fixture
def query() -> Query:
    return Query("q")


def averages(stream: Any, **options: Any) -> Any:
    return stream.aggregate(
        **{"by": "item_id", "window": count_window(10), "avg": "item_price", "name": "averages"}
        | options
    )


def wiring(plan: Plan) -> dict[str, list[tuple[str | None, int]]]:
    """Return for each node the (upstream, output) of its inputs."""
    return {
        node.name: [(each.upstream, each.output) for each in node.inputs] for node in plan.nodes
    }


def logging(plan: Plan) -> dict[str, tuple[bool, str]]:
    return {node.fragment: (node.kept is Kept.IN_LOG, node.kept_because) for node in plan.nodes}


# --- fragments -------------------------------------------------------------------------------


def test_by_default_only_sources_filters_and_maps_share_a_fragment(query: Query) -> None:
    """Unions, aggregates and sinks are fragments of their own; the last step names it."""
    items = items_of(query)
    cheap = items.filter("item_price < 500", name="cheap").filter("item_id > 0", name="known")
    named = averages(cheap).map(item_id="item_id", mean="avg_item_price", name="named")
    named.to(Folder(), name="files")
    plan = query.plan()
    assert [node.name for node in plan.nodes] == ["known", "averages", "named", "files"]
    assert [step.name for step in plan.node("known").program.before] == ["cheap", "known"]


@pytest.mark.parametrize("reason", ["read twice", "kept", "shards", "approach"])
def test_filters_that_something_comes_between_are_fragments_of_their_own(
    query: Query, reason: str
) -> None:
    """Another reader, a stream that is kept, other shards, another approach."""
    first = items_of(query).filter("item_id > 0", name="first", partition_by="item_id")
    options: dict[str, Any] = {}
    if reason == "shards":
        options = {"shards": 2, "partition_by": "item_id"}
    if reason == "approach":
        options = {"approach": Amnesia()}
    first.filter("item_id > 1", name="second", **options).to(Folder())
    if reason == "read twice":
        first.to(Folder("b"))
    if reason == "kept":
        first.to_stream()
    fragments = {node.fragment for node in query.plan().nodes}
    assert {"first", "second"} <= fragments


def test_steps_that_name_one_fragment_are_fused(query: Query) -> None:
    """From the source over an aggregate to the steps behind it."""
    items = items_of(query, fragment="all")
    cheap = items.filter("item_price < 500", name="cheap", fragment="all")
    mean = averages(cheap, fragment="all", approach=Instant())
    mean.filter("avg_item_price > 1", name="big", fragment="all").to_stream("big")
    plan = query.plan()
    (node,) = plan.nodes
    assert node.name == "all"
    assert node.inputs[0].source == Numbers()
    assert [step.name for step in node.program.before] == ["cheap"]
    assert [step.name for step in node.program.after] == ["big"]
    assert node.program.stateful is not None
    assert node.approach == Instant()
    assert (node.outputs[0].stream, plan.streams["big"]) == ("big", (("all", 0),))


def test_a_union_may_head_a_fragment_and_late_tuples_may_leave_its_middle(query: Query) -> None:
    """Only results go on to the next step."""
    both = items_of(query).union(query.entry("orders", ITEMS), name="both", fragment="f")
    sums = both.aggregate(
        by="item_id", window=time_window("1s"), time="item_time", sum="item_price",
        route_late=True, name="sums", fragment="f",
    )  # fmt: skip
    sums.filter("sum_item_price > 0", name="positive", fragment="f").to(Folder(), name="files")
    sums.late.to(Folder("late"), name="late-files")
    node = query.plan().node("f")
    assert [each.upstream for each in node.inputs] == ["items", "orders"]
    assert [(each.stream, each.consumers) for each in node.outputs] == [
        ("positive", ("files",)),
        ("sums.late", ("late-files",)),
    ]
    assert node.outputs[1].schema == ITEMS
    assert [route.port for route in node.program.routes] == [0, 1]


def _read_twice(query: Query) -> None:
    items = items_of(query, fragment="f")
    items.filter("item_id > 0", name="a", fragment="f").to(Folder())
    items.to(Folder())


def _by_key(query: Query) -> None:
    averages(items_of(query, shards=2, fragment="f"), shards=2, fragment="f").to(Folder())


def _two_aggregates(query: Query) -> None:
    first = averages(items_of(query), fragment="f")
    first.aggregate(
        by="item_id", window=count_window(2), max="avg_item_price", name="m", fragment="f"
    ).to(Folder())


def _producers(query: Query) -> None:
    averages(query.entry("orders", ITEMS, fragment="f"), fragment="f").to(Folder())


def _several_inputs(query: Query) -> None:
    items = items_of(query, fragment="f")
    items.union(query.entry("orders", ITEMS), name="both", fragment="f").to(Folder())


def _late(query: Query) -> None:
    sums = averages(
        items_of(query), window=time_window("1s"), time="item_time", route_late=True, fragment="f"
    )
    sums.late.filter("item_id > 0", name="a", fragment="f").to(Folder())
    sums.to(Folder())


def _approaches(query: Query) -> None:
    items = items_of(query, fragment="f", approach=Amnesia())
    items.filter("item_id > 0", name="a", fragment="f", approach=Straight()).to(Folder())


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (_read_twice, "'items' and 'a' cannot share fragment 'f': 'items' is also read by sink-2"),
        (_by_key, "tuples are divided by key among 2 shards"),
        (_two_aggregates, "a fragment holds one step with state, and 'averages' is one already"),
        (_producers, "producers cannot be asked twice"),
        (_several_inputs, "'both' has several inputs"),
        (_late, "leaves the fragment of its step"),
        (_approaches, "they have different approaches"),
    ],
)
def test_steps_that_cannot_share_a_fragment_are_named_with_the_reason(
    query: Query, build: Callable[[Query], None], words: str
) -> None:
    """When the user has asked that they do."""
    build(query)
    with pytest.raises(UsageError) as caught:
        query.plan()
    assert words in str(caught.value)


def test_steps_of_one_fragment_must_follow_each_other(query: Query) -> None:
    """Two that only have a name in common are not one fragment."""
    items = items_of(query)
    items.filter("item_id > 0", name="a", fragment="f").to(Folder())
    items.filter("item_id > 1", name="b", fragment="f").to(Folder())
    with pytest.raises(UsageError, match="step 'b' and step 'a' would both have a node or fragm"):
        query.plan()


def test_names_of_shards_must_not_meet_names_of_steps(query: Query) -> None:
    """`a` with two shards has nodes `a-0` and `a-1`."""
    items = items_of(query, shards=2)
    items.to(Folder(), name="items-0")
    with pytest.raises(UsageError, match="named 'items-0'"):
        query.plan()


# --- channels --------------------------------------------------------------------------------


def test_a_sharded_aggregate_gets_its_input_by_key(query: Query) -> None:
    """Each shard reads its part from every shard upstream."""
    averages(items_of(query, shards=2), shards=3).to_stream("averages")
    plan = query.plan()
    assert wiring(plan)["averages-1"] == [("items-0", 1), ("items-1", 1)]
    routes = plan.node("items-0").program.routes
    assert [(each.keys, each.part, each.parts) for each in routes] == [
        (("item_id",), 0, 3),
        (("item_id",), 1, 3),
        (("item_id",), 2, 3),
    ]
    assert [each.consumers for each in plan.node("items-1").outputs] == [
        ("averages-0",),
        ("averages-1",),
        ("averages-2",),
    ]
    assert plan.streams["averages"] == (("averages-0", 0), ("averages-1", 0), ("averages-2", 0))


def test_steps_without_state_take_over_the_shards_of_their_input(query: Query) -> None:
    """And are joined one to one."""
    items = items_of(query, shards=2, fragment="apart")
    items.filter("item_id > 0", name="known").to(Folder(), name="f", shards=2)
    assert wiring(query.plan()) == {
        "apart-0": [(None, 0)],
        "apart-1": [(None, 0)],
        "known-0": [("apart-0", 0)],
        "known-1": [("apart-1", 0)],
        "f-0": [("known-0", 0)],
        "f-1": [("known-1", 0)],
    }


def test_a_source_is_one_node_with_the_steps_behind_it_unless_said_otherwise(query: Query) -> None:
    """It makes its tuples again as well as they do; one hop and one process less."""
    items_of(query, shards=2).filter("item_id > 0", name="known").to(Folder(), name="f", shards=2)
    assert wiring(query.plan()) == {
        "known-0": [(None, 0)],
        "known-1": [(None, 0)],
        "f-0": [("known-0", 0)],
        "f-1": [("known-1", 0)],
    }


def test_one_node_reads_everything(query: Query) -> None:
    """Whatever the number of shards upstream."""
    items_of(query, shards=3).to(Folder(), name="files")
    assert wiring(query.plan())["files"] == [("items-0", 0), ("items-1", 0), ("items-2", 0)]


def test_other_numbers_of_shards_need_keys(query: Query) -> None:
    """Those of an aggregate are known, as long as its key columns go through."""
    mean = averages(items_of(query), shards=2)
    kept = mean.map(item_id="item_id", mean="avg_item_price", name="kept", shards=3)
    kept.to(Folder(), name="a", shards=1)
    assert query.plan().node("averages-0").program.routes[0].keys == ("item_id",)
    kept.map(mean="mean", name="lost", shards=2).to(Folder(), name="b", shards=4)
    with pytest.raises(
        UsageError, match=r"'b' has 4 shards, but step 'lost', .* has 2: .*partition_by=.*: mean"
    ):
        query.plan()


def test_keys_may_be_given(query: Query) -> None:
    """Also where the numbers of shards are the same."""
    items = items_of(query, shards=2)
    items.filter("item_id > 0", name="known", partition_by=["item_id", "item_price"]).to(Folder())
    plan = query.plan()
    assert plan.node("items-0").program.routes[1].keys == ("item_id", "item_price")
    assert wiring(plan)["known-1"] == [("items-0", 1), ("items-1", 1)]


def test_consumers_that_divide_alike_share_outputs(query: Query) -> None:
    """Others add theirs."""
    items = items_of(query)
    averages(items, name="a", shards=2).to(Folder())
    averages(items, name="b", shards=2).to(Folder())
    averages(items, name="c", shards=3).to(Folder())
    items.to(Folder(), name="d")
    items.filter("item_id > 0", name="e").to(Folder())
    outputs = query.plan().node("items").outputs
    assert [each.consumers for each in outputs] == [
        ("a-0", "b-0"),
        ("a-1", "b-1"),
        ("c-0",),
        ("c-1",),
        ("c-2",),
        ("d", "e"),
    ]


def test_a_node_has_at_most_256_outputs(query: Query) -> None:
    """The error says what to do."""
    items = items_of(query)
    averages(items, name="a", shards=256).to(Folder())
    averages(items, name="b", shards=2).to(Folder())
    with pytest.raises(UsageError, match="step 'items' would have 258 outputs"):
        query.plan()


def test_schemas_of_channels_are_those_of_the_streams(query: Query) -> None:
    """A node can decode what it gets without asking."""
    averages(items_of(query)).to(Folder(), name="files")
    plan = query.plan()
    (channel,) = plan.node("files").inputs
    assert channel.schema == plan.node("averages").outputs[0].schema
    assert channel.schema.names == ["item_id", "avg_item_price"]
    assert plan.node("averages").program.output_schema(ITEMS) == channel.schema


def test_a_stream_that_is_divided_for_a_consumer_is_offered_divided(query: Query) -> None:
    """Writing it a second time, whole, would double the log."""
    mean = averages(items_of(query))
    mean.to_stream("means")
    mean.aggregate(
        by="item_id", window=count_window(2), max="avg_item_price", name="top", shards=2
    ).to(Folder())
    plan = query.plan()
    assert plan.streams["means"] == (("averages", 0), ("averages", 1))
    assert len(plan.node("averages").outputs) == 2


# --- what is logged --------------------------------------------------------------------------


def test_what_is_logged_and_why(query: Query) -> None:
    """Only what cannot be made again is logged."""
    items = items_of(query, shards=2)
    orders = query.entry("orders", ITEMS)
    cheap = items.filter("item_price < 500", name="cheap")
    both = cheap.union(orders, name="both")
    averages(both).to(Folder(), name="files")
    items.filter("item_price > 900", name="dear").to_stream("dear")
    both.filter("item_id > 0", name="known").to(Folder(), name="other")
    plan = query.plan()
    assert logging(plan) == {
        "items": (False, "it can produce it again from source items"),
        "orders": (True, "producers cannot be asked twice"),
        "cheap": (False, "it can produce it again from items"),
        "both": (True, "the order in which inputs met is chance"),
        "averages": (True, "its windows are rebuilt from its output log"),
        "files": (False, "it commits what it writes by position"),
        "dear": (True, "the stream is kept"),
        "known": (False, "it can produce it again from both"),
        "other": (False, "it commits what it writes by position"),
    }
    transparent = {node.fragment for node in plan.nodes if node.kept is Kept.UPSTREAM}
    assert transparent == {"items", "cheap", "known"}
    assert set(plan.streams) == {"orders", "both", "averages", "dear"}


def test_a_filter_behind_a_merge_of_shards_is_logged(query: Query) -> None:
    """Several channels meet in it by chance, though it is no union."""
    items_of(query, shards=2).filter("item_id > 0", name="known", shards=1).to(Folder())
    assert logging(query.plan())["known"] == (True, "the order in which inputs met is chance")


def test_amnesia_logs_nothing(query: Query) -> None:
    """But what can be made again still can be."""
    query = Query("q", approach=Amnesia())
    both = items_of(query).union(query.entry("orders", ITEMS), name="both")
    averages(both.filter("item_id > 0", name="known")).to_stream("averages")
    plan = query.plan()
    assert not any(node.kept is Kept.IN_LOG for node in plan.nodes)
    assert {node.name for node in plan.nodes if node.kept is Kept.UPSTREAM} == {"items", "known"}
    assert plan.node("averages").kept_because.startswith("amnesia keeps nothing")
    assert plan.streams["averages"] == (("averages", 0),)


def test_a_fused_source_and_filter_needs_no_log(query: Query) -> None:
    """It can read its source again."""
    items = items_of(query, fragment="f")
    items.filter("item_id > 0", name="known", fragment="f").to(Folder())
    assert query.plan().node("f").kept is Kept.UPSTREAM


# --- what a whole graph must keep to ---------------------------------------------------------


def test_a_step_whose_output_nobody_uses_is_refused(query: Query) -> None:
    """The error says what can be done with it."""
    items_of(query).filter("item_id > 0", name="known")
    with pytest.raises(UsageError, match=r"step 'known' \(filter\): nobody uses its output; send"):
        query.plan()
    with pytest.raises(UsageError, match="has no steps"):
        Query("empty").plan()


def test_a_stream_must_not_take_the_name_of_another_steps_log(query: Query) -> None:
    """Clients would get one where they asked for the other."""
    orders = query.entry("orders", ITEMS)
    orders.filter("item_id > 0", name="known").to_stream("orders")
    with pytest.raises(UsageError, match="output of step 'known' is to be stream 'orders'"):
        query.plan()


def loop_of(query: Query, **options: Any) -> None:
    loop = query.loop("again", ITEMS)
    both = items_of(query).union(loop, name="both", **options)
    back = both.filter("item_price > 900", name="back")
    loop.close_with(back)
    averages(both).to_stream("averages")


def test_a_cycle_is_a_channel_that_leads_back(query: Query) -> None:
    """The loop itself is no node."""
    loop_of(query)
    plan = query.plan()
    assert [node.name for node in plan.nodes] == ["items", "both", "back", "averages"]
    assert wiring(plan)["both"] == [("items", 0), ("back", 0)]
    assert plan.node("back").outputs[0].consumers == ("both",)


def test_an_approach_that_cannot_have_cycles_is_refused_on_one(query: Query) -> None:
    """The error names the steps of the cycle and why; elsewhere in the graph it is welcome."""
    loop_of(query, approach=Straight())
    words = "approach 'straight' of step 'both' does not allow cycles: .* both -> back -> both"
    with pytest.raises(UsageError, match=words):
        query.plan()
    beside = Query("q")
    loop_of(beside)
    averages(beside.source("other", Numbers()), name="sums", approach=Straight()).to(Folder())
    assert beside.plan().node("sums").kept is Kept.IN_QUEUE
    assert beside.plan().node("sums").places == 2


def test_what_clients_read_is_in_no_queue(query: Query) -> None:
    """They come when they like, and memory holds what nodes need: a step with a log keeps it."""
    sums = averages(items_of(query), name="sums", approach=Straight())
    sums.to_stream("sums")
    plan = query.plan()
    assert plan.node("sums").kept is Kept.IN_QUEUE
    assert plan.streams["sums"] == (("sums-stream", 0),)
    assert plan.node("sums-stream").kept is Kept.IN_LOG


def test_what_is_kept_in_memory_is_asked_for_again_where_it_is(query: Query) -> None:
    """A fragment that forgets must log for one whose standby is rebuilt from its output."""
    both = items_of(query).union(query.source("more", Numbers()), name="both", approach=Amnesia())
    averages(both, approach=Straight()).to(Folder())
    assert query.plan().node("both").kept is Kept.IN_LOG


def test_a_loop_must_be_closed_used_and_entered(query: Query) -> None:
    """Each with its own words."""
    loop = query.loop("again", ITEMS)
    known = loop.filter("item_id > 0", name="known")
    known.to(Folder())
    with pytest.raises(UsageError, match="loop 'again' is open"):
        query.plan()
    loop.close_with(known)
    with pytest.raises(UsageError, match="step 'known': nothing ever enters its loop"):
        query.plan()
    other = Query("q")
    unused = other.loop("again", ITEMS)
    unused.close_with(items_of(other))
    with pytest.raises(UsageError, match=r"step 'again' \(loop\): nobody uses its output"):
        other.plan()


def test_a_loop_that_is_no_cycle_only_puts_a_name_first(query: Query) -> None:
    """Nodes come after those that feed them all the same; reading a stream twice is refused."""
    loop = query.loop("early", ITEMS)
    loop.filter("item_id > 0", name="known").to(Folder(), name="files")
    items = items_of(query)
    loop.close_with(items)
    assert [node.name for node in query.plan().nodes] == ["items", "known", "files"]
    items.union(loop, name="both").to(Folder())
    with pytest.raises(UsageError, match="step 'both' would read 'items' twice"):
        query.plan()


def test_a_loop_cannot_be_kept_as_a_stream(query: Query) -> None:
    """What closes it can."""
    loop = query.loop("again", ITEMS)
    both = items_of(query).union(loop, name="both")
    loop.close_with(both)
    loop.to_stream("kept")
    with pytest.raises(UsageError, match="keep the stream that closes loop 'again'"):
        query.plan()


# --- the fingerprint -------------------------------------------------------------------------


def fingerprint(
    source: Any = None,
    price: str = "item_price < 500",
    limit: int = 1,
    window: int = 10,
    shards: int = 1,
    records: int = 1000,
    folder: str = "out",
    name: str = "q",
) -> str:
    query = Query(name, approach=ContinuousEventual(Targets(records=records)))
    items = query.source("items", source or Numbers())
    cheap = items.filter(price, name="cheap").filter(
        lambda batch: pa.array([True] * batch.num_rows if limit else [], pa.bool_()), name="odd"
    )
    averages(cheap, window=count_window(window), shards=shards).to(Folder(folder))
    return query.plan().fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"source": Numbers(seed=2)},
        {"price": "item_price < 501"},
        {"limit": 2},
        {"window": 11},
        {"shards": 2},
        {"records": 1001},
        {"folder": "elsewhere"},
        {"name": "p"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_decides_results_is_in_the_fingerprint(change: dict[str, Any]) -> None:
    """So that another query on the same folder is refused; the same one is not."""
    assert fingerprint() == fingerprint()
    assert len(fingerprint()) == 64
    assert fingerprint(**change) != fingerprint()


def test_the_code_of_a_users_function_is_in_the_fingerprint() -> None:
    """Its name and its initial state alone would not tell two versions apart."""

    def described(update: Any) -> str:
        own = UserDefined(
            "item_price", "own", initial=(0.0,), update=update,
            merge=lambda older, newer: (older[0] + newer[0],), result=lambda state: state[0],
        )  # fmt: skip
        step = Step(
            "a", Kind.AGGREGATE, (), ITEMS, spec=AggregateSpec(["item_id"], count_window(2), [own])
        )
        return fingerprint_of(Graph("q", Straight(), (step,)), ())

    assert described(lambda state, value: (state[0] + 2 * value,)) != described(
        lambda state, value: (state[0] + 3 * value,)
    )


def test_a_description_that_is_not_json_is_refused_with_the_step(query: Query) -> None:
    """It could not be compared with what another process says."""

    class Odd(Folder):
        def describe(self) -> dict[str, Any]:
            return {"when": object()}

    items_of(query).to(Odd(), name="odd")
    with pytest.raises(UsageError, match=r"step 'odd': describe\(\) of Odd must give JSON values"):
        query.plan()


def test_a_fragment_that_forgets_keeps_its_output_for_one_that_does_not() -> None:
    """A precise consumer of an amnesic fragment can ask for its input again."""
    query = Query("mixed")
    items = items_of(query)
    first = items.aggregate(
        by="item_id", window=count_window(2), sum="item_price", name="first", approach=Amnesia()
    )
    passed = first.filter("sum_item_price > 0", name="passed")
    second = passed.aggregate(by="item_id", window=count_window(2), count=True, name="second")
    second.to_stream("second")
    plan = query.plan()
    assert plan.node("first").kept is Kept.IN_LOG
    assert "second may ask" in plan.node("first").kept_because
    assert plan.node("passed").kept is not Kept.IN_LOG


def test_a_stream_that_the_user_keeps_is_kept_as_history() -> None:
    """Others are trimmed to what recovery needs."""
    query = Query("kept")
    items = items_of(query)
    first = items.aggregate(by="item_id", window=count_window(2), sum="item_price", name="first")
    second = first.aggregate(by="item_id", window=count_window(2), count=True, name="second")
    second.to_stream("counts")
    plan = query.plan()
    assert plan.node("second").keeps_history
    assert not plan.node("first").keeps_history
