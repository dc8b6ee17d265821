"""The answers of NEXMark's queries by DuckDB against plain Python, which looks at every event."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from rewake.model.errors import UsageError
from rewake_lab.nexmark.answers import QUESTIONS, answer
from rewake_lab.nexmark.events import NexmarkStream
from rewake_lab.nexmark.prefix import Prefix, prefix_of

Row = dict[str, Any]
Rows = list[tuple[Any, ...]]
WINDOW, SLIDE = timedelta(seconds=10), timedelta(seconds=2)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)

# 100 events per second: 2,500 events are 25 s, and auctions are open for 17 s on average.
PREFIXES = {
    "ordered": (NexmarkStream(1, events_per_second=100), 2_500),
    "disordered": (NexmarkStream(2, events_per_second=100, out_of_order=64), 2_500),
    "cut within a group": (NexmarkStream(3, events_per_second=150, out_of_order=1000), 1_777),
    "sparse": (NexmarkStream(4, events_per_second=2, hot_bidders=1, hot_auctions=1), 300),
    "tiny": (NexmarkStream(5), 7),
    "empty": (NexmarkStream(6), 0),
}


@pytest.fixture(scope="module", params=PREFIXES)
def prefix(request: pytest.FixtureRequest) -> Prefix:
    return prefix_of(*PREFIXES[request.param])


def start(time: datetime, size: timedelta = WINDOW) -> datetime:
    """The start of the tumbling window that holds a time."""
    return EPOCH + (time - EPOCH) // size * size


# --- in plain Python -----------------------------------------------------------------------------


def q1(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    for bid in bids:
        yield bid["auction"], bid["bidder"], bid["price"] * 0.908, bid["time"], bid["extra"]


def q2(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    for bid in bids:
        if bid["auction"] % 123 == 0:
            yield bid["auction"], bid["price"]


def q3(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    for auction in auctions:
        for person in persons:
            local = person["state"] in {"OR", "ID", "CA"}
            if local and auction["category"] == 10 and auction["seller"] == person["id"]:
                yield person["name"], person["city"], person["state"], auction["id"]


def closed(auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Row, int]]:
    """Auctions that are won in the order in which they close, each with the winning price."""
    for auction in sorted(auctions, key=lambda each: (each["expires"], each["id"])):
        best = 0
        for bid in bids:
            if bid["auction"] == auction["id"] and bid["time"] < auction["expires"]:
                best = max(best, bid["price"])
        if best >= auction["reserve"]:
            yield auction, best


def q4(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    prices = defaultdict(list)
    for auction, price in closed(auctions, bids):
        mine = prices[auction["category"]]
        mine.append(price)
        yield auction["category"], auction["expires"], auction["id"], sum(mine) / len(mine)


def q5(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    if not bids:
        return
    times = [bid["time"] for bid in bids]
    begin = start(min(times), SLIDE) - WINDOW
    while begin <= max(times):
        counts: dict[int, int] = defaultdict(int)
        for bid in bids:
            if begin <= bid["time"] < begin + WINDOW:
                counts[bid["auction"]] += 1
        for auction, count in counts.items():
            if count == max(counts.values()):
                yield auction, count, begin, begin + WINDOW
        begin += SLIDE


def q6(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    prices = defaultdict(list)
    for auction, price in closed(auctions, bids):
        prices[auction["seller"]].append(price)
        mine = prices[auction["seller"]][-10:]
        yield auction["seller"], auction["expires"], auction["id"], sum(mine) / len(mine)


def q7(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    highest: dict[datetime, int] = defaultdict(int)
    for bid in bids:
        window = start(bid["time"])
        highest[window] = max(highest[window], bid["price"])
    for bid in bids:
        if bid["price"] == highest[start(bid["time"])]:
            yield bid["auction"], bid["bidder"], bid["price"], bid["time"], bid["extra"]


def q8(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    sold = {(auction["seller"], start(auction["time"])) for auction in auctions}
    for person in persons:
        if (person["id"], start(person["time"])) in sold:
            yield person["id"], person["name"], start(person["time"])


def q12(persons: list[Row], auctions: list[Row], bids: list[Row]) -> Iterator[tuple[Any, ...]]:
    counts: dict[tuple[int, datetime], int] = defaultdict(int)
    for bid in bids:
        counts[bid["bidder"], start(bid["emitted"])] += 1
    for (bidder, begin), count in counts.items():
        yield bidder, count, begin, begin + WINDOW


PLAIN: dict[str, Callable[..., Iterator[tuple[Any, ...]]]] = {
    "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8, "q12": q12,
}  # fmt: skip


def rows_of(table: pa.Table) -> Rows:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("query", PLAIN)
def test_an_answer_is_that_of_plain_python(prefix: Prefix, query: str) -> None:
    """Whatever the order of events, and wherever the prefix ends."""
    persons, auctions, bids = (table.to_pylist() for table in prefix)
    assert rows_of(answer(query, prefix)) == sorted(PLAIN[query](persons, auctions, bids))


# --- that the comparison means something ---------------------------------------------------------


@pytest.fixture(scope="module")
def ordered() -> Prefix:
    return prefix_of(*PREFIXES["ordered"])


def test_every_query_has_an_answer_and_says_what_it_means(ordered: Prefix) -> None:
    """All of q1 to q8 and q12; none is empty over the ordered prefix."""
    assert list(QUESTIONS) == list(PLAIN)
    for query, question in QUESTIONS.items():
        assert answer(query, ordered).num_rows > 0, query
        assert question.title
        assert question.meaning


def test_the_prefixes_reach_the_corners(ordered: Prefix) -> None:
    """Sellers with more than ten auctions, auctions not won, bids before their auctions, ties."""
    sellers = answer("q6", ordered)["seller"].value_counts().to_pylist()
    assert max(each["counts"] for each in sellers) > 10
    assert 0 < answer("q6", ordered).num_rows < ordered.auctions.num_rows
    opened = dict(
        zip(*(ordered.auctions[name].to_pylist() for name in ("id", "time")), strict=True)
    )
    bids = ordered.bids.to_pylist()
    assert any(bid["time"] < opened.get(bid["auction"], EPOCH) for bid in bids)
    windows = answer("q5", prefix_of(*PREFIXES["sparse"]))["window_start"].to_pylist()
    assert len(set(windows)) < len(windows)


def test_disorder_changes_the_answer_of_q12_alone() -> None:
    """Event time knows no disorder; processing time does."""
    whole = 64 * 40
    ordered, disordered = (
        prefix_of(NexmarkStream(1, events_per_second=100, out_of_order=group), whole)
        for group in (1, 64)
    )
    differ = [q for q in QUESTIONS if not answer(q, ordered).equals(answer(q, disordered))]
    assert differ == ["q12"]


def handmade(bids: list[tuple[int, int, int]]) -> Prefix:
    """One auction, 1000, open from 5 to 20 s reserve 50; bids (second, price, auction)."""

    def at(*seconds: int) -> pa.Array:
        return pa.array([1000 * each for each in seconds], pa.int64()).cast(pa.timestamp("ms"))

    empty = prefix_of(NexmarkStream(1), 0)
    seconds = at(*(bid[0] for bid in bids))
    auctions = pa.table(
        {
            "id": [1000], "reserve": [50], "time": at(5), "expires": at(20), "seller": [1],
            "category": [10],
        }
    )  # fmt: skip
    columns = {"auction": [bid[2] for bid in bids], "bidder": [1] * len(bids)}
    columns |= {"price": [bid[1] for bid in bids], "extra": [""] * len(bids)}
    return Prefix(
        empty.persons, auctions, pa.table(columns | {"time": seconds, "emitted": seconds})
    )


@pytest.mark.parametrize(
    ("bids", "price"),
    [
        ([(6, 49, 1000)], None),
        ([(6, 50, 1000)], 50.0),
        ([(3, 70, 1000), (6, 60, 1000)], 70.0),
        ([(20, 90, 1000), (19, 60, 1000)], 60.0),
        ([(6, 99, 1001), (6, 51, 1000)], 51.0),
    ],
)
def test_an_auction_is_won_by_the_highest_bid_in_time_that_reaches_the_reserve(
    bids: list[tuple[int, int, int]], price: float | None
) -> None:
    """A bid may come before the auction; one at its very end is too late."""
    for query in ("q4", "q6"):
        found = answer(query, handmade(bids))["avg_price"].to_pylist()
        assert found == ([] if price is None else [price])


def test_a_bid_at_the_end_of_a_window_is_in_the_next() -> None:
    """Windows are half open."""
    found = answer("q7", handmade([(9, 5, 1), (10, 5, 2), (11, 4, 3)]))
    assert found["auction"].to_pylist() == [1, 2]


def test_a_query_that_is_not_there_is_refused_with_those_that_are(ordered: Prefix) -> None:
    """Before anything is computed."""
    with pytest.raises(UsageError, match=r"no NEXMark query 'q9'; there are q1, .*, q12"):
        answer("q9", ordered)
