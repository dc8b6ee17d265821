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
from rewake.operators.columns.arrays import Array, Int32s, Int64s, arrow_array
from rewake.operators.failing import Failure, failures
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


class Answered(NamedTuple):
    """By column a value or null for each request; the requests that a function fails for, and how.

    Those are nulls.
    """

    columns: list[pa.Array]
    failed: dict[int, str]


class Answers:
    """Answers requests for some columns of the values.

    `window` reaches back and `reach` forth, in the unit of time.  `result` is the type of what a
    user's function gives; unless `divert` is set, it is an error where it fails.
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
        divert: bool,
    ) -> None:
        self._places = [schema.get_field_index(name) for name in columns]
        self._columns = list(columns)
        self._method = method
        self._window, self._reach = window, reach
        self._result = result
        self._divert = divert
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

    def answer(self, requests: Timed, values: Timed) -> Answered:
        """The answers to all requests."""
        # A stable sort by key leaves each key's values in order of time.
        order = np.argsort(values.keys, kind="stable")
        keys, times = values.keys[order], values.times[order]
        answered = Answered([], {})
        for name, place, kind in zip(self._columns, self._places, self.kinds, strict=True):
            column = values.batch.column(place).take(pa.array(order))
            chosen_keys, chosen_times = keys, times
            if column.null_count:
                valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
                chosen_keys, chosen_times = keys[valid], times[valid]
                column = column.drop_null()
            seen = self._seen(requests, chosen_keys, chosen_times, column)
            if callable(self._method):
                given, failed = self._called(name, requests, seen)
                answered.failed.update(failed)
            else:
                given = self._interpolated(kind, requests.times, seen)
            answered.columns.append(given)
        return answered

    def _seen(self, requests: Timed, keys: Int32s, times: Int64s, column: pa.Array) -> _Seen:
        lows = np.searchsorted(keys, requests.keys, "left")
        highs = np.searchsorted(keys, requests.keys, "right")
        first, last, before, after = np.empty((4, requests.rows), np.int64)
        at = requests.times
        _look(times, lows, highs, at, self._window, self._reach, first, last, before, after)
        return _Seen(times, column, first, last, before, after)

    def _interpolated(self, kind: pa.DataType, at: Int64s, seen: _Seen) -> pa.Array:
        if self._method == "linear":
            return _linear(at, seen)
        chosen = seen.before
        if self._method == "nearest":
            back = at - seen.times[seen.before] if seen.times.size else at
            forth = seen.times[seen.after] - at if seen.times.size else at
            nearer = (seen.after >= 0) & ((seen.before < 0) | (forth < back))
            chosen = np.where(nearer, seen.after, seen.before)
        return seen.values.take(pa.array(chosen, mask=chosen < 0)).cast(kind)

    def _called(self, name: str, requests: Timed, seen: _Seen) -> tuple[pa.Array, dict[int, str]]:
        """What the user's function gives, and the requests that it fails for."""
        values = seen.values.to_numpy(zero_copy_only=False)

        def of(which: Array | slice) -> pa.Array:
            at = requests.times[which]
            return self._given(Windows(at, seen.times, values, seen.first[which], seen.last[which]))

        def between(start: int, end: int) -> pa.Array:
            return of(slice(start, end))

        try:
            return between(0, requests.rows), {}
        except Exception as error:
            found = failures(between, 0, requests.rows)
            if not self._divert:
                first = next(found, Failure(0, requests.rows, error))
                where = _requests(requests, first)
                raise UsageError(self._words(name, where, first.error)) from first.error
        # A dead letter has the request itself.
        failed = {
            row: self._words(name, "" if each.alone else _requests(requests, each), each.error)
            for each in found
            for row in range(each.start, each.end)
        }
        rest = np.delete(np.arange(requests.rows), list(failed))
        # Where the request is in what is left, nothing for one that is not.
        place = np.full(requests.rows, -1, np.int64)
        place[rest] = np.arange(rest.size)
        return of(rest).take(pa.array(place, mask=place < 0)), failed

    def _given(self, windows: Windows) -> pa.Array:
        method = self._method
        assert callable(method)
        given = method(windows)
        given = given if isinstance(given, pa.Array) else pa.array(given)
        if len(given) != windows.at.size:
            raise UsageError(f"it gave {len(given)} values for {windows.at.size} requests")
        return given.cast(self._result)

    def _words(self, name: str, where: str, error: Exception) -> str:
        called = getattr(self._method, "__name__", repr(self._method))
        where = where and f", {where}"
        return f"resample: {called} of column {name!r}{where}: {type(error).__name__}: {error}"


def _requests(requests: Timed, failure: Failure) -> str:
    """Which requests a function fails for, in words."""
    if not failure.alone:
        return f"for {failure.end - failure.start} requests together, none of them alone"
    request = requests.batch.slice(failure.start, 1).to_pylist()[0]
    return f"for the request at position {int(requests.positions[failure.start])}, {request}"


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
