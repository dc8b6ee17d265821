"""Calling a user's function over keys: checked answers, and whose fault an error is.

An answer is taken whole or not at all.  After an error under `divert`, the keys are halved until
the ones at fault stand alone: all others have their answers, those have their errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import UsageError
from rewake.model.stream_event import TIME_LIMIT
from rewake.operators.columns.arrays import Array, Int64s, values_view
from rewake.operators.failing import Failure, failures
from rewake.operators.keyed.vocabulary import (
    FunctionFailed,
    KeyedFunction,
    KeyedResult,
    KeyedTuples,
)

# When a timer that is not set would fire.
NO_TIMER = 2**63 - 1


class Answer(NamedTuple):
    """A checked answer for the keys from place `first` up to `last`; None: as it was."""

    first: int
    last: int
    output: pa.RecordBatch | None
    state: pa.RecordBatch | None
    timer: Int64s | None
    forget: Array | None


class Caller:
    """A user's function with what it must give back."""

    def __init__(
        self,
        function: KeyedFunction,
        name: str,
        *,
        output: pa.Schema,
        state: pa.Schema,
        has_time: bool,
        divert: bool,
    ) -> None:
        self._function = function
        self._name = name
        self._output = output
        self._state = state
        self._has_time = has_time
        self._divert = divert

    def call(self, given: KeyedTuples) -> tuple[list[Answer], list[Failure]]:
        """The answers for all keys; where failures are diverted, the keys that fail alone."""
        answers: list[Answer] = []

        def answer(first: int, last: int) -> None:
            whole = last - first == len(given)
            answers.append(self._answer(given if whole else given.between(first, last), first))

        found = failures(answer, 0, len(given))
        if self._divert:
            failed = [each for each in found if each.alone]
            return answers, failed
        for first in found:
            raise self._located(given, first) from first.error
        return answers, []

    # --- errors ------------------------------------------------------------------------------

    def _fails(self, given: KeyedTuples) -> Exception | None:
        try:
            self._answer(given, 0)
        except Exception as error:
            return error
        return None

    def _located(self, given: KeyedTuples, first: Failure) -> FunctionFailed:
        """The error of the first key that fails alone, with the tuple that makes it fail."""
        start, end, error = first
        if not first.alone:
            return self._failed(error, f"for {end - start} keys together, none of them alone")
        given = given.between(start, end)
        key = given.key(0)
        if given.fired.null_count == 0 and len(given):
            where = f"for key {_words(key)}, whose timer at {given.fired[0].as_py()} fired"
            return self._failed(error, where, key)
        least, most = 0, int(given.batch.num_rows)
        while most - least > 1:
            middle = (least + most) // 2
            failure = self._fails(given.up_to(middle))
            least, most, error = (least, middle, failure) if failure else (middle, most, error)
        position = int(given.positions[most - 1])
        where = f"at the tuple at position {position}, of key {_words(key)}"
        return self._failed(error, where, key, position)

    def _failed(
        self, error: Exception, where: str, key: tuple[Any, ...] = (), position: int = -1
    ) -> FunctionFailed:
        return FunctionFailed(
            f"function {self._name} failed {where} with {type(error).__name__}: {error}; nothing "
            "of this turn was applied: correct the function, or send such tuples to an output of "
            "their own with on_error='divert'",
            function=self._name,
            key=key,
            position=position,
        )

    # --- answers -----------------------------------------------------------------------------

    def _answer(self, given: KeyedTuples, first: int) -> Answer:
        returned = self._function(given)
        if returned is None:
            returned = ()
        if not isinstance(returned, tuple) or len(returned) > len(KeyedResult._fields):
            raise UsageError(
                f"it must return (output, state, timer, forget), or the first of these, not "
                f"{type(returned).__name__}"
            )
        result = KeyedResult(*returned)
        output = _batch_of("output", result.output, self._output)
        state = _batch_of("state", result.state, self._state)
        if state is not None and state.num_rows != len(given):
            raise UsageError(f"it returned {state.num_rows} states for {len(given)} keys")
        return Answer(
            first,
            first + len(given),
            output if output is not None and output.num_rows else None,
            state,
            self._timers(given, result.timer),
            _flags(result.forget, len(given)),
        )

    def _timers(self, given: KeyedTuples, timer: Any) -> Int64s | None:
        if timer is None:
            return None
        array = _as_array(timer, given.timer.type)
        if len(array) != len(given):
            raise UsageError(f"it returned {len(array)} timers for {len(given)} keys")
        times = _times_of(array)
        if np.all(times == NO_TIMER):
            return times
        if not self._has_time:
            raise UsageError(
                "it sets a timer, but the stream has no time: give time='column', or "
                "timers='processing' for that of the machine"
            )
        is_set = times != NO_TIMER
        if np.any(is_set & ((times >= TIME_LIMIT) | (times <= -TIME_LIMIT))):
            raise UsageError("it sets a timer beyond 2**62; check the unit of the time column")
        fired = _times_of(given.fired)
        if np.any(is_set & (fired != NO_TIMER) & (times <= fired)):
            raise UsageError(
                "when a timer fires, it must not set one at or before that time: it would fire "
                "for ever"
            )
        return times


def _words(key: tuple[Any, ...]) -> str:
    return repr(key[0]) if len(key) == 1 else repr(key)


def _as_array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype == np.int64:
        values = pa.array(values)
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, kind)


def _times_of(array: pa.Array) -> Int64s:
    if not len(array):
        return np.zeros(0, np.int64)
    times: Int64s = values_view(array, np.int64)
    if array.null_count == 0:
        return times.copy()
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return np.where(valid, times, NO_TIMER)


def _flags(values: Any, keys: int) -> Array | None:
    if values is None:
        return None
    flags: Array
    if isinstance(values, pa.Array | pa.ChunkedArray):
        flags = pc.fill_null(values.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
    else:
        flags = np.asarray(values, np.bool_)
    if flags.shape != (keys,):
        raise UsageError(f"it returned {flags.size} flags to forget for {keys} keys")
    return flags if flags.any() else None


def _batch_of(what: str, given: Any, schema: pa.Schema) -> pa.RecordBatch | None:
    """The batch, with exactly the declared columns."""
    if isinstance(given, pa.Table):
        batches = given.combine_chunks().to_batches()
        given = batches[0] if batches else pa.RecordBatch.from_pylist([], given.schema)
    if given is None:
        return None
    if not isinstance(given, pa.RecordBatch):
        raise UsageError(f"its {what} must be a record batch, not {type(given).__name__}")
    if given.schema is schema:
        return given
    if given.schema.names != schema.names or given.schema.types != schema.types:
        raise UsageError(
            f"its {what} has columns {_columns(given.schema)}, but {_columns(schema)} were declared"
        )
    for column, field in zip(given.columns, schema, strict=True):
        if not field.nullable and column.null_count:
            raise UsageError(f"its {what} has a null in {field.name!r}, which must not be null")
    if not schema.names:
        return given
    return pa.RecordBatch.from_arrays(given.columns, schema=schema)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in schema) or "none"
