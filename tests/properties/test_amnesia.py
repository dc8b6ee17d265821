"""Amnesia, for every operator with state: a life gives what it would give for its own input alone.

Nothing of an earlier life shows, and no position of the stream matters but its order.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from aggregate_cases import examples
from aggregate_runs import TRIED, bytes_of, events, readable
from hypothesis import given
from hypothesis import strategies as st
from join_cases import join_cases
from keyed_cases import keyed_programs
from resample_cases import resample_cases
from session_cases import session_programs
from sort_cases import sort_cases
from sort_runs import CUTS

from rewake.model.stream_event import StreamEvent
from rewake.operators.fragment import FragmentProgram, OutputRoute
from rewake.operators.stateful import FURTHER_PORTS, LATE_PORT, RESULTS_PORT, StatefulSpec
from rewake.recovery.approach import approach_named

DEATHS = {"turns": st.integers(0, 12), "gap": st.integers(0, 3)}


def emitted(
    program: FragmentProgram, schemas: Sequence[pa.Schema], name: str, stream: list[StreamEvent]
) -> list[tuple[int, bytes, list]]:
    """What each output gets of a fragment that begins with this stream."""
    driven = approach_named(name).build(program.operator(*schemas), program.emit, ())
    driven.position = stream[0].start if stream else 0
    found: dict[int, list[pa.RecordBatch]] = {}
    for event in stream:
        for output, batch in driven.turn(event).outputs:
            found.setdefault(output, []).append(batch)
    tables = [(output, pa.Table.from_batches(each)) for output, each in sorted(found.items())]
    return [(output, bytes_of(table), readable(table)) for output, table in tables]


def check_lives(
    program: FragmentProgram,
    schemas: Sequence[pa.Schema],
    stream: list[StreamEvent],
    turns: int,
    gap: int,
) -> None:
    """Die after so many turns, and go on so many stream events later."""
    TRIED["cases"] += 1
    for life in (stream[:turns], stream[turns + gap :]):
        start = life[0].start if life else 0
        # The rest of the stream as one of its own, which another approach sees from its start.
        own = [
            replace(each, position=each.position - start, start=each.start - start) for each in life
        ]
        found, expected = (
            emitted(program, schemas, name, some)
            for name, some in (("amnesia", life), ("cec", own))
        )
        assert [each[:2] for each in found] == [each[:2] for each in expected], (found, expected)


def every_port(spec: StatefulSpec) -> FragmentProgram:
    """A program of the operator alone, with an output for each of its ports."""
    ports = [RESULTS_PORT, *([LATE_PORT] if spec.route_late else [])]
    ports += [FURTHER_PORTS + number for number in range(len(spec.further_outputs))]
    return FragmentProgram(stateful=spec, routes=tuple(OutputRoute(port) for port in ports))


@examples(100)
@given(case=join_cases(), **DEATHS)
def test_a_join_forgets_and_goes_on(case, turns, gap):
    """Partners that came before are met no more."""
    stream = list(case.events(0, case.cuts))
    check_lives(case.program, case.input_schemas, stream, turns, gap)


@examples(60)
@given(program=keyed_programs(), **DEATHS)
def test_keyed_processing_forgets_and_goes_on(program, turns, gap):
    """State and timers are those of no tuples."""
    stream = list(events(program.case, 0, program.cuts))
    check_lives(program.program, [program.case.schema], stream, turns, gap)


@examples(60)
@given(program=session_programs(), **DEATHS)
def test_sessions_forget_and_go_on(program, turns, gap):
    """A session that was open begins anew."""
    stream = list(events(program.case, 0, program.cuts))
    check_lives(program.program, [program.case.schema], stream, turns, gap)


@examples(100)
@given(case=sort_cases(), cuts=CUTS, **DEATHS)
def test_a_sort_forgets_and_goes_on(case, cuts, turns, gap):
    """What waited is gone."""
    with case.patched():
        stream = list(case.line.events(0, cuts))
        check_lives(every_port(case.spec), case.line.schemas, stream, turns, gap)


@examples(100)
@given(case=resample_cases(), cuts=CUTS, **DEATHS)
def test_a_resample_forgets_and_goes_on(case, cuts, turns, gap):
    """Values are those that came since, and requests that waited are never answered."""
    with case.patched():
        stream = list(case.line.events(0, cuts))
        check_lives(every_port(case.spec), case.line.schemas, stream, turns, gap)
