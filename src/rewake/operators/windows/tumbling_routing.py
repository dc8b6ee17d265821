"""Tumbling count windows: the fast path, where a key has one window and a part's slot is its key.

Invariant: key `k` has an open window iff `opened_at[k] >= 0`, and then `0 < count[k] < size`
(`count[k] == 0` for a part that was restored from its opening and has not been replayed yet).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.model.errors import DamagedFrame
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch
from rewake.operators.windows.one_per_key import KeyedRouter
from rewake.operators.windows.routing import NO_CLOSINGS, PartRows, Routing

_NOTHING = np.zeros(0, np.int64)


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


@njit(cache=True, nogil=True)
def _replay(keys, position, count, opened_at, applied, slots):  # type: ignore[no-untyped-def]
    for i in range(keys.size):
        key = keys[i]
        slots[i] = -1
        known = key >= 0 and key < opened_at.size
        if known and opened_at[key] >= 0 and position + i > applied[key]:
            count[key] += 1
            slots[i] = key


class TumblingCountRouter(KeyedRouter):
    """Routes tuples to tumbling count windows."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._count = np.zeros(0, np.int32)
        # Used in every turn, so that it stays in the cache; what a turn yields is copied out of it.
        self._scratch = np.zeros((4, 0), np.int64)

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
            self._size,
            self._count,
            self._opened_at,
            at,
            parts,
            opened,
            ended,
        )
        self._open += kept - ends
        opened_rows = opened[:kept].copy()
        return Routing(
            slots=keys,
            closings=Closings(
                at[:closings].copy(), np.arange(closings + 1), parts[:closings].copy()
            ),
            closing_keys=(parts[:closings] >> 1).astype(np.int32),
            closing_counts=np.full(closings, self._size, np.int64),
            closing_ends=_NOTHING,
            opened_slots=keys[opened_rows],
            opened_rows=opened_rows,
            ended_ids=ended[:ends].copy(),
            late_rows=_NOTHING,
        )

    def replay(
        self,
        keys: Int32s,
        times: Int64s,  # noqa: ARG002
        position: int,
        applied: Int64s,
    ) -> tuple[Int32s, Closings]:
        """See `Router.replay`."""
        slots = np.empty(keys.size, np.int32)
        _replay(keys, position, self._count, self._opened_at, applied, slots)
        return slots, NO_CLOSINGS

    def counts_of(self, slots: Array) -> Int64s:
        """How many tuples windows hold."""
        return self._count[slots].astype(np.int64)

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The number of tuples in each window."""
        return [self._count[slots]]

    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> Int32s:
        """See `Router.restore`."""
        self._ensure(id_limit)
        keys = np.concatenate([opened.keys, snapshots.keys])
        self._opened_at[opened.keys] = opened.ids
        self._opened_at[snapshots.keys] = snapshots.ids
        if np.count_nonzero(self._opened_at >= 0) != keys.size:
            raise DamagedFrame("two open windows of one key, where windows do not overlap")
        self._count[snapshots.keys] = snapshots.columns[0]
        self._open = keys.size
        return keys

    def misfilled(self) -> Int32s:
        """See `Router.misfilled`: an open window has at least one tuple, and room for one more."""
        impossible = (self._count < 1) | (self._count >= self._size)
        return np.flatnonzero(impossible & (self._opened_at >= 0)).astype(np.int32)
