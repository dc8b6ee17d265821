"""What NEXMark's queries q1 to q8 and q12 must answer over a finite prefix of the events.

DuckDB computes the answers from whole tables: no stream, no turns, nothing in common with the
engine.  `QUESTIONS` says in words what each query means here, and in SQL the same.

What holds for all of them:

- The prefix is all there is.  At its end all windows and auctions close, also those whose time has
  not come.
- Windows are half open, [start, end), and start at multiples of their slide since 1970.
- A prefix has no late tuples: a watermark never overtakes an event.
- An answer is a bag of rows, sorted by all columns from left to right so that two can be compared.

Where the public versions of NEXMark differ, the meaning says which reading it is.  Averages are
not rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import duckdb
import pyarrow as pa

from rewake.model.errors import UsageError

__all__ = ["QUESTIONS", "Events", "Question", "answer"]

WINDOW_MS: Final = 10_000
SLIDE_MS: Final = 2_000
LAST_AUCTIONS: Final = 10
EUROS_PER_DOLLAR: Final = "0.908"


class Events(Protocol):
    """Some events as tables; `bids` has a column `emitted` beside those of NEXMark."""

    @property
    def persons(self) -> pa.Table:
        """All persons."""

    @property
    def auctions(self) -> pa.Table:
        """All auctions."""

    @property
    def bids(self) -> pa.Table:
        """All bids."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query: its name among people, what it means, and the SQL that says so."""

    title: str
    meaning: str
    sql: str


def answer(query: str, events: Events) -> pa.Table:
    """The answer of a query (`q1`, ...) over these events and no others."""
    if query not in QUESTIONS:
        raise UsageError(f"there is no NEXMark query {query!r}; there are {', '.join(QUESTIONS)}")
    with duckdb.connect(":memory:") as connection:
        connection.register("persons", events.persons)
        connection.register("auctions", events.auctions)
        connection.register("bids", events.bids)
        sql = f"SELECT * FROM ({QUESTIONS[query].sql}) ORDER BY ALL"
        return connection.sql(sql).to_arrow_table()


def _window_start(time: str) -> str:
    """The start, in milliseconds, of the tumbling window that holds a time."""
    return f"epoch_ms({time}) // {WINDOW_MS} * {WINDOW_MS}"


def _as_time(milliseconds: str) -> str:
    return f"make_timestamp_ms({milliseconds})::TIMESTAMP_MS"


# The core of q4 and q6.
_WINNING: Final = """
    SELECT a.id AS auction, a.seller, a.category, a.expires, max(b.price) AS price
    FROM auctions a
    JOIN bids b ON b.auction = a.id AND b.time < a.expires AND b.price >= a.reserve
    GROUP BY ALL
"""

QUESTIONS: Final[dict[str, Question]] = {
    "q1": Question(
        "currency conversion",
        "Every bid, with its price times 0.908 as a 64-bit float.",
        f"""
        SELECT auction, bidder, price * CAST({EUROS_PER_DOLLAR} AS DOUBLE) AS price, time, extra
        FROM bids
        """,
    ),
    "q2": Question(
        "selection",
        "Auction and price of every bid in an auction whose id is a multiple of 123.",
        "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    ),
    "q3": Question(
        "local item suggestion",
        "Name, city and state of the seller, and id, of every auction of category 10 whose seller "
        "lives in OR, ID or CA.  The join knows no time: the auction may come long after its "
        "seller, or shortly before.",
        """
        SELECT p.name, p.city, p.state, a.id
        FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
        """,
    ),
    "q4": Question(
        "average price for a category",
        "An auction is won by the highest price that is bid before it expires and is not below its "
        "reserve; bids that come before the auction itself count too (Beam's reading; the SQL "
        "version of NEXMark ignores the reserve).  An auction closes when it expires; those that "
        "expire in one millisecond, in the order of their ids.  For each auction that is won, when "
        "it closes: the average of the winning prices of its category so far, this one included. "
        "The last row of a category is the average over all.",
        f"""
        SELECT category, expires, auction,
               CAST(sum(price) OVER so_far AS DOUBLE) / count(*) OVER so_far AS avg_price
        FROM ({_WINNING})
        WINDOW so_far AS (
            PARTITION BY category ORDER BY expires, auction
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
        """,
    ),
    "q5": Question(
        "hot items",
        "For windows of 10 s that start every 2 s: the auctions with the most bids in the window, "
        "all of them if several have as many, with that number.  Windows without bids give "
        "nothing; those that begin before the first bid count.",
        f"""
        SELECT auction, num, {_as_time("start_ms")} AS window_start,
               {_as_time(f"start_ms + {WINDOW_MS}")} AS window_end
        FROM (
            SELECT auction, start_ms, count(*) AS num
            FROM (
                SELECT auction,
                       (epoch_ms(time) // {SLIDE_MS} - earlier) * {SLIDE_MS} AS start_ms
                FROM bids, range({WINDOW_MS // SLIDE_MS}) AS windows(earlier)
            )
            GROUP BY ALL
        )
        QUALIFY num = max(num) OVER (PARTITION BY start_ms)
        """,
    ),
    "q6": Question(
        "average selling price by seller",
        "Auctions are won and close as in q4.  For each auction that is won, when it closes: the "
        "average of the winning prices of its seller's last 10 auctions that were won, this one "
        "included, or of as many as there are.",
        f"""
        SELECT seller, expires, auction,
               CAST(sum(price) OVER latest AS DOUBLE) / count(*) OVER latest AS avg_price
        FROM ({_WINNING})
        WINDOW latest AS (
            PARTITION BY seller ORDER BY expires, auction
            ROWS BETWEEN {LAST_AUCTIONS - 1} PRECEDING AND CURRENT ROW
        )
        """,
    ),
    "q7": Question(
        "highest bid",
        "For tumbling windows of 10 s: the bids with the highest price in the window, all of them "
        "if several have it.  A bid at the very end of a window is in the next one alone (the SQL "
        "version of NEXMark looks for it in both).",
        f"""
        SELECT auction, bidder, price, time, extra
        FROM bids
        QUALIFY price = max(price) OVER (PARTITION BY {_window_start("time")})
        """,
    ),
    "q8": Question(
        "monitor new users",
        "For tumbling windows of 10 s: id and name of the persons who came in the window and whose "
        "auctions, one or more, came in the same window; each person once.",
        f"""
        SELECT DISTINCT p.id, p.name, {_as_time(_window_start("p.time"))} AS window_start
        FROM persons p
        JOIN auctions a ON p.id = a.seller AND {_window_start("p.time")} = {_window_start("a.time")}
        """,
    ),
    "q12": Question(
        "processing time windows",
        "For tumbling windows of 10 s of processing time: the number of bids of each bidder.  The "
        "processing time of a bid is when the generator is to give it out by its own clock "
        "(column `emitted`): the event time that it would have if events came in order.  So the "
        "answer does not depend on the machine.",
        f"""
        SELECT bidder, bid_count, {_as_time("start_ms")} AS window_start,
               {_as_time(f"start_ms + {WINDOW_MS}")} AS window_end
        FROM (
            SELECT bidder, {_window_start("emitted")} AS start_ms, count(*) AS bid_count
            FROM bids
            GROUP BY ALL
        )
        """,
    ),
}
