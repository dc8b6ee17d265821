"""Running aggregates of many parts at once: the state behind every aggregate function.

A router (count_routing, time_routing) decides which part each tuple belongs to and when windows
close; an accumulator only adds values to parts and merges the parts of closing windows.  Both see
the turn in the same order, so what a window's result contains never depends on how the stream was
cut into stream events.

Invariants: the state of a part that is not open is the accumulator's identity; the parts of a
closing window are merged from the oldest to the newest, so floats add up the same every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numba import njit

from rewake.model.errors import ArithmeticOverflow
from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown
from rewake.operators.columns.prefetch import AHEAD, prefetch
from rewake.operators.columns.values import overflow_remedy

_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)


class Closings(NamedTuple):
    """The windows that close in a turn, in order.

    Window `c` closes before tuple `at[c]` of the stream event; it consists of
    `parts[first[c]:first[c + 1]]`, oldest first, each `2 * slot`, plus 1 when the part ends there.
    """

    at: Int64s
    first: Int64s
    parts: Int64s

    @property
    def total(self) -> int:
        """How many windows close."""
        return int(self.at.size)


@njit(cache=True, nogil=True, inline="always")
def _overflows(total, value):  # type: ignore[no-untyped-def]
    """Whether adding 64-bit integers leaves their range; asked before, for after it is too late."""
    return (value > 0 and total > _LARGEST - value) or (value < 0 and total < _SMALLEST - value)


@njit(cache=True, nogil=True)
def _run_sum(slots, values, at, first, parts, state, checked, out):  # type: ignore[no-untyped-def]
    """Sums; says whether one has left the range of integers, if `checked`."""
    done = 0
    overflowed = False
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            if i + AHEAD < slots.size:
                prefetch(state, slots[i + AHEAD])
            slot = slots[i]
            if slot >= 0:
                if checked:
                    overflowed |= _overflows(np.int64(state[slot]), np.int64(values[i]))
                state[slot] += values[i]
        done = stop
        if c < at.size:
            total = state[parts[first[c]] >> 1]
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                if p > first[c]:
                    if checked:
                        overflowed |= _overflows(np.int64(total), np.int64(state[slot]))
                    total += state[slot]
                if parts[p] & 1:
                    state[slot] = 0
            out[c] = total
    return overflowed


@njit(cache=True, nogil=True, inline="always")
def _beats(value, best, sign):  # type: ignore[no-untyped-def]
    return value != value or (value < best if sign > 0 else value > best)  # noqa: PLR0124 (NaN)


@njit(cache=True, nogil=True)
def _run_extreme(slots, values, at, first, parts, state, identity, sign, out):  # type: ignore[no-untyped-def]
    """Smallest (`sign` 1) or largest (`sign` -1) value; NaN wins, as it does in a sum."""
    done = 0
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            slot = slots[i]
            if slot >= 0 and _beats(values[i], state[slot], sign):
                state[slot] = values[i]
        done = stop
        if c < at.size:
            best = identity
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                if _beats(state[slot], best, sign):
                    best = state[slot]
                if parts[p] & 1:
                    state[slot] = identity
            out[c] = best


@njit(cache=True, nogil=True)
def _run_arrival(slots, values, position, at, first, parts, state, arrived, latest, out):  # type: ignore[no-untyped-def]
    """Value that arrived first or, with `latest`, last; `arrived` is 0 where there is none."""
    done = 0
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            slot = slots[i]
            if slot >= 0 and (latest or arrived[slot] == 0):
                state[slot] = values[i]
                arrived[slot] = position + i + 1
        done = stop
        if c < at.size:
            when = np.int64(0)
            out[c] = 0
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                then = arrived[slot]
                if then and (when == 0 or (then > when if latest else then < when)):
                    when = then
                    out[c] = state[slot]
                if parts[p] & 1:
                    state[slot] = 0
                    arrived[slot] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def _run_moments(slots, values, at, first, parts, count, mean, square, out):  # type: ignore[no-untyped-def]
    """Sample variance: Welford's update within a part, Chan's merge between parts."""
    done = 0
    for c in range(at.size + 1):
        stop = at[c] if c < at.size else slots.size
        for i in range(done, stop):
            slot = slots[i]
            if slot >= 0:
                count[slot] += 1
                delta = values[i] - mean[slot]
                mean[slot] += delta / count[slot]
                square[slot] += delta * (values[i] - mean[slot])
        done = stop
        if c < at.size:
            n, middle, spread = np.int64(0), 0.0, 0.0
            for p in range(first[c], first[c + 1]):
                slot = parts[p] >> 1
                more = count[slot]
                if more:
                    delta = mean[slot] - middle
                    spread += square[slot] + delta * delta * (n * more / (n + more))
                    middle += delta * (more / (n + more))
                    n += more
                if parts[p] & 1:
                    count[slot] = 0
                    mean[slot] = 0.0
                    square[slot] = 0.0
            out[c] = spread / (n - 1) if n > 1 else np.nan


class Accumulator(Protocol):
    """State of one running aggregate for every part, in columns indexed by part slot."""

    def ensure(self, capacity: int) -> None:
        """Make room for part slots below `capacity`."""

    def run(self, slots: Int32s, values: Any, position: int, closings: Closings) -> Any:
        """Add a stream event's values to their parts (slot -1: to none); results of closings.

        What values and results are is between an accumulator and its column.
        """

    def snapshot(self, slots: Array) -> list[Array]:
        """The state of parts, in columns."""

    def load(self, slots: Array, columns: Sequence[Array]) -> None:
        """Set the state of parts, from the columns of a snapshot."""


class StateColumns:
    """State columns and their identity values; where that is a row, so is each value."""

    def __init__(self, *identities: tuple[npt.DTypeLike, Any]) -> None:
        self._identities = [np.array(identity, dtype) for dtype, identity in identities]
        self._state = [np.zeros((0, *each.shape), each.dtype) for each in self._identities]

    def ensure(self, capacity: int) -> None:
        """Make room for part slots below `capacity`."""
        self._state = [
            grown(column, capacity, identity)
            for column, identity in zip(self._state, self._identities, strict=True)
        ]

    def snapshot(self, slots: Array) -> list[Array]:
        """The state of parts, in columns."""
        columns: list[Array] = []
        for state in self._state:
            of_parts = [state] if state.ndim == 1 else list(state.T)
            columns += [column[slots] for column in of_parts]
        return columns

    def load(self, slots: Array, columns: Sequence[Array]) -> None:
        """Set the state of parts, from the columns of a snapshot."""
        rest = iter(columns)
        for column in self._state:
            places = column.T if column.ndim > 1 else [column]
            for place in places:
                place[slots] = next(rest)


class SumAccumulator(StateColumns):
    """Sums; integers are exact, and checked for overflow."""

    def __init__(self, dtype: np.dtype[Any], column: str) -> None:
        super().__init__((dtype, 0))
        self._column = column

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:
        """See `Accumulator.run`."""
        (state,) = self._state
        out = np.empty(closings.total, state.dtype)
        if _run_sum(slots, values, *closings, state, state.dtype.kind == "i", out):
            raise ArithmeticOverflow(
                f"the sum of column {self._column!r} left the range of 64-bit integers in the "
                f"stream event at position {position}; "
                + overflow_remedy("DECIMAL(28, 0), whose sums are exact to 38 digits")
            )
        return out


class ExtremeAccumulator(StateColumns):
    """Smallest or largest values."""

    def __init__(self, dtype: np.dtype[Any], *, largest: bool) -> None:
        self._sign = -1 if largest else 1
        if dtype.kind == "f":
            identity: Any = -np.inf if largest else np.inf
        else:
            identity = np.iinfo(dtype).min if largest else np.iinfo(dtype).max
        super().__init__((dtype, identity))

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:  # noqa: ARG002
        """See `Accumulator.run`."""
        (state,) = self._state
        out = np.empty(closings.total, state.dtype)
        _run_extreme(slots, values, *closings, state, self._identities[0][()], self._sign, out)
        return out


class ArrivalAccumulator(StateColumns):
    """Values that arrived first or last."""

    def __init__(self, dtype: np.dtype[Any], *, latest: bool) -> None:
        super().__init__((dtype, 0), (np.int64, 0))
        self._latest = latest

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:
        """See `Accumulator.run`."""
        state, arrived = self._state
        out = np.empty(closings.total, state.dtype)
        _run_arrival(slots, values, position, *closings, state, arrived, self._latest, out)
        return out


class MomentsAccumulator(StateColumns):
    """Sample variances."""

    def __init__(self) -> None:
        super().__init__((np.int64, 0), (np.float64, 0), (np.float64, 0))

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:  # noqa: ARG002
        """See `Accumulator.run`."""
        out = np.empty(closings.total, np.float64)
        _run_moments(slots, values, *closings, *self._state, out)
        return out
