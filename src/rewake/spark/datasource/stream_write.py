"""A streaming DataFrame into a stream, exactly once: `df.writeStream.format("rewake")`.

A batch's identity is the id of the streaming query, which Spark's checkpoint keeps, and the number
of the batch.  Tasks stage, the driver commits; `rewake.connectors.streams.commit` says how, and why
repeats, speculation, crashes and lost checkpoints are each either harmless or refused.

Spark runs `commit` in a Python worker of the driver; a failure there fails the query.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from rewake.connectors.streams.manifest import StagedFile
from rewake.model.errors import UsageError
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.spark.datasource.options import WriteOptions, write_options
from rewake.spark.datasource.plainly import plainly
from rewake.spark.datasource.staging import stage
from rewake.spark.datasource.write_target import committer, prepared_layout

__all__ = ["RewakeStreamWriter", "Staged", "staged_files"]

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has staged, and for which batch."""

    identity: BatchIdentity
    files: tuple[StagedFile, ...]


def staged_files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """What all tasks have staged; a task that failed has sent nothing."""
    return [file for each in messages if isinstance(each, Staged) for file in each.files]


class RewakeStreamWriter(DataSourceStreamArrowWriter):
    """Made on the driver, for each batch anew; the copies of it in tasks stage."""

    @plainly
    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self._options = write_options(options)
        self._layout = prepared_layout(self._options, schema)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one attempt of one task."""
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        identity = _identity(context, self._options)
        files = stage(self._layout, identity, context.partitionId(), iterator)
        return Staged(identity, files)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Put the batch into the stream, unless it is there."""
        identities = {each.identity for each in messages if isinstance(each, Staged)}
        if len(identities) != 1 or next(iter(identities)).batch != batchId:
            raise UsageError(
                f"batch {batchId} for {self._options.path}: its tasks say that they worked for "
                f"{sorted(identities) or 'no batch'}; use triggers of micro-batches"
            )
        (identity,) = identities
        committer(self._options.path).commit(
            identity,
            staged_files(messages),
            takeover=self._options.takeover,
            allow_gaps=self._options.gaps,
            keep_rows=self._options.other_rows,
        )

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Delete what was staged; what failed tasks left is swept by the next commit."""
        committer(self._options.path).abort(staged_files(messages))


def _identity(context: TaskContext, options: WriteOptions) -> BatchIdentity:
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if batch is None or (query is None and options.query_id is None):
        raise UsageError(
            "Spark does not tell which batch of which query this is; use a trigger of "
            "micro-batches (processingTime or availableNow)"
        )
    return BatchIdentity(options.query_id or uuid.UUID(query).bytes, int(batch))
