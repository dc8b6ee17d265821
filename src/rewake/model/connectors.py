"""Where streams meet the world outside of Rewake: the interfaces of sources, sinks and databases.

A source, sink or lookup is a small value that is part of a query and travels to the node that runs
it.  Opening one gives the object that does the work; only hosts open sources and sinks, and the
step of a lookup opens it when the first tuples come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

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


@runtime_checkable
class Watermarked(Protocol):
    """What a source says besides whose stream events may carry watermarks."""

    @property
    def watermarks(self) -> bool:
        """Whether they do: then the steps behind it go by these, and by nothing else."""


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


class SinkLook(NamedTuple):
    """How far each channel is committed in a sink, and where its tuples are from, if it says so."""

    positions: Mapping[int, int]
    origins: Mapping[str, Any] | None


@runtime_checkable
class BindingWriter(SinkWriter, Protocol):
    """A sink's end that keeps, beside the tuples, from which logs they are."""

    @property
    def origins(self) -> Mapping[str, Any] | None:
        """What `bind` was last given before a commit, by whichever writer."""

    def bind(self, origins: Mapping[str, Any]) -> None:
        """Keep this from the next commit on, durably before any tuple of it."""


@runtime_checkable
class BindingSink(Sink, Protocol):
    """A sink that says itself which query's it is, so that it may be anywhere."""

    @property
    def where(self) -> str:
        """Where it writes, for people."""

    def identity(self) -> dict[str, Any]:
        """`describe` without where it writes: what of it is part of the query's fingerprint."""

    def look(self, shard: int, shards: int) -> SinkLook:
        """What is there; nothing is changed, and whoever writes there does not notice."""


@runtime_checkable
class RecordingSink(Sink, Protocol):
    """A sink that says where it records how far it is: no other sink may record there, too."""

    @property
    def recorded_at(self) -> str:
        """The same for two sinks that would take each other's record for their own."""


class LookupReader(Protocol):
    """A lookup, open for asking."""

    def rows(self, parameters: pa.RecordBatch) -> pa.RecordBatch:
        """What is found for each row of parameters, all asked at once.

        Its first column says for which row, from 0 and rising; a row for which several are found
        comes as often, one for which nothing is found does not come.  `Unavailable` when there is
        no answer yet: ask the same again after a while.
        """

    def close(self) -> None:
        """Release what is held."""


class Lookup(Protocol):
    """A question to ask of a system outside, whose answers have known columns."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The columns of a tuple that the question is about."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of what is found."""

    def describe(self) -> dict[str, Any]:
        """What it is, as JSON values, for `explain` and for the query's fingerprint."""

    def open(self) -> LookupReader:
        """Open it; whether the system answers is seen when it is asked."""


class Database(Protocol):
    """A system outside that can be asked in its own language."""

    def lookup(self, statement: str, schema: pa.Schema) -> Lookup:
        """A question about tuples of these columns, checked now; errors say what is wrong."""
