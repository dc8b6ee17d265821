"""Cutting rows into stream events at fixed positions, for sources whose rows can be read again.

What always holds: a shard's rows have positions 0, 1, 2, ...; its stream events end at the
multiples of `event_tuples` and at the end of the shard, wherever reading began.  So a replay sees
the stream events that were seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import OutOfRange, SchemaMismatch, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.model.units import duration_in_unit
from rewake.operators.columns.values import TimeColumn

__all__ = [
    "EVENT_TUPLES",
    "CutReader",
    "bare_batch",
    "bare_schema",
    "beyond_the_end",
    "check_cut",
    "check_shard",
    "check_time_column",
    "schema_json",
    "shard_tuples",
    "slack_of",
]

EVENT_TUPLES: Final = 16_384
MOST_EVENT_TUPLES: Final = 1 << 24


class CutReader:
    """One shard's rows as stream events.

    `rows_from(position)` yields the shard's rows from a position on, in batches of any size; it
    raises OutOfRange when the shard ends before.  With `time_column` each stream event carries its
    latest time, less the slack, as watermark: the same whenever it is read.
    """

    def __init__(
        self,
        rows_from: Callable[[int], Iterator[pa.RecordBatch]],
        schema: pa.Schema,
        event_tuples: int,
        time_column: str | None = None,
        slack: str | int | None = None,
    ) -> None:
        self._slack = slack_of(time_column, slack, schema)
        self._rows_from = rows_from
        self._schema = schema
        self._event_tuples = event_tuples
        self._time_column = time_column
        self.seek(0)

    def seek(self, position: int) -> None:
        """Go on with the stream event that holds `position`; rows are first read by `read`."""
        if position < 0:
            raise UsageError(f"position {position} is not in any stream: positions begin at 0")
        self._wanted = position
        self._position = position - position % self._event_tuples
        self._rows = self._rows_from(self._position)
        self._held: list[pa.RecordBatch] = []
        self._held_tuples = 0
        self._exhausted = False
        self._failure: Exception | None = None

    def read(self, now_ms: float) -> StreamEvent | None:  # noqa: ARG002 - it is all there already
        """The next stream event, or None at the end."""
        self._gather()
        while self._held_tuples:
            event = self._cut(min(self._held_tuples, self._event_tuples))
            # A seek to the very end meets the last, shorter stream event, which ends there.
            if event.end > self._wanted:
                return event
        if self._wanted > self._position:
            raise beyond_the_end(self._wanted, self._position)
        return None

    @property
    def ended(self) -> bool:
        """Whether all has been read: known, at the latest, once `read` has returned None."""
        return self._exhausted and not self._held_tuples

    def close(self) -> None:
        """Release what is held."""
        self._rows = iter(())
        self._held = []

    def _gather(self) -> None:
        if self._failure is not None:
            # A generator that has raised looks like one that has ended: it must not be asked again.
            raise self._failure
        try:
            while self._held_tuples < self._event_tuples and not self._exhausted:
                batch = next(self._rows, None)
                if batch is None:
                    self._exhausted = True
                elif batch.num_rows:
                    self._held.append(batch)
                    self._held_tuples += batch.num_rows
        except Exception as error:
            self._failure = error
            raise

    def _cut(self, tuples: int) -> StreamEvent:
        taken, missing = [], tuples
        while missing:
            batch = self._held[0]
            taken.append(batch.slice(0, missing))
            if batch.num_rows > missing:
                self._held[0] = batch.slice(missing)
            else:
                del self._held[0]
            missing -= taken[-1].num_rows
        self._held_tuples -= tuples
        batch = taken[0] if len(taken) == 1 else _joined(taken, self._schema)
        event = StreamEvent(self._position, batch, self._watermark(batch))
        self._position = event.end
        return event

    def _watermark(self, batch: pa.RecordBatch) -> int | None:
        if self._time_column is None:
            return None
        last = pc.max(batch.column(self._time_column).cast(pa.int64())).as_py()
        return None if last is None else int(last) - self._slack


class MadeUpReader:
    """What readers of streams that are made up as they are read have in common: where they are.

    Stream events have `event_tuples` each; `end` is where a finite stream ends.
    """

    def __init__(self, event_tuples: int, end: int | None) -> None:
        self._event_tuples = event_tuples
        self._end = end
        self.seek(0)

    def seek(self, position: int) -> None:
        """Go on with the stream event that holds `position`."""
        if position < 0:
            raise UsageError(f"position {position} is not in any stream: positions begin at 0")
        if self._end is not None and position > self._end:
            raise beyond_the_end(position, self._end)
        self._position = position - position % self._event_tuples
        if position == self._end:
            self._position = position

    @property
    def ended(self) -> bool:
        """Whether the stream is finite and all of it has been read."""
        return self._position == self._end

    def close(self) -> None:
        """Nothing is held."""


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    return table.to_batches()[0]


# --- shards by whole stream events ---------------------------------------------------------------


def shard_tuples(tuples: int, event_tuples: int, shard: int, shards: int) -> int:
    """How many of `tuples` a shard has that takes every `shards`-th stream event from `shard`."""
    full, rest = divmod(tuples, event_tuples)
    mine = len(range(shard, full, shards)) * event_tuples
    return mine + (rest if full % shards == shard else 0)


# --- what is refused -----------------------------------------------------------------------------


def check_cut(event_tuples: int) -> None:
    """Refuse stream events of an impossible size."""
    whole = isinstance(event_tuples, int) and not isinstance(event_tuples, bool)
    if not whole or not 1 <= event_tuples <= MOST_EVENT_TUPLES:
        raise UsageError(
            f"stream events of {event_tuples} tuples; choose 1 to {MOST_EVENT_TUPLES} for "
            "event_tuples"
        )


def check_shard(shard: int, shards: int) -> None:
    """Refuse a shard that there is not."""
    if not 0 <= shard < shards:
        raise UsageError(f"shard {shard} of {shards}; shards are numbered from 0")


def check_time_column(name: str | None, schema: pa.Schema) -> None:
    """Refuse a time column that is not there or holds no times."""
    if name is None:
        return
    if name not in schema.names:
        raise SchemaMismatch(
            f"there is no time column {name!r}; columns: {', '.join(schema.names)}"
        )
    kind = schema.field(name).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind)):
        raise SchemaMismatch(
            f"time column {name!r} is of type {kind}; use a timestamp or int64 column"
        )


def slack_of(time_column: str | None, slack: str | int | None, schema: pa.Schema) -> int:
    """By how much watermarks are behind the latest time; rows further behind are late."""
    if slack is None:
        return 0
    if time_column is None:
        raise UsageError("slack is about the order of times: give time_column too")
    length = duration_in_unit(slack, TimeColumn(schema, time_column).unit_ns)
    if length < 0:
        raise UsageError(f"slack is how far times may go back, not {slack!r}")
    return length


def beyond_the_end(position: int, end: int) -> OutOfRange:
    """The error for a position that the source does not reach."""
    return OutOfRange(
        f"position {position} was asked for, but this shard of the source ends at {end}; was the "
        "source made shorter, or is it another one?"
    )


# --- schemas -------------------------------------------------------------------------------------


def bare_schema(schema: pa.Schema) -> pa.Schema:
    """The columns alone: no metadata, all nullable, dictionaries decoded.

    A stream event travels as one record batch message, which cannot carry dictionaries.
    """
    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def bare_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows under a schema that `bare_schema` has made of theirs."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def schema_json(schema: pa.Schema) -> list[list[Any]]:
    """The columns for people and fingerprints: names and types."""
    return [[each.name, str(each.type)] for each in schema]
