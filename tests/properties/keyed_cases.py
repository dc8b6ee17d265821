"""Streams of `aggregate_cases` through other operators with parts by key, and hosts that forget."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any
from unittest import mock

import pyarrow as pa
from aggregate_cases import CUTS, Case, cases, instant_of
from aggregate_runs import ListedFrames
from hypothesis import strategies as st
from program_cases import ProgramCase, ProgramLife, ProgramOutput, built, output_of

from rewake.model.stream_event import END_OF_TIME
from rewake.operators.columns import keys as key_columns
from rewake.operators.fragment import FragmentProgram, OutputRoute
from rewake.operators.keyed.operator import KeyedProcess, ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.operators.keyed.vocabulary import KeyedResult, KeyedTuples
from rewake.operators.stateful import FURTHER_PORTS, LATE_PORT

STATE = {
    "n": (pa.int64(), 0),
    "text": pa.string(),
    "seen": (pa.list_(pa.int64()), []),
    "odd": (pa.bool_(), False),
}
_RESULT = [("n", pa.int64()), ("x", pa.int64()), ("why", pa.string())]


# --- what the user's functions do ------------------------------------------------------------


def _time(value: Any) -> int:
    return instant_of(value)


def on_tuples(key: Any, tuples: pa.RecordBatch, state: dict[str, Any]) -> tuple[Any, ...]:
    """Counts, remembers, sets and takes back its timer; fails for 40, forgets the key after -7."""
    values = tuples.column("v").to_pylist()
    times = [_time(each) for each in tuples.column("t").to_pylist()]
    if 40 in values:
        raise ValueError("forty")
    first, state = state["n"], dict(state)
    state["n"] += len(values)
    state["odd"] = not state["odd"]
    state["text"] = ((state["text"] or "") + f"{values[-1]}\u00e9")[-6:]
    state["seen"] = (state["seen"] + times)[-3:]
    rows = [_row(key, first + i, value, state["text"]) for i, value in enumerate(values)]
    after = None if values[-1] == -7 else state
    if state["n"] % 3 == 0:
        return rows, after
    return rows, after, max(times) + 4 if state["n"] % 3 == 1 else None


def on_timer(key: Any, time: Any, state: dict[str, Any]) -> tuple[Any, ...]:
    """Counts and sets itself again; fails at every fifth, forgets the key at every fourth."""
    if state["n"] % 5 == 4:
        raise RuntimeError("five")
    state = {**state, "n": state["n"] + 1, "text": None}
    row = _row(key, state["n"], _time(time), f"timer {state['seen']}")
    timer = _time(time) + 2 if state["n"] < 9 else None
    return [row], (None if state["n"] % 4 == 0 else state), timer


def _row(key: Any, n: int, x: Any, why: Any) -> dict[str, Any]:
    key = key if isinstance(key, tuple) else (key,)
    named = {f"k{i}": value for i, value in enumerate(key)}
    return {**named, "n": n, "x": x, "why": why}


@dataclass(frozen=True)
class AllKeys:
    """The same for all keys at once."""

    output: pa.Schema

    def __call__(self, given: KeyedTuples) -> KeyedResult:
        """One key after the other, put together."""
        rows, states, timers, forget = [], given.state.to_pylist(), given.timer.to_pylist(), []
        for place, state in enumerate(states):
            key, time = given.key(place), given.fired[place].as_py()
            if time is None:
                answer = on_tuples(key, given.tuples(place), state)
            else:
                answer = on_timer(key, time, state)
            rows += answer[0]
            forget.append(answer[1] is None)
            states[place] = answer[1] or state
            if len(answer) == 3:
                timers[place] = answer[2]
        return KeyedResult(
            pa.RecordBatch.from_pylist(rows, schema=self.output),
            pa.RecordBatch.from_pylist(states, schema=given.state.schema),
            pa.array(timers, given.timer.type),
            forget,
        )


# --- cases -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyedCase(Case):
    """A stream, and keyed processing of it."""

    each_key: bool = False
    routes_late: bool = False

    @property
    def output(self) -> pa.Schema:
        """The keys and what the functions say."""
        kinds = [self.schema.field(name).type for name in self.by]
        plain = [each.value_type if pa.types.is_dictionary(each) else each for each in kinds]
        return pa.schema([*zip(self.by, plain, strict=True), *_RESULT])

    def spec(self) -> ProcessSpec:
        """What is computed."""
        return ProcessSpec(
            on_tuples if self.each_key else AllKeys(self.output),
            tuple(self.by),
            state_fields(STATE),
            self.output,
            time="t",
            slack=self.slack,
            on_error="divert",
            each_key=self.each_key,
            on_timer=on_timer if self.each_key else None,
            route_late=self.routes_late,
        )

    def operator(self) -> KeyedProcess:
        """A new operator."""
        return self.spec().operator(self.schema)


class KeyedProgram(ProgramCase):
    """Results, the tuples for which the functions failed, and if asked for those that are late."""

    @cached_property
    def program(self) -> FragmentProgram:
        """The program that all lives share."""
        routes = (OutputRoute(), OutputRoute(FURTHER_PORTS))
        routes += (OutputRoute(LATE_PORT),) if self.case.routes_late else ()
        before = self._steps(self.before, self.case.names)
        after = self._steps(self.after, self.case.operator().output_schema.names)
        return FragmentProgram(before, self.case.spec(), after, routes=routes)

    @property
    def schemas(self) -> list[pa.Schema]:
        """Of each output."""
        schema = self.case.schema
        (given,) = self.program.given_schemas(schema)
        dead = self.case.spec().further_schema("dead", given)
        late = [given] if self.case.routes_late else []
        return [self.program.output_schema(schema), dead, *late]


def forgetting_keys(case: Case) -> Any:
    """While in this context, keys without a part are forgotten as the case says."""
    return mock.patch.object(key_columns, "SPARE_KEYS", -1 if case.forgetful else 65_536)


def as_case(kind: type, case: Case, **rest: Any) -> Any:
    """The same stream as a case of another kind."""
    return kind(**{each.name: getattr(case, each.name) for each in fields(Case)}, **rest)


def with_end(case: Any, ends: bool) -> Any:
    """The same stream, with its end announced."""
    if not ends:
        return case
    marks = [mark for mark in case.punctuations if mark[0] < len(case.rows)]
    return replace(case, punctuations=(*marks, (len(case.rows), END_OF_TIME)))


@st.composite
def keyed_programs(draw: st.DrawFn, **rest: Any) -> KeyedProgram:
    """Any stream through keyed processing, with steps around it."""
    stream = draw(cases(odd_floats=False))
    case = as_case(KeyedCase, stream, each_key=draw(st.booleans()), routes_late=draw(st.booleans()))
    return KeyedProgram(
        case=with_end(replace(case, slack=draw(st.integers(0, 3))), draw(st.booleans())),
        before=draw(st.sampled_from([(), (), ("some",), ("copied",)])),
        after=draw(st.sampled_from([(), (), ("last",)])),
        cuts=draw(CUTS),
        **rest,
    )


@st.composite
def driven_by_watermarks(draw: st.DrawFn, program: Any) -> Any:
    """The same, where tuples tell the time so late that watermarks decide all there is."""
    case = program.case
    rows = case.rows
    marks = st.tuples(st.integers(1, max(len(rows), 1)), st.sampled_from([0, -4, 3, -9, 6]))
    told = {}
    for after, ahead in draw(st.lists(marks, min_size=3, max_size=9)):
        if rows:
            told[after] = max(instant_of(row[-1]) for row in rows[:after]) + ahead
    marked = replace(case, slack=60, punctuations=tuple(sorted(told.items())))
    return replace(program, case=marked)


def long_lives() -> st.SearchStrategy[tuple[list[ProgramLife], ProgramLife]]:
    """Processes that leave few CHECKs, and die late enough to have much to replay."""
    settings = st.sampled_from([(), (("records", 40), ("tuples", 20), ("interval_ms", 1))])
    crash = st.builds(ProgramLife, CUTS, settings, st.integers(6, 30), st.booleans())
    last = st.builds(ProgramLife, CUTS, settings, st.just(-1), st.just(False))
    return st.tuples(st.lists(crash, min_size=1, max_size=3), last)


# --- a host that forgets watermarks, or says them too early ----------------------------------


def run_with_other_watermarks(
    case: ProgramCase,
    name: str,
    crashes: list[ProgramLife],
    last: ProgramLife,
    *,
    early: bool = False,
) -> ProgramOutput:
    """As `program_cases.run`, by a host that records watermarks and never says them again.

    Those behind the tuple at tc may not have been said at all.  With `early`, every stream event
    that is replayed says the last of them.
    """
    log = ListedFrames()
    for life in [*crashes, last]:
        driven = built(case, name, life, log)
        through = driven.replay_through
        for number, said in enumerate(case.events(driven.position, life.cuts)):
            if number == life.turns:
                break
            past = said.end <= through
            if past and said.start == said.end:
                continue
            told = [time for at, time in case.case.punctuations if at <= through]
            known = max(told, default=None) if early else None
            event = replace(said, watermark=known) if past else said
            turn = driven.turn(event, float(number))
            record = turn.record
            if record is None and event.watermark is not None and not driven.recovering:
                record = driven.bare_record()
            if life.lost and number + 1 == life.turns and record is not None:
                break
            if record is not None:
                log.append(record)
            log.needed = driven.frames_needed
    return output_of(case, log.frames, driven.operator.late_tuples)
