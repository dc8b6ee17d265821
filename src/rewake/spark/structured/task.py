"""What a Spark task does for one shard and micro-batch: hand tuples over, pass results on.

It runs in Spark's Python workers, so it imports nothing heavy.  The state is not here: see
`rewake.net.shards.host`.

Its rows are blocks of tuples (see `rewake.spark.structured.divide`).  Which shard a task is for is
said by them: the number of the task would be another one where the query unites or coalesces
results.  Who divides rows sends a block to every shard.  So a task without blocks is one of a batch
that had not one partition of input; it tells every shard of it, unless another one has.

What always holds: the results of a batch are yielded only when its record is durable; a task
that had blocks ends with a row that has figures and no results.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa

from rewake.model.errors import OperatingFault, UsageError
from rewake.net.shards.client import ShardRequest, ask_shard
from rewake.net.shards.folder import ShardFolder
from rewake.node.late_watch import DROPPED, LateWatch
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.operators.row_digest import NO_ROWS, RowDigest
from rewake.spark.structured import plain
from rewake.spark.structured.divide import Block, blocks_of

if TYPE_CHECKING:
    from pyspark import TaskContext

__all__ = ["FIGURES", "FIGURES_COLUMN", "ShardRows", "ShardTask", "with_figures"]

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
    recover_within_ms: float | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process this task's partition of the micro-batch."""
        identity, run = _identity()
        blocks = blocks_of(batches)
        first = next(blocks, None)
        if first is None:
            self._tell_all(identity, run)
            return
        rows = ShardRows(chain([first], blocks))
        answer = ask_shard(self._request(first.shard, identity, run), rows)
        results = pa.ipc.read_schema(pa.py_buffer(self.results))
        outer = with_figures(results)
        for found in answer.results:
            nothing = pa.nulls(found.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([*found.columns, nothing], schema=outer)
        dropped = 0 if self.operator.get("route_late") else answer.figures.get("late_tuples", 0)
        told = {DROPPED: dropped}
        if warning := _LATE.heard(f"shard {first.shard} of {self.at}", told):
            _LOGGER.warning(warning)
        figures = plain.text(json.dumps(answer.figures | {"batch": identity.batch}))
        nulls = [pa.nulls(1, each.type) for each in results]
        yield pa.RecordBatch.from_arrays([*nulls, figures], schema=outer)

    def _request(self, shard: int, identity: BatchIdentity, run: bytes) -> ShardRequest:
        return ShardRequest(
            at=self.at,
            shard=shard,
            shards=self.shards,
            query=identity.query,
            run=run,
            batch=identity.batch,
            operator=self.operator,
            schema=pa.ipc.read_schema(pa.py_buffer(self.columns)),
            order_by=self.order_by,
            gaps=self.gaps,
            listen=self.listen,
            recover_within_ms=self.recover_within_ms,
        )

    def _tell_all(self, identity: BatchIdentity, run: bytes) -> None:
        """Give a batch without input to all shards; without rows it has no results."""
        folder, batch = ShardFolder(self.at), f"{identity.query_text} {run.hex()} {identity.batch}"
        if folder.told() == batch:
            return
        for shard in range(self.shards):
            answer = ask_shard(self._request(shard, identity, run), ShardRows(iter(())))
            for _ in answer.results:
                pass
        folder.tell(batch)


def with_figures(results: pa.Schema) -> pa.Schema:
    """The columns of results and of figures; a row has the one or the other."""
    fields = [each.with_nullable(True) for each in results]
    # As text: a struct's columns would be sent for every result, though all but one are null.
    return pa.schema([*fields, pa.field(FIGURES_COLUMN, pa.string())])


def _identity() -> tuple[BatchIdentity, bytes]:
    """The batch that this task is for, and the run of its query."""
    from pyspark import TaskContext  # noqa: PLC0415 (only where there is a task)

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    if context is None or query is None or batch is None:
        raise UsageError(
            "Rewake keeps state from batch to batch here, so it needs a streaming query: "
            "read with spark.readStream and start the query with writeStream"
        )
    return BatchIdentity(UUID(query).bytes, int(batch)), _run(context)


def _run(context: TaskContext) -> bytes:
    """The id of this run of the query: Spark groups a run's jobs by it, unless a user does."""
    try:
        return UUID(context.getLocalProperty("spark.jobGroup.id") or "").bytes
    except ValueError:
        return bytes(16)


class ShardRows:
    """What the blocks of one task hold; they must be of one shard."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self._shard: int | None = None
        self.digest = NO_ROWS

    def messages(self) -> Iterator[pa.Buffer]:
        """The tuples; `digest` is that of the whole batch when there are no more."""
        for block in self._blocks:
            self._shard = block.shard if self._shard is None else self._shard
            if block.shard != self._shard:
                raise OperatingFault(
                    f"a task was given rows of shards {self._shard} and {block.shard}: something "
                    "between the shuffle and the task has put partitions together"
                )
            if block.digest.size:
                self.digest = self.digest.plus(RowDigest.decode(block.digest.to_pybytes()))
            else:
                yield block.tuples
