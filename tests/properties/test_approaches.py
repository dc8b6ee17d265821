"""Every precise approach: a crash never shows on any output of a fragment; and what amnesia loses.

Fragments have steps before and after the aggregate, or no aggregate at all, and a shuffle.
"""

from dataclasses import replace

import pyarrow as pa
import pytest
from aggregate_cases import examples
from aggregate_runs import TRIED, bytes_of, events, forgetting, readable
from hypothesis import given, note
from hypothesis import strategies as st
from program_cases import (
    ProgramCase,
    ProgramLife,
    ProgramOutput,
    lives_of,
    program_cases,
    run,
)

from rewake.model.stream_event import StreamEvent
from rewake.recovery.approach import Keeper, approach_named, approaches

PRECISE = sorted(name for name, each in approaches().items() if each.keeper is Keeper.LOG)


def check_same(found: ProgramOutput, expected: ProgramOutput) -> None:
    """Both are the same on every output, byte for byte; the error shows them as rows."""
    for output, pair in enumerate(zip(found.tables, expected.tables, strict=True)):
        assert bytes_of(pair[0]) == bytes_of(pair[1]), (
            f"output {output} differs:\n  found    {readable(pair[0])}\n  "
            f"expected {readable(pair[1])}"
        )
    assert found.late_tuples == expected.late_tuples


def check_no_crash_shows(data: st.DataObject, case: ProgramCase, name: str, times: int = 3) -> None:
    """So many crash schedules give what no crash at all gives."""
    expected = run(case, name, [], ProgramLife(case.cuts))
    for _ in range(times):
        crashes, last = data.draw(lives_of(name))
        note(f"this schedule: {crashes}, then {last}")
        TRIED["cases"] += 1
        check_same(run(case, name, crashes, last), expected)


@pytest.mark.parametrize("name", PRECISE)
@examples(200)
@given(data=st.data())
def test_output_under_every_precise_approach_is_the_failure_free_one(name, data):
    """Whenever processes die: the same tuples on each output, byte for byte, in order."""
    check_no_crash_shows(data, data.draw(program_cases()), name, times=2)


@examples(100)
@given(program_cases(), st.data())
def test_precise_approaches_agree_with_each_other(case, data):
    """An approach is about crashes alone: failure-free, all give the same output."""
    outputs = []
    for name in PRECISE:
        _, life = data.draw(lives_of(name))
        outputs.append(run(case, name, [], life))
    TRIED["cases"] += 1
    for output in outputs[1:]:
        check_same(output, outputs[0])


def _emitted(case: ProgramCase, name: str, stream: list[StreamEvent], first: int) -> list[pa.Table]:
    """What a fragment emits, output by output, that is new at position `first`."""
    program = case.program
    driven = approach_named(name).build(program.operator(case.case.schema), program.emit, ())
    driven.position = first
    batches = [[] for _ in case.schemas]
    for event in stream:
        for output, batch in driven.turn(event).outputs:
            batches[output].append(batch)
    return [pa.Table.from_batches(*each) for each in zip(batches, case.schemas, strict=True)]


@examples(150)
@given(program_cases(), st.integers(0, 12), st.integers(0, 3))
def test_amnesia_gives_what_each_life_computes_from_its_own_input(case, turns, gap):
    """State is lost at a crash, and so is what comes until the next life begins; nothing else."""
    TRIED["cases"] += 1
    stream = list(events(case.case, 0, case.cuts))
    lives = [stream[:turns], stream[turns + gap :]]
    with forgetting(case.case):
        for life in lives:
            start = life[0].start if life else 0
            # The rest of the stream as one of its own, which another approach sees from its start.
            own = [
                replace(each, position=each.position - start, start=each.start - start)
                for each in life
            ]
            found = _emitted(case, "amnesia", life, start)
            for one, other in zip(found, _emitted(case, "cec", own, 0), strict=True):
                assert bytes_of(one) == bytes_of(other)
