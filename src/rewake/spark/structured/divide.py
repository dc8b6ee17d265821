"""What a Spark task does before the shuffle: the rows of each shard packed into a few blocks.

Spark shuffles row by row, and turns rows into columns again for every Python function behind it.
Here a row of the shuffle is a *block*: many tuples of one shard as an Arrow message, which nobody
opens on its way to the shard's host.

    rows    the operator's columns, and last the number of the shard, by Spark's own hash
    blocks  the number of the shard, and an Arrow message of the operator's columns; or, once from
            every task for every shard, nothing but the digest of all rows that the task has divided

So every shard hears of every batch, and which rows it has, whether or not one of them is its own.

It runs in Spark's Python workers, so it imports nothing heavy.

What always holds: every row is in exactly one block, and that block is of its shard; rows of one
task and shard keep their order; no block is larger than what a shard's host takes; the digests that
a shard is given add up to that of the batch, and are none only where nothing was to be divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import SchemaMismatch
from rewake.net.shards.wire import messages_of
from rewake.operators.columns.arrays import Array, arrow_array, values_view
from rewake.operators.row_digest import NO_ROWS, digest_of
from rewake.spark.structured import plain
from rewake.spark.structured.waking import wake_from_task
from rewake.spark.structured.worker import entry_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BLOCKS", "Block", "Divider", "blocks_of", "in_blocks"]

# The columns of blocks.
BLOCKS: Final = pa.schema(
    [
        ("_rewake_shard", pa.int32()),
        ("_rewake_tuples", pa.binary()),
        ("_rewake_digest", pa.binary()),
    ]
)
# So much is gathered before it is divided: blocks should not be small when shards are many.
GATHERED_BYTES: Final = 4 << 20
# Up to so many shards are picked out one by one, which takes less than sorting.
_FEW_SHARDS: Final = 8


def in_blocks(frame: DataFrame, by: Sequence[Column], divider: Divider) -> DataFrame:
    """The rows of `frame`, which has the divider's columns, as blocks in their shards' place."""
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    number = functions.pmod(functions.hash(*by), functions.lit(divider.shards))
    blocks = frame.select("*", number).mapInArrow(entry_of(divider), from_arrow_schema(BLOCKS))
    return blocks.repartitionById(divider.shards, BLOCKS.names[0])


@dataclass(frozen=True, slots=True)
class Divider:
    """All that such a task must know; plain values, because it travels to the executors."""

    columns: bytes
    shards: int
    at: str
    listen: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The blocks of one partition of the input."""
        wake_from_task(self.at, self.listen, self.shards)
        schema = pa.ipc.read_schema(pa.py_buffer(self.columns))
        digest = NO_ROWS
        for whole in _gathered(batches):
            numbers = values_view(whole.column(whole.num_columns - 1), np.int32)
            tuples = _fitted(whole, schema)
            digest = digest.plus(digest_of(tuples))
            yield self._blocks(tuples, numbers)
        told = [pa.py_buffer(digest.encode())] * self.shards
        nothing = [pa.py_buffer(b"")] * self.shards
        yield _batch(np.arange(self.shards, dtype=np.int32), nothing, told)

    def _blocks(self, tuples: pa.RecordBatch, numbers: Array) -> pa.RecordBatch:
        shards, messages = [], []
        for shard, part in enumerate(_parts(tuples, numbers, self.shards)):
            for message in messages_of(part):
                shards.append(shard)
                messages.append(message)
        nothing = [pa.py_buffer(b"")] * len(shards)
        return _batch(np.array(shards, np.int32), messages, nothing)


def _batch(shards: Array, messages: list[pa.Buffer], digests: list[pa.Buffer]) -> pa.RecordBatch:
    columns = [
        arrow_array(shards, pa.int32()),
        plain.bytes_of(messages),
        plain.bytes_of(digests),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BLOCKS)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in larger batches; none without any."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= GATHERED_BYTES:
            yield _together(held)
            held, size = [], 0
    if any(batch.num_rows for batch in held):
        yield _together(held)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _parts(tuples: pa.RecordBatch, numbers: Array, shards: int) -> Iterator[pa.RecordBatch]:
    """The tuples of each shard, empty parts too."""
    if shards == 1:
        yield tuples
        return
    if shards <= _FEW_SHARDS:
        for shard in range(shards):
            yield tuples.take(arrow_array(np.flatnonzero(numbers == shard), pa.int64()))
        return
    # Numbers of shards fit 16 bits, and numpy sorts those by counting.
    order = np.argsort(numbers.astype(np.int16), kind="stable")
    ordered = tuples.take(arrow_array(order, pa.int64()))
    ends = np.cumsum(np.bincount(numbers, minlength=shards)).tolist()
    for start, end in pairwise([0, *ends]):
        yield ordered.slice(start, end - start)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same tuples under the operator's own schema: Spark's differs in time zones and names."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=False):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"column {field.name!r} came as {column.type} but was {field.type} when the query "
                f"was built: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Block(NamedTuple):
    """Tuples of a shard; or no tuples, and a digest."""

    shard: int
    tuples: pa.Buffer
    digest: pa.Buffer


def blocks_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Block]:
    """The blocks behind the shuffle; nothing is copied."""
    for batch in batches:
        shards, messages, digests = batch.columns
        for place in range(batch.num_rows):
            yield Block(
                shards[place].as_py(), messages[place].as_buffer(), digests[place].as_buffer()
            )
