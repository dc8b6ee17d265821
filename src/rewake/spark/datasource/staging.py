"""Staging: a task's rows in one durable file, cut into parts that become frames.

A staged file is an Arrow IPC stream.  Each of its record batches has rows of one shard: that of
their key by the engine's own shuffle, or, without a key, the task's partition modulo the shards.
Parts are some megabytes, so that a reader's memory is bounded and a frame is worth its header.

What always holds: `stage` returns after the file is durable, or leaves none; its name is its own,
so attempts of one task never meet.  No row is touched in Python.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from google_crc32c import extend as extend_crc32c

from rewake.connectors.streams.manifest import STAGING, Part, StagedFile, staged_name
from rewake.log.frame import MAX_FRAME_BYTES
from rewake.model.errors import RewakeError, UsageError
from rewake.model.stream_event import NO_TIME
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.operators.row_digest import NO_ROWS, digest_of
from rewake.stores import LocalStore

__all__ = ["Layout", "stage"]

PART_BYTES: Final = 4 << 20
# Rows are gathered before they are divided among shards, so that parts are worth it.
_GATHERED_BYTES: Final = 32 << 20
LARGEST_PART: Final = MAX_FRAME_BYTES - (1 << 20)
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a task must know of the stream: it travels with the writer."""

    path: str
    shards: int
    key: tuple[str, ...] | None
    time: str | None
    columns: bytes

    @property
    def schema(self) -> pa.Schema:
        """The stream's columns."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))


def stage(
    layout: Layout, identity: BatchIdentity, partition: int, batches: Iterable[pa.RecordBatch]
) -> tuple[StagedFile, ...]:
    """Stage the rows of one attempt of one task; no rows, no file."""
    name = staged_name(identity, partition, secrets.token_hex(8))
    folder = Path(layout.path) / STAGING
    store = LocalStore(folder, create=not folder.is_dir())
    file = _File(store, name, layout.schema)
    try:
        divide = _division(layout, partition)
        for gathered in _gathered(batches, layout):
            for shard, rows in divide(gathered):
                for part in _cut(rows):
                    file.add(shard, part, _latest(part, layout.time))
        staged = file.finished(partition)
    except BaseException:
        with suppress(FileNotFoundError, RewakeError):
            store.delete(name)
        raise
    finally:
        store.close()
    return () if staged is None else (staged,)


class _File:
    """A staged file that is being written; it is created with the first rows."""

    def __init__(self, store: LocalStore, name: str, schema: pa.Schema) -> None:
        self._store = store
        self._name = name
        self._schema = schema
        self._size = 0
        self._checksum = 0
        self._parts: list[Part] = []
        self._digest = NO_ROWS

    def add(self, shard: int, rows: pa.RecordBatch, time: int) -> None:
        """Write a part."""
        if not self._parts:
            self._store.create(self._name, b"")
            self._write(self._schema.serialize())
        payload = rows.serialize()
        self._parts.append(Part(shard, self._size, payload.size, rows.num_rows, time))
        self._digest = self._digest.plus(digest_of(rows))
        self._write(payload)

    def finished(self, partition: int) -> StagedFile | None:
        """Make the file durable; None when it has no rows."""
        if not self._parts:
            return None
        self._write(pa.py_buffer(_END_OF_STREAM))
        self._store.sync(self._name)
        self._store.sync_directory()
        parts = tuple(self._parts)
        return StagedFile(self._name, partition, self._size, self._checksum, parts, self._digest)

    def _write(self, content: pa.Buffer) -> None:
        self._store.write(self._name, self._size, (memoryview(content),))
        self._checksum = extend_crc32c(self._checksum, content)
        self._size += content.size


# --- rows ----------------------------------------------------------------------------------------


def _gathered(batches: Iterable[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    """The rows in larger batches, with the stream's columns."""
    schema = layout.schema
    enough = min(_GATHERED_BYTES, PART_BYTES * (layout.shards if layout.key else 1))
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(_fitting(batch, schema))
            size += held[-1].nbytes
        if size >= enough:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


def _fitting(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under the stream's own types: Spark sends times in the session's zone, say."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _division(
    layout: Layout, partition: int
) -> Callable[[pa.RecordBatch], Iterable[tuple[int, pa.RecordBatch]]]:
    """How rows are divided among the shards."""
    if layout.key is None or layout.shards == 1:
        only = partition % layout.shards
        return lambda rows: [(only, rows)]
    from rewake.operators.shuffle import Shuffle  # noqa: PLC0415 (slow to import)

    shuffle = Shuffle(layout.schema, layout.key, layout.shards)
    return lambda rows: enumerate(shuffle.split(rows))


def _cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Pieces of a bounded size; rows may differ in size, so a piece may have to be cut again."""
    if not rows.num_rows:
        return
    if rows.nbytes <= 2 * PART_BYTES or rows.num_rows == 1:
        _check_size(rows)
        yield rows
        return
    pieces = -(-rows.nbytes // PART_BYTES)
    step = max(1, min(-(-rows.num_rows // pieces), rows.num_rows - 1))
    for start in range(0, rows.num_rows, step):
        yield from _cut(rows.slice(start, step))


def _check_size(rows: pa.RecordBatch) -> None:
    if rows.nbytes > LARGEST_PART:
        raise UsageError(
            f"one row has {rows.nbytes} bytes; a frame of the log holds {LARGEST_PART} at most: "
            "keep such values elsewhere, and their addresses in the stream"
        )


def _latest(rows: pa.RecordBatch, column: str | None) -> int:
    """The latest time of the rows; those without a time do not count."""
    if column is None:
        return NO_TIME
    found = pc.max(rows.column(column).cast(pa.int64())).as_py()
    return NO_TIME if found is None else int(found)
