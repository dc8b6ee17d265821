"""What a Spark task does for one shard and micro-batch: hand tuples over, pass results on.

It runs in Spark's Python workers, so it imports nothing heavy.  The state is not here: see
`rewake.net.shard_host`.

Which shard a task is for is said by its rows, in their last column: the number of the task would be
another one where the query unites or coalesces results.  A task without rows notes just that.

What always holds: the results of a batch are yielded only when its record is durable; a task
that had rows ends with one that has figures and no results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from rewake.model.errors import SchemaMismatch, UsageError
from rewake.net.shard_client import ShardRequest, ask_shard
from rewake.net.shard_folder import ShardFolder
from rewake.node.shard_batches import BatchIdentity

__all__ = ["FIGURES", "FIGURES_COLUMN", "SHARD_COLUMN", "ShardTask", "task_of", "with_figures"]

# The last column of a task's input; and that of its output.
SHARD_COLUMN: Final = "_rewake_shard"
FIGURES_COLUMN: Final = "_rewake"
# What a shard tells of itself, as Spark writes types.
FIGURES: Final = (
    "shard int, batch long, open_windows long, extent_records long, extent_bytes long, "
    "replay_tuples long, replay_bytes long, checkpoint_bytes long, "
    "predicted_recovery_seconds double, last_recovery_seconds double, "
    "last_recovery_predicted_seconds double, way string, late_tuples long, epoch long"
)


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
        first = next((each for each in batches if each.num_rows), None)
        if first is None:
            ShardFolder(self.at).note_empty(BatchIdentity(query, batch))
            return
        shard = first.column(first.num_columns - 1)[0].as_py()
        schema = pa.ipc.read_schema(pa.py_buffer(self.columns))
        request = ShardRequest(
            at=self.at,
            shard=shard,
            shards=self.shards,
            query=query,
            batch=batch,
            operator=self.operator,
            schema=schema,
            order_by=self.order_by,
            gaps=self.gaps,
            listen=self.listen,
        )
        answer = ask_shard(request, (_fitted(each, schema) for each in chain([first], batches)))
        results = pa.ipc.read_schema(pa.py_buffer(self.results))
        outer = with_figures(results)
        for found in answer.results:
            nothing = pa.nulls(found.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([*found.columns, nothing], schema=outer)
        figures = pa.array([json.dumps(answer.figures | {"batch": batch})])
        nulls = [pa.nulls(1, each.type) for each in results]
        yield pa.RecordBatch.from_arrays([*nulls, figures], schema=outer)


def with_figures(results: pa.Schema) -> pa.Schema:
    """The columns of results and of figures; a row has the one or the other."""
    fields = [each.with_nullable(True) for each in results]
    # As text: a struct's columns would be sent for every result, though all but one are null.
    return pa.schema([*fields, pa.field(FIGURES_COLUMN, pa.string())])


def task_of(task: ShardTask) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow`."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        return task.run(batches)

    return run


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
