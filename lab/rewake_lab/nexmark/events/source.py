"""The NEXMark stream as sources: persons, auctions, bids, or all events in one.

Shard k of n has the stream events k, k + n, k + 2n, ... of the whole source; its positions are
0, 1, 2, ... all the same.  Each stream event carries the watermark of its shard, which is exact.

What always holds: stream events end at the multiples of `event_tuples` and at the end of the shard,
and have the same tuples and watermarks, wherever reading began.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from rewake.connectors.cutting import (
    EVENT_TUPLES,
    MadeUpReader,
    check_cut,
    check_shard,
    shard_tuples,
)
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake_lab.nexmark.events.numbers import number_at
from rewake_lab.nexmark.events.stream import MOST_TUPLES, NexmarkStream, schema_of

__all__ = ["NexmarkReader", "NexmarkSource"]


@dataclass(frozen=True, slots=True)
class NexmarkSource:
    """The tuples of a kind among the first `events` events, or without end (None).

    Sources of several kinds with the same stream and `events` are the parts of one whole.

    `columns`: only these are made; see `schema_of`.  `rate` paces the source to so many events per
    second, counting those of all kinds, over all shards.  A stream event comes when the last of its
    tuples is due: event number n so long after `origin_ms` (in the reader's time; by default such
    that the first position read is due at once).  What was due earlier comes at once.
    """

    stream: NexmarkStream
    kind: str = "events"
    events: int | None = None
    event_tuples: int = EVENT_TUPLES
    columns: tuple[str, ...] | None = None
    rate: float | None = None
    origin_ms: float | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))
        schema_of(self.kind, self.columns)
        check_cut(self.event_tuples)
        if self.event_tuples > MOST_TUPLES:
            raise UsageError(
                f"stream events of {self.event_tuples} tuples; NEXMark's have at most {MOST_TUPLES}"
            )
        if self.events is not None and self.events < 0:
            raise UsageError(f"{self.events} events; give a number from 0, or None for no end")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise UsageError(f"a rate of {self.rate} events/s; give a positive one, or None")

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        return schema_of(self.kind, self.columns)

    @property
    def watermarks(self) -> bool:
        """Every stream event carries one."""
        return True

    def describe(self) -> dict[str, Any]:
        """All that decides which tuples come; the rate does not."""
        return {
            "kind": "nexmark",
            "tuples_of": self.kind,
            **asdict(self.stream),
            "events": self.events,
            "event_tuples": self.event_tuples,
            "columns": self.schema.names,
        }

    def open(self, shard: int, shards: int) -> NexmarkReader:
        """Open one of `shards` disjoint parts."""
        return NexmarkReader(self, shard, shards)


class NexmarkReader(MadeUpReader):
    """One shard of a NEXMark source."""

    def __init__(self, source: NexmarkSource, shard: int, shards: int) -> None:
        check_shard(shard, shards)
        self._source = source
        self._shard = shard
        self._shards = shards
        end: int | None = None
        if source.events is not None:
            tuples = source.stream.tuples(source.kind, source.events)
            end = shard_tuples(tuples, source.event_tuples, shard, shards)
        self._origin_ms = source.origin_ms
        super().__init__(source.event_tuples, end)

    def read(self, now_ms: float) -> StreamEvent | None:
        """The next stream event, or None when it is not due yet, or at the end."""
        size, kind = self._source.event_tuples, self._source.kind
        stop = self._position + size if self._end is None else min(self._position + size, self._end)
        # Among the stream events of all shards.
        number = self._position // size * self._shards + self._shard
        first, last = number * size, number * size + stop - self._position
        if self.ended or not self._due(last, now_ms):
            return None
        batch = self._source.stream.batch(kind, first, last, self._source.columns)
        watermark = self._source.stream.watermark(kind, (number + self._shards) * size)
        event = StreamEvent(self._position, batch, watermark)
        self._position = stop
        return event

    def _due(self, last: int, now_ms: float) -> bool:
        """Whether the tuples before position `last` of all shards have come to be by now."""
        rate, kind = self._source.rate, self._source.kind
        if rate is None:
            return True
        if self._origin_ms is None:
            begun = number_at(kind, self._position * self._shards)
            self._origin_ms = now_ms - begun * 1e3 / rate
        events: int = number_at(kind, last - 1) + 1
        return now_ms >= self._origin_ms + events * 1e3 / rate
