"""Running windows: a key's window opens with its first tuple and never closes.

Every turn puts out the current value of each key that it touched, in the order in which it touched
them first.  A part's slot is its key, so routing is one pass that counts tuples and marks keys.

Invariant: no part ever ends.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch
from rewake.operators.stateful import NO_IDS
from rewake.operators.windows.one_per_key import KeyedRouter
from rewake.operators.windows.routing import OPEN, Routing

# As many tuples close no window.
_NEVER = 2**62

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


class RunningRouter(KeyedRouter):
    """Routes tuples to the one window of their key."""

    def __init__(self) -> None:
        super().__init__(_NEVER)
        self._turn = 0
        self._table: npt.NDArray[np.int64] = np.zeros((0, 2), np.int64)

    @property
    def counts(self) -> Array:
        """By key: the tuples in its window."""
        return self._table[:, COUNT]

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
        self.registers[OPEN] += openings
        return Routing(
            slots=keys,
            closings=current_values(touched, keys.size),
            closing_keys=touched,
            closing_counts=self._table[touched, COUNT],
            opened_slots=opened_slots,
            opened_rows=opened,
            ended_ids=NO_IDS,
            touched=touched,
        )


def current_values(slots: Int32s, rows: int) -> Closings:
    """The state of parts after so many rows, put out as if they closed; they go on."""
    at = np.full(slots.size, rows, np.int64)
    return Closings(at, np.arange(slots.size + 1), 2 * slots.astype(np.int64))
