"""Keyed processing on self-contained logs: a crash never shows, as with windows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from aggregate_cases import CUTS, Case, cases, examples
from aggregate_runs import TRIED
from hypothesis import given
from hypothesis import strategies as st
from keyed_cases import KeyedCase, forgetting_keys
from self_contained_cases import LAST_LIVES, LIVES, BatchCase, Life, Run

from rewake.operators.keyed.operator import KeyedProcess


@dataclass(frozen=True)
class KeyedBatchCase(BatchCase):
    """A stream in batches, and keyed processing of it, with timers."""

    each_key: bool = False
    routes_late: bool = False

    @property
    def output(self) -> Any:
        """The columns of results."""
        return KeyedCase.output.fget(self)  # type: ignore[attr-defined]

    def spec(self) -> Any:
        """What is computed."""
        return KeyedCase.spec(self)  # type: ignore[arg-type]

    def operator(self) -> KeyedProcess:
        """A new operator."""
        return self.spec().operator(self.schema)


@st.composite
def keyed_batches(draw: st.DrawFn) -> KeyedBatchCase:
    """Any stream, any batches; clocks that tuples move, ahead of others or far behind them."""
    case = draw(cases(odd_floats=False))
    known = {each.name: getattr(case, each.name) for each in fields(Case)}
    known["slack"] = draw(st.sampled_from([0, 2, 9]))
    choices = {"each_key": draw(st.booleans()), "routes_late": draw(st.booleans())}
    return KeyedBatchCase(**known, **choices, cuts=draw(CUTS))


@examples(150)
@given(keyed_batches(), st.lists(LIVES, min_size=1, max_size=4), LAST_LIVES)
def test_functions_give_the_same_whenever_processes_die(
    case: KeyedBatchCase, lives: list[Life], last: Life
) -> None:
    """Crash after any turn, any ways, any trimming: each batch's results are the same bytes."""
    TRIED["cases"] += 1
    with forgetting_keys(case):
        run = Run(case)
        for life in [*lives, last]:
            run.live(life)
    assert len(run.log.frames) == len(run.batches)
