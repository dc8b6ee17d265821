"""Batches that are planned anew: whatever was recorded before, the last plan's results come out.

A wrong plan of a batch is taken first, or several, each recorded or lost, with processes dying in
between; then the right one.  The oracle is an operator that nobody records and that sees right
plans alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from aggregate_cases import examples
from aggregate_runs import TRIED, ListedFrames, forgetting
from hypothesis import given
from hypothesis import strategies as st
from self_contained_cases import (
    BatchCase,
    Life,
    batch_cases,
    check_same,
    chosen,
    failure_free,
    recovered,
)
from test_self_contained_keyed import keyed_batches
from test_self_contained_sessions import session_batches

from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Count
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.stateful import Emissions, KeyedOperator
from rewake.operators.windows.specs import CountWindow
from rewake.recovery.self_contained.engine import SelfContained, repeat
from rewake.recovery.self_contained.replaced import replaced


class Plan(NamedTuple):
    """A wrong plan of a batch: which rows, whether its record lasts, whether its process does."""

    rows: str
    way: str | None
    durable: bool
    dies: bool


_PLANS = st.lists(
    st.builds(
        Plan,
        st.sampled_from(["none", "half", "of the next"]),
        st.sampled_from([None, "input", "checks"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=3,
)
_BATCHES = st.lists(_PLANS, min_size=1, max_size=4)


class Planned:
    """A log, and the process that takes plans of batches."""

    def __init__(self, case: BatchCase) -> None:
        self.case = case
        self.log = ListedFrames()
        self.batches = [event.batch for event in case.batches()]
        self.process = recovered(case, Life(), self.log)

    def take(self, number: int, rows: pa.RecordBatch, plan: Plan) -> Emissions:
        """One plan of a batch, as a host takes it; its results."""
        identity = bytes([number, len(self.log.frames) % 256])
        if self.process.identity is not None and self.process.identity[0] == number:
            found = replaced(
                self.case.operator,
                self.log.newest_first(),
                lambda other: other[0] == number,
                rows,
                identity,
            )
            assert found is not None, "the state before a batch is always known"
            self.process, turn = found
        else:
            event = StreamEvent(self.process.position, rows)
            self.process.choose = partial(chosen, plan.way)
            turn = self.process.turn(event, identity)
        self.process.check_invariants()
        assert turn.record is not None
        if plan.durable:
            self.log.append(turn.record)
            self.log.needed = self.process.frames_needed
            again = repeat(self.case.operator, self.log.newest_first())
            check_same(again, turn.outputs, f"batch {number} repeated")
        if plan.dies or not plan.durable:
            before = self.process
            self.process = recovered(self.case, Life(), self.log)
            self.process.check_invariants()
            if plan.durable:
                assert self.process.frames_needed == before.frames_needed
        return turn.outputs

    def wrong(self, number: int, rows: str) -> pa.RecordBatch:
        """The rows of a wrong plan."""
        right = self.batches[number]
        if rows == "of the next":
            return self.batches[(number + 1) % len(self.batches)]
        return right.slice(0, right.num_rows // 2 if rows == "half" else 0)


def check(case: BatchCase, plans: list[list[Plan]]) -> None:
    """Each batch's right plan gives what it gives where nobody made another one."""
    TRIED["cases"] += 1
    case = replace(case, punctuations=(), gaps=())
    expected = failure_free(case)
    with forgetting(case):
        planned = Planned(case)
        for number, rows in enumerate(planned.batches):
            of_this = plans[number % len(plans)]
            for plan in of_this:
                planned.take(number, planned.wrong(number, plan.rows), plan)
            way = of_this[0].way if of_this else None
            dies = bool(of_this) and of_this[-1].dies
            outputs = planned.take(number, rows, Plan("right", way, durable=True, dies=dies))
            check_same(outputs, expected[number], f"batch {number}")


@examples(100)
@given(batch_cases(), _BATCHES)
def test_windows_follow_from_the_last_plans(case: BatchCase, plans: list[list[Plan]]) -> None:
    """Count, time and running windows; either way into the log."""
    check(case, plans)


@examples(60)
@given(session_batches(), _BATCHES)
def test_sessions_follow_from_the_last_plans(case: BatchCase, plans: list[list[Plan]]) -> None:
    """Also where a wrong plan's times were ahead."""
    check(case, plans)


@examples(60)
@given(keyed_batches(), _BATCHES)
def test_functions_follow_from_the_last_plans(case: BatchCase, plans: list[list[Plan]]) -> None:
    """State and timers of keys."""
    check(case, plans)


def test_without_a_state_before_nothing_is_replaced() -> None:
    """A log that begins with a batch behind others: divided from another log, or trimmed."""
    schema = pa.schema([("k", pa.int64())])
    rows = pa.RecordBatch.from_pydict({"k": [1, 2]}, schema=schema)
    spec = AggregateSpec(["k"], CountWindow(3, 3), [Count()])
    log = ListedFrames()
    process = SelfContained(spec.operator(schema), choose=partial(chosen, "checks"))
    for number in range(2):
        turn = process.turn(StreamEvent(process.position, rows), bytes([number]))
        assert turn.record is not None
        log.append(turn.record)
    log.needed = 1

    def build() -> KeyedOperator:
        return spec.operator(schema)

    assert replaced(build, log.newest_first(), lambda other: other[0] == 1, rows, b"\1") is None
