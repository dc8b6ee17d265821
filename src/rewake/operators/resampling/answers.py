"""What a resample answers: values of one stream at the times of another, all requests at once.

Of several values of a key at one time the last to come counts; a null is no value.  Neighbours are
the last value at or before the time asked for, and the first after it, both within the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from rewake.model.errors import SchemaMismatch, UsageError
from rewake.operators.arrays import Array, Int32s, Int64s, arrow_array
from rewake.operators.failing import first_failing
from rewake.operators.resampling.tuples import Timed

__all__ = ["METHODS", "Answers", "Method", "Windows"]

METHODS = ("linear", "previous", "nearest")


class Windows(NamedTuple):
    """What a user's function is given: all requests of a turn, each with a window of values.

    The window of request `i`, asked for at time `at[i]`, is `times[first[i]:last[i]]` and
    `values[first[i]:last[i]]`, by time.  Times are in the unit of the time column.
    """

    at: Int64s
    times: Int64s
    values: Array
    first: Int64s
    last: Int64s


Method = str | Callable[[Windows], Any]


@njit(cache=True, nogil=True)
def _place(times, low, high, time):  # type: ignore[no-untyped-def]
    """The first of the places from `low` to `high` whose time is not before `time`."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _look(times, lows, highs, at, window, reach, first, last, before, after):  # type: ignore[no-untyped-def]
    """Windows and neighbours (-1: none) of requests among the values from `lows` to `highs`."""
    for i in range(at.size):
        low, high = lows[i], highs[i]
        first[i] = _place(times, low, high, at[i] - window)
        last[i] = _place(times, low, high, at[i] + reach + 1)
        following = _place(times, low, high, at[i] + 1)
        before[i] = following - 1 if following > first[i] else -1
        after[i] = -1
        if following < last[i]:
            # Of those at one time, the last to come.
            after[i] = _place(times, following, last[i], times[following] + 1) - 1


class _Seen(NamedTuple):
    """Values without nulls, by key and time, and what each request sees of them."""

    times: Int64s
    values: pa.Array
    first: Int64s
    last: Int64s
    before: Int64s
    after: Int64s


class Answers:
    """Answers requests for some columns of the values.

    `window` reaches back and `reach` forth, in the unit of time.  `result` is the type of what a
    user's function gives.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: Sequence[str],
        *,
        method: Method,
        window: int,
        reach: int,
        result: pa.DataType,
    ) -> None:
        self._places = [schema.get_field_index(name) for name in columns]
        self._columns = list(columns)
        self._method = method
        self._window, self._reach = window, reach
        self._result = result
        self.kinds = [self._kind(schema.field(place)) for place in self._places]

    def _kind(self, field: pa.Field) -> pa.DataType:
        if callable(self._method):
            return self._result
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        if self._method == "linear" and not numeric:
            raise SchemaMismatch(
                f"resample: column {field.name!r} of type {field.type} has nothing between two "
                "values; use how='previous' or how='nearest'"
            )
        return pa.float64() if self._method == "linear" else field.type

    def answer(self, requests: Timed, values: Timed) -> list[pa.Array]:
        """A column for each of the columns, a value or null for each request."""
        # A stable sort by key leaves each key's values in order of time.
        order = np.argsort(values.keys, kind="stable")
        keys, times = values.keys[order], values.times[order]
        answers = []
        for name, place, kind in zip(self._columns, self._places, self.kinds, strict=True):
            column = values.batch.column(place).take(pa.array(order))
            chosen_keys, chosen_times = keys, times
            if column.null_count:
                valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
                chosen_keys, chosen_times = keys[valid], times[valid]
                column = column.drop_null()
            seen = self._seen(requests, chosen_keys, chosen_times, column)
            answers.append(self._answered(name, kind, requests, seen))
        return answers

    def _seen(self, requests: Timed, keys: Int32s, times: Int64s, column: pa.Array) -> _Seen:
        lows = np.searchsorted(keys, requests.keys, "left")
        highs = np.searchsorted(keys, requests.keys, "right")
        first, last, before, after = np.empty((4, requests.rows), np.int64)
        at = requests.times
        _look(times, lows, highs, at, self._window, self._reach, first, last, before, after)
        return _Seen(times, column, first, last, before, after)

    def _answered(self, name: str, kind: pa.DataType, requests: Timed, seen: _Seen) -> pa.Array:
        at = requests.times
        if callable(self._method):
            return self._called(name, requests, seen)
        if self._method == "linear":
            return _linear(at, seen)
        chosen = seen.before
        if self._method == "nearest":
            back = at - seen.times[seen.before] if seen.times.size else at
            forth = seen.times[seen.after] - at if seen.times.size else at
            nearer = (seen.after >= 0) & ((seen.before < 0) | (forth < back))
            chosen = np.where(nearer, seen.after, seen.before)
        return seen.values.take(pa.array(chosen, mask=chosen < 0)).cast(kind)

    def _called(self, name: str, requests: Timed, seen: _Seen) -> pa.Array:
        method = self._method
        assert callable(method)
        values = seen.values.to_numpy(zero_copy_only=False)

        def between(start: int, end: int) -> pa.Array:
            windows = Windows(
                requests.times[start:end],
                seen.times,
                values,
                seen.first[start:end],
                seen.last[start:end],
            )
            given = method(windows)
            given = given if isinstance(given, pa.Array) else pa.array(given)
            if len(given) != end - start:
                raise UsageError(f"it gave {len(given)} values for {end - start} requests")
            return given.cast(self._result)

        try:
            return between(0, requests.rows)
        except Exception as error:
            called = getattr(method, "__name__", repr(method))
            found = first_failing(between, requests.rows)
            where, error = _failing(requests, error, found)
            raise UsageError(
                f"resample: {called} of column {name!r}, {where}: {type(error).__name__}: {error}"
            ) from error


def _failing(
    requests: Timed, error: Exception, found: tuple[int, Exception] | None
) -> tuple[str, Exception]:
    """Which request a function fails for, in words, and how."""
    if found is None:
        return f"for {requests.rows} requests together, none of them alone", error
    place, its_error = found
    request = requests.batch.slice(place, 1).to_pylist()[0]
    return f"for the request at position {int(requests.positions[place])}, {request}", its_error


def _linear(at: Int64s, seen: _Seen) -> pa.Array:
    """On the straight line between the neighbours; a value at the very time is the answer."""
    if not len(seen.values):
        return pa.nulls(at.size, pa.float64())
    values = seen.values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    start, end = seen.times[seen.before], seen.times[seen.after]
    exact = (seen.before >= 0) & (start == at)
    between = (seen.before >= 0) & (seen.after >= 0)
    share = np.zeros(at.size)
    np.divide(at - start, end - start, out=share, where=between & ~exact)
    lower, upper = values[seen.before], values[seen.after]
    with np.errstate(invalid="ignore", over="ignore"):
        line = np.where(exact, lower, lower + (upper - lower) * share)
    return arrow_array(line, pa.float64(), exact | between)
