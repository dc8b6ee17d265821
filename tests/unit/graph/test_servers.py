"""Which server hosts what."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake import ItemSource, ItemStream
from rewake.graph.plan.plan import InputPlan, NodePlan, Plan
from rewake.graph.plan.servers import Seat, assign
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import Kept


def node(name: str, *upstreams: str, fragment: str = "", shards: int = 1) -> NodePlan:
    inputs = tuple(InputPlan(each, pa.schema([]), each) for each in upstreams)
    return NodePlan(
        name, fragment or name, 0, shards, inputs, (), None, None, Kept.NOWHERE, ""  # type: ignore[arg-type]
    )  # fmt: skip


def sharded(width: int) -> list[NodePlan]:
    """A source, shards of windows, and a sink that all of them feed."""
    shards = [node(f"w-{each}", "source", fragment="w", shards=width) for each in range(width)]
    return [node("source"), *shards, node("sink", *(each.name for each in shards))]


def hosted(nodes: list[NodePlan], servers: int | None) -> list[list[str]]:
    return [[str(seat) for seat in each.seats] for each in assign(nodes, servers)]


def averages(servers: Any = None) -> Query:
    query = Query("averages", servers=servers)
    items = query.source("items", ItemSource(ItemStream(1, 10), tuples=10), fragment="items")
    cheap = items.filter("item_price < 500", name="cheap")
    cheap.aggregate(
        by="item_id", window=count_window(10), avg="item_price", name="averages", shards=2
    ).to_stream("averages")
    return query


def test_unless_it_is_said_each_node_has_a_server_of_its_own_name() -> None:
    """As before there were servers."""
    servers = assign(sharded(2), None)
    assert [each.name for each in servers] == ["source", "w-0", "w-1", "sink"]
    assert [each.seats for each in servers] == [(Seat(each.name),) for each in servers]


def test_a_chain_is_cut_where_it_must_be() -> None:
    """Neighbours stay together."""
    chain = [node("a"), node("b", "a"), node("c", "b"), node("d", "c")]
    assert hosted(chain, 2) == [["a", "b"], ["c", "d"]]
    assert hosted(chain, 1) == [["a", "b", "c", "d"]]


def test_shards_of_a_fragment_are_apart() -> None:
    """They are shards because one processor is not enough."""
    assert hosted(sharded(2), 2) == [["source", "w-0"], ["w-1", "sink"]]
    for servers in (2, 3, 4):
        shards = [
            Counter(each.startswith("w-") for each in names)[True]
            for names in hosted(sharded(4), servers)
        ]
        assert max(shards) - min(shards) <= 1, "spread as evenly as there are servers"


def test_more_servers_than_nodes_are_not_started() -> None:
    """Nobody would have anything to do there."""
    assert hosted(sharded(1), 9) == [["source"], ["w-0"], ["sink"]]


@given(st.integers(0, 6), st.integers(0, 5), st.integers(1, 12))
def test_every_seat_is_hosted_once_and_loads_are_even(width: int, chain: int, servers: int) -> None:
    """Of two servers, one hosts at most one seat more than the other; the same every time."""
    nodes = sharded(width) + [node(f"c-{each}", "sink") for each in range(chain)]
    found = assign(nodes, servers)
    assert found == assign(nodes, servers)
    names = sorted(seat.node for each in found for seat in each.seats)
    assert names == sorted(each.name for each in nodes)
    loads = [len(each.seats) for each in found]
    assert len(loads) == min(servers, len(nodes))
    assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize("wrong", [0, -1, "two", True, 2.0])
def test_a_wrong_number_of_servers_is_a_usage_error(wrong: Any) -> None:
    """It says what the number is of."""
    with pytest.raises(UsageError, match=r"servers is .*; give the number of processes"):
        Query("q", servers=wrong)
    with pytest.raises(UsageError, match="servers is"):
        Plan("q", ()).on(wrong)


def test_servers_are_no_part_of_what_a_query_is() -> None:
    """A folder can be continued with another number."""
    alone, shared = averages().plan(), averages(servers=2).plan()
    assert alone.fingerprint == shared.fingerprint
    assert len(alone.hosting) == 4
    assert len(shared.hosting) == 2
    assert alone.on(2).hosting == shared.hosting
    assert shared.on(None) is shared
    assert replace(shared, servers=None) == alone


def test_explain_says_who_is_hosted_where_if_that_was_asked_for() -> None:
    """And is as it was when nobody asked."""
    assert "server" not in averages().explain()
    told = averages(servers=2).explain()
    assert told.startswith("query averages: 3 fragments on 4 nodes, 2 servers\n")
    assert told.endswith("servers\n  server-0: items, averages-0\n  server-1: cheap, averages-1\n")
