"""Which parts of an operator changed or ended since the last checkpoint, for delta checkpoints.

One flag per slot, set by whole columns: marking costs one pass over the slots a turn touched.
"""

from __future__ import annotations

import numpy as np

from rewake.operators.columns.arrays import Int32s, Int64s, grown
from rewake.operators.stateful import NO_IDS, Outcome, StatefulOperator


class PartChanges:
    """What a delta has to say.  Invariant: every open part that changed has its flag set."""

    def __init__(self, operator: StatefulOperator) -> None:
        self._operator = operator
        self._changed = np.zeros(1, np.bool_)
        self._ended: list[Int64s] = []

    def note(self, outcome: Outcome) -> None:
        """A turn did this."""
        touched = outcome.touched_slots
        if touched.size:
            largest = int(touched.max())
            # The last place is nobody's: -1 stands for tuples that touched no part.
            if largest >= self._changed.size - 1:
                self._changed = grown(self._changed, 2 * largest + 2)
            self._changed[touched] = True
        if outcome.ended_ids.size:
            self._ended.append(outcome.ended_ids)

    def since(self, time: int) -> tuple[Int32s, Int64s]:
        """Slots of open parts that changed; ids of parts that were there at `time` and ended."""
        opened_at = self._operator.opened_at
        slots = np.flatnonzero(self._changed[:-1][: opened_at.size]).astype(np.int32)
        ended = np.concatenate([NO_IDS, *self._ended])
        return slots[opened_at[slots] >= 0], ended[ended <= time]

    def forget(self) -> None:
        """A checkpoint has them all."""
        self._changed[:] = False
        self._ended = []
