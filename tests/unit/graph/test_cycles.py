"""Streams that come back: what cannot be on a cycle, and what its nodes are told."""

from typing import Any

import pyarrow as pa
import pytest
from graph_vocabulary import ITEMS, Folder, items_of

from rewake.graph import Plan, Query
from rewake.graph.plan.plan import Cycle
from rewake.model.errors import UsageError
from rewake.recovery.amnesia import Amnesia


def channels(plan: Plan, node: str) -> list[tuple[str | None, bool, bool]]:
    """Who feeds a node, whether from within a cycle, and whether that closes a loop."""
    return [(each.upstream, each.inside, each.around) for each in plan.node(node).inputs]


def simple(query: Query, **options: Any) -> Plan:
    """Items that come back if they are dear."""
    again = query.loop("again", ITEMS, **options)
    mixed = items_of(query).union(again, name="mixed")
    again.close_with(mixed.filter("item_price > 900", name="back"))
    mixed.filter("item_id > 0", name="seen").to(Folder())
    return query.plan()


def test_the_channel_that_reads_a_loop_closes_it() -> None:
    """What is outside of the cycle hears nothing of it."""
    plan = simple(Query("q"), at_most=7)
    assert channels(plan, "mixed") == [("items", False, False), ("back", True, True)]
    assert channels(plan, "back") == [("mixed", True, False)]
    assert plan.node("mixed").cycle == plan.node("back").cycle == Cycle(1, 7)
    assert plan.node("seen").cycle is None
    assert channels(plan, "seen") == [("mixed", False, False)]


def test_who_reads_nothing_but_a_loop_hands_the_closing_on() -> None:
    """It would have no time of its own, and could not begin a round."""
    query = Query("q")
    again = query.loop("again", ITEMS)
    dear = again.filter("item_price > 900", name="dear")
    mixed = items_of(query).union(dear, name="mixed")
    again.close_with(mixed)
    mixed.filter("item_id > 0", name="seen").to(Folder())
    plan = query.plan()
    assert channels(plan, "dear") == [("mixed", True, False)]
    assert channels(plan, "mixed") == [("items", False, False), ("dear", True, True)]


def test_cycles_that_share_nodes_are_one() -> None:
    """Each of their entrances is counted: a round takes one of them at a time."""
    query = Query("q")
    outer, inner = query.loop("outer", ITEMS, at_most=5), query.loop("inner", ITEMS, at_most=9)
    mixed = items_of(query).union(outer, name="mixed")
    within = mixed.union(inner, name="within")
    inner.close_with(within.filter("item_price > 900", name="short"))
    outer.close_with(within.filter("item_price > 800", name="long"))
    within.filter("item_id > 0", name="seen").to(Folder())
    plan = query.plan()
    assert {plan.node(name).cycle for name in ("mixed", "within", "short", "long")} == {Cycle(2, 5)}


def test_shards_that_never_meet_are_cycles_of_their_own() -> None:
    """Two shards of everything, one to one: neither waits for the other."""
    query = Query("q")
    again = query.loop("again", ITEMS, shards=2)
    mixed = items_of(query, shards=2).union(again, name="mixed", shards=2)
    again.close_with(mixed.filter("item_price > 900", name="back"))
    mixed.to(Folder())
    plan = query.plan()
    assert plan.node("mixed-0").cycle == Cycle(1, 100_000_000)
    assert channels(plan, "mixed-1") == [("items-1", False, False), ("back-1", True, True)]


def test_what_forgets_cannot_be_on_a_cycle() -> None:
    """A crash would lose what goes around, and with it how the loop comes to its end."""
    with pytest.raises(UsageError, match="approach 'amnesia' of step 'mixed' does not allow cycle"):
        simple(Query("q", approach=Amnesia()))


def _wait(key: int, tuples: Any, state: Any, now: Any) -> Any:
    return [], state, now


def _let_go(key: int, time: Any, state: Any) -> Any:
    return [], None


def test_what_goes_by_the_clock_of_the_machine_cannot_be_on_a_cycle() -> None:
    """It may put out tuples at any moment, so its loop could never be said to have ended."""
    query = Query("q")
    again = query.loop("again", ITEMS)
    mixed = items_of(query).union(again, name="mixed")
    waiting = mixed.process(
        _wait,
        by="item_id",
        state={"n": (pa.int64(), 0)},
        output=ITEMS,
        timers="processing",
        each_key=True,
        on_timer=_let_go,
        name="waiting",
    )
    again.close_with(waiting)
    mixed.filter("item_id > 0", name="seen").to(Folder())
    with pytest.raises(UsageError, match="step 'waiting' goes by the clock of the machine"):
        query.plan()


def test_a_loop_that_carries_watermarks_is_closed_with_what_does() -> None:
    """Else the steps on it would wait for what never comes."""
    query = Query("q")
    again = query.loop("again", ITEMS, watermarks=True)
    told = query.entry("told", ITEMS, watermarks=True).union(again, name="told-mixed")
    with pytest.raises(UsageError, match="'again' is said to carry watermarks, but 'items' does"):
        again.close_with(items_of(query))
    again.close_with(told)


@pytest.mark.parametrize("at_most", [0, -1, 1.5, True, "many"])
def test_how_many_may_be_added_is_a_number(at_most: Any) -> None:
    """The error names the loop."""
    with pytest.raises(UsageError, match="loop 'again': at_most is how many tuples may be added"):
        Query("q").loop("again", ITEMS, at_most=at_most)
