"""Streams in tests: rows that tell where they come from, staged and committed without Spark."""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import StreamFolder, create_stream, stream_columns
from rewake.connectors.streams.manifest import StagedFile
from rewake.connectors.streams.source import StreamSource
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.spark.datasource.staging import Layout, stage
from rewake.stores import open_log_reader

QUERY = bytes(range(16))
OTHER = bytes(range(16, 32))
SCHEMA = pa.schema([("batch", pa.int64()), ("n", pa.int64())])
PARTITIONS = 6
ROWS = 10


def new_stream(path: Path, shards: int = 3, key: tuple[str, ...] | None = ("n",)) -> StreamFolder:
    return create_stream(path, SCHEMA, shards=shards, key=key)


def layout_of(folder: StreamFolder) -> Layout:
    schema, time = stream_columns(folder)
    columns = schema.serialize().to_pybytes()
    return Layout(str(folder.path), len(folder.shards), folder.key, time, columns)


def rows(batch: int, start: int = 0, count: int = ROWS) -> pa.RecordBatch:
    numbers = range(start, start + count)
    columns = [pa.array([batch] * count, pa.int64()), pa.array(numbers, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def stage_numbers(
    folder: StreamFolder, identity: BatchIdentity, label: int | None = None
) -> list[StagedFile]:
    """What the tasks of a batch stage: the numbers 0, 1, ... beside the batch."""
    layout = layout_of(folder)
    label = identity.batch if label is None else label
    return [
        file
        for partition in range(PARTITIONS)
        for file in stage(layout, identity, partition, [rows(label, partition * ROWS)])
    ]


def commit_numbers(committer: StreamCommit, identity: BatchIdentity, **options: bool) -> bool:
    return committer.commit(identity, stage_numbers(committer.folder, identity), **options)


def content(path: Path) -> Counter[tuple[int, int]]:
    """How often each row is in the stream."""
    source = StreamSource(path, follow=False)
    found: Counter[tuple[int, int]] = Counter()
    shards = len(source.shards)
    for shard in range(shards):
        reader = source.open(shard, shards)
        while (event := reader.read(0.0)) is not None:
            columns = (event.batch[name].to_pylist() for name in SCHEMA.names)
            found.update(zip(*columns, strict=True))
        reader.close()
    return found


def expected(*batches: int) -> Counter[tuple[int, int]]:
    """Each row of these batches once."""
    return Counter((batch, n) for batch in batches for n in range(PARTITIONS * ROWS))


def batch(number: int, query: bytes = QUERY) -> BatchIdentity:
    return BatchIdentity(query, number)


def staged(stream: StreamFolder) -> set[str]:
    folder = stream.path / "staging"
    return {name for name in os.listdir(folder) if name.startswith(("stage-", "commit-"))}


def frames(shard: Path) -> list:
    with open_log_reader(shard) as reader:
        return list(reader.frames())
