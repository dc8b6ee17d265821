"""Joins: what they compute, whatever the cuts; and a crash that never shows in the output."""

import numpy as np
import pytest
from aggregate_cases import CUTS, examples
from aggregate_runs import TRIED, ListedFrames
from hypothesis import given, note
from hypothesis import strategies as st
from join_cases import JoinCase, Oracle, built, hurried, join_cases, rows_of, run
from program_cases import ProgramLife, lives_of

from rewake.recovery.approach import Keeper, approaches

PRECISE = sorted(name for name, each in approaches().items() if each.keeper is Keeper.LOG)


@examples(250)
@given(join_cases(), CUTS)
def test_a_join_computes_what_its_rule_says_whatever_the_cuts(case: JoinCase, cuts) -> None:
    """Results, late tuples and failing pairs are those of the rule, applied tuple by tuple."""
    TRIED["cases"] += 1
    expected = Oracle(case).run()
    output = run(case, "cec", [], ProgramLife(cuts))
    assert rows_of(output.tables[0]) == expected.results
    assert [rows_of(table) for table in output.tables[1:3]] == list(expected.late)
    dead = [row for table in output.tables[3:] for row in rows_of(table)]
    assert [row[:-1] for row in dead] == expected.dead
    assert all(row[-1] for row in dead), "a dead letter says what went wrong"
    assert output.late_tuples == sum(map(len, expected.late))


@pytest.mark.parametrize("name", PRECISE)
@examples(120)
@given(data=st.data())
def test_output_after_any_crash_schedule_equals_failure_free_output(name, data) -> None:
    """Whenever processes die, under every precise approach: the same bytes on each output."""
    case = data.draw(join_cases())
    expected = run(case, name, [], ProgramLife(case.cuts))
    for _ in range(3):
        crashes, last = data.draw(lives_of(name))
        note(f"this schedule: {crashes}, then {last}")
        TRIED["cases"] += 1
        run(case, name, crashes, last).check_same(expected)


@pytest.mark.parametrize("name", PRECISE)
@examples(80)
@given(data=st.data())
def test_watermarks_need_not_be_repeated_while_input_is_replayed(name, data) -> None:
    """Which tuples were late is known from the log, not from the clock of a replay."""
    case, lives = data.draw(join_cases()), data.draw(lives_of(name))
    TRIED["cases"] += 1
    expected = run(case, name, [], ProgramLife(case.cuts))
    run(case, name, *lives, silent=True).check_same(expected)


@pytest.mark.parametrize("name", PRECISE)
@examples(80)
@given(data=st.data())
def test_watermarks_may_come_earlier_while_input_is_replayed(name, data) -> None:
    """Two inputs meet in their old order, but what each says of time may not."""
    case, lives = data.draw(join_cases()), data.draw(lives_of(name))
    TRIED["cases"] += 1
    expected = run(case, name, [], ProgramLife(case.cuts))
    run(case, name, *lives, early=True).check_same(expected)


def _state(driven) -> list[object]:
    """Everything an operator knows of its open parts, in the order of their ids."""
    operator = driven.operator
    slots = np.flatnonzero(operator.opened_at >= 0).astype(np.int32)
    slots = slots[np.argsort(operator.ids_of(slots))]
    columns = [column.tolist() for column in operator.snapshot_columns(slots)]
    return [operator.ids_of(slots).tolist(), operator.clock, operator.late_tuples, columns]


@examples(100)
@given(join_cases(), lives_of("cec"), CUTS)
def test_a_recovered_state_is_the_one_that_was_lost(case: JoinCase, lives, cuts) -> None:
    """Tuples, marks, clock and who has met: the same bytes, however the replay is cut."""
    TRIED["cases"] += 1
    log, life = ListedFrames(), lives[0][0]
    before = None
    with hurried(case):
        driven = built(case, "cec", life, log)
        for _, event in zip(range(life.turns), case.events(0, life.cuts), strict=False):
            turn = driven.turn(event)
            if turn.record is not None:
                log.append(turn.record)
                before = _state(driven)
        log.needed = driven.frames_needed
        if before is None:
            return
        again = built(case, "cec", ProgramLife(cuts), log)
        through = log.frames[-1].t_end + 1
        for event in case.events(again.position, cuts):
            if not again.recovering:
                break
            again.turn(event.split(through)[0] if event.end >= through else event)
        assert _state(again) == before
