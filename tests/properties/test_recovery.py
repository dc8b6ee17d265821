"""The master property: a crash never shows in the output.

`crashing` also checks on the way, for every schedule: recovery works from exactly the newest
`frames_needed` frames, never asks for input that was acknowledged, and `check_invariants` holds
after each turn.  Streams are sparse at random: stream events cover positions before their tuples,
or positions without any.
"""

import numpy as np
from aggregate_cases import (
    CRASHES,
    CUTS,
    IMMORTAL,
    POLICIES,
    SCHEDULES,
    Case,
    Life,
    PolicyOf,
    Schedule,
    cases,
    examples,
    in_pieces,
)
from aggregate_runs import (
    TRIED,
    ListedFrames,
    crashing,
    events,
    failure_free,
    forgetting,
    recovered,
)
from hypothesis import given, note
from hypothesis import strategies as st

from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing


@in_pieces(11)
@examples(100)
@given(case=cases(), schedules=SCHEDULES)
def test_output_after_any_crash_schedule_equals_failure_free_output(
    piece: int, case: Case, schedules: tuple[Schedule, ...]
) -> None:
    """Whenever processes die: the same results and late tuples, byte for byte, in order."""
    expected = failure_free(case)
    for crashes, last in schedules:
        TRIED["cases"] += 1
        note(f"this schedule: {crashes}, then {last}")
        crashing(case, crashes, last).check_same(expected)


@examples(200)
@given(cases(), st.lists(POLICIES, min_size=1, max_size=3))
def test_a_policy_never_changes_the_output(case: Case, policies: list[PolicyOf]) -> None:
    """Policies choose CHECKs, which are seen by recovery alone."""
    expected = failure_free(case)
    for policy in policies:
        TRIED["cases"] += 1
        failure_free(case, IMMORTAL._replace(policy=policy)).check_same(expected)


def _state(cec: ContinuousEventualCheckpointing) -> list[object]:
    """Everything an operator knows of its open parts, in the order of their ids."""
    operator = cec.operator
    slots = np.flatnonzero(operator.opened_at >= 0).astype(np.int32)
    slots = slots[np.argsort(operator.ids_of(slots))]
    columns = [column.tolist() for column in operator.snapshot_columns(slots)]
    return [operator.ids_of(slots).tolist(), operator.clock, operator.late_tuples, repr(columns)]


def _caught_up(case: Case, life: Life, log: ListedFrames) -> list[object]:
    """The state of a new process when its replay is over and nothing new has been processed."""
    cec = recovered(case, life, log)
    through = log.frames[-1].t_end + 1 if log.frames else 0
    for event in events(case, cec.position, life.cuts):
        if not cec.recovering:
            break
        # A watermark behind the last replayed tuple may belong to a turn that left no record.
        past = event.split(through)[0] if event.end >= through else event
        cec.turn(past)
    return _state(cec)


@examples(300)
@given(cases(), CRASHES, CUTS)
def test_recovering_twice_from_the_same_log_gives_the_same_state(
    case: Case, lives: list[Life], cuts: tuple[int, ...]
) -> None:
    """Recovery reads and changes nothing; how the replay is cut does not matter either."""
    TRIED["cases"] += 1
    log = ListedFrames()
    with forgetting(case):
        cec = recovered(case, lives[0], log)
        for _, event in zip(range(lives[0].turns), events(case, 0, lives[0].cuts), strict=False):
            turn = cec.turn(event)
            if turn.record is not None:
                log.append(turn.record)
                before = _state(cec)
        log.needed = cec.frames_needed
        if log.frames:
            assert _caught_up(case, lives[0], log) == before
            assert _caught_up(case, Life(cuts), log) == before
