"""Which results are right: from the tuples of the watched items, by looking at all of them.

Shares nothing with any contender but the stream.  A batch engine leaves out values of a running
average that are overtaken within a batch, so results are judged one by one: each must be the value
that it claims to be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewake.connectors.item_stream import ItemStream
from rewake_lab.bench.peers.job import FIRST_US, WINDOW_TUPLES, WINDOW_US, Job, Workload
from rewake_lab.bench.peers.lines import Result

_PIECE = 1_000_000
Column = NDArray[Any]


class Oracle:
    """Judges results; reads the stream as far as it needs to."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stream = ItemStream(job.seed, job.ids)
        self._read = 0
        self._pieces: list[tuple[Column, Column, Column]] = []
        # Of each watched item: positions, and the sum of the prices before each and after all.
        self._items: dict[int, tuple[Column, Column]] = {}

    def right(self, result: Result) -> bool:
        """Whether the result is what its tuples give."""
        if not 0 <= result.item < self._job.watched:
            return False
        if self._job.workload is Workload.TIME:
            return self._window_is_right(result)
        position = self.position(result.when_us)
        if position < 0:
            return False
        self._read_to(position + 1)
        positions, sums = self._of_item(result.item)
        place = int(np.searchsorted(positions, position))
        if place == positions.size or positions[place] != position:
            return False
        counted = place + 1
        if self._job.workload is Workload.COUNT:
            if counted % WINDOW_TUPLES:
                return False
            first = counted - WINDOW_TUPLES
        else:
            first = 0
        return _close(result.average, (sums[counted] - sums[first]) / (counted - first))

    def position(self, when_us: int) -> int:
        """The position of the tuple with that event time; of a window's start, its first."""
        return (when_us - FIRST_US) // self._job.interval_us

    def closing_position(self, result: Result) -> int:
        """The position of the tuple that lets a result come out."""
        if self._job.workload is Workload.TIME:
            return self.position(result.when_us + WINDOW_US)
        return self.position(result.when_us)

    def _window_is_right(self, result: Result) -> bool:
        start = result.when_us - FIRST_US
        if start < 0 or start % WINDOW_US:
            return False
        # A window is a whole number of intervals, and each interval has one tuple.
        first, end = (edge // self._job.interval_us for edge in (start, start + WINDOW_US))
        self._read_to(end)
        positions, sums = self._of_item(result.item)
        low, high = np.searchsorted(positions, [first, end])
        return bool(high > low) and _close(result.average, (sums[high] - sums[low]) / (high - low))

    def _read_to(self, position: int) -> None:
        if position <= self._read:
            return
        while self._read < position:
            batch = self._stream.batch(self._read, self._read + _PIECE)
            items, prices = batch.column(0).to_numpy(), batch.column(1).to_numpy()
            found = np.flatnonzero(items < self._job.watched)
            self._pieces.append((items[found], prices[found], found + self._read))
            self._read += _PIECE
        self._items.clear()

    def _of_item(self, item: int) -> tuple[Column, Column]:
        if not self._items:
            self._divide()
        nothing = np.empty(0, np.int64)
        return self._items.get(item, (nothing, np.zeros(1, np.int64)))

    def _divide(self) -> None:
        items, prices, positions = (
            np.concatenate(column) for column in zip(*self._pieces, strict=True)
        )
        order = np.argsort(items, kind="stable")
        items, prices, positions = items[order], prices[order], positions[order]
        starts = np.flatnonzero(np.r_[True, items[1:] != items[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], items.size], strict=True):
            sums = np.r_[0, np.cumsum(prices[start:end], dtype=np.int64)]
            self._items[int(items[start])] = (positions[start:end], sums)


def _close(value: float, right: float) -> bool:
    return bool(abs(value - right) <= 1e-9 * max(1.0, abs(right)))
