"""Keyed processing on self-contained logs: a crash never shows, as with windows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from aggregate_cases import CUTS, Case, cases, examples
from aggregate_runs import TRIED
from hypothesis import example, given
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


# The second tuple without a key is late by a batch that is not replayed: the way CHECKS.
LATE_BY_A_CHECKED_BATCH = KeyedBatchCase(
    keys=("int64",),
    window=("count", 1, 1),
    functions="count",
    rows=(
        *[(0, 0, 0.0, 0, 0)] * 8,
        (None, 0, 0.0, 0, 0),
        (0, 0, 0.0, 0, 1),
        (0, 0, 0.0, 0, 3),
        (None, 0, 0.0, 0, 0),
        (0, 0, 0.0, 0, 4),
    ),
    punctuations=(),
    slack=0,
    timeout=None,
    value="int8",
    time="int64",
    route_late=True,
    cuts=(0, 2, 2, 1),
    routes_late=True,
)


@examples(150)
@example(LATE_BY_A_CHECKED_BATCH, [Life(turns=6), Life(ways=("checks", None), turns=6)], Life())
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
