"""The papers' item stream: purchases of items, each with a price and a time (CEC IV, Thesis 4.3).

A tuple is a function of the seed and its position alone, so any stretch of the stream can be made
again at any time, in any process, cut in any way: an upstream that never loses its output queue.

`slow_items` makes the mixed regime of Thesis 4.3: the last so many items are bought so seldom that
their windows stay open for long.  Times rise strictly, so an item and a time identify a tuple.

`ItemSource` is the stream as a source.  Shard k of n has the stream events k, k + n, k + 2n, ... of
the whole stream; its positions are 0, 1, 2, ... all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from rewake.connectors.cutting import (
    EVENT_TUPLES,
    MadeUpReader,
    check_cut,
    check_shard,
    shard_tuples,
)
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent

__all__ = ["SCHEMA", "ItemReader", "ItemSource", "ItemStream"]

SCHEMA = pa.schema(
    [
        pa.field("item_id", pa.int32()),
        pa.field("item_price", pa.int32()),
        pa.field("item_time", pa.timestamp("us")),
    ]
)
MOST_ITEMS = 2**31 - 1
HIGHEST_PRICE = 1000
# A purchase every so many microseconds, somewhere within its interval.
_INTERVAL_US = np.uint64(10)
_FIRST_US = np.uint64(1_700_000_000_000_000)
# Of this many purchases, one is of a slow item.
_SLOW_IN = np.uint64(256)

# Compiled code turns a sum of a signed and an unsigned number into a float: all are unsigned here.
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_PRICES = np.uint64(HIGHEST_PRICE)


@dataclass(frozen=True, slots=True)
class ItemStream:
    """Purchases of `items` items; the last `slow_items` of them are rare."""

    seed: int
    items: int
    slow_items: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.items <= MOST_ITEMS:
            raise UsageError(f"{self.items} items; a stream has 1 to {MOST_ITEMS}")
        if not 0 <= self.slow_items < self.items:
            raise UsageError(f"{self.slow_items} slow items; of {self.items} some must be fast")

    def event(self, start: int, stop: int) -> StreamEvent:
        """The stream event of the tuples at positions `start` to `stop - 1`."""
        return StreamEvent(start, self.batch(start, stop))

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """The tuples at positions `start` to `stop - 1`."""
        arrays = [
            pa.Array.from_buffers(each.type, stop - start, [None, pa.py_buffer(values)])
            for each, values in zip(SCHEMA, self._columns(start, stop), strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    @staticmethod
    def positions_at(times_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of the tuples with these times."""
        return (times_us - np.int64(_FIRST_US)) // np.int64(_INTERVAL_US)

    def rows(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """The same tuples one by one, as plain values; times are in microseconds."""
        for item, price, time in zip(
            *(values.tolist() for values in self._columns(start, stop)), strict=True
        ):
            yield {"item_id": item, "item_price": price, "item_time": time}

    def _columns(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        columns = tuple(np.empty(stop - start, kind) for kind in (np.int32, np.int32, np.int64))
        fast = np.uint64(self.items - self.slow_items)
        _fill(
            np.uint64(start),
            np.uint64(self.seed % 2**64),
            fast,
            np.uint64(self.slow_items),
            *columns,
        )
        return columns  # type: ignore[return-value]


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator, unused-ignore]
def _scrambled(value: np.uint64) -> np.uint64:
    """SplitMix64's finalizer: neighbouring values become unrelated ones."""
    value = (value ^ (value >> _30)) * _FIRST_FACTOR
    value = (value ^ (value >> _27)) * _SECOND_FACTOR
    return value ^ (value >> _31)


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator, unused-ignore]
def _below(bits: np.uint64, limit: np.uint64) -> np.uint64:
    """Map a 32-bit value evenly onto 0 to `limit - 1`."""
    return (bits * limit) >> _32


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _fill(
    start: np.uint64,
    seed: np.uint64,
    fast: np.uint64,
    slow: np.uint64,
    items: NDArray[np.int32],
    prices: NDArray[np.int32],
    times: NDArray[np.int64],
) -> None:
    """Make the tuples from position `start` on, one for each place of the columns."""
    key = _scrambled(seed)
    for index in range(items.size):
        position = start + np.uint64(index)
        chance = _scrambled(position * _ODD + key)
        more = _scrambled(chance)
        if slow != _ZERO and chance % _SLOW_IN == _ZERO:
            item = fast + _below(more >> _32, slow)
        else:
            item = _below(more >> _32, fast)
        items[index] = np.int32(item)
        prices[index] = np.int32(_below(chance >> _32, _PRICES) + _ONE)
        times[index] = np.int64(position * _INTERVAL_US + more % _INTERVAL_US + _FIRST_US)


# --- as a source ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemSource:
    """An item stream of `tuples` tuples, or without end (None), in stream events of `event_tuples`.

    `rate` paces it to so many tuples per second, over all shards.  A stream event comes when the
    last of its tuples is due: tuple number n so long after `origin_ms` (in the reader's time; by
    default such that the first position read is due at once).  What was due earlier comes at once,
    so a reader that goes back, or was held up, catches up with the present.
    """

    stream: ItemStream
    tuples: int | None = None
    event_tuples: int = EVENT_TUPLES
    rate: float | None = None
    origin_ms: float | None = None

    def __post_init__(self) -> None:
        check_cut(self.event_tuples)
        if self.tuples is not None and self.tuples < 0:
            raise UsageError(f"{self.tuples} tuples; give a number from 0, or None for no end")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise UsageError(f"a rate of {self.rate} tuples/s; give a positive one, or None")

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        return SCHEMA

    def describe(self) -> dict[str, Any]:
        """All that decides which tuples come; the rate does not."""
        return {
            "kind": "items",
            **asdict(self.stream),
            "tuples": self.tuples,
            "event_tuples": self.event_tuples,
        }

    def open(self, shard: int, shards: int) -> ItemReader:
        """Open one of `shards` disjoint parts."""
        return ItemReader(self, shard, shards)


class ItemReader(MadeUpReader):
    """One shard of an item source."""

    def __init__(self, source: ItemSource, shard: int, shards: int) -> None:
        check_shard(shard, shards)
        self._source = source
        self._shard = shard
        self._shards = shards
        end: int | None = None
        if source.tuples is not None:
            end = shard_tuples(source.tuples, source.event_tuples, shard, shards)
        self._rate = None if source.rate is None else source.rate / shards
        self._origin_ms = source.origin_ms
        super().__init__(source.event_tuples, end)

    def read(self, now_ms: float) -> StreamEvent | None:
        """The next stream event, or None when it is not due yet, or at the end."""
        size = self._source.event_tuples
        stop = self._position + size if self._end is None else min(self._position + size, self._end)
        if self.ended or not self._due(stop, now_ms):
            return None
        number = self._position // size * self._shards + self._shard
        batch = self._source.stream.batch(number * size, number * size + stop - self._position)
        event = StreamEvent(self._position, batch)
        self._position = stop
        return event

    def _due(self, stop: int, now_ms: float) -> bool:
        """Whether the tuples before `stop` have come to be by now."""
        if self._rate is None:
            return True
        if self._origin_ms is None:
            self._origin_ms = now_ms - self._position * 1e3 / self._rate
        return now_ms >= self._origin_ms + stop * 1e3 / self._rate
