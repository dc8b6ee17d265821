"""What routers have in common whose keys have one window each: a part's slot is its key.

Invariant: key `k` has an open window iff `opened_at[k] >= 0`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numba import njit

from rewake.model.stream_event import NO_TIME
from rewake.operators.columns.arrays import Array, Int32s, Int64s, capacity_for, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch


@njit(cache=True, nogil=True)
def _gather(slots, opened_at, ids):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        if i + AHEAD < slots.size:
            prefetch(opened_at, slots[i + AHEAD])
        ids[i] = opened_at[slots[i]]


class KeyedRouter(ABC):
    """The windows of all keys, at most one each; how tuples are counted is the heirs' business."""

    def __init__(self) -> None:
        self.clock = NO_TIME
        self._open = 0
        self._opened_at = np.zeros(0, np.int64)

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open window, or -1."""
        return self._opened_at

    @property
    def open_parts(self) -> int:
        """How many windows are open."""
        return self._open

    @property
    def live_keys(self) -> int:
        """How many keys have an open window: one each."""
        return self._open

    @property
    def capacity(self) -> int:
        """All slots are below this."""
        return self._opened_at.size

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
        """Make room for what heirs keep of so many keys."""

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

    def keys_of(self, slots: Array) -> Int32s:
        """Key ids of open windows: their slots."""
        return slots.astype(np.int32, copy=False)

    def opening_columns(self, slots: Array) -> list[Array]:  # noqa: ARG002
        """Nothing: key and opening position say it all."""
        return []
