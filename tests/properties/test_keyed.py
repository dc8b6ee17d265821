"""Keyed processing: what an oracle in plain Python says, and a crash never shows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from aggregate_cases import examples, instant_of
from aggregate_runs import TRIED, readable
from hypothesis import given, note
from hypothesis import strategies as st
from keyed_cases import (
    STATE,
    KeyedProgram,
    driven_by_watermarks,
    forgetting_keys,
    keyed_programs,
    long_lives,
    on_timer,
    on_tuples,
    run_with_other_watermarks,
)
from program_cases import ProgramLife, run
from test_approaches import PRECISE, check_no_crash_shows, check_same

from rewake.model.stream_event import NO_TIME, TIME_LIMIT


class Oracle:
    """The rule of the module docstring, key by key, with dictionaries."""

    def __init__(self, program: KeyedProgram) -> None:
        self.case, self.cuts = program.case, program.cuts
        self.clock = NO_TIME
        self.keys: dict[Any, dict[str, Any]] = {}
        self.results: list[tuple[Any, ...]] = []
        self.dead: list[tuple[Any, ...]] = []
        self.late: list[tuple[Any, ...]] = []

    def run(self, program: KeyedProgram) -> None:
        """All of the stream."""
        for event in program.events(0, self.cuts):
            self._tuples(event)
            times = [instant_of(each) for each in event.batch.column("t").to_pylist()]
            self._pass([time - self.case.slack for time in times])
            self._pass([] if event.watermark is None else [min(event.watermark, TIME_LIMIT)])

    def _pass(self, times: list[int]) -> None:
        self.clock = max([self.clock, *times])
        while self._timers():
            pass

    def _tuples(self, event: Any) -> None:
        rows: dict[Any, list[int]] = {}
        times = [instant_of(each) for each in event.batch.column("t").to_pylist()]
        for row, key in enumerate(zip(*self._key_columns(event.batch), strict=True)):
            if self.case.routes_late and times[row] < self.clock:
                self.late.append(tuple(event.batch.slice(row, 1).to_pylist()[0].values()))
            else:
                rows.setdefault(key, []).append(row)
        for key, mine in rows.items():
            fresh = {name: given[1] if isinstance(given, tuple) else None for name, given in _STATE}
            known = self.keys.get(key)
            entry = known or {"state": fresh, "timer": None, "id": event.position + mine[0]}
            batch = event.batch.take(mine)
            try:
                self._answer(key, entry, on_tuples(key, batch, dict(entry["state"])))
            except ValueError as error:
                text = f"ValueError: {error}"
                self.dead += [(*row.values(), text) for row in batch.to_pylist()]

    def _timers(self) -> bool:
        due = [
            (entry["timer"], entry["id"], key)
            for key, entry in self.keys.items()
            if entry["timer"] is not None and entry["timer"] <= self.clock
        ]
        for time, _, key in sorted(due, key=lambda each: each[:2]):
            entry = self.keys[key]
            entry["timer"] = None
            try:
                self._answer(key, entry, on_timer(key, time, dict(entry["state"])))
            except RuntimeError:
                self.dead.append((*key, "timer"))
            if self.clock >= TIME_LIMIT:
                entry["timer"] = None
        return bool(due)

    def _answer(self, key: Any, entry: dict[str, Any], answer: tuple[Any, ...]) -> None:
        rows, state, *timer = answer
        self.results += [tuple(row.values()) for row in rows]
        self.keys[key] = entry
        if timer:
            entry["timer"] = timer[0]
        entry["state"] = state
        if state is None:
            del self.keys[key]

    def _key_columns(self, batch: pa.RecordBatch) -> list[list[Any]]:
        return [batch.column(name).to_pylist() for name in self.case.by]


_STATE = list(STATE.items())


@examples(120)
@given(keyed_programs())
def test_keyed_processing_does_what_the_oracle_says(program):
    """Results in order, which tuples and timers it failed for, and which tuples were late."""
    TRIED["cases"] += 1
    program = KeyedProgram(case=program.case, cuts=program.cuts)
    oracle = Oracle(program)
    oracle.run(program)
    output = run(program, "cec", [], ProgramLife(program.cuts))
    assert readable(output.tables[0]) == oracle.results
    keys = len(program.case.by)
    found = [
        (*row[:keys], "timer") if row[-1].startswith("timer") else row
        for row in readable(output.tables[1])
    ]
    assert found == oracle.dead
    if program.case.routes_late:
        assert readable(output.tables[2]) == oracle.late
        assert output.late_tuples == len(oracle.late)


@pytest.mark.parametrize("name", PRECISE)
@examples(70)
@given(data=st.data())
def test_keyed_processing_under_every_precise_approach_shows_no_crash(name, data):
    """Whenever processes die: the same results and dead tuples, byte for byte, in order."""
    program = data.draw(keyed_programs())
    with forgetting_keys(program.case):
        check_no_crash_shows(data, program, name)


@pytest.mark.parametrize("early", [False, True], ids=["never", "early"])
@examples(80)
@given(keyed_programs().flatmap(driven_by_watermarks), st.data())
def test_timers_come_back_whenever_the_host_repeats_watermarks(early, program, data):
    """What a watermark decided beyond what tuples tell is in the log."""
    last = ProgramLife(program.cuts)
    with forgetting_keys(program.case):
        expected = run_with_other_watermarks(program, "cec", [], last)
        for _ in range(3):
            crashes, last = data.draw(long_lives())
            note(f"this schedule: {crashes}, then {last}")
            TRIED["cases"] += 1
            found = run_with_other_watermarks(program, "cec", crashes, last, early=early)
            check_same(found, expected)
