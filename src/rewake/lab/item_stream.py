"""The papers' item stream: purchases of items, each with a price and a time (CEC IV, Thesis 4.3).

A tuple is a function of the seed and its position alone, so any stretch of the stream can be made
again at any time, in any process, cut in any way: an upstream that never loses its output queue.

`slow_items` makes the mixed regime of Thesis 4.3: the last so many items are bought so seldom that
their windows stay open for long.  Times rise strictly, so an item and a time identify a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent

__all__ = ["SCHEMA", "ItemStream"]

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
_INTERVAL_US = 10
_FIRST_US = 1_700_000_000_000_000
# Of this many purchases, one is of a slow item.
_SLOW_IN = 256

_UInt64s = NDArray[np.uint64]


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
        arrays = [pa.array(values) for values in self._columns(start, stop)]
        arrays[-1] = arrays[-1].cast(SCHEMA.field("item_time").type)
        return StreamEvent(start, pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))

    def rows(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """The same tuples one by one, as plain values; times are in microseconds."""
        for item, price, time in zip(
            *(values.tolist() for values in self._columns(start, stop)), strict=True
        ):
            yield {"item_id": item, "item_price": price, "item_time": time}

    def _columns(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        positions = np.arange(start, stop, dtype=np.uint64)
        chance = _scrambled(positions * _ODD + _scrambled(np.array([self.seed % 2**64], np.uint64)))
        more = _scrambled(chance)
        items = _below(more >> np.uint64(32), self.items - self.slow_items)
        if self.slow_items:
            slow = chance % np.uint64(_SLOW_IN) == 0
            rare = _below(more[slow] >> np.uint64(32), self.slow_items)
            items[slow] = rare + np.uint64(self.items - self.slow_items)
        prices = _below(chance >> np.uint64(32), HIGHEST_PRICE) + np.uint64(1)
        offsets = more % np.uint64(_INTERVAL_US)
        times = positions * np.uint64(_INTERVAL_US) + offsets + np.uint64(_FIRST_US)
        return items.astype(np.int32), prices.astype(np.int32), times.astype(np.int64)


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _scrambled(values: _UInt64s) -> _UInt64s:
    """SplitMix64's finalizer: neighbouring values become unrelated ones."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _below(bits: _UInt64s, limit: int) -> _UInt64s:
    """Map 32-bit values evenly onto 0 to `limit - 1`."""
    return (bits * np.uint64(limit)) >> np.uint64(32)
