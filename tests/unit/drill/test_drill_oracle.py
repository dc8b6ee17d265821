"""Those who judge a drill: the item oracle against the plain one, and planted faults."""

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.drill import queries
from rewake.drill.compare import compare
from rewake.drill.run import DrillResult, tuples_read
from rewake.drill.when import Strike, check_nodes, in_words, parse
from rewake.model.errors import UsageError
from rewake.net.kill_points import Fault
from rewake.oracle.aggregates import aggregate
from rewake.oracle.items import Expected, expected_windows, judge
from rewake.oracle.verdict import Verdict

WINDOW = 3


def columns(stream: list[tuple[int, int]]) -> tuple[Any, Any, Any]:
    """Items, prices and rising times."""
    items, prices = (np.array([row[i] for row in stream], np.int64) for i in (0, 1))
    return items, prices, np.arange(len(stream), dtype=np.int64) * 10


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 20),
)
def test_the_item_oracle_agrees_with_the_plain_one(
    stream: list[tuple[int, int]], window: int, piece: int
) -> None:
    """Whatever the keys, the size of windows and the pieces in which the stream comes."""
    items, prices, times = columns(stream)
    starts = range(0, len(stream), piece)
    pieces = ((items[i : i + piece], prices[i : i + piece], times[i : i + piece]) for i in starts)
    found = expected_windows(pieces, window, lambda prices: prices <= 40)
    rows = [
        {"item": item, "price": price, "at": at * 10}
        for at, (item, price) in enumerate(stream)
        if price <= 40
    ]
    functions = [("sum", "price", "total"), ("max", "at", "closed")]
    plain = aggregate(rows, by=["item"], window=("count", window, window), functions=functions)
    assert [tuple(map(int, row)) for row in zip(*found, strict=True)] == [
        (row["item"], row["total"], row["closed"]) for row in plain
    ]


@pytest.fixture
def right() -> Expected:
    """What a stream of four items must yield: 20 results."""
    random = Random(5)
    stream = [(random.randrange(4), random.randrange(100)) for _ in range(66)]
    found = expected_windows(iter([columns(stream)]), WINDOW)
    assert found.items.size > 15
    return found


def judged(expected: Expected, places: Any, *, in_order: bool = True, **changed: Any) -> Verdict:
    """The verdict on the results at `places`; `changed` replaces a column."""
    came = Expected(*(column[places] for column in expected))._replace(**changed)
    return judge(expected, came.items, came.totals / WINDOW, came.closed_at, WINDOW,
                 in_order=in_order)  # fmt: skip


def test_right_results_are_right(right: Expected) -> None:
    """All zero, and nothing expected of an empty stream."""
    count = right.items.size
    assert judged(right, np.arange(count)) == Verdict(count, 0, 0, 0, 0)
    nothing = expected_windows(iter([columns([(1, 1)])]), WINDOW)
    assert judged(nothing, np.arange(0)) == Verdict(0, 0, 0, 0, 0)
    assert judge(nothing, *(np.ones(2, np.int64),) * 3, WINDOW, in_order=True).wrong == 2


def test_planted_faults_are_found_and_named(right: Expected) -> None:
    """Lost, duplicated, reordered, wrong; each counted."""
    count = right.items.size
    everything = np.arange(count)
    lost = judged(right, np.delete(everything, [0, 7, count - 1]))
    assert lost == Verdict(count, 3, 0, 0, 0)
    assert judged(right, everything[:0]) == Verdict(count, count, 0, 0, 0)
    again = judged(right, np.r_[everything[:5], 4, everything[5:]])
    assert again == Verdict(count, 0, 1, 0, 0)
    swapped = everything.copy()
    swapped[[2, 3]] = [3, 2]
    assert judged(right, swapped) == Verdict(count, 0, 0, 1, 0)
    totals = right.totals.copy()
    totals[4] += 1
    assert judged(right, everything, totals=totals) == Verdict(count, 0, 0, 0, 1)
    unknown = right.closed_at.copy()
    unknown[4] += 1
    assert judged(right, everything, closed_at=unknown) == Verdict(count, 1, 0, 0, 1)


def test_with_several_shards_the_order_counts_for_each_item_alone(right: Expected) -> None:
    """Shards run side by side, but an item is in one of them."""
    by_item = np.argsort(right.items, kind="stable")
    assert judged(right, by_item, in_order=False).right
    assert judged(right, by_item).reordered > 0
    first_two = np.flatnonzero(right.items == right.items[0])[:2]
    swapped = np.arange(right.items.size)
    swapped[first_two] = swapped[first_two[::-1]]
    assert judged(right, swapped, in_order=False).reordered == 1


# --- tables against tables -----------------------------------------------------------------------


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    """A table of a nullable number, a text and a list."""
    names, kinds = "abc", [pa.int64(), pa.string(), pa.list_(pa.int64())]
    values = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return pa.table(values, schema=pa.schema(list(zip(names, kinds, strict=True))))


ROWS = [(1, "x", [1]), (None, "x", []), (1, "x", [1]), (2, None, None), (2, "y", [3, 4])]


@pytest.mark.parametrize(
    ("came", "verdict"),
    [
        (ROWS, (0, 0, 0, 0)),
        (ROWS[1:], (1, 0, 0, 0)),
        ([], (5, 0, 0, 0)),
        ([*ROWS, ROWS[0]], (0, 1, 0, 0)),
        ([ROWS[1], ROWS[0], *ROWS[2:]], (0, 0, 1, 0)),
        ([ROWS[2], ROWS[1], ROWS[0], *ROWS[3:]], (0, 0, 0, 0)),
        ([*ROWS[:4], (2, "y", [3, 5])], (1, 0, 0, 1)),
        ([*ROWS[:3], (0, None, None), ROWS[4]], (1, 0, 0, 1)),
    ],
)
def test_differences_between_two_tables_are_found_and_named(
    came: list[tuple[Any, ...]], verdict: tuple[int, ...]
) -> None:
    """Nulls and nested values too; equal tuples may change places."""
    assert compare(table(ROWS), table(came), in_order=True) == Verdict(5, *verdict)
    unordered = compare(table(ROWS), table(came), in_order=False)
    assert unordered == Verdict(5, *verdict)._replace(reordered=0)


def test_two_empty_tables_are_the_same() -> None:
    """Nothing is expected, nothing came."""
    assert compare(table([]), table([]), in_order=True) == Verdict(0, 0, 0, 0, 0)
    assert compare(table([]), table(ROWS), in_order=True) == Verdict(0, 0, 0, 0, 5)


# --- when ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a@3s", Strike("a", "kill", at_seconds=3.0)),
        ("a-0@250ms", Strike("a-0", "kill", at_seconds=0.25)),
        ("a@12.5%", Strike("a", "kill", at_fraction=0.125)),
        ("a@node.start#1~2", Fault("a", "node.start", 1, 2)),
        ("a@node.after_work#7~1", Fault("a", "node.after_work", 7)),
    ],
)
def test_moments_are_read_and_told_in_the_same_words(text: str, meant: Strike | Fault) -> None:
    """NODE@WHEN."""
    assert parse(text, "kill", Random(1)) == meant
    assert parse(in_words(meant), "kill", Random(1)) == meant


def test_a_random_moment_is_the_seeds() -> None:
    """The same for the same seed, and well within the input."""
    first, again = (parse("a@random", "kill", Random(7)) for _ in range(2))
    assert isinstance(first, Strike)
    assert first == again
    assert first.at_fraction is not None
    assert 0.1 <= first.at_fraction <= 0.9


def test_a_node_that_is_not_there_is_refused_with_those_that_are() -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match="no node 'c'; the query has a, b"):
        check_nodes([Strike("a", "kill"), Fault("c", "node.start")], ["a", "b"])


def test_a_long_stream_is_judged_a_share_of_the_items_at_a_time(monkeypatch):
    """However the items are divided, the verdict is the same."""
    drill = queries.ItemDrill(tuples=5_000, items=40, window=3)
    expected = expected_windows(drill.pieces(0, 1), 3, lambda prices: prices <= 900)
    table = pa.table(
        {
            "item_id": expected.items,
            "avg_item_price": expected.totals / 3,
            "max_item_time": pa.array(expected.closed_at).cast(pa.timestamp("us")),
        }
    )
    broken = pa.concat_tables([table.slice(0, 100), table.slice(90, 500), table.slice(700)])
    whole, part = drill.check([table]), drill.check([broken])
    monkeypatch.setattr(queries, "MOST_AT_ONCE", 600)
    assert drill.check([table]) == whole
    assert whole.right
    again = drill.check([broken])
    assert again == part
    assert (again.lost, again.duplicated) == (110, 10)


def test_a_share_of_the_input_is_counted_by_position():
    """A source that was killed has read few tuples in its new life, but is as far as before."""
    query = SimpleNamespace(plan=queries.ItemDrill(tuples=100, items=5).build().plan())
    result = DrillResult(queries.ItemDrill())
    result.status = {"items": {"tuples_in": 10, "input_position": 80}, "cheap": {}, "averages": {}}
    assert tuples_read(query, result) == 80
