"""Small streams on disk, written straight into their logs, and readers of them without a JVM."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from rewake.connectors.streams.folder import create_stream
from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.log.retention import Retention
from rewake.model.stream_event import NO_TIME
from rewake.stores import open_log_writer

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
MINUTE = 60_000_000


def rows(first: int, count: int) -> pa.RecordBatch:
    """Rows that say which they are; row n is of minute n."""
    numbers = range(first, first + count)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([f"name {n % 7}" for n in numbers]),
        pa.array([n * MINUTE for n in numbers]).cast(SCHEMA.field("at").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def turn(batch: pa.RecordBatch, end: int, time: int = NO_TIME) -> TurnRecord:
    """The record of a turn that did nothing but emit."""
    section = Section(SectionKind.RESULTS, batch.serialize().to_pybytes())
    return TurnRecord(end, time, 0, batch.num_rows, 0, (section,))


def append(log: Path, batches: Iterable[pa.RecordBatch], *, timed: bool = True) -> None:
    """Add frames to a log, in a new segment; a frame's time is that of its last row."""
    with open_log_writer(log) as writer:
        for batch in batches:
            end = writer.next_position + batch.num_rows - 1
            time = batch.column("at")[-1].value if timed else NO_TIME
            writer.append(turn(batch, end, time))


def trim(log: Path, before: int) -> None:
    """Drop all segments that end before a sequence."""
    with open_log_writer(log) as writer:
        writer.trim(before, Retention(max_bytes=0))


def small_stream(folder: Path, shards: int = 2, frames: Sequence[int] = (10, 20, 30)) -> Path:
    """A stream whose shards each hold frames of so many rows; shard n starts with row 1000 n."""
    stream = create_stream(folder, SCHEMA, shards=shards, time="at")
    for number, log in enumerate(stream.shards):
        first = 1000 * number
        batches = []
        for count in frames:
            batches.append(rows(first, count))
            first += count
        append(log, batches)
    return folder
