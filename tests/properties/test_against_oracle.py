"""Failure-free output is what the oracle says, in order, however the stream is cut."""

import math
from typing import Any

from aggregate_cases import (
    CUTS,
    IMMORTAL,
    Case,
    cases,
    examples,
    instant_of,
    oracle_decay,
    oracle_functions,
)
from aggregate_runs import TRIED, failure_free
from hypothesis import given

from rewake.oracle.aggregates import Punctuation, aggregate_with_late


def _oracle(case: Case) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    stream: list[Any] = []
    marks = dict(case.punctuations)
    for number, row in enumerate(case.rows_as_dicts()):
        if number in marks:
            stream.append(Punctuation(marks[number]))
        stream.append(row | {"t": instant_of(row["t"])})
    if len(case.rows) in marks and case.rows:
        stream.append(Punctuation(marks[len(case.rows)]))
    return aggregate_with_late(
        stream,
        by=case.by,
        window=case.window,
        functions=oracle_functions(case.functions),
        time="t",
        slack=case.slack,
        timeout=case.timeout,
        user={"decay": oracle_decay},
    )


def _compared(case: Case, name: str) -> bool:
    """All columns but one: merging panes, a user's function sees them by event time.

    The oracle goes by arrival.  With tuples out of order the two differ, as they may.
    """
    kind, size, advance = case.window
    return not (name.startswith("decay") and kind == "time" and advance < size)


def _plain(value: object) -> object:
    """Times as the oracle has them."""
    return instant_of(value) if hasattr(value, "hour") else value


def _agree(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        # A running sum loses digits that the oracle's exact one keeps.
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-6)
    return found == wanted


@examples(600)
@given(cases(odd_floats=False))
def test_failure_free_output_is_what_the_oracle_says(case: Case) -> None:
    """Same results and same late tuples, in the same order."""
    TRIED["cases"] += 1
    output = failure_free(case)
    results, late = _oracle(case)
    found = output.results.to_pylist()
    assert len(found) == len(results)
    for row, wanted in zip(found, results, strict=True):
        for name in ("window_start", "window_end"):
            if name in row:
                row[name] = _plain(row[name])
        wrong = {
            name: (row[name], wanted[name])
            for name in row
            if _compared(case, name) and not _agree(row[name], wanted[name])
        }
        assert not wrong, f"found and wanted: {wrong}"
    assert [row | {"t": instant_of(row["t"])} for row in output.late.to_pylist()] == late
    assert output.late_tuples == len(late)


@examples(300)
@given(cases(), CUTS)
def test_any_batching_gives_the_same_output(case: Case, cuts: tuple[int, ...]) -> None:
    """Stream events are transport: how the stream is cut changes no byte of the output."""
    TRIED["cases"] += 1
    failure_free(case, IMMORTAL._replace(cuts=cuts)).check_same(failure_free(case))
