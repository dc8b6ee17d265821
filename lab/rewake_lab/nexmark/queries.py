"""NEXMark's queries q1 to q8 and q12, written with Rewake's operators.

`rewake_lab.nexmark.answers` says in words what each must answer; functions over keys are in
`rewake_lab.nexmark.functions`.

The sources carry watermarks, so all steps go by these, however far one stream or shard is ahead of
another and however much events are out of order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa

from rewake.graph.query import Query
from rewake.graph.stream import Stream
from rewake.model.errors import UsageError
from rewake.operators.aggregate.functions import Count
from rewake.operators.windows.specs import time_window
from rewake_lab.nexmark import functions
from rewake_lab.nexmark.functions import AVERAGE, HOT, SUGGESTED, WON
from rewake_lab.nexmark.inputs import Inputs

__all__ = ["QUERIES", "RESULTS", "NexmarkQuery", "checked", "q1", "q2", "q3", "q4", "q5", "q6",
           "q7", "q8", "q12"]  # fmt: skip

# The stream that each query's results are.
RESULTS: Final = "results"
# More auctions than are ever won between two watermarks.
MOST_WAITING: Final = 1_000_000


def q1(query: Query, nexmark: Inputs) -> Stream:
    """Currency conversion: every bid in euros."""
    bids = nexmark.source(query, "bids", shards=nexmark.shards, fragment="euros")
    return bids.map(
        auction="auction",
        bidder="bidder",
        price="price * 0.908",
        time="time",
        extra="extra",
        name="converted",
        fragment="euros",
    )


def q2(query: Query, nexmark: Inputs) -> Stream:
    """Selection: the bids of some auctions."""
    bids = nexmark.source(query, "bids", "auction", "price", shards=nexmark.shards, fragment="some")
    return bids.filter("auction % 123 = 0", name="selected", fragment="some")


def q3(query: Query, nexmark: Inputs) -> Stream:
    """Local item suggestion: who in three states sells something of category 10.

    Persons and auctions meet by the person's id, whoever comes first.  Nothing is ever forgotten:
    a person may open another auction at any time.
    """
    persons = nexmark.source(query, "persons", "id", "name", "city", "state", fragment="local")
    local = persons.filter("state IN ('OR', 'ID', 'CA')", name="locals", fragment="local").map(
        functions.as_person, name="sellers", fragment="local"
    )
    auctions = nexmark.source(query, "auctions", "id", "seller", "category", fragment="category")
    offers = auctions.filter("category = 10", name="ten", fragment="category").map(
        functions.as_offer, name="offers", fragment="category"
    )
    both = local.union(offers, name="both")
    return both.process(
        functions.suggest,
        by="person",
        state={
            "name": pa.string(),
            "city": pa.string(),
            "state": pa.string(),
            "waiting": (pa.list_(pa.int64()), []),
        },
        output=SUGGESTED,
        each_key=True,
        name="suggested",
        shards=nexmark.shards,
    )


def won_auctions(query: Query, nexmark: Inputs) -> Stream:
    """What q4 and q6 begin with: auctions that are won, in the order in which they close.

    An auction is followed until it expires: that is a timer.  Auctions of several nodes are then
    put in order; none leaves before the watermark says that no earlier one can come.
    """
    events = nexmark.source(
        query, "events", "kind", "time", "id", "reserve", "expires", "seller", "category",
        "auction", "price", fragment="offers",
    )  # fmt: skip
    offers = events.filter("kind > 0", name="no-persons", fragment="offers").map(
        auction="coalesce(auction, id)",
        time="time",
        price="price",
        reserve="reserve",
        expires="expires",
        seller="seller",
        category="category",
        name="auctions-and-bids",
        fragment="offers",
    )
    won = offers.process(
        functions.follow,
        by="auction",
        state={
            "seller": pa.int64(),
            "category": pa.int64(),
            "reserve": pa.int64(),
            "expires": pa.timestamp("ms"),
            "prices": (pa.list_(pa.int64()), []),
            "times": (pa.list_(pa.int64()), []),
        },
        output=WON,
        time="time",
        name="won",
        shards=nexmark.shards,
    )
    return won.bsort(by=["expires", "auction"], buffer=MOST_WAITING, flush=True, name="closed")


def q4(query: Query, nexmark: Inputs) -> Stream:
    """Average price for a category: of all its auctions won so far, whenever one closes."""
    return won_auctions(query, nexmark).process(
        functions.average_so_far,
        by="category",
        state={"total": (pa.int64(), 0), "count": (pa.int64(), 0)},
        output=pa.schema([("category", pa.int64()), *AVERAGE]),
        each_key=True,
        name="averages",
        shards=nexmark.shards,
    )


def q5(query: Query, nexmark: Inputs) -> Stream:
    """Hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds.

    Bids are counted by auction; then the counts of a window meet, and the highest are kept until
    the watermark says that there are no more.
    """
    bids = nexmark.source(query, "bids", "auction", "time")
    counts = bids.aggregate(
        by="auction",
        window=time_window("10s", every="2s"),
        functions=[Count(name="num")],
        time="time",
        name="counts",
        shards=nexmark.shards,
    )
    return counts.process(
        functions.keep_highest,
        by=["window_start", "window_end"],
        state={"num": (pa.int64(), 0), "auctions": (pa.list_(pa.int64()), [])},
        output=HOT,
        time="window_end",
        each_key=True,
        on_timer=functions.give_highest,
        name="hot",
        shards=nexmark.shards,
    )


def q6(query: Query, nexmark: Inputs) -> Stream:
    """Average selling price by seller: of the last 10 auctions won, whenever one closes."""
    return won_auctions(query, nexmark).process(
        functions.average_of_last,
        by="seller",
        state={"last": (pa.list_(pa.int64()), [])},
        output=pa.schema([("seller", pa.int64()), *AVERAGE]),
        each_key=True,
        name="averages",
        shards=nexmark.shards,
    )


def q7(query: Query, nexmark: Inputs) -> Stream:
    """Highest bid: of each 10 seconds, the bids with the highest price.

    The highest price of a window is joined with the bids of that window.  `closes`, when a bid's
    window ends, is the key of both: windows are shared out among nodes.
    """
    bids = nexmark.source(query, "bids", fragment="bids").map(
        auction="auction",
        bidder="bidder",
        price="price",
        time="time",
        extra="extra",
        closes=functions.tumbling_end,
        name="windowed",
        fragment="bids",
    )
    highest = bids.aggregate(
        by="closes",
        window=time_window("10s"),
        max="price",
        time="time",
        name="highest",
        shards=nexmark.shards,
    )
    pairs = bids.join(
        highest,
        on=["closes", ("price", "max_price")],
        within="11s",
        time=("time", "closes"),
        suffixes=("_of_bid", "_of_window"),
        name="pairs",
        shards=nexmark.shards,
        fragment="winners",
    )
    return pairs.map(
        auction="auction",
        bidder="bidder",
        price="price",
        time="time_of_bid",
        extra="extra",
        name="winners",
        fragment="winners",
    )


def q8(query: Query, nexmark: Inputs) -> Stream:
    """Monitor new users: who came and opened an auction in the same 10 seconds; each once."""
    persons = nexmark.source(query, "persons", "id", "name", "time", fragment="persons").map(
        {"id": "id", "name": "name", "time": "time", "window_start": functions.tumbling_start},
        name="came",
        fragment="persons",
    )
    auctions = nexmark.source(query, "auctions", "seller", "time", fragment="auctions").map(
        seller="seller",
        time="time",
        window_start=functions.tumbling_start,
        name="opened",
        fragment="auctions",
    )
    active = persons.join(
        auctions,
        on=[("id", "seller"), "window_start"],
        within="10s",
        time="time",
        how="semi",
        name="active",
        shards=nexmark.shards,
        fragment="new-users",
    )
    return active.map(
        {"id": "id", "name": "name", "window_start": "window_start"},
        name="users",
        fragment="new-users",
    )


def q12(query: Query, nexmark: Inputs) -> Stream:
    """Processing time windows: how many bids of each bidder came in each 10 seconds.

    The time at which a bid comes is that of the generator, which gives it out: then the answer is
    the same on every machine.
    """
    bids = nexmark.source(query, "bids", "bidder", "emitted")
    return bids.aggregate(
        by="bidder",
        window=time_window("10s"),
        functions=[Count(name="bid_count")],
        time="emitted",
        name="counts",
        shards=nexmark.shards,
    )


class NexmarkQuery(NamedTuple):
    """A query, and what it reads.

    The results of each node rise by the columns `ordered_by`; with `per`, those of each value of
    that column do.
    """

    build: Callable[[Query, Inputs], Stream]
    reads: tuple[str, ...]
    ordered_by: tuple[str, ...] = ()
    per: str | None = None


QUERIES: Final = {
    "q1": NexmarkQuery(q1, ("bids",)),
    "q2": NexmarkQuery(q2, ("bids",)),
    "q3": NexmarkQuery(q3, ("persons", "auctions")),
    "q4": NexmarkQuery(q4, ("events",), ("expires", "auction"), per="category"),
    "q5": NexmarkQuery(q5, ("bids",), ("window_end",)),
    "q6": NexmarkQuery(q6, ("events",), ("expires", "auction"), per="seller"),
    "q7": NexmarkQuery(q7, ("bids",)),
    "q8": NexmarkQuery(q8, ("persons", "auctions")),
    "q12": NexmarkQuery(q12, ("bids",), ("window_end",), per="bidder"),
}


def checked(name: str) -> NexmarkQuery:
    """The query of that name."""
    if name not in QUERIES:
        raise UsageError(f"there is no NEXMark query {name!r}; there are {', '.join(QUERIES)}")
    return QUERIES[name]
