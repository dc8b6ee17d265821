"""What a user's function over keys is given, and what it gives back.

A function is called at most once per turn with the new tuples of all keys, and then with the keys
whose timers the clock has passed.  What it must keep to, for a crash not to show:

- Keys are independent: what it gives for a key depends on that key's tuples, state and timer alone,
  not on which other keys are in the call.  After a crash it sees only the keys that are behind.
- It is a function of its arguments: no clock but `now`, no chance, no memory of its own.
- It may be called again for the same tuples: after an error, to find out whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import UsageError
from rewake.operators.columns.arrays import Array, Int64s

__all__ = ["EachKey", "FunctionFailed", "KeyedFunction", "KeyedResult", "KeyedTuples"]


class FunctionFailed(UsageError):
    """A user's function raised, or gave back what cannot be; the turn changed nothing.

    Carries `function`, the `key` and the `position` of the tuple, as far as they are known.
    """

    def __init__(
        self, message: str, *, function: str = "", key: tuple[Any, ...] = (), position: int = -1
    ) -> None:
        super().__init__(message)
        self.function = function
        self.key = key
        self.position = position


@dataclass(frozen=True, slots=True)
class KeyedTuples:
    """The keys of a call, each with its new tuples, its state and its timer.

    Key number `j` (its *place*) is row `j` of `keys`, `state`, `timer` and `fired`; its tuples are
    the rows from `offsets[j]` to `offsets[j + 1]` of `batch`, in order of arrival.  `timer` is when
    its timer will fire, null without one.  `fired` is null in a call with tuples; in a call without
    it is the time of the timer that fired and is no longer set.  `now` is what the clock of the
    machine shows where timers go by that (null before it was first looked at), else None.
    """

    batch: pa.RecordBatch
    offsets: Int64s
    keys: pa.RecordBatch
    state: pa.RecordBatch
    timer: pa.Array
    fired: pa.Array
    # Of each row: its position in the stream.
    positions: Int64s
    now: pa.Scalar | None = None

    def __len__(self) -> int:
        """How many keys."""
        return int(self.offsets.size) - 1

    @property
    def key_of(self) -> Int64s:
        """Of each row: the place of its key."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def key(self, place: int) -> tuple[Any, ...]:
        """A key as Python values."""
        return tuple(column[place].as_py() for column in self.keys.columns)

    def tuples(self, place: int) -> pa.RecordBatch:
        """A key's tuples."""
        start, end = int(self.offsets[place]), int(self.offsets[place + 1])
        return self.batch.slice(start, end - start)

    def between(self, first: int, last: int) -> KeyedTuples:
        """The keys from place `first` up to `last`."""
        start, end = int(self.offsets[first]), int(self.offsets[last])
        return KeyedTuples(
            batch=self.batch.slice(start, end - start),
            offsets=self.offsets[first : last + 1] - start,
            keys=self.keys.slice(first, last - first),
            state=self.state.slice(first, last - first),
            timer=self.timer.slice(first, last - first),
            fired=self.fired.slice(first, last - first),
            positions=self.positions[start:end],
            now=self.now,
        )

    def up_to(self, rows: int) -> KeyedTuples:
        """Of a call with one key: that key with the first of its tuples."""
        assert len(self) == 1, "the first tuples of several keys are of several keys"
        return KeyedTuples(
            batch=self.batch.slice(0, rows),
            offsets=np.array([0, rows], np.int64),
            keys=self.keys,
            state=self.state,
            timer=self.timer,
            fired=self.fired,
            positions=self.positions[:rows],
            now=self.now,
        )


class KeyedResult(NamedTuple):
    """What a function gives back; a tuple of the first of these will do.

    `output` are tuples of the declared columns, any number.  The others have a row for each key:
    `state` (None: as it was), `timer` (null: none; None: all as they were), and `forget`, true for
    keys that have no state from here on, and no timer.
    """

    output: pa.RecordBatch | pa.Table | None = None
    state: pa.RecordBatch | pa.Table | None = None
    timer: pa.Array | Sequence[Any] | None = None
    forget: pa.Array | Array | Sequence[bool] | None = None


KeyedFunction = Callable[[KeyedTuples], Any]


@dataclass(frozen=True, slots=True)
class EachKey:
    """Functions of one key at a time, as a function of all keys.

    `function(key, tuples, state)` and `on_timer(key, time, state)` give `(rows, state)` or
    `(rows, state, timer)`.  A key is a value, or a tuple of values where there are several key
    columns; `state` is a dictionary, and None to forget the key; `rows` are dictionaries, a batch,
    or None.  Without a timer in the answer the key's timer stays as it was.  With `tell_now` the
    first is called as `function(key, tuples, state, now)`.
    """

    function: Callable[..., Any]
    on_timer: Callable[..., Any] | None
    output: pa.Schema
    tell_now: bool = False

    def __call__(self, given: KeyedTuples) -> KeyedResult:
        """Call it for one key after the other."""
        states, timers, fired = (
            given.state.to_pylist(),
            given.timer.to_pylist(),
            given.fired.to_pylist(),
        )
        outputs: list[pa.RecordBatch] = []
        now = [given.now.as_py()] if self.tell_now and given.now is not None else []
        forget = np.zeros(len(given), np.bool_)
        for place, state in enumerate(states):
            key = given.key(place)
            name: Any = key[0] if len(key) == 1 else key
            if fired[place] is None:
                answer = self.function(name, given.tuples(place), state, *now)
            else:
                answer = self._timer_function()(name, fired[place], state)
            rows, after, *timer = answer
            outputs += self._batches(rows)
            forget[place] = after is None
            states[place] = state if after is None else _only(after, given.state.schema)
            timers[place] = timer[0] if timer else timers[place]
        state_batch = given.state
        if given.state.num_columns:
            state_batch = pa.RecordBatch.from_pylist(states, schema=given.state.schema)
        output = pa.concat_batches(outputs) if outputs else None
        return KeyedResult(output, state_batch, pa.array(timers, given.timer.type), forget)

    def _timer_function(self) -> Callable[..., Any]:
        if self.on_timer is None:
            raise UsageError("a timer fired, but there is no function for it: give on_timer")
        return self.on_timer

    def _batches(self, rows: Any) -> list[pa.RecordBatch]:
        if rows is None:
            return []
        if isinstance(rows, pa.RecordBatch):
            return [rows]
        return [pa.RecordBatch.from_pylist(list(rows), schema=self.output)]


def _only(state: Mapping[str, Any], schema: pa.Schema) -> Mapping[str, Any]:
    """The state, if it has no names but those declared: others would be lost without a word."""
    unknown = sorted(set(state) - set(schema.names))
    if unknown:
        raise UsageError(
            f"the state has no {unknown[0]!r}; it was declared with {', '.join(schema.names)}"
        )
    return state
