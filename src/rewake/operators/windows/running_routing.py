"""Running windows: a key's window opens with its first tuple and never closes.

Every turn puts out the current value of each key that it touched, in the order in which it touched
them first.  A part's slot is its key, so routing is one pass that counts tuples and marks keys.

Invariants: key `k` has an open window iff `opened_at[k] >= 0`, and then its count is positive (0
for a part that was restored from its opening and has not been replayed yet); no part ever ends.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from rewake.model.errors import DamagedFrame
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch
from rewake.operators.windows.one_per_key import KeyedRouter
from rewake.operators.windows.routing import NO_CLOSINGS, PartRows, Routing

_NOTHING = np.zeros(0, np.int64)

# A key's row: its tuples, and the last turn that touched it; side by side, for a tuple needs both.
COUNT, TURN = range(2)


@njit(cache=True, nogil=True)
def _route(keys, turn, table, touched, opened):  # type: ignore[no-untyped-def]
    """Count tuples per key; how many keys were touched, and how many of them for the first time."""
    touches = openings = 0
    flat = table.reshape(table.size)
    for i in range(keys.size):
        if i + AHEAD < keys.size:
            prefetch(flat, np.int64(keys[i + AHEAD]) * 2)
        key = keys[i]
        if table[key, TURN] != turn:
            table[key, TURN] = turn
            touched[touches] = key
            touches += 1
            if table[key, COUNT] == 0:
                opened[openings] = i
                openings += 1
        table[key, COUNT] += 1
    return touches, openings


@njit(cache=True, nogil=True)
def _replay(keys, position, table, opened_at, applied, slots):  # type: ignore[no-untyped-def]
    for i in range(keys.size):
        key = keys[i]
        slots[i] = -1
        known = key >= 0 and key < opened_at.size
        if known and opened_at[key] >= 0 and position + i > applied[key]:
            table[key, COUNT] += 1
            slots[i] = key


class RunningRouter(KeyedRouter):
    """Routes tuples to the one window of their key."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = 0
        self._table: npt.NDArray[np.int64] = np.zeros((0, 2), np.int64)

    def _grow(self, capacity: int) -> None:
        self._table = grown(self._table, capacity)

    def route(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, id_limit: int
    ) -> Routing:
        """See `Router.route`: all touched windows are put out behind the last tuple, none ends."""
        self._ensure(id_limit)
        self._pass_time(times, watermark)
        self._turn += 1
        touched = np.empty(keys.size, np.int32)
        opened = np.empty(keys.size, np.int64)
        touches, openings = _route(keys, self._turn, self._table, touched, opened)
        touched, opened = touched[:touches].copy(), opened[:openings].copy()
        opened_slots = keys[opened]
        self._opened_at[opened_slots] = opened + position
        self._open += openings
        return Routing(
            slots=keys,
            closings=current_values(touched, keys.size),
            closing_keys=touched,
            closing_counts=self._table[touched, COUNT],
            closing_ends=_NOTHING,
            opened_slots=opened_slots,
            opened_rows=opened,
            ended_ids=_NOTHING,
            late_rows=_NOTHING,
            touched=touched,
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
        _replay(keys, position, self._table, self._opened_at, applied, slots)
        return slots, NO_CLOSINGS

    def counts_of(self, slots: Array) -> Int64s:
        """How many tuples windows hold."""
        counts: Int64s = self._table[slots, COUNT]
        return counts

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The number of tuples in each window."""
        return [self.counts_of(slots)]

    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> Int32s:
        """See `Router.restore`."""
        self._ensure(id_limit)
        keys = np.concatenate([opened.keys, snapshots.keys])
        self._opened_at[opened.keys] = opened.ids
        self._opened_at[snapshots.keys] = snapshots.ids
        if np.count_nonzero(self._opened_at >= 0) != keys.size:
            raise DamagedFrame("two running windows of one key")
        if snapshots.ids.size:
            if int(snapshots.columns[0].min()) < 1:
                raise DamagedFrame("a running window without tuples")
            self._table[snapshots.keys, COUNT] = snapshots.columns[0]
        self._open = keys.size
        return keys

    def misfilled(self) -> Int32s:
        """See `Router.misfilled`: a window has at least one tuple."""
        empty = (self._table[:, COUNT] < 1) & (self._opened_at >= 0)
        return np.flatnonzero(empty).astype(np.int32)


def current_values(slots: Int32s, rows: int) -> Closings:
    """The state of parts after so many rows, put out as if they closed; they go on."""
    at = np.full(slots.size, rows, np.int64)
    return Closings(at, np.arange(slots.size + 1), 2 * slots.astype(np.int64))
