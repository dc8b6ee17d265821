"""A DataFrame into a stream, at once: `df.write.format("rewake").mode("append")`.

The identity of the write is a random one, made on the driver; with option `queryId` it is the
caller's, and the same write may then be repeated: it is in the stream once.  Otherwise the protocol
is that of streaming writes, and batch writes may come between the batches of a streaming query.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rewake.model.errors import UsageError
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.spark.datasource.options import write_options
from rewake.spark.datasource.plainly import plainly
from rewake.spark.datasource.staging import stage
from rewake.spark.datasource.stream_write import Staged, staged_files
from rewake.spark.datasource.write_target import committer, prepared_layout

__all__ = ["RewakeBatchWriter"]


class RewakeBatchWriter(DataSourceArrowWriter):
    """Made once on the driver; the copies of it in tasks stage."""

    @plainly
    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:
        self._options = write_options(options)
        if overwrite:
            raise UsageError(
                f"mode('overwrite') on the stream at {self._options.path}: what is in a stream "
                "stays, it can only be appended to; use mode('append'), or write to a new path"
            )
        if self._options.takeover or self._options.gaps:
            raise UsageError("options takeover and gaps are for streaming writes")
        self._layout = prepared_layout(self._options, schema)
        self._identity = BatchIdentity(self._options.query_id or uuid.uuid4().bytes, 0)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one attempt of one task."""
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        return Staged(
            self._identity, stage(self._layout, self._identity, context.partitionId(), iterator)
        )

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Put the rows into the stream, unless this very write is there."""
        committer(self._options.path).commit(
            self._identity,
            staged_files(messages),
            streaming=False,
            keep_rows=self._options.other_rows,
            remember=self._options.query_id is not None,
        )

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what was staged."""
        committer(self._options.path).abort(staged_files(messages))
