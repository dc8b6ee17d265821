"""What routers have in common whose keys have one window each: a part's slot is its key.

Invariant: key `k` has an open window iff `opened_at[k] >= 0`, and then `0 < counts[k] < limit`
(`counts[k] == 0` for a part that was restored from its opening and has not been replayed yet).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numba import njit

from rewake.model.errors import DamagedFrame
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, capacity_for, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch
from rewake.operators.windows.routing import NO_CLOSINGS, OPEN, PartRows, Router


@njit(cache=True, nogil=True)
def _gather(slots, opened_at, ids):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch(opened_at, slots[i + AHEAD])
        ids[i] = opened_at[slots[i]]


@njit(cache=True, nogil=True)
def _replay(keys, position, counts, opened_at, applied, slots):  # type: ignore[no-untyped-def]
    for i in range(keys.size):
        key = keys[i]
        slots[i] = -1
        known = key >= 0 and key < opened_at.size
        if known and opened_at[key] >= 0 and position + i > applied[key]:
            counts[key] += 1
            slots[i] = key


class KeyedRouter(Router):
    """The windows of all keys, at most one each, of fewer than `limit` tuples while it is open."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._opened_at = np.zeros(0, np.int64)

    @property
    @abstractmethod
    def counts(self) -> Array:
        """By key: the tuples in its window."""

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open window, or -1."""
        return self._opened_at

    @property
    def live_keys(self) -> int:
        """How many keys have an open window: one each."""
        return self.open_parts

    def key_is_live(self, id_limit: int) -> Array:
        """For each key id below `id_limit`, whether it has an open window."""
        self._ensure(id_limit)
        return self._opened_at[:id_limit] >= 0

    def _ensure(self, id_limit: int) -> None:
        if id_limit > self._opened_at.size:
            capacity = capacity_for(id_limit, self._opened_at.size)
            self._opened_at = grown(self._opened_at, capacity, -1)
            self._grow(capacity)

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Make room for what is counted of so many keys."""

    def _pass_time(self, times: Int64s, watermark: int) -> None:
        """Event time only moves the clock."""
        if times.size:
            self.clock = max(self.clock, int(times.max()))
        self.clock = max(self.clock, watermark)

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open windows."""
        ids = np.empty(slots.size, np.int64)
        _gather(slots, self._opened_at, ids)
        return ids

    def snapshot(self, slots: Array) -> tuple[list[Array], Array]:
        """The number of tuples in each window."""
        return [self.counts[slots]], slots

    def replay(
        self,
        keys: Int32s,
        times: Int64s,  # noqa: ARG002
        position: int,
        watermark: int,  # noqa: ARG002
        applied: Int64s,
    ) -> tuple[Int32s, Closings]:
        """See `Router.replay`."""
        slots = np.empty(keys.size, np.int32)
        _replay(keys, position, self.counts, self._opened_at, applied, slots)
        return slots, NO_CLOSINGS

    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> tuple[Int32s, Array]:
        """See `Router.restore`."""
        self._ensure(id_limit)
        keys = np.concatenate([opened.keys, snapshots.keys])
        self._opened_at[opened.keys] = opened.ids
        self._opened_at[snapshots.keys] = snapshots.ids
        if np.count_nonzero(self._opened_at >= 0) != keys.size:
            raise DamagedFrame("two open windows of one key, where windows do not overlap")
        (counts,) = snapshots.columns
        if np.any(counts < 1):
            raise DamagedFrame("the log holds an open window without tuples")
        if np.any(counts >= self._limit):
            raise DamagedFrame("the log holds an open window with as many tuples as close it")
        self.counts[snapshots.keys] = counts
        self.registers[OPEN] = keys.size
        return keys, snapshots.keys

    def finish_replay(self) -> tuple[Array, Closings]:
        """See `Router.finish_replay`: a window has at least one tuple, and room for one more."""
        impossible = (self.counts < 1) | (self.counts >= self._limit)
        return np.flatnonzero(impossible & (self._opened_at >= 0)).astype(np.int32), NO_CLOSINGS
