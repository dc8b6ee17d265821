"""Aggregates whose function fails for some tuples: dead letters once, and all else as it would be.

The function fails by the value and by the state it has: after a crash, a replay must fail for the
same tuples, or windows would hold something else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aggregate_cases import CUTS, Case, cases, examples, instant_of
from aggregate_runs import TRIED, forgetting, readable
from hypothesis import given
from hypothesis import strategies as st
from keyed_cases import KeyedProgram, as_case, with_end
from program_cases import ProgramLife, run
from session_cases import SessionCase, forgetting_keys
from test_approaches import PRECISE, check_no_crash_shows

from rewake.operators.aggregate.functions import Count, Sum, UserDefined
from rewake.oracle.aggregates import Punctuation, aggregate_with_late


def _added(state: Any, value: Any) -> Any:
    if value < 0:
        raise ValueError("below zero")
    if value == state[1]:
        raise ValueError("as before")
    return (state[0] + value, value)


def _merged(older: Any, newer: Any) -> Any:
    return (older[0] + newer[0], newer[1])


def _total(state: Any) -> Any:
    return state[0]


PICKY = UserDefined("v", "picky_v", (0.0, -1.0), _added, _merged, _total)


def oracle_picky(values: list[Any]) -> float:
    """What `PICKY` yields, from the list of values."""
    kept: list[Any] = []
    for value in values:
        if value >= 0 and (not kept or value != kept[-1]):
            kept.append(value)
    return float(sum(kept))


_DIVERTED: dict[str, Any] = {
    "aggregates": [Count(name="count_"), Sum("v", "sum_v"), PICKY],
    "on_error": "divert",
}


@dataclass(frozen=True)
class PickyWindows(Case):
    """A stream, and windows of it with a function that fails."""

    routes_late = True

    def spec(self) -> Any:
        """What is computed."""
        return replace(super().spec(), **_DIVERTED)


@dataclass(frozen=True)
class PickySessions(SessionCase):
    """A stream, and sessions of it with a function that fails."""

    routes_late = True

    def spec(self) -> Any:
        """What is computed."""
        return replace(super().spec(), **_DIVERTED)


@st.composite
def picky_programs(draw: st.DrawFn, kind: type) -> KeyedProgram:
    """Any stream through it, with steps around it."""
    case = as_case(kind, draw(cases(odd_floats=False)))
    return KeyedProgram(
        case=with_end(case, draw(st.booleans())),
        before=draw(st.sampled_from([(), (), ("some",), ("copied",)])),
        after=draw(st.sampled_from([(), (), ("last",)])),
        cuts=draw(CUTS),
    )


@pytest.mark.parametrize("kind", [PickyWindows, PickySessions])
@pytest.mark.parametrize("name", PRECISE)
@examples(80)
@given(data=st.data())
def test_functions_that_fail_show_no_crash_under_any_precise_approach(kind, name, data):
    """Whenever processes die: the same results, dead letters and late tuples, in order."""
    program = data.draw(picky_programs(kind))
    with forgetting(program.case), forgetting_keys(program.case):
        check_no_crash_shows(data, program, name)


def _stream(case: Case) -> list[Any]:
    stream: list[Any] = []
    marks = dict(case.punctuations)
    for number, row in enumerate(case.rows_as_dicts()):
        stream += [Punctuation(marks[number])] if number in marks else []
        stream.append(row | {"t": instant_of(row["t"])})
    if len(case.rows) in marks and case.rows:
        stream.append(Punctuation(marks[len(case.rows)]))
    return stream


@examples(200)
@given(cases(odd_floats=False))
def test_windows_count_a_failing_tuple_and_its_function_leaves_it_out(stream):
    """Results as the oracle has them; the dead are all that are below zero, and repetitions."""
    TRIED["cases"] += 1
    # Tumbling: the state that a tuple meets is that of its window, not of a pane of several.
    kind, size, _ = stream.window
    case = as_case(PickyWindows, replace(stream, window=(kind, size, size)))
    program = KeyedProgram(case=case, cuts=(3,))
    results, dead, late = map(readable, run(program, "cec", [], ProgramLife((3,))).tables)
    wanted, wanted_late = aggregate_with_late(
        _stream(case),
        by=case.by,
        window=case.window,
        functions=[("count", "", "count_"), ("sum", "v", "sum_v"), ("picky", "v", "picky_v")],
        time="t",
        slack=case.slack,
        timeout=case.timeout,
        user={"picky": oracle_picky},
    )
    columns = ("count_", "sum_v", "picky_v")
    assert [row[-3:] for row in results] == [tuple(row[each] for each in columns) for row in wanted]
    assert len(late) == len(wanted_late)
    value = len(case.by)
    below = Counter(repr(row) for row in case.rows if (row[value] or 0) < 0)
    below -= Counter(repr(row) for row in late)
    found = Counter(repr(row[:-1]) for row in dead if row[-1].endswith("below zero"))
    assert found == below
    said = "the user-defined aggregate 'picky_v' failed: ValueError: "
    assert all(row[-1] in (said + "below zero", said + "as before") for row in dead)
