"""Cases of self-contained logs: batches, the ways they go, and the processes that die over them.

A batch is the same every time it is delivered, as a micro-batch is: a running window's results
depend on it.  So a case is cut once, and all its processes get the same stream events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from aggregate_cases import CUTS, POLICIES, Case, PolicyOf, cases
from aggregate_runs import ListedFrames, bytes_of, events, forgetting, readable
from hypothesis import strategies as st

from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.stateful import Emissions
from rewake.operators.windows.specs import running_window
from rewake.recovery.self_contained.engine import Bounds, SelfContained, repeat
from rewake.recovery.self_contained.order import in_key_order
from rewake.recovery.self_contained.ways import WayBytes, fewer_bytes


@dataclass(frozen=True)
class BatchCase(Case):
    """A case whose windows may be running ones, and how it is cut into batches."""

    running: bool = False
    route_late: bool = True
    cuts: tuple[int, ...] = (1,)

    def spec(self) -> AggregateSpec:
        """What is computed."""
        spec = super().spec()
        window = running_window() if self.running else spec.window
        return AggregateSpec(
            spec.by,
            window,
            spec.aggregates,
            time=spec.time,
            slack=0 if self.running else self.slack,
            timeout=None if self.running else self.timeout,
            route_late=self.route_late,
        )

    def batches(self) -> list[StreamEvent]:
        """The input, as all processes get it."""
        return list(events(self, 0, self.cuts))


@st.composite
def batch_cases(draw: st.DrawFn, *, odd_floats: bool = True) -> BatchCase:
    """Any stream, any aggregate, any batches."""
    case = draw(cases(odd_floats=odd_floats))
    known = {each.name: getattr(case, each.name) for each in fields(Case)}
    return BatchCase(
        **known,
        running=draw(st.sampled_from([False, True, False])),
        route_late=draw(st.booleans()),
        cuts=draw(CUTS),
    )


class Life(NamedTuple):
    """One process: the ways its batches go, which CHECKs it leaves, and when it dies.

    It dies after so many turns (-1: not at all); with `lost`, the record of its last turn never
    became durable.  With `repeats`, every batch is asked for twice.
    """

    ways: tuple[str | None, ...] = (None,)
    policy: PolicyOf | None = None
    turns: int = -1
    lost: bool = False
    repeats: bool = False


_WAYS = st.lists(st.sampled_from([None, "input", "checks"]), min_size=1, max_size=4).map(tuple)
_BOUNDS = st.tuples(
    st.tuples(st.just("least"), st.sampled_from([1, 3, 10])),
    st.tuples(st.just("most_frames"), st.sampled_from([1, 2, 5, 4096])),
    st.tuples(st.just("fewest_checks"), st.sampled_from([1, 2, 100])),
).map(lambda settings: PolicyOf(Bounds, settings))
_POLICIES = st.one_of(st.none(), _BOUNDS, POLICIES)

LIVES = st.builds(Life, _WAYS, _POLICIES, st.integers(0, 12), st.booleans(), st.booleans())
LAST_LIVES = LIVES.map(lambda life: life._replace(turns=-1, lost=False))


def identity_of(number: int) -> bytes:
    """The identity of a batch: its number."""
    return number.to_bytes(8, "little")


def recovered(case: BatchCase, life: Life, log: ListedFrames) -> SelfContained:
    """The operator as a new process finds it, ready for the next batch."""
    policy = None if life.policy is None else life.policy.make()
    # A batch has the number of its frame.
    ways = islice(cycle(life.ways), len(log.frames) % len(life.ways), None)
    return SelfContained.recover(
        case.operator, log.newest_first(), policy, choose=lambda sizes: chosen(next(ways), sizes)
    )


def chosen(way: str | None, sizes: WayBytes) -> bool:
    """Whether a batch goes the way CHECKS that is to go this way, or any."""
    return fewer_bytes(sizes) if way is None else way == "checks"


def check_same(found: Emissions, expected: Emissions, what: str) -> None:
    """Both are the same, byte for byte; the error shows them as rows."""
    assert [output for output, _ in found] == [output for output, _ in expected], what
    for (_, batch), (_, wanted) in zip(found, expected, strict=True):
        tables = [pa.Table.from_batches([each]) for each in (batch, wanted)]
        assert bytes_of(tables[0]) == bytes_of(tables[1]), (
            f"{what}:\n  found    {readable(tables[0])}\n  expected {readable(tables[1])}"
        )


def failure_free(case: BatchCase) -> list[Emissions]:
    """What each batch emits, in the order of keys, from an operator that nobody records."""
    operator = case.operator()
    emitted = []
    with forgetting(case):
        for event in case.batches():
            outcome = operator.process(in_key_order(operator, event))
            ports = enumerate((outcome.results, outcome.late))
            given = [(port, batch) for port, batch in ports if batch is not None]
            emitted.append([*given, *outcome.others])
    return emitted


def state_of(process: SelfContained) -> list[Any]:
    """Everything an operator knows of its open parts, in the order of their ids."""
    operator = process.operator
    slots = np.flatnonzero(operator.opened_at >= 0).astype(np.int32)
    slots = slots[np.argsort(operator.ids_of(slots))]
    columns = [column.tolist() for column in operator.snapshot_columns(slots)]
    ids = operator.ids_of(slots).tolist()
    return [ids, operator.clock, operator.late_tuples, process.position, repr(columns)]


class Run:
    """Processes that die one after the other over the batches of a case, and their log."""

    def __init__(self, case: BatchCase) -> None:
        self.case = case
        self.log = ListedFrames()
        self.expected = failure_free(case)
        self.batches = case.batches()

    def live(self, life: Life) -> SelfContained:
        """One process, from its recovery to its death."""
        with forgetting(self.case):
            process = recovered(self.case, life, self.log)
            for turns, number in enumerate(self._next_batches(process)):
                if turns == life.turns:
                    break
                turn = process.turn(self.batches[number], identity_of(number))
                process.check_invariants()
                assert turn.record is not None
                check_same(turn.outputs, self.expected[number], f"batch {number}")
                if life.lost and turns + 1 == life.turns:
                    break
                self.log.append(turn.record)
                self.log.needed = process.frames_needed
                assert self.log.needed <= len(self.log.frames)
                if life.repeats:
                    self.check_repeat(number)
        return process

    def _next_batches(self, process: SelfContained) -> Iterator[int]:
        last = -1 if process.identity is None else int.from_bytes(process.identity, "little")
        assert last == len(self.log.frames) - 1, "another batch than the newest frame's"
        return iter(range(last + 1, len(self.batches)))

    def check_repeat(self, number: int) -> None:
        """The newest batch's results once more, from the frames that are kept."""
        outputs = repeat(self.case.operator, self.log.newest_first())
        check_same(outputs, self.expected[number], f"batch {number} repeated")
