"""Self-contained logs: nobody is asked for input again, and a crash never shows in the output.

`Run.live` also checks on the way: every turn has a record, its results are those of an operator
that nobody records, byte for byte, recovery works from exactly the newest `frames_needed` frames,
and `check_invariants` holds after each turn.
"""

from dataclasses import replace

from aggregate_cases import examples, oracle_decay, oracle_functions
from aggregate_runs import TRIED, forgetting
from hypothesis import given
from hypothesis import strategies as st
from self_contained_cases import (
    LAST_LIVES,
    LIVES,
    BatchCase,
    Life,
    Run,
    batch_cases,
    failure_free,
    recovered,
    state_of,
)
from test_against_oracle import _agree

from rewake.oracle.aggregates import running
from rewake.recovery.self_contained.order import in_key_order


@examples(300)
@given(batch_cases(), st.lists(LIVES, min_size=1, max_size=4), LAST_LIVES)
def test_batches_emit_the_same_whenever_processes_die(
    case: BatchCase, lives: list[Life], last: Life
) -> None:
    """Crash after any turn, any ways, any trimming: each batch's results are the same bytes."""
    TRIED["cases"] += 1
    run = Run(case)
    for life in [*lives, last]:
        run.live(life)
    assert len(run.log.frames) == len(run.batches)


@examples(150)
@given(batch_cases(), LIVES)
def test_the_newest_batch_can_always_be_repeated(case: BatchCase, life: Life) -> None:
    """After every turn, also by a process that has just recovered; nothing is changed by it."""
    TRIED["cases"] += 1
    run = Run(case)
    run.live(life._replace(repeats=True))
    if run.log.frames:
        number = len(run.log.frames) - 1
        with forgetting(case):
            run.log.needed = recovered(case, life, run.log).frames_needed
            run.check_repeat(number)
            run.check_repeat(number)


@examples(150)
@given(batch_cases(), LIVES)
def test_recovering_twice_gives_the_state_that_was_lost(case: BatchCase, life: Life) -> None:
    """Recovery reads and changes nothing, and comes to what the process knew before."""
    TRIED["cases"] += 1
    run = Run(case)
    process = run.live(life._replace(lost=False))
    if not run.log.frames:
        return
    with forgetting(case):
        again = [recovered(case, life, run.log) for _ in range(2)]
    for each in again:
        assert state_of(each) == state_of(process)
        assert each.identity == process.identity
        assert each.frames_needed == process.frames_needed
        assert each.progress() == process.progress()
        each.check_invariants()


@examples(120)
@given(batch_cases(odd_floats=False))
def test_running_windows_emit_what_the_oracle_says(case: BatchCase) -> None:
    """For each batch the touched keys in the order of first touch, over all their tuples."""
    TRIED["cases"] += 1
    case = replace(case, running=True)
    names = case.names
    batches = [
        [dict(zip(names, row, strict=True)) for row in zip(*event.batch.to_pydict().values())]  # noqa: B905
        for event in (in_key_order(case.operator(), each) for each in case.batches())
    ]
    wanted = running(
        batches,
        by=case.by,
        functions=oracle_functions(case.functions),
        user={"decay": oracle_decay},
    )
    for emitted, expected in zip(failure_free(case), wanted, strict=True):
        found = [row for _, batch in emitted for row in batch.to_pylist()]
        assert [list(row) for row in found] == [list(row) for row in expected]
        assert all(
            _agree(row[name], other[name])
            for row, other in zip(found, expected, strict=True)
            for name in row
        ), (found, expected)
