"""Session windows: what an oracle in plain Python says, and a crash never shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from aggregate_cases import (
    examples,
    instant_of,
    oracle_functions,
)
from aggregate_runs import TRIED, layout_of, readable
from hypothesis import given, note
from hypothesis import strategies as st
from keyed_cases import (
    driven_by_watermarks,
    long_lives,
    run_with_other_watermarks,
)
from program_cases import ProgramCase, ProgramLife, lives_of, run
from session_cases import SessionCase, forgetting_keys, scattered, session_programs
from test_approaches import PRECISE, check_no_crash_shows, check_same

from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.oracle.aggregates import results_of

# --- the oracle ------------------------------------------------------------------------------


class Oracle:
    """Lists of tuples; a session is a list, and lists that touch become one."""

    def __init__(self, case: SessionCase) -> None:
        self.gap, self.slack, self.keys = case.window[1], case.slack, len(case.by)
        self.clock = NO_TIME
        self.open: dict[Any, list[list[tuple[int, int]]]] = {}
        self.results: list[tuple[Any, ...]] = []
        self.members: list[list[int]] = []  # of each result: the rows of its tuples
        self.late: list[int] = []
        layout = layout_of(case)
        self._pass(layout.marks.get(0, NO_TIME))
        for row, position in enumerate(layout.positions.tolist()):
            self._tuple(case.rows[row], row)
            self._pass(layout.marks.get(position + 1, NO_TIME))

    def _tuple(self, row: tuple[Any, ...], number: int) -> None:
        key, time = row[: self.keys], instant_of(row[-1])
        mine = self.open.get(key, [])
        near = [each for each in mine if any(abs(time - t) < self.gap for t, _ in each)]
        if not near and time + self.gap <= self.clock:
            self.late.append(number)
        else:
            rest = [each for each in mine if each not in near]
            joined = sorted([(time, number), *(item for each in near for item in each)])
            self.open[key] = [*rest, joined]
        self._pass(time - self.slack)

    def _pass(self, time: int) -> None:
        self.clock = max(self.clock, min(time, TIME_LIMIT))
        over = []
        for key, mine in self.open.items():
            closed = [each for each in mine if each[-1][0] + self.gap <= self.clock]
            self.open[key] = [each for each in mine if each not in closed]
            over += [
                (each[-1][0] + self.gap, min(n for _, n in each), key, each) for each in closed
            ]
        for end, _, key, each in sorted(over, key=lambda one: one[:2]):
            self.results.append((*key, each[0][0], end, len(each)))
            self.members.append(sorted(number for _, number in each))


@examples(250)
@given(session_programs(functions="count"))
def test_sessions_are_what_the_oracle_says(program):
    """Which tuples are together, which are late, and in which order sessions close."""
    TRIED["cases"] += 1
    program = ProgramCase(case=program.case, cuts=program.cuts)
    output = run(program, "cec", [], ProgramLife(program.cuts))
    oracle = Oracle(program.case)
    keys = len(program.case.by)
    found = [
        (*row[:keys], instant_of(row[keys]), instant_of(row[keys + 1]), row[keys + 2])
        for row in readable(output.tables[0])
    ]
    assert found == oracle.results
    # As text, in which a NaN is a NaN.
    late = [program.case.rows[row] for row in oracle.late]
    assert list(map(repr, readable(output.tables[1]))) == list(map(repr, late))
    assert output.late_tuples == len(oracle.late)


_COMPARED = ("count", "sum", "avg", "min", "max", "first", "last")


@examples(250)
@given(session_programs())
def test_exact_functions_of_sessions_are_what_the_oracle_says(program):
    """Decimals, texts and times of sessions that grew together are those of all their tuples."""
    TRIED["cases"] += 1
    decimals = pa.types.is_decimal(program.case.schema.field("w").type)
    case = replace(program.case, functions="decimals" if decimals else "others")
    program = ProgramCase(case=case, cuts=program.cuts)
    output = run(program, "cec", [], ProgramLife(program.cuts))
    rows = case.rows_as_dicts()
    functions = [each for each in oracle_functions(case.functions) if each[0] in _COMPARED]
    names = [name for _, _, name in functions]
    expected = [results_of(functions, [rows[n] for n in each]) for each in Oracle(case).members]
    assert output.tables[0].select(names).to_pylist() == expected


@pytest.mark.parametrize("name", PRECISE)
@examples(80)
@given(data=st.data())
def test_sessions_under_every_precise_approach_show_no_crash(name, data):
    """Whenever processes die: the same results and late tuples, byte for byte, in order."""
    program = data.draw(session_programs())
    with forgetting_keys(program.case):
        check_no_crash_shows(data, program, name)


@pytest.mark.parametrize("early", [False, True], ids=["never", "early"])
@pytest.mark.parametrize("name", PRECISE)
@examples(80)
@given(session_programs().flatmap(driven_by_watermarks) | scattered(), st.data())
def test_sessions_come_back_whenever_the_host_repeats_watermarks(name, early, program, data):
    """What a watermark decided beyond what tuples tell is in the log."""
    with forgetting_keys(program.case):
        expected = run_with_other_watermarks(program, name, [], ProgramLife(program.cuts))
        for _ in range(3):
            crashes, last = data.draw(long_lives() if name == "cec" else lives_of(name))
            note(f"this schedule: {crashes}, then {last}")
            TRIED["cases"] += 1
            found = run_with_other_watermarks(program, name, crashes, last, early=early)
            check_same(found, expected)
