"""Keyed processing: a user's function over each key's tuples, its typed state and its timer.

A turn: the function is called with the new tuples of all keys; then the clock moves to the largest
event time less the slack, then to the watermark if that is further; each time, the timers that it
has reached fire, earliest first, until none is due.  A timer set when another fires must be later
than that one.  At the end of the stream every timer that is set fires, and what is set then is
dropped.

With timers of processing time the clock is that of the machine, which comes as input: a tick takes
a position and moves it (`StreamEvent.tick`); tuples and watermarks tell nothing then, but the end
of the stream does.  The function may look at it (`KeyedTuples.now`).

A tuple is late whose time is before the clock as it stood before the turn.  The function sees it
like any other, unless late tuples are routed: then it never does, and they leave by an output of
their own.

State is divided by key: a part opens with a key's first tuple and ends when the function forgets
the key.  A turn is atomic: it is applied whole, or raises and nothing has changed.

What a part's state depends on is its own tuples, in calls that end with their stream events, and
when the clock reached its timers.  So stream events are replayed whole (`divisible` is False), and
the clock must be had again, too:

- A footprint holds the clock of its time: an OPEN that of before its turn, a CHECK that of after.
  From there on tuples, or ticks, move it as they did before, for all input after T is replayed.
- A watermark may not be repeated where it was.  A part whose timer fired by a watermark, beyond
  what tuples had told, or of which a tuple was late by one, therefore leaves a CHECK with that turn
  (`Outcome.unrepeatable_slots`).
- Timers that the log's clock has reached by tc have fired by tc: `end_replay` sees to it.

Hence the replayed clock of a part is never ahead of what it was, and behind only where no timer of
the part lies between, and no tuple that was late.  A part that ended is not replayed; one that is
forgotten by the replay shows that input or function are not those of the log (`ReplayMismatch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rewake.model.errors import DamagedFrame, ReplayMismatch, SchemaMismatch, UsageError
from rewake.model.given import check_flag, shown
from rewake.model.stream_event import NO_TIME, TIME_LIMIT, StreamEvent, no_tuples
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s, arrow_array
from rewake.operators.columns.keys import check_null_keys
from rewake.operators.columns.plain import plain_batch
from rewake.operators.columns.values import TimeColumn, clamped, place_of
from rewake.operators.dead_letters import DEAD, check_on_error, diverts
from rewake.operators.keyed.calls import NO_TIMER, Caller
from rewake.operators.keyed.grouping import grouped
from rewake.operators.keyed.parts import KeyedParts
from rewake.operators.keyed.state import StateField
from rewake.operators.keyed.turn import KeyedTurn, keyed_dead_schema
from rewake.operators.keyed.vocabulary import EachKey, KeyedResult, KeyedTuples
from rewake.operators.stateful import (
    FURTHER_PORTS,
    NO_IDS,
    NO_SLOTS,
    KeyedOperator,
    Outcome,
    StatefulSpec,
    StoredParts,
)
from rewake.operators.windows.specs import slack_in_unit


@dataclass(frozen=True)
class ProcessSpec(StatefulSpec):
    """What a keyed step computes.

    `function` is called as `keyed.KeyedTuples` says, or with `each_key` for one key at a time;
    `on_timer` is for the latter alone.  `time` names the event-time column, which timers need;
    `slack` holds the clock back by that much, or "watermarks" leaves it to these alone.
    `on_error` is "stop" or "divert": tuples for which the function fails go to the output "dead",
    with the error's text.  `timers` is "event" or "processing": by the clock of the stream, or of
    the machine.  `route_late` keeps late tuples from the function, on an output of their own.
    """

    function: Callable[..., Any]
    by: Sequence[str]
    state: tuple[StateField, ...]
    output: pa.Schema
    time: str | None = None
    slack: str | int = 0
    on_error: str = "stop"
    each_key: bool = False
    on_timer: Callable[..., Any] | None = None
    null_keys: str = "group"
    timers: str = "event"
    route_late: bool = False

    kind: ClassVar[str] = "process"

    def __post_init__(self) -> None:
        check_flag("route_late", self.route_late)
        check_flag("each_key", self.each_key)
        for function in (self.function, *([] if self.on_timer is None else [self.on_timer])):
            if not callable(function):
                raise UsageError(
                    f"{shown(function)} is not a function; give one of KeyedTuples, or one of "
                    "(key, tuples, state) with each_key=True"
                )

    @property
    def operator_class(self) -> OperatorClass:
        """A key's state follows from its first tuple on: no later start can make up for it."""
        return OperatorClass.ARBITRARY if self.by_machine else OperatorClass.DETERMINISTIC

    @property
    def by_machine(self) -> bool:
        """Whether timers go by the clock of the machine."""
        return self.timers == "processing"

    @property
    def state_schema(self) -> pa.Schema:
        """The columns of the state."""
        return pa.schema([(each.name, each.kind) for each in self.state])

    def keys(self, port: int) -> tuple[str, ...]:
        """Tuples of a key belong together."""
        assert port == 0, "keyed processing has one input"
        return tuple(self.by)

    def operator(self, *schemas: pa.Schema) -> KeyedProcess:
        """A new operator."""
        (schema,) = schemas
        return KeyedProcess(self, schema)

    def _schema_of(self, output: str, *schemas: pa.Schema) -> pa.Schema:  # noqa: ARG002
        """The input's columns and the error's text."""
        return keyed_dead_schema(schemas[0])

    def describe(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        return {
            "by": list(self.by),
            "state": {field.name: field.words for field in self.state},
            "output": [[each.name, str(each.type), each.nullable] for each in self.output],
            "time": self.time,
            "slack": self.slack,
            "on_error": self.on_error,
            "each_key": self.each_key,
            "null_keys": self.null_keys,
            **({"timers": self.timers} if self.by_machine else {}),
            **({"route_late": True} if self.route_late else {}),
        }

    def code(self) -> Sequence[Callable[..., Any]]:
        """The user's functions."""
        return [each for each in (self.function, self.on_timer) if each is not None]

    def rehearsed(self) -> ProcessSpec:
        """With a function that does nothing."""
        return replace(self, function=_nothing, each_key=False, on_timer=None)

    def words(self) -> Iterable[str]:
        """The function and keys, then the state."""
        yield f"{function_name(self.function)} by {', '.join(self.by)}"
        yield "state " + (", ".join(f"{each.name} {each.words}" for each in self.state) or "none")
        if self.by_machine:
            yield "timers by the clock of the machine"
        if diverts(self.on_error):
            yield f"tuples it fails for go to {DEAD!r}"


def _nothing(given: KeyedTuples) -> KeyedResult:  # noqa: ARG001
    """Emit nothing and leave all state as it is."""
    return KeyedResult()


def function_name(function: Callable[..., Any]) -> str:
    """What errors and plans call a function."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


def _checked(spec: ProcessSpec, schema: pa.Schema) -> None:
    if not spec.by:
        raise UsageError("keyed processing needs at least one key column: give by='column'")
    for name in (*spec.by, *(() if spec.time is None else (spec.time,))):
        place_of(schema, name, "keyed processing")
    check_on_error(spec.on_error)
    check_null_keys(spec.null_keys)
    if spec.timers not in ("event", "processing"):
        raise UsageError(f"timers is 'event' or 'processing', not {spec.timers!r}")
    if spec.by_machine and (spec.time is not None or spec.slack):
        raise UsageError(
            "timers='processing' goes by the clock of the machine: leave out time and slack, or "
            "take timers='event'"
        )
    if spec.route_late and spec.time is None:
        raise UsageError("late tuples are those behind the event time: give time='column'")
    if spec.on_timer is not None and not spec.each_key:
        raise UsageError(
            "on_timer is for functions of one key (each_key=True); a function of all keys is told "
            "by `fired` which timers did"
        )
    if len(set(spec.output.names)) < len(spec.output.names):
        raise SchemaMismatch("two output columns have one name; rename one")


class KeyedProcess(KeyedOperator):
    """The operator.  Invariant: between turns no timer is set that the clock has reached."""

    spec: ProcessSpec
    # A function may see many keys at once.
    divisible = False
    clock = NO_TIME

    def __init__(self, spec: ProcessSpec, schema: pa.Schema) -> None:
        _checked(spec, schema)
        super().__init__(schema)
        self.spec = spec
        self.output_schema = spec.output
        self._time = None if spec.time is None else TimeColumn(schema, spec.time)
        self._time_kind = pa.int64() if self._time is None else self._time.kind
        if spec.by_machine:
            self._time_kind = pa.timestamp("ms", "UTC")
        has_time = self.clocked or self._time is not None
        unit_ns = 1 if self._time is None else self._time.unit_ns
        self._slack, self._behind = slack_in_unit(spec.slack, unit_ns)
        self._dead_schema = keyed_dead_schema(schema) if diverts(spec.on_error) else None
        self._parts = KeyedParts(
            schema,
            spec.by,
            spec.state,
            refuse_nulls=spec.null_keys == "refuse",
            timed=has_time,
        )
        function = spec.function
        if spec.each_key:
            function = EachKey(spec.function, spec.on_timer, spec.output, tell_now=self.clocked)
        self._caller = Caller(
            function,
            function_name(spec.function),
            output=spec.output,
            state=self._parts.state.schema,
            has_time=has_time,
            divert=diverts(spec.on_error),
        )
        # What input that is replayed has told of the time, since this operator was made: tuples,
        # or ticks.
        self._told_by_input = NO_TIME
        # The last tick, also of the life before.
        self._ticked = NO_TIME
        # While replaying: the clock so far; by slot, the clock of its footprint, and whether it has
        # seen any tuple.
        self._replay_clock = NO_TIME
        self._floor = np.zeros(0, np.int64)
        self._seen = np.zeros(0, np.bool_)

    @property
    def open_parts(self) -> int:
        """How many keys have a part: N."""
        return self._parts.open_parts

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self._parts.opened_at

    @property
    def delay(self) -> int:
        """How far its clock is behind watermarks; what a function emits has the time it says."""
        return self._behind

    @property
    def clocked(self) -> bool:
        """Whether it goes by the clock of the machine."""
        return self.spec.by_machine

    @property
    def alarm(self) -> int:
        """No timer is set before this."""
        return self._parts.next_timer

    # --- the normal path ---------------------------------------------------------------------

    def process(self, event: StreamEvent) -> Outcome:
        """Apply a stream event: tuples, then time, then timers."""
        self.check_schema(event)
        times, parts = self._times(event), self._parts
        keys = parts.keys.intern(event.batch, event.position)
        parts.ensure()
        late = self._late(times, self.clock)
        turn = KeyedTurn(self.clock)
        before = self.clock, self._told_by_input, parts.next_timer, parts.open_parts
        try:
            self._take_tuples(turn, event.batch, event.position, np.where(late, np.int32(-1), keys))
            for clock in self._heard(event, times):
                self.clock = max(self.clock, clock)
                self._fire(turn, self.clock, None)
        except BaseException:
            for slots, *rest in reversed(turn.before):
                parts.put_back(slots, *rest)
            self.clock, self._told_by_input, parts.next_timer, parts.open_parts = before
            raise
        if late.any():
            self.late_tuples += int(np.count_nonzero(late))
            turn.late = plain_batch(event.batch.filter(pa.array(late)))
            turn.by_watermark.append(keys[late & (times >= before[1])])
        outcome = self._outcome(turn, event.position)
        parts.forget_idle_keys()
        return outcome

    def _times(self, event: StreamEvent) -> Int64s:
        return NO_IDS if self._time is None else self._time.times(event.batch, event.position)

    def _late(self, times: Int64s, clock: Int64s | int) -> Array:
        """Which tuples are kept from the function, by the clock before the turn."""
        flags: Array = times < clock if self.spec.route_late else np.zeros(1, np.bool_)
        return flags

    def _heard(self, event: StreamEvent, times: Int64s) -> tuple[int, int]:
        """What input has told of the time, then the watermark: that may come with it or behind."""
        watermark = clamped(event.watermark, self._behind)
        if self.clocked and event.is_tick:
            self._told_by_input = max(self._told_by_input, watermark)
            self._ticked = max(self._ticked, watermark)
        if self.clocked and watermark < TIME_LIMIT:
            watermark = NO_TIME
        if times.size:
            self._told_by_input = max(self._told_by_input, int(times.max()) - self._slack)
        return self._told_by_input, watermark

    def _now(self, slots: Int32s) -> pa.Scalar | None:
        """The clock at these keys' turn; where they are replayed, they all agree on it."""
        if not self.clocked:
            return None
        replayed = self._floor.size > 0
        # At the end of the stream timers fire ahead of the clock: it shows what it last showed.
        now = max(self._replay_clock, int(self._floor[slots].max())) if replayed else self._ticked
        return pa.scalar(None if now == NO_TIME else now, self._time_kind)

    def _take_tuples(
        self, turn: KeyedTurn, batch: pa.RecordBatch, position: int, keys: Array
    ) -> None:
        """Call the function with the tuples whose key is not -1, and take its answers."""
        parts = self._parts
        groups = grouped(keys, parts.place)
        slots = groups.slots
        if not slots.size:
            return
        parts.make_fresh(slots[parts.opened_at[slots] < 0])
        timers = parts.timer[slots]
        is_set = timers != NO_TIMER
        given = KeyedTuples(
            batch=batch.take(pa.array(groups.order)),
            offsets=groups.offsets,
            keys=parts.keys_of(slots),
            state=parts.state.take(slots),
            timer=arrow_array(timers, self._time_kind, None if is_set.all() else is_set),
            fired=pa.nulls(slots.size, self._time_kind),
            positions=groups.order + position,
            now=self._now(slots),
        )
        self._call(turn, given, slots, groups.first_rows + position)

    def _call(self, turn: KeyedTurn, given: KeyedTuples, slots: Int32s, ids: Int64s) -> None:
        """Call the function; `ids` are those of the parts, also of those that open now."""
        parts = self._parts
        answers, failures = self._caller.call(given)
        turn.note(slots, given.state, parts.timer[slots], parts.opened_at[slots])
        for answer in answers:
            mine = slots[answer.first : answer.last]
            new = parts.opened_at[mine] < 0
            if new.any():
                opened = mine[new], ids[answer.first : answer.last][new]
                parts.open(*opened, turn.clock_before)
                turn.opened.append(opened)
            if answer.state is not None:
                parts.state.put(mine, answer.state)
            if answer.timer is not None:
                parts.set_timers(mine, answer.timer)
            if answer.forget is not None:
                turn.ended.append(parts.end(mine[answer.forget]))
            if answer.output is not None:
                turn.outputs.append(answer.output)
        turn.dead += [(given.between(each.start, each.end), each.words) for each in failures]

    def _fire(self, turn: KeyedTurn, clock: int, floor: Int64s | None) -> None:
        """Fire timers until the clock, or the part's own floor, has reached none that is set."""
        parts = self._parts
        while (due := parts.due(clock, floor)).size:
            fired = parts.timer[due]
            given = KeyedTuples(
                batch=no_tuples(self.input_schema),
                offsets=np.zeros(due.size + 1, np.int64),
                keys=parts.keys_of(due),
                state=parts.state.take(due),
                timer=pa.nulls(due.size, self._time_kind),
                fired=arrow_array(fired, self._time_kind),
                positions=NO_IDS,
                now=self._now(due),
            )
            turn.note(due, given.state, fired, parts.opened_at[due])
            parts.timer[due] = NO_TIMER
            self._call(turn, given, due, parts.opened_at[due])
            turn.by_watermark.append(due[fired > self._told_by_input])
            reached = np.full(due.size, clock) if floor is None else np.maximum(floor[due], clock)
            # At the end of time there is no later.
            parts.timer[due[reached >= TIME_LIMIT]] = NO_TIMER

    def _outcome(self, turn: KeyedTurn, position: int) -> Outcome:
        opened_at = self._parts.opened_at
        opened_slots, opened_ids = turn.all_opened()
        still = opened_at[opened_slots] == opened_ids
        ended = np.concatenate([NO_IDS, *turn.ended])
        by_watermark = np.concatenate([NO_SLOTS, *turn.by_watermark])
        dead = None
        if self._dead_schema is not None:
            dead = turn.dead_tuples(self.spec.by, self._dead_schema)
        return Outcome(
            results=turn.results(),
            late=turn.late,
            opened_slots=opened_slots[still],
            opened_ids=opened_ids[still],
            ended_ids=ended[ended < position],
            touched_slots=turn.touched(),
            others=[] if dead is None else [(FURTHER_PORTS, dead)],
            unrepeatable_slots=np.unique(by_watermark[opened_at[by_watermark] >= 0]),
        )

    # --- footprints --------------------------------------------------------------------------

    def keys_in(self, slots: Array) -> list[pa.Array]:
        """The keys of open parts, a column for each key column."""
        return self._parts.keys.table.columns(slots)

    def common_clock(self, clocks: Sequence[int]) -> int:
        """The earliest: what the others have passed is still to be said of some keys."""
        return min(clocks)

    def opening_columns(self, slots: Array) -> list[Array]:
        """The key; with timers, the clock before the turn that opened the part."""
        return self._parts.opening_columns(slots)

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The key; with timers, the clock and the timer; then the state."""
        return self._parts.snapshot_columns(slots, self.clock)

    # --- recovery ----------------------------------------------------------------------------

    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        """See `StatefulOperator`."""
        if self.late_tuples and not self.spec.route_late:
            raise DamagedFrame("late tuples are not routed here, but the log counts some")
        self.clock, self._ticked, parts = clock, clock, self._parts
        opened = parts.read(openings, whole=False)
        checked = parts.read(snapshots, whole=True)
        slots = np.concatenate([opened.slots, checked.slots])
        if np.unique(slots).size != slots.size:
            raise DamagedFrame("the log holds two open states of one key")
        parts.make_fresh(opened.slots)
        for some, state in checked.states:
            parts.state.put(some, state)
        parts.open(slots, np.concatenate([openings.ids, snapshots.ids]), NO_TIME)
        parts.opening_clock[opened.slots] = opened.clocks
        if checked.slots.size:
            parts.set_timers(checked.slots, checked.timers)
        capacity = parts.opened_at.size
        self._floor = np.full(capacity, NO_TIME, np.int64)
        self._floor[slots] = np.concatenate([opened.clocks, checked.clocks])
        self._seen = np.ones(capacity, np.bool_)
        self._seen[opened.slots] = False
        return slots

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        self.check_schema(event)
        times = self._times(event)
        keys = self._parts.keys.find(event.batch, event.position)
        positions = np.arange(event.position, event.end)
        behind = keys >= 0
        behind[behind] = (self.opened_at[keys[behind]] >= 0) & (
            positions[behind] > self._applied[keys[behind]]
        )
        if self.spec.route_late:
            clocks = np.maximum(self._floor[keys[behind]], self._replay_clock)
            behind[behind] = ~self._late(times[behind], clocks)
        turn = KeyedTurn(self.clock)
        self._take_tuples(turn, event.batch, event.position, np.where(behind, keys, -1))
        self._seen[keys[behind]] = True
        for clock in self._heard(event, times):
            self._replay_clock = max(self._replay_clock, clock)
            self._fire(turn, self._replay_clock, self._floor)
        _check_kept(turn)
        return int(np.count_nonzero(behind))

    def _finish_replay(self) -> Array:
        """See `StatefulOperator`: every key that opened has got its tuple."""
        turn = KeyedTurn(self.clock)
        self._fire(turn, self.clock, None)
        _check_kept(turn)
        seen = self._seen
        self._floor, self._seen = NO_IDS, np.zeros(0, np.bool_)
        return np.flatnonzero((self.opened_at[: seen.size] >= 0) & ~seen)


def _check_kept(turn: KeyedTurn) -> None:
    if turn.ended:
        raise ReplayMismatch(
            "a key that is open by the log was forgotten when its input was replayed: the input is "
            "not the one the log was written from, or the function is not a function of its "
            "arguments alone"
        )
