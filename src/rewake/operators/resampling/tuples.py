"""Tuples of one input in order of time, ties by arrival: what a resample keeps of each.

Tuples are appended as they come and put in order when somebody looks; what has become too old is
dropped then, or when there is much of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.stream_event import no_tuples
from rewake.operators.columns.arrays import Int32s, Int64s, spared

__all__ = ["Timed", "TimedTuples"]

# Old tuples are dropped once there are this many more of them than of others.
SPARE_ROWS = 65_536


class Timed(NamedTuple):
    """Tuples with what is known of each: time, position, and the id of its key."""

    times: Int64s
    positions: Int64s
    keys: Int32s
    batch: pa.RecordBatch

    @property
    def rows(self) -> int:
        """How many there are."""
        return int(self.times.size)

    def slice(self, start: int, end: int) -> Timed:
        """Some of them."""
        return Timed(
            self.times[start:end],
            self.positions[start:end],
            self.keys[start:end],
            self.batch.slice(start, end - start),
        )

    def take(self, rows: Int64s) -> Timed:
        """Chosen ones, in this order."""
        return Timed(
            self.times[rows],
            self.positions[rows],
            self.keys[rows],
            self.batch.take(pa.array(rows)),
        )


class TimedTuples:
    """Invariant: of two tuples with one time, the one appended first came first."""

    def __init__(self, schema: pa.Schema) -> None:
        nothing = np.zeros(0, np.int64)
        self._ordered = Timed(nothing, nothing, np.zeros(0, np.int32), no_tuples(schema))
        self._added: list[Timed] = []
        self.rows = 0
        self._enough = SPARE_ROWS

    def append(self, tuples: Timed) -> None:
        """Tuples that have just come."""
        if tuples.rows:
            self._added.append(tuples)
            self.rows += tuples.rows

    def ordered(self) -> Timed:
        """All tuples, by time, ties by arrival."""
        if self._added:
            several = [self._ordered, *self._added] if self._ordered.rows else self._added
            self._ordered, self._added = _in_order(_joined(several)), []
        return self._ordered

    def cut(self, time: int) -> Timed:
        """Take out all tuples before `time`."""
        every = self.ordered()
        end = int(np.searchsorted(every.times, time))
        self._ordered = every.slice(end, every.rows)
        self.rows -= end
        return every.slice(0, end)

    def drop_before(self, time: int) -> None:
        """Tuples before `time` are not needed; they go when it is worth the effort."""
        if self.rows > self._enough:
            self.cut(time)
            self._enough = spared(self.rows, SPARE_ROWS)


def _joined(several: list[Timed]) -> Timed:
    if len(several) == 1:
        return several[0]
    times, positions, keys, batches = zip(*several, strict=True)
    return Timed(
        np.concatenate(times),
        np.concatenate(positions),
        np.concatenate(keys),
        pa.concat_batches(batches),
    )


def _in_order(tuples: Timed) -> Timed:
    if np.all(tuples.times[1:] >= tuples.times[:-1]):
        return tuples
    return tuples.take(np.argsort(tuples.times, kind="stable"))
