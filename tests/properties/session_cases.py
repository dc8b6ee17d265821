"""Streams of `aggregate_cases` through session windows, and hosts that forget keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from aggregate_cases import CUTS, Case, _engine_functions, cases
from hypothesis import strategies as st
from keyed_cases import as_case, with_end
from program_cases import ProgramCase

from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.columns import keys as key_columns
from rewake.operators.windows.specs import session_window


@dataclass(frozen=True)
class SessionCase(Case):
    """A stream, and sessions of it."""

    def spec(self) -> AggregateSpec:
        """What is computed."""
        functions = _engine_functions(self.functions)
        gap = self.window[1]
        return AggregateSpec(
            self.by, session_window(gap), functions, "t", self.slack, route_late=True
        )

    def operator(self) -> Aggregate:
        """A new operator."""
        return self.spec().operator(self.schema)


@st.composite
def session_programs(draw: st.DrawFn, **stream: Any) -> ProgramCase:
    """Any stream through sessions, with steps around them."""
    case = as_case(SessionCase, draw(cases()))
    case = replace(case, slack=draw(st.sampled_from([0, 2, 9])), **stream)
    return ProgramCase(
        case=with_end(case, draw(st.booleans())),
        before=draw(st.sampled_from([(), (), ("some",), ("copied",)])),
        after=draw(st.sampled_from([(), (), ("last",)])),
        cuts=draw(CUTS),
    )


@st.composite
def scattered(draw: st.DrawFn) -> ProgramCase:
    """Few keys with many sessions at once, and watermarks that close them one by one."""
    tuples = st.tuples(st.integers(0, 1), st.integers(0, 24))
    rows = draw(st.lists(tuples, min_size=12, max_size=30))
    marks = draw(st.lists(st.integers(1, len(rows)), min_size=3, max_size=8, unique=True))
    case = SessionCase(
        keys=("int64",),
        window=("time", draw(st.integers(3, 5)), 1),
        functions="count",
        rows=tuple((key, 1, 1.0, 1, time + number // 4) for number, (key, time) in enumerate(rows)),
        punctuations=tuple((row, row // 2 + 3) for row in sorted(marks)),
        slack=60,
    )
    return ProgramCase(case=case, cuts=draw(CUTS))


def forgetting_keys(case: Case) -> Any:
    """While in this context, keys without sessions are forgotten as the case says."""
    return mock.patch.object(key_columns, "SPARE_KEYS", -1 if case.forgetful else 65_536)
