"""Deciding how a batch goes into a self-contained log: what it touched, and what that would take.

The decision is made when the operator has processed a batch and before anything is packed, so bytes
are estimated: footprints by a sample of them, results and rows by their columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from rewake.operators.columns.arrays import Array, Int32s, grown
from rewake.operators.stateful import (
    NO_IDS,
    NO_SLOTS,
    RESULTS_PORT,
    Emissions,
    KeyedOperator,
    Outcome,
)
from rewake.recovery.packing import estimated_bytes
from rewake.recovery.self_contained.frames import CHECKS_WAY, INPUT_WAY
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

    def open_slots(self, operator: KeyedOperator, outcome: Outcome) -> Int32s:
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
    """Which way a turn goes, what it emits, and the parts that must leave a CHECK.

    `whole`: all that are open leave one, so that nothing before the turn is needed.
    """

    way: int
    outputs: Emissions
    touched: Int32s
    whole: bool = False

    @property
    def logged_outputs(self) -> Emissions:
        """What of its outputs goes into its frame: all that does not follow from the rest of it."""
        if self.way == CHECKS_WAY:
            return self.outputs
        if self.way == INPUT_WAY:
            return ()
        return [each for each in self.outputs if each[0] != RESULTS_PORT]

    def recorded(self, outcome: Outcome) -> Outcome:
        """What of its outcome is recorded: a CHECK says all that an OPEN would."""
        if self.way == INPUT_WAY:
            return outcome
        return outcome._replace(opened_slots=NO_SLOTS, opened_ids=NO_IDS)


class WayBytes(NamedTuple):
    """About how many bytes a turn takes in the log, by the way it goes."""

    input: float
    checks: float


# Whether a turn goes the way CHECKS.
ChooseWay = Callable[[WayBytes], bool]


def fewer_bytes(sizes: WayBytes) -> bool:
    """Go the way CHECKS if that takes fewer bytes."""
    return sizes.checks < sizes.input


def way_bytes(
    operator: KeyedOperator,
    rows_bytes: float,
    outcome: Outcome,
    outputs: Emissions,
    touched: Int32s,
) -> WayBytes:
    """What a turn would take whose rows take so many bytes."""
    follow = operator.results_of_parts is not None
    opens = part_bytes(operator, operator.opening_columns, outcome.opened_slots)
    checks = part_bytes(operator, operator.snapshot_columns, touched, reordered=not follow)
    logged = [each for output, each in outputs if not (follow and output == RESULTS_PORT)]
    results = sum(batch.nbytes for batch in logged)
    return WayBytes(opens + rows_bytes, checks + results)


def part_bytes(
    operator: KeyedOperator,
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
