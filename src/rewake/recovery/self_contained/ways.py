"""Deciding how a batch goes into a self-contained log: what it touched, and what that would take.

The decision is made when the operator has processed a batch and before anything is packed, so bytes
are estimated: footprints by a sample of them, results and rows by their columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rewake.model.stream_event import StreamEvent
from rewake.operators.columns.arrays import Array, Int32s, grown
from rewake.operators.stateful import NO_SLOTS, Emissions, Outcome, StatefulOperator
from rewake.recovery.packing import estimated_bytes
from rewake.recovery.policies.policy import Extent
from rewake.recovery.self_contained.order import in_short_order, integer_keys

_SAMPLE = 4096
_LAST_STAMP = 2**31 - 1


@njit(cache=True, nogil=True)
def _distinct(slots, stamps, stamp, found):  # type: ignore[no-untyped-def]
    """Each slot once, in the order of first touch; -1 is no slot.  How many there are."""
    count = 0
    for i in range(slots.size):
        slot = slots[i]
        if slot >= 0 and stamps[slot] != stamp:
            stamps[slot] = stamp
            found[count] = slot
            count += 1
    return count


class Touched:
    """Finds the distinct parts that a turn changed."""

    def __init__(self) -> None:
        self._stamps = np.zeros(0, np.int32)
        self._stamp = 0

    def open_slots(self, operator: StatefulOperator, outcome: Outcome) -> Int32s:
        """Slots of the open parts that changed, in the order in which they were first touched."""
        slots = outcome.touched_slots
        if slots.size == 0:
            self._next_stamp()
            return NO_SLOTS
        largest = int(slots.max())
        if largest >= self._stamps.size:
            self._stamps = grown(self._stamps, 2 * largest + 2)
        self._next_stamp()
        found = np.empty(slots.size, np.int32)
        touched = found[: _distinct(slots, self._stamps, self._stamp, found)]
        return touched[operator.ids_of(touched) >= 0]

    def _next_stamp(self) -> None:
        if self._stamp == _LAST_STAMP:
            self._stamps[:] = 0
            self._stamp = 0
        self._stamp += 1

    def others(self, slots: Int32s) -> Int32s:
        """Those of the slots that the turn has not touched."""
        known = slots < self._stamps.size
        touched = np.zeros(slots.size, np.bool_)
        touched[known] = self._stamps[slots[known]] == self._stamp
        return slots[~touched]


class Decision(NamedTuple):
    """Which way a turn goes, what it emits, and the parts that must leave a CHECK."""

    way: int
    outputs: Emissions
    touched: Int32s


class Observed:
    """The operator as continuous eventual checkpointing sees it: every turn is decided upon."""

    def __init__(
        self, operator: StatefulOperator, decide: Callable[[StreamEvent, Outcome], Outcome]
    ) -> None:
        self._operator = operator
        self._decide = decide

    def process(self, event: StreamEvent) -> Outcome:
        """Apply a stream event; the outcome as it shall be recorded."""
        return self._decide(event, self._operator.process(event))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


class TurnChecks:
    """A policy that asks whoever decides about the turn."""

    def __init__(self, checks: Callable[[Extent], Int32s]) -> None:
        self._checks = checks

    def checks(self, extent: Extent) -> Int32s:
        """Slots of the windows to checkpoint now."""
        return self._checks(extent)


def part_bytes(
    operator: StatefulOperator,
    columns_of: Callable[[Array], list[Array]],
    slots: Int32s,
    *,
    reordered: bool = False,
) -> float:
    """About how many bytes footprints of these parts take, as far as a sample tells."""
    if slots.size == 0:
        return 0.0
    every = -(-slots.size // _SAMPLE)
    sample = in_short_order(operator, slots[::every]) if reordered else slots[::every]
    columns = [operator.ids_of(sample), *columns_of(sample)]
    if reordered:
        # In order, neighbours in a sample are as many times as far apart as the sample is smaller.
        place = 0 if integer_keys(operator, sample) is None else 1
        columns[place] = columns[place] // every
    # Each column has its own length: keys may be bytes.
    return sum(estimated_bytes([column], column.size * every) for column in columns)
