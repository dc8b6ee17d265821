"""`explain` and `picture`: what is said about a plan, in text and as a flowchart."""

import re
from typing import Any

import pytest
from graph_vocabulary import ITEMS, Folder, Numbers, items_of

from rewake.graph import Query, count_window, time_window
from rewake.operators.windows.specs import CountWindow
from rewake.recovery.amnesia import Amnesia
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.policies.targets import Targets


@pytest.fixture
def query() -> Query:
    """A query with all that there is to tell."""
    query = Query("average-price")
    items = items_of(query, shards=2)
    loop = query.loop("again", ITEMS)
    mixed = query.entry("orders", ITEMS).union(items, loop, name="mixed")
    loop.close_with(mixed.filter("item_price > 900", name="back"))
    cheap = items.filter("item_price < 500", name="cheap").map(
        item_id="item_id", euros="item_price / 100", name="euros"
    )
    means = cheap.aggregate(
        by="item_id", window=count_window(10, 5), avg="euros", count=True, name="means",
        shards=2, approach=ContinuousEventual(Targets(records=1000)),
    )  # fmt: skip
    means.to_stream("averages")
    means.to(Folder(), name="files")
    sums = mixed.aggregate(
        by="item_id", window=time_window("10s"), time="item_time", slack="1s", sum="item_price",
        route_late=True, name="sums", approach=Amnesia(),
    )  # fmt: skip
    sums.to(Folder("sums"), name="sum-files")
    sums.late.to(Folder("late"), name="late-files")
    return query


def test_explain_tells_the_tree_of_fragments(query: Query) -> None:
    """With shards, channels, work, approach, guarantee, and what is logged and why."""
    text = query.explain()
    for line in (
        "query average-price: 10 fragments on 13 nodes",
        "items: source, 2 shards",
        "read numbers seed=1",
        "not logged: it can produce it again from source items",
        "euros: map, 2 shards  <- one to one",
        "map item_id, euros = item_price / 100",
        "means: aggregate, 2 shards  <- by item_id into 2",
        "avg(euros), count(*) by item_id",
        "windows of 10 tuples, one every 5",
        "approach cec(records=1000), output precise",
        "files: sink, 1 shard  <- 2 into 1",
        "logged: producers cannot be asked twice",
        "unite orders, items, back",
        "mixed, a loop",
        "windows of 10s of item_time, slack 1s",
        "approach amnesia, output gap",
        "output gap, because of sums",
        "late-files: sink, 1 shard  <- late tuples",
        "averages: means-0:0, means-1:0",
    ):
        assert line in text, line
    assert all(line == line.rstrip() for line in text.splitlines())


def test_explain_says_when_nothing_bounds_a_recovery() -> None:
    """Windows that never fill hold T where it is; who says how long a crash may cost is safe."""
    for settings, told in (({}, True), ({"recover_within": "1s"}, False), ({"tuples": 9}, False)):
        approach = ContinuousEventual.from_settings(**settings)
        query = Query("q", approach=approach, recover_within=None)
        items_of(query).filter("item_price > 3", name="dear").aggregate(
            by="item_id", window=count_window(10), count=True, name="counts"
        ).to_stream()
        assert ("no CHECKs: a crash replays" in query.explain()) is told


def test_explain_tells_each_fragment_once(query: Query) -> None:
    """Where it is met again it is only named."""
    text = query.explain()
    assert text.count("mixed: union") == 1
    assert "mixed, see above" in text


def test_a_guarantee_is_the_weakest_on_the_way(query: Query) -> None:
    """What is behind a fragment that forgets has gaps too; what is beside it does not."""
    lines = query.explain().splitlines()
    files = next(number for number, line in enumerate(lines) if "─ files:" in line)
    assert any("output precise" in line for line in lines[files : files + 4])


def test_the_picture_has_all_fragments_and_channels(query: Query) -> None:
    """A box for each fragment, by a name of its own, and an arrow for each way between two."""
    head, *lines = query.picture().splitlines()
    assert head == "flowchart LR"
    boxes = [line for line in lines if re.match(r"  f\d+[\[(]", line)]
    arrows = [line for line in lines if line not in boxes]
    assert len(boxes) == 10
    assert all(re.fullmatch(r'  f\d+ -(-|\.-)>(\|".*"\|)? f\d+', line) for line in arrows)
    text = "\n".join(lines)
    for said in (
        "means: aggregate \u00d7 2<br/>",
        "<br/>not logged<br/>output: gap",
        "by item_id into 2",
    ):
        assert said in text
    dotted = [line for line in arrows if "-.->" in line]
    assert sorted(line.split('"')[1] for line in dotted) == ["late", "loop"]


def test_text_of_the_user_cannot_break_out_of_the_picture() -> None:
    """Expressions hold signs that mean something in a picture: they are there by their codes."""
    query = Query("q")
    items = query.source("items", Numbers())
    items.filter("item_price < 5 AND '\"]#;</b>`' <> ''", name="f").to(Folder('<&>"'))
    (box,) = (line for line in query.picture().splitlines() if "f: " in line)
    assert re.fullmatch(r'  f\d+\(\["[^"\]<>`]*(<br/>[^"\]<>`]*)*"\]\)', box)
    assert "item_price #60; 5" in box
    assert "#34;#93;#35;#59;#60;/b#62;#96;" in box


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (time_window("10s", every="1 minute"), "windows of 10s of item_time, one every 1 minute"),
        (time_window(10, every=60), "windows of 10 of item_time, one every 60"),
        (count_window(10, every=15), "windows of 10 tuples, one every 15"),
    ],
    ids=str,
)
def test_explain_says_when_windows_leave_gaps(window: Any, words: str) -> None:
    """What lies between them is in no result, which nobody should have to find out."""
    query = Query("gaps")
    time = None if isinstance(window, CountWindow) else "item_time"
    items = items_of(query)
    items.aggregate(by="item_id", window=window, time=time, count=True).to_stream("counted")
    assert f"{words}, tuples between them belong to none" in query.explain()


@pytest.mark.parametrize(
    "window",
    [time_window("1 minute", every="60s"), time_window("1m", every="10s"), count_window(10, 5)],
    ids=str,
)
def test_explain_tells_of_no_gaps_where_there_are_none(window: Any) -> None:
    """Windows that touch or overlap have every tuple."""
    query = Query("whole")
    time = None if isinstance(window, CountWindow) else "item_time"
    items = items_of(query)
    items.aggregate(by="item_id", window=window, time=time, count=True).to_stream("counted")
    assert "between them" not in query.explain()
