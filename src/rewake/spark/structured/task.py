"""What a Spark task does for one shard and micro-batch: hand tuples over, pass results on.

It runs in Spark's Python workers, so it imports nothing heavy.  The state is not here: see
`rewake.net.shard_host`.

Its rows are blocks of tuples (see `rewake.spark.structured.divide`).  Which shard a task is for is
said by them: the number of the task would be another one where the query unites or coalesces
results.  A task without rows notes just that.

What always holds: the results of a batch are yielded only when its record is durable; a task
that had rows ends with one that has figures and no results.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from rewake.model.errors import OperatingFault, UsageError
from rewake.net.shard_client import ShardRequest, ask_shard
from rewake.net.shard_folder import ShardFolder
from rewake.node.late_watch import DROPPED, LateWatch
from rewake.node.shard_batches import BatchIdentity
from rewake.spark.structured import plain
from rewake.spark.structured.divide import blocks_of

__all__ = ["FIGURES", "FIGURES_COLUMN", "ShardTask", "of_one_shard", "with_figures"]

# The last column of a task's output.
FIGURES_COLUMN: Final = "_rewake"
# What a shard tells of itself, as Spark writes types.
FIGURES: Final = (
    "shard int, batch long, open_windows long, extent_records long, extent_bytes long, "
    "replay_tuples long, replay_bytes long, checkpoint_bytes long, "
    "predicted_recovery_seconds double, last_recovery_seconds double, "
    "last_recovery_predicted_seconds double, way string, late_tuples long, epoch long"
)


_LOGGER: Final = logging.getLogger("rewake")
# Of this worker, which Spark uses for many tasks; its stderr is the executor's.
_LATE: Final = LateWatch()


@dataclass(frozen=True, slots=True)
class ShardTask:
    """All that a task must know; plain values, because it travels to the executors."""

    at: str
    shards: int
    operator: dict[str, Any]
    columns: bytes
    results: bytes
    order_by: tuple[str, ...]
    gaps: str
    listen: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process this task's partition of the micro-batch."""
        query, batch = _identity()
        blocks = blocks_of(batches)
        first = next(blocks, None)
        if first is None:
            ShardFolder(self.at).note_empty(BatchIdentity(query, batch))
            return
        request = ShardRequest(
            at=self.at,
            shard=first[0],
            shards=self.shards,
            query=query,
            batch=batch,
            operator=self.operator,
            schema=pa.ipc.read_schema(pa.py_buffer(self.columns)),
            order_by=self.order_by,
            gaps=self.gaps,
            listen=self.listen,
        )
        answer = ask_shard(request, of_one_shard(chain([first], blocks)))
        results = pa.ipc.read_schema(pa.py_buffer(self.results))
        outer = with_figures(results)
        for found in answer.results:
            nothing = pa.nulls(found.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([*found.columns, nothing], schema=outer)
        told = {DROPPED: answer.figures.get("late_tuples", 0)}
        if warning := _LATE.heard(f"shard {first[0]} of {self.at}", told):
            _LOGGER.warning(warning)
        figures = plain.text(json.dumps(answer.figures | {"batch": batch}))
        nulls = [pa.nulls(1, each.type) for each in results]
        yield pa.RecordBatch.from_arrays([*nulls, figures], schema=outer)


def with_figures(results: pa.Schema) -> pa.Schema:
    """The columns of results and of figures; a row has the one or the other."""
    fields = [each.with_nullable(True) for each in results]
    # As text: a struct's columns would be sent for every result, though all but one are null.
    return pa.schema([*fields, pa.field(FIGURES_COLUMN, pa.string())])


def _identity() -> tuple[bytes, int]:
    """The query and the batch that this task is for."""
    from pyspark import TaskContext  # noqa: PLC0415 (only where there is a task)

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    if context is None or query is None or batch is None:
        raise UsageError(
            "Rewake keeps state from batch to batch here, so it needs a streaming query: "
            "read with spark.readStream and start the query with writeStream"
        )
    return UUID(query).bytes, int(batch)


def of_one_shard(blocks: Iterator[tuple[int, pa.Buffer]]) -> Iterator[pa.Buffer]:
    """The tuples of the first block's shard; there must be no others."""
    expected = None
    for shard, message in blocks:
        expected = shard if expected is None else expected
        if shard != expected:
            raise OperatingFault(
                f"a task was given rows of shards {expected} and {shard}: something between the "
                "shuffle and the task has put partitions together"
            )
        yield message
