"""Rows that are at hand: a source for tests and small data.

The rows are kept as Arrow IPC bytes, so that the value travels with the query and its description
can tell it from any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa

from rewake.connectors.cutting import (
    EVENT_TUPLES,
    CutReader,
    bare_batch,
    bare_schema,
    beyond_the_end,
    check_cut,
    check_shard,
    check_time_column,
    schema_json,
    shard_tuples,
    slack_of,
)
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.given import batches_of, shown

__all__ = ["Batches"]


@dataclass(frozen=True, slots=True, init=False)
class Batches:
    """The rows of a table or of record batches, cut into stream events of `event_tuples`.

    With `time_column`, in whose order the rows must be, stream events carry watermarks; with a
    `slack` rows may be out of order, and watermarks are that much behind.  Shard k of n has the
    stream events k, k + n, k + 2n, ...; its positions are 0, 1, 2, ... all the same.
    """

    content: bytes = field(repr=False)
    event_tuples: int
    time_column: str | None
    slack: str | int | None

    def __init__(
        self,
        rows: pa.Table | pa.RecordBatch | Sequence[pa.RecordBatch],
        event_tuples: int = EVENT_TUPLES,
        time_column: str | None = None,
        slack: str | int | None = None,
    ) -> None:
        check_cut(event_tuples)
        table = _as_table(rows)
        check_time_column(time_column, table.schema)
        slack_of(time_column, slack, table.schema)
        _check_order(table, time_column if slack is None else None)
        object.__setattr__(self, "content", _encoded(table))
        object.__setattr__(self, "event_tuples", event_tuples)
        object.__setattr__(self, "time_column", time_column)
        object.__setattr__(self, "slack", slack)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        return pa.ipc.open_stream(self.content).schema

    @property
    def watermarks(self) -> bool:
        """Whether stream events carry watermarks."""
        return self.time_column is not None

    def describe(self) -> dict[str, Any]:
        """What it is, with a digest of the rows."""
        return {
            "kind": "batches",
            "schema": schema_json(self.schema),
            "event_tuples": self.event_tuples,
            "time_column": self.time_column,
            **({} if self.slack is None else {"slack": self.slack}),
            "sha256": sha256(self.content).hexdigest(),
        }

    def open(self, shard: int, shards: int) -> CutReader:
        """Open one of `shards` disjoint parts."""
        check_shard(shard, shards)
        table = pa.ipc.open_stream(self.content).read_all()
        end = shard_tuples(table.num_rows, self.event_tuples, shard, shards)

        def rows_from(position: int) -> Iterator[pa.RecordBatch]:
            if position > end:
                raise beyond_the_end(position, end)
            first = position // self.event_tuples * shards + shard
            step = shards * self.event_tuples
            for start in range(first * self.event_tuples, table.num_rows, step):
                yield from table.slice(start, self.event_tuples).to_batches()

        return CutReader(rows_from, table.schema, self.event_tuples, self.time_column, self.slack)


def _as_table(rows: pa.Table | pa.RecordBatch | Sequence[pa.RecordBatch]) -> pa.Table:
    if isinstance(rows, pa.Table):
        batches, schema = rows.to_batches(), rows.schema
    else:
        given: object = rows  # by callers whose types nobody checks
        several = list(given) if isinstance(given, list | tuple) else [given]
        batches = [each for each in several if isinstance(each, pa.RecordBatch)]
        if len(batches) < len(several):
            raise _no_rows(given)
        if not batches:
            raise UsageError("no record batches; give a table, also an empty one, for its columns")
        schema = batches[0].schema
    plain = bare_schema(schema)
    for number, batch in enumerate(batches):
        if not bare_schema(batch.schema).equals(plain):
            raise SchemaMismatch(f"record batch {number} has other columns than the first one")
    return pa.Table.from_batches([bare_batch(each, plain) for each in batches], plain)


def _no_rows(given: object) -> UsageError:
    return UsageError(
        f"rows are a table or record batches of Arrow, not {shown(given)} (of type "
        f"{type(given).__name__}); write {batches_of(given) or 'rewake.Batches(table)'}"
    )


def _check_order(table: pa.Table, time_column: str | None) -> None:
    if time_column is None:
        return
    times = table[time_column].cast(pa.int64()).drop_null().to_numpy()
    if (times[1:] < times[:-1]).any():
        raise UsageError(
            f"the rows are not in the order of {time_column!r}; sort them, say by how "
            "much they may be out of order (slack), or leave time_column out"
        )


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())
