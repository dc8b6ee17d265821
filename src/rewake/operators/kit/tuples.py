"""Tuples that an operator holds: any columns, taken out in any order, and stored in snapshots.

`HeldBatches` keeps them as the batches they came in.  In a snapshot the tuples of all its parts are
two columns: positions, and one Arrow batch as bytes, part behind part; another column says how many
tuples each part has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.batches import read_batch
from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import no_tuples
from rewake.operators.columns.arrays import Array, Bytes, Int64s
from rewake.operators.stateful import StoredParts

__all__ = ["HeldBatches", "StoredTuples", "pack_tuples", "tuples_of"]

# Where this share of all tuples is taken, joining them all first costs less than choosing.
_JOIN_SHARE = 4


class HeldBatches:
    """Tuples of one schema by row, which is their number since the last `keep`.

    Small batches are joined so that there are few, each at least twice as long as the next:
    appending costs O(log n) a tuple, whatever the columns are.  Batches of at least `large` tuples
    are left as they are.
    """

    def __init__(self, schema: pa.Schema, large: int = 2**62) -> None:
        self._schema = schema
        self._large = large
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0

    def append(self, batch: pa.RecordBatch) -> int:
        """Add tuples; the row of the first."""
        first, batches = self.rows, self._batches
        if batch.num_rows:
            batches.append(batch)
            self.rows += int(batch.num_rows)
            while len(batches) > 1 and (
                batches[-2].num_rows < min(2 * batches[-1].num_rows, self._large)
            ):
                self._join(2)
        return first

    def _join(self, last: int) -> None:
        self._batches[-last:] = [pa.concat_batches(self._batches[-last:])]

    def take(self, rows: Array, missing: Array | None = None) -> pa.RecordBatch:
        """The tuples at these rows, in this order; where they are `missing`, nulls."""
        if missing is not None:
            places = np.cumsum(~missing) - 1
            return self.take(rows[~missing]).take(pa.array(places, mask=missing))
        if not self._batches:
            return no_tuples(self._schema)
        if len(self._batches) > 1 and rows.size * _JOIN_SHARE >= self.rows:
            self._join(len(self._batches))
        if len(self._batches) == 1:
            return self._batches[0].take(pa.array(rows))
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        of_batch = np.searchsorted(ends, rows, "right")
        order = np.argsort(of_batch, kind="stable")
        borders = np.searchsorted(of_batch[order], np.arange(len(ends) + 1))
        taken = []
        for number, batch in enumerate(self._batches):
            chosen = order[borders[number] : borders[number + 1]]
            if chosen.size:
                start = int(ends[number]) - batch.num_rows
                taken.append(batch.take(pa.array(rows[chosen] - start)))
        places = np.empty(rows.size, np.int64)
        places[order] = np.arange(rows.size)
        return pa.concat_batches(taken).take(pa.array(places)) if taken else no_tuples(self._schema)

    def keep(self, rows: Int64s) -> None:
        """Forget all tuples but these, which get the rows from 0 on."""
        self._batches = [self.take(rows)] if rows.size else []
        self.rows = rows.size


def pack_tuples(batch: pa.RecordBatch) -> Bytes:
    """A batch as bytes; its schema must be known to whoever reads them."""
    if batch.num_rows == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(batch.serialize(), np.uint8)


class StoredTuples(NamedTuple):
    """Tuples that were read back; `parts` says which of the stored parts each is of."""

    batch: pa.RecordBatch
    positions: Int64s
    parts: Int64s


def tuples_of(
    parts: StoredParts, schema: pa.Schema, lengths: list[Array], first: int
) -> Iterator[StoredTuples]:
    """The tuples of stored parts, frame by frame; other tuples of the frames are left out.

    `lengths` says by frame how many tuples each of its parts has; the columns `first` and the next
    are the positions and the bytes.
    """
    done = 0
    frames = zip(parts.columns, parts.rows, parts.totals, lengths, strict=True)
    for columns, rows, total, counts in frames:
        positions, data = columns[first : first + 2]
        if counts.size != total or (total and int(counts.min()) < 0):
            raise DamagedFrame(f"the lengths of a snapshot are not those of {total} parts")
        if positions.size != int(counts.sum(dtype=np.int64)):
            raise DamagedFrame("the positions of a snapshot are not those of its tuples")
        batch = _unpacked(data, schema, positions.size)
        # By tuple: its part, -1 where the part has a newer footprint.
        of_part = np.full(total, -1, np.int64)
        of_part[rows] = np.arange(done, done + rows.size)
        done += rows.size
        owners = np.repeat(of_part, counts)
        chosen = np.flatnonzero(owners >= 0)
        if chosen.size < owners.size:
            batch = batch.take(pa.array(chosen))
            positions, owners = positions[chosen], owners[chosen]
        if np.any(positions < 0) or np.any(positions > parts.applied[owners]):
            raise DamagedFrame("a snapshot holds tuples that came after it")
        yield StoredTuples(batch, positions, owners)


def _unpacked(data: Array, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if rows == 0 and data.size == 0:
        return no_tuples(schema)
    wrong = "the tuples of a snapshot are not what was written"
    batch = read_batch(np.ascontiguousarray(data), schema, wrong)
    if batch.num_rows != rows:
        raise DamagedFrame(f"a snapshot holds {batch.num_rows} tuples, but says {rows}")
    return batch
