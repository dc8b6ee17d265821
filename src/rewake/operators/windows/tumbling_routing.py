"""Tumbling count windows: the fast path, for a key has one window at most."""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch
from rewake.operators.windows.one_per_key import KeyedRouter
from rewake.operators.windows.routing import OPEN, Routing


@njit(cache=True, nogil=True)
def _route(keys, position, size, count, opened_at, at, parts, opened, ended):  # type: ignore[no-untyped-def]
    """Count tuples per key; how many windows closed, opened (and stayed open), and ended."""
    closings = openings = ends = 0
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch(count, keys[i + AHEAD])
        if i + AHEAD // 2 < keys.size:
            # Needed only where a window opens or closes; the count, here by now, says where.
            soon = keys[i + AHEAD // 2]
            if count[soon] == 0 or count[soon] + 1 == size:
                prefetch(opened_at, soon)
        key = keys[i]
        n = count[key] + 1
        if n == 1:
            opened_at[key] = position + i
            opened[openings] = i
            openings += 1
        if n == size:
            at[closings] = i + 1
            parts[closings] = 2 * np.int64(key) + 1
            closings += 1
            if opened_at[key] < position:
                ended[ends] = opened_at[key]
                ends += 1
            opened_at[key] = -1
            n = 0
        count[key] = n
    kept = 0
    for o in range(openings):
        if opened_at[keys[opened[o]]] == position + opened[o]:
            opened[kept] = opened[o]
            kept += 1
    return closings, kept, ends


class TumblingCountRouter(KeyedRouter):
    """Routes tuples to tumbling count windows."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._count = np.zeros(0, np.int32)
        # Used in every turn, so that it stays in the cache; what a turn yields is copied out of it.
        self._scratch = np.zeros((4, 0), np.int64)

    @property
    def counts(self) -> Array:
        """By key: the tuples in its window."""
        return self._count

    def _grow(self, capacity: int) -> None:
        self._count = grown(self._count, capacity)

    def route(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, id_limit: int
    ) -> Routing:
        """See `Router.route`; event time only moves the clock here."""
        self._ensure(id_limit)
        self._pass_time(times, watermark)
        if keys.size > self._scratch.shape[1]:
            self._scratch = np.empty((4, keys.size), np.int64)
        at, parts, opened, ended = self._scratch
        closings, kept, ends = _route(
            keys,
            position,
            self._limit,
            self._count,
            self._opened_at,
            at,
            parts,
            opened,
            ended,
        )
        self.registers[OPEN] += kept - ends
        opened_rows = opened[:kept].copy()
        return Routing(
            slots=keys,
            closings=Closings(
                at[:closings].copy(), np.arange(closings + 1), parts[:closings].copy()
            ),
            closing_keys=(parts[:closings] >> 1).astype(np.int32),
            closing_counts=np.full(closings, self._limit, np.int64),
            opened_slots=keys[opened_rows],
            opened_rows=opened_rows,
            ended_ids=ended[:ends].copy(),
        )
