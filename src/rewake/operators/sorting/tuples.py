"""Tuples that wait: any columns, appended by stream event and taken out in any order.

A tuple's row is its number since the last `keep`.  Tuples are kept as the batches they came in;
small ones are joined so that there are few, each at least twice as long as the next: appending
costs O(log n) a tuple, whatever the columns are.  `pack_tuples` and `unpack_tuples` are their form
in snapshots: one Arrow batch as bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rewake.model.batches import read_batch
from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import no_tuples
from rewake.operators.columns.arrays import Array, Bytes, Int64s

__all__ = ["WaitingTuples", "no_tuples", "pack_tuples", "unpack_tuples"]

# Where this share of all tuples is taken, joining them all first costs less than choosing.
_JOIN_SHARE = 4


class WaitingTuples:
    """Tuples of one schema by row number."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._chunks: list[pa.RecordBatch] = []
        self.rows = 0

    def append(self, batch: pa.RecordBatch) -> int:
        """Add tuples; the row of the first."""
        first = self.rows
        if batch.num_rows:
            self._chunks.append(batch)
            self.rows += int(batch.num_rows)
            while len(self._chunks) > 1 and (
                self._chunks[-2].num_rows < 2 * self._chunks[-1].num_rows
            ):
                self._join(2)
        return first

    def _join(self, last: int) -> None:
        self._chunks[-last:] = [pa.concat_batches(self._chunks[-last:])]

    def take(self, rows: Int64s) -> pa.RecordBatch:
        """The tuples at these rows, in this order."""
        if not self._chunks:
            return no_tuples(self._schema)
        if len(self._chunks) > 1 and rows.size * _JOIN_SHARE >= self.rows:
            self._join(len(self._chunks))
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(rows))
        ends = np.cumsum([chunk.num_rows for chunk in self._chunks])
        of_chunk = np.searchsorted(ends, rows, "right")
        order = np.argsort(of_chunk, kind="stable")
        borders = np.searchsorted(of_chunk[order], np.arange(len(ends) + 1))
        taken = []
        for number, chunk in enumerate(self._chunks):
            chosen = order[borders[number] : borders[number + 1]]
            if chosen.size:
                start = int(ends[number]) - chunk.num_rows
                taken.append(chunk.take(pa.array(rows[chosen] - start)))
        places = np.empty(rows.size, np.int64)
        places[order] = np.arange(rows.size)
        return pa.concat_batches(taken).take(pa.array(places)) if taken else no_tuples(self._schema)

    def keep(self, rows: Int64s) -> None:
        """Forget all tuples but these, which get the rows from 0 on."""
        self._chunks = [self.take(rows)] if rows.size else []
        self.rows = rows.size


def pack_tuples(batch: pa.RecordBatch) -> Bytes:
    """A batch as bytes; its schema must be known to whoever reads them."""
    if batch.num_rows == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(batch.serialize(), np.uint8)


def unpack_tuples(data: Array, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """The batch of so many tuples that was packed; `DamagedFrame` for anything else."""
    if rows == 0 and data.size == 0:
        return no_tuples(schema)
    wrong = "the tuples of a snapshot are not what was written"
    batch = read_batch(np.ascontiguousarray(data), schema, wrong)
    if batch.num_rows != rows:
        raise DamagedFrame(f"a snapshot holds {batch.num_rows} tuples, but says {rows}")
    return batch
