"""Where streams begin and end outside of Rewake: the interfaces of sources and sinks.

A source or sink is a small value that is part of a query and travels to the node that runs it.
Opening one gives the object that does the work; only hosts open them.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from rewake.model.stream_event import StreamEvent


class SourceReader(Protocol):
    """One shard of a source, open for reading."""

    def seek(self, position: int) -> None:
        """Go on with the stream event that holds `position` (which may start before it)."""

    def read(self, now_ms: float) -> StreamEvent | None:
        """The next stream event, or None when there is none yet."""

    @property
    def ended(self) -> bool:
        """Whether the source is finite and all of it has been read."""

    def close(self) -> None:
        """Release what is held."""


class Source(Protocol):
    """A replayable beginning of a stream: any position can be read again, cut the same way."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""

    def describe(self) -> dict[str, Any]:
        """What it is, as JSON values, for `explain` and for the query's fingerprint."""

    def open(self, shard: int, shards: int) -> SourceReader:
        """Open one of `shards` disjoint parts."""


class SinkWriter(Protocol):
    """One node's end of a sink.  What `commit` has confirmed is there exactly once, for ever."""

    def position(self, channel: int) -> int:
        """Input of this channel up to here (exclusive) is committed."""

    def write(self, channel: int, event: StreamEvent) -> None:
        """Take a stream event; it counts when a later `commit` returns."""

    def commit(self) -> None:
        """Make all that was written durable and visible, at once or not at all per channel."""

    def close(self) -> None:
        """Release what is held; what was not committed is forgotten."""


class Sink(Protocol):
    """An end of a stream outside of Rewake."""

    def describe(self) -> dict[str, Any]:
        """What it is, as JSON values, for `explain` and for the query's fingerprint."""

    def open(self, shard: int, shards: int, schema: pa.Schema) -> SinkWriter:
        """Open one shard's end, after clearing away what a predecessor left uncommitted."""
