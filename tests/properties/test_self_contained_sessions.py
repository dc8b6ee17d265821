"""Session windows on self-contained logs: a crash never shows, as with other windows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from aggregate_cases import CUTS, Case, cases, examples
from aggregate_runs import TRIED
from hypothesis import given
from hypothesis import strategies as st
from self_contained_cases import LAST_LIVES, LIVES, BatchCase, Life, Run
from session_cases import SessionCase

from rewake.operators.aggregate.operator import Aggregate


@dataclass(frozen=True)
class SessionBatchCase(BatchCase):
    """A stream in batches, and sessions of it."""

    def spec(self) -> Any:
        """What is computed."""
        return replace(SessionCase.spec(self), route_late=self.route_late)  # type: ignore[arg-type]

    def operator(self) -> Aggregate:
        """A new operator."""
        return self.spec().operator(self.schema)


@st.composite
def session_batches(draw: st.DrawFn) -> SessionBatchCase:
    """Any stream with times, any functions, any batches."""
    case = draw(cases())
    known = {each.name: getattr(case, each.name) for each in fields(Case)}
    known["window"] = ("time", draw(st.sampled_from([1, 3, 10])), 1)
    known["slack"] = draw(st.sampled_from([0, 2, 9]))
    return SessionBatchCase(**known, route_late=draw(st.booleans()), cuts=draw(CUTS))


@examples(150)
@given(session_batches(), st.lists(LIVES, min_size=1, max_size=4), LAST_LIVES)
def test_sessions_emit_the_same_whenever_processes_die(
    case: SessionBatchCase, lives: list[Life], last: Life
) -> None:
    """Crash after any turn, any ways, any trimming: each batch's results are the same bytes."""
    TRIED["cases"] += 1
    run = Run(case)
    for life in [*lives, last]:
        run.live(life)
    assert len(run.log.frames) == len(run.batches)
