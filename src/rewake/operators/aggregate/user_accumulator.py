"""Accumulators around functions that users define: a tuple of floats per part, compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numba.core.errors import NumbaError, NumbaWarning
from numba.cpython.unsafe.tuple import tuple_setitem

from rewake.model.errors import UsageError
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.aggregate.functions import UserDefined
from rewake.operators.columns.arrays import Array, Int32s

# How far a turn has come: the tuple, the closing window, whether tuples are added (or windows end).
_ROW, _WINDOW, _UPDATES = range(3)


class UserCodeFailed(Exception):
    """A user's function raised at a tuple of a batch, its own or one that closed a window."""

    def __init__(self, name: str, row: int, error: Exception) -> None:
        super().__init__(name, row, error)
        self.name = name
        self.row = row
        self.error = error


class UserAccumulator:
    """State of a user's aggregate: one row of floats per part slot.

    With `skips`, a tuple for which `update` fails leaves the state as it was, and the failures of a
    run are in `failed`.  Whoever makes the same updates again skips the same tuples.

    Invariant: the row of a part that is not open is `initial`.
    """

    def __init__(self, function: UserDefined, *, skips: bool = False) -> None:
        initial = tuple(float(value) for value in function.initial)
        self._initial = np.array(initial)
        self._state = np.zeros((0, self._initial.size))
        self._kernel = compiled_kernel(function, initial)
        self._name = function.result_name()
        self._skips = skips
        self.failed: list[UserCodeFailed] = []

    def ensure(self, capacity: int) -> None:
        """Make room for part slots below `capacity`."""
        if capacity > len(self._state):
            larger = np.tile(self._initial, (capacity, 1))
            larger[: len(self._state)] = self._state
            self._state = larger

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:  # noqa: ARG002
        """See `Accumulator.run`."""
        out = np.empty(closings.total, np.float64)
        at, first, parts = closings.at, closings.first, closings.parts
        floats = values.astype(np.float64)
        progress = np.zeros(3, np.int64)
        self.failed = []
        while True:
            try:
                self._kernel(slots, floats, at, first, parts, self._state, out, progress)
            except Exception as error:
                failure = UserCodeFailed(self._name, int(progress[_ROW]), error)
                if not self._skips or not progress[_UPDATES]:
                    raise failure from error
                self.failed.append(failure)
                progress[_ROW] += 1
            else:
                return out

    def snapshot(self, slots: Array) -> list[Array]:
        """The state of parts, in columns."""
        return [self._state[slots, j] for j in range(self._initial.size)]

    def load(self, slots: Array, columns: Sequence[Array]) -> None:
        """Set the state of parts, from the columns of a snapshot."""
        for j, column in enumerate(columns):
            self._state[slots, j] = column


def compiled_kernel(function: UserDefined, initial: tuple[float, ...]) -> Callable[..., None]:
    """The kernel, compiled now so that a mistake shows when the graph is built, not later."""
    parts = (function.update, function.merge, function.result)
    if not initial or any(part is None for part in parts):
        raise UsageError(
            f"the user-defined aggregate {function.result_name()!r} needs an initial state of at "
            "least one float, and update, merge and result functions"
        )
    kernel = _kernel(initial, *[njit(part, error_model="numpy") for part in parts])
    nothing = np.zeros(0, np.int64)
    try:
        # What does not compile is an error below; numba's warnings on the way to it say less.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaWarning)
            kernel(
                np.zeros(0, np.int32),
                np.zeros(0),
                nothing,
                np.zeros(1, np.int64),
                nothing,
                np.zeros((0, len(initial))),
                np.zeros(0),
                np.zeros(3, np.int64),
            )
    except NumbaError as error:
        first_line = str(error).strip().splitlines()[0]
        raise UsageError(
            f"the user-defined aggregate {function.result_name()!r} does not compile: "
            f"{first_line}. update and merge must return a tuple of {len(initial)} floats, "
            "result a float, and all three may use arithmetic and math functions only"
        ) from error
    return kernel


def _kernel(initial: tuple[float, ...], update: Any, merge: Any, result: Any) -> Callable[..., Any]:
    """The accumulator loop around a user's compiled functions."""
    width = len(initial)
    template = np.array(initial)

    @njit(nogil=True)
    def get(table, slot):  # type: ignore[no-untyped-def]
        state = initial
        for j in range(width):
            state = tuple_setitem(state, j, table[slot, j])
        return state

    @njit(nogil=True)
    def put(table, slot, state):  # type: ignore[no-untyped-def]
        for j in range(width):
            table[slot, j] = state[j]

    # Division by zero gives infinity or NaN.  What raises leaves the turn half done: `progress`
    # then says where, and where to go on.
    @njit(nogil=True, error_model="numpy")
    def run(slots, values, at, first, parts, table, out, progress):  # type: ignore[no-untyped-def]
        done = progress[_ROW]
        for c in range(progress[_WINDOW], at.size + 1):
            progress[_WINDOW] = c
            progress[_UPDATES] = 1
            stop = at[c] if c < at.size else slots.size
            for i in range(done, stop):
                progress[_ROW] = i
                if slots[i] >= 0:
                    put(table, slots[i], update(get(table, slots[i]), values[i]))
            done = stop
            progress[_UPDATES] = 0
            if c < at.size:
                merged = get(table, parts[first[c]] >> 1)
                for p in range(first[c], first[c + 1]):
                    slot = parts[p] >> 1
                    if p > first[c]:
                        merged = merge(merged, get(table, slot))
                    if parts[p] & 1:
                        table[slot, :] = template
                out[c] = result(merged)

    return run  # type: ignore[no-any-return]
