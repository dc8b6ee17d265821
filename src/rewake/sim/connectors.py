"""Sources, sinks and tables: outside of the simulated processes, and outliving all of them."""

# ruff: noqa: D102 - the methods are described in `rewake.model.connectors`.

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rewake.model.errors import Fenced
from rewake.model.stream_event import StreamEvent


@dataclass(frozen=True, slots=True)
class ListSource:
    """Given stream events, by shard; any position can be read again, cut the same way."""

    schema: pa.Schema
    shards: tuple[tuple[StreamEvent, ...], ...]

    def describe(self) -> dict[str, Any]:
        return {"kind": "list", "events": [len(shard) for shard in self.shards]}

    def open(self, shard: int, shards: int) -> ListReader:
        assert shards == len(self.shards), "a list source has as many shards as it was made with"
        return ListReader(self.shards[shard])


class ListReader:
    """One shard, open for reading."""

    def __init__(self, events: Sequence[StreamEvent]) -> None:
        self._events = events
        self._ends = [event.end for event in events]
        self._next = 0

    def seek(self, position: int) -> None:
        self._next = bisect_right(self._ends, position)
        # Punctuations right at the position may not have been seen.
        while self._next and self._is_punctuation_at(self._next - 1, position):
            self._next -= 1

    def _is_punctuation_at(self, number: int, position: int) -> bool:
        event = self._events[number]
        return event.start == event.end == position

    def read(self, now_ms: float) -> StreamEvent | None:  # noqa: ARG002
        if self.ended:
            return None
        self._next += 1
        return self._events[self._next - 1]

    @property
    def ended(self) -> bool:
        return self._next == len(self._events)

    def close(self) -> None:
        pass


class ListSink:
    """Keeps what is committed, per channel; opening it anew fences whoever had it before.

    `gaps`: whether something may be missing between two stream events.
    """

    def __init__(self, *, gaps: bool = False) -> None:
        self.gaps = gaps
        self.committed: dict[int, list[StreamEvent]] = {}
        self.generation = 0

    def describe(self) -> dict[str, Any]:
        return {"kind": "list"}

    def open(self, shard: int, shards: int, schema: pa.Schema) -> ListSinkWriter:  # noqa: ARG002
        self.generation += 1
        return ListSinkWriter(self, self.generation)


class ListSinkWriter:
    """One attempt's end of the sink."""

    def __init__(self, sink: ListSink, generation: int) -> None:
        self._sink = sink
        self._generation = generation
        self._written: list[tuple[int, StreamEvent]] = []

    def position(self, channel: int) -> int:
        events = self._sink.committed.get(channel)
        return events[-1].end if events else 0

    def write(self, channel: int, event: StreamEvent) -> None:
        self._written.append((channel, event))

    def commit(self) -> None:
        if self._sink.generation != self._generation:
            raise Fenced("another writer has opened the sink")
        for channel, event in self._written:
            if event.end > self.position(channel):
                continues = event.start == self.position(channel)
                assert continues or self._sink.gaps, "the sink was given a gap"
                self._sink.committed.setdefault(channel, []).append(event)
        self._written.clear()

    def close(self) -> None:
        self._written.clear()


@dataclass(frozen=True, slots=True)
class ListTable:
    """A database of one table of numbers: under each `key` any number of values of a `column`."""

    key: str
    column: str
    content: Mapping[int, Sequence[int]]

    def lookup(self, statement: str, schema: pa.Schema) -> ListLookup:  # noqa: ARG002
        return ListLookup(self, statement)


@dataclass(frozen=True, slots=True)
class ListLookup:
    """The one question that such a table answers; it is open as it is."""

    table: ListTable
    statement: str

    @property
    def parameters(self) -> tuple[str, ...]:
        return (self.table.key,)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(self.table.column, pa.int64())])

    def describe(self) -> dict[str, Any]:
        return {"kind": "list", "statement": self.statement}

    def open(self) -> ListLookup:
        return self

    def rows(self, parameters: pa.RecordBatch) -> pa.RecordBatch:
        asked = enumerate(parameters.column(0).to_pylist())
        found = [(row, value) for row, key in asked for value in self.table.content.get(key, ())]
        columns = [pa.array(each, pa.int64()) for each in zip(*found, strict=True)] or [
            pa.array([], pa.int64())
        ] * 2
        return pa.RecordBatch.from_arrays(columns, names=["row", self.table.column])

    def close(self) -> None:
        pass
