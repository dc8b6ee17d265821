"""What NEXMark's queries compute besides what SQL and windows say: functions over keys and batches.

Most are given one key's new tuples and state, and give back rows, the state from here on (None: the
key is forgotten) and, where there is one, when the key's timer fires.  `follow`, which has most to
do, is given all keys of a stream event at once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.operators.keyed.vocabulary import KeyedResult, KeyedTuples

__all__ = [
    "AVERAGE",
    "HOT",
    "SUGGESTED",
    "WON",
    "as_offer",
    "as_person",
    "average_of_last",
    "average_so_far",
    "follow",
    "give_highest",
    "keep_highest",
    "suggest",
    "tumbling_end",
    "tumbling_start",
]

State = dict[str, Any]
# A list of dictionaries, a batch, or nothing.
Rows = Any

_TIME: Final = pa.timestamp("ms")
WINDOW_SECONDS: Final = 10
LAST_AUCTIONS: Final = 10
# A bid may come shortly before its auction.  If that has not come after so long, it was over.
PATIENCE_MS: Final = 300_000

SUGGESTED: Final = pa.schema(
    [("name", pa.string()), ("city", pa.string()), ("state", pa.string()), ("id", pa.int64())]
)
WON: Final = pa.schema(
    [
        ("auction", pa.int64()),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("expires", _TIME),
        ("price", pa.int64()),
    ]
)
# Of a category or seller, which comes first.
AVERAGE: Final = [("expires", _TIME), ("auction", pa.int64()), ("avg_price", pa.float64())]
HOT: Final = pa.schema(
    [("auction", pa.int64()), ("num", pa.int64()), ("window_start", _TIME), ("window_end", _TIME)]
)
_SELLER_OR_OFFER: Final = pa.schema(
    [
        ("person", pa.int64()),
        ("name", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("auction", pa.int64()),
    ]
)


# --- windows -------------------------------------------------------------------------------------


def tumbling_start(batch: pa.RecordBatch) -> pa.Array:
    """When the window of each tuple begins."""
    return pc.floor_temporal(batch.column("time"), WINDOW_SECONDS, "second")


def tumbling_end(batch: pa.RecordBatch) -> pa.Array:
    """When the window of each tuple ends; it does not belong to it any more."""
    milliseconds = tumbling_start(batch).cast(pa.int64())
    return pc.add(milliseconds, WINDOW_SECONDS * 1000).cast(_TIME)


# --- q3 ------------------------------------------------------------------------------------------


def as_person(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Persons with the columns that they share with offers."""
    columns = [batch.column(name) for name in ("id", "name", "city", "state")]
    nothing = pa.nulls(batch.num_rows, pa.int64())
    return pa.RecordBatch.from_arrays([*columns, nothing], schema=_SELLER_OR_OFFER)


def as_offer(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Auctions with the columns that they share with persons."""
    nothing = pa.nulls(batch.num_rows, pa.string())
    columns = [batch.column("seller"), nothing, nothing, nothing, batch.column("id")]
    return pa.RecordBatch.from_arrays(columns, schema=_SELLER_OR_OFFER)


def suggest(person: int, tuples: pa.RecordBatch, state: State) -> tuple[Rows, State]:  # noqa: ARG001
    """Pair a person with all auctions of theirs: those that wait, and those that come."""
    known = tuples.filter(tuples.column("name").is_valid())
    if known.num_rows:
        state |= known.select(["name", "city", "state"]).to_pylist()[0]
    auctions = state["waiting"] + tuples.column("auction").drop_null().to_pylist()
    if state["name"] is None:
        return None, state | {"waiting": auctions}
    seller = {name: state[name] for name in ("name", "city", "state")}
    return [seller | {"id": auction} for auction in auctions], state | {"waiting": []}


# --- q4 and q6 -----------------------------------------------------------------------------------


def follow(given: KeyedTuples) -> KeyedResult:
    """Keep each auction and the bid that would win it now; its timer fires when it expires.

    Bids that come before their auction are all kept until it is known which of them count.  One
    function for all auctions of a stream event: there are many, with few tuples each.
    """
    if given.fired.null_count < len(given):
        return _close(given)
    about = {name: _latest(given, name) for name in ("seller", "category", "reserve", "expires")}
    expires, reserve = _known(about["expires"]), _known(about["reserve"])
    opened = about["expires"].is_valid().to_numpy(zero_copy_only=False)
    bids = _bids(given)
    last = np.zeros(len(given), np.int64)
    np.maximum.at(last, bids.keys, bids.times)
    timer = np.where(opened, expires, last + PATIENCE_MS)
    in_time = (bids.times < expires[bids.keys]) & (bids.prices >= reserve[bids.keys])
    bids = bids.some(~opened[bids.keys] | in_time)
    bids = bids.some(np.lexsort((bids.prices, bids.keys)))
    best = np.append(bids.keys[1:] != bids.keys[:-1], True)[: bids.keys.size]
    lists = bids.some(~opened[bids.keys] | best).lists(len(given))
    state = pa.RecordBatch.from_arrays([*about.values(), *lists], schema=given.state.schema)
    return KeyedResult(None, state, pa.array(timer).cast(_TIME))


def _close(given: KeyedTuples) -> KeyedResult:
    """Give out the auctions that have expired and are won; forget all whose timers fired."""
    opened = given.state.column("expires").is_valid()
    won = pc.and_(opened, pc.greater(pc.list_value_length(given.state.column("prices")), 0))
    state = given.state.filter(won)
    about = [state.column(name) for name in ("seller", "category", "expires")]
    columns = [given.keys.column("auction").filter(won), *about, state.column("prices").flatten()]
    output = pa.RecordBatch.from_arrays(columns, schema=WON)
    return KeyedResult(output, forget=np.ones(len(given), np.bool_))


class _Bids(NamedTuple):
    """Bids, each with the place of its auction's key."""

    keys: Any
    prices: Any
    times: Any

    def some(self, rows: Any) -> _Bids:
        return _Bids(*(column[rows] for column in self))

    def lists(self, keys: int) -> list[pa.Array]:
        """Prices and times as a list for each key; the bids are in the order of keys."""
        ends = np.cumsum(np.bincount(self.keys, minlength=keys))
        offsets = pa.array(np.append(0, ends), pa.int32())
        columns = (self.prices, self.times)
        return [pa.ListArray.from_arrays(offsets, pa.array(each)) for each in columns]


def _bids(given: KeyedTuples) -> _Bids:
    """Those that were kept, then those that have come."""
    kept = given.state.column("prices")
    waited = np.repeat(np.arange(len(given)), pc.list_value_length(kept).to_numpy())
    came = given.batch.filter(given.batch.column("price").is_valid())
    rows = given.batch.column("price").is_valid().to_numpy(zero_copy_only=False)
    times = came.column("time").cast(pa.int64())
    return _Bids(
        np.append(waited, given.key_of[rows]),
        np.append(kept.flatten(), came.column("price")),
        np.append(given.state.column("times").flatten(), times),
    )


def _latest(given: KeyedTuples, name: str) -> pa.Array:
    """A column of the state, with what auctions that have come now say."""
    rows = np.flatnonzero(given.batch.column("expires").is_valid().to_numpy(zero_copy_only=False))
    source = np.arange(len(given))
    source[given.key_of[rows]] = len(given) + np.arange(rows.size)
    came = given.batch.column(name).take(pa.array(rows))
    return pa.concat_arrays([given.state.column(name), came]).take(pa.array(source))


def _known(column: pa.Array) -> Any:
    """As whole numbers; 0 where it is not known."""
    return column.cast(pa.int64()).fill_null(0).to_numpy()


def average_so_far(category: int, won: pa.RecordBatch, state: State) -> tuple[Rows, State]:
    """After each auction of a category, the average of all."""
    prices = won.column("price").to_numpy()
    totals = state["total"] + np.cumsum(prices)
    counts = state["count"] + np.arange(1, prices.size + 1)
    after = {"total": int(totals[-1]), "count": int(counts[-1])}
    return _averages("category", category, won, totals / counts), after


def average_of_last(seller: int, won: pa.RecordBatch, state: State) -> tuple[Rows, State]:
    """After each auction of a seller, the average of the last ten."""
    prices = np.append(_numbers(state["last"]), won.column("price").to_numpy())
    totals = np.cumsum(np.append(0, prices))
    ends = np.arange(len(state["last"]) + 1, prices.size + 1)
    starts = np.maximum(ends - LAST_AUCTIONS, 0)
    averages = (totals[ends] - totals[starts]) / (ends - starts)
    after = {"last": prices[-LAST_AUCTIONS:].tolist()}
    return _averages("seller", seller, won, averages), after


def _averages(name: str, key: int, won: pa.RecordBatch, averages: Any) -> pa.RecordBatch:
    keys = pa.array(np.full(won.num_rows, key, np.int64))
    columns = [keys, won.column("expires"), won.column("auction"), pa.array(averages)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([(name, pa.int64()), *AVERAGE]))


# --- q5 ------------------------------------------------------------------------------------------

Window = tuple[datetime, datetime]


def keep_highest(
    window: Window, counts: pa.RecordBatch, state: State
) -> tuple[Rows, State, datetime]:
    """Keep the auctions with the most bids in a window; its timer fires when the window ends."""
    numbers = counts.column("num").to_numpy()
    highest = max(state["num"], int(numbers.max()))
    before = state["auctions"] if state["num"] == highest else []
    auctions = counts.column("auction").to_numpy()[numbers == highest]
    return None, {"num": highest, "auctions": before + auctions.tolist()}, window[1]


def give_highest(window: Window, time: datetime, state: State) -> tuple[Rows, None]:  # noqa: ARG001
    """Give out what a window has come to, and forget it."""
    start, end = window
    rest = {"num": state["num"], "window_start": start, "window_end": end}
    return [{"auction": auction, **rest} for auction in sorted(state["auctions"])], None


# --- shared --------------------------------------------------------------------------------------


def _numbers(values: list[int]) -> Any:
    return np.array(values, np.int64)
