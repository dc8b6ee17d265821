"""What a node remembers of its turns does not grow with their number."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from rewake.connectors.memory import Batches
from rewake.graph.query import Query
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.frontiers import Frontiers
from rewake.node.commands import Acknowledge, Append, Deliver
from rewake.node.limits import NodeLimits
from rewake.node.messages import Subscribe
from rewake.node.node import Node
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import Kept, approach_named
from rewake.sim.connectors import ListSink

TURNS = 10_000
# Determinants that no frame holds, frontiers of turns that may be repeated, ends of frames.
MOST = 3 * 1024
SCHEMA = pa.schema([("k", pa.int64())])
ROW = pa.record_batch({"k": [1]}, SCHEMA)


def source(query: Query, name: str) -> Any:
    """Where tuples would come from; the tests hand them over themselves."""
    return query.source(name, Batches(ROW))


def sink_of_shards() -> Any:
    """A sink that reads both shards of a stream."""
    query = Query("q")
    items = query.source("items", Batches(ROW), shards=2)
    items.to(ListSink(), name="out", shards=1)
    return query.plan().node("out")


def union(approach: str) -> Any:
    """Two streams become one, which somebody reads."""
    query = Query("q")
    both = source(query, "a").union(
        source(query, "b"), name="both", approach=approach_named(approach)
    )
    sums = both.aggregate(
        by="k", window=count_window(3), count=True, name="sums", approach=approach_named(approach)
    )
    sums.to_stream("sums")
    plan = query.plan().node("both")
    assert (plan.kept is Kept.IN_LOG) == (approach != "amnesia")
    return plan


def windows_that_stay_open() -> Any:
    """A join whose oldest tuples wait for ever: recovery would begin with them."""
    query = Query("q")
    both = source(query, "a").join(source(query, "b"), on="k", within=10**12, time="k", name="j")
    both.to_stream("j")
    return query.plan().node("j")


class Run:
    """A node that takes turns, and whoever acknowledges them."""

    def __init__(self, plan: Any) -> None:
        self.node = Node(plan, 1, limits=NodeLimits(turns_per_trim=1))
        self.node.start([0] * len(plan.inputs) if plan.sink is not None else ())
        self.frames = 0
        self.most = 0

    def take(self, channel: int, position: int, row: pa.RecordBatch = ROW) -> None:
        """One turn, durable at once, delivered if this is a sink."""
        self.node.arrived(channel, StreamEvent(position, row))
        commands = self.node.work(float(position))
        self.frames += sum(isinstance(each, Append) for each in commands)
        delivered = [each for each in commands if isinstance(each, Deliver)]
        self.node.durable(self.frames)
        for each in delivered:
            self.node.delivered(each.channel, each.event.end)
        self.most = max(self.most, int(self.node.progress()["remembered_turns"]))


PLANS = {
    "a sink with two channels": sink_of_shards,
    "a union that forgets": lambda: union("amnesia"),
    "a union whose reader is gone": lambda: union("cec"),
    "windows that stay open": windows_that_stay_open,
}


@pytest.mark.parametrize("what", PLANS)
def test_ten_thousand_turns_are_not_remembered(what: str) -> None:
    """Only what recovery or trimming may ask for is kept, and of that no more than a bound."""
    run = Run(PLANS[what]())
    run.node.subscribed(1, Subscribe("both", 0, "sums", 1, 0))
    run.node.unsubscribed(1)
    for turn in range(TURNS):
        run.take(turn % 2, turn // 2, pa.record_batch({"k": [turn]}, SCHEMA))
    run.node.check_invariants()
    assert run.node.turns == TURNS
    assert run.most <= MOST


def test_turns_without_results_are_written_before_they_are_many() -> None:
    """Their order waits for a frame; when none comes, it gets one of its own."""
    query = Query("q")
    late = source(query, "a").join(source(query, "b"), on="k", within=1, time="k", name="j")
    late.to_stream("j")
    run = Run(query.plan().node("j"))
    nothing = ROW.slice(0, 0)
    for turn in range(TURNS):
        # Positions pass that hold no tuple: a filter before has left them out.
        event = StreamEvent(turn // 2 + 1, nothing, None, turn // 2)
        run.node.arrived(turn % 2, event)
        run.frames += sum(isinstance(each, Append) for each in run.node.work(0.0))
        run.node.durable(run.frames)
        run.most = max(run.most, int(run.node.progress()["remembered_turns"]))
    assert run.frames == TURNS // 1024
    assert run.most <= MOST
    acks = [each for each in run.node.tick(0.0) if isinstance(each, Acknowledge)]
    assert all(each.ack.needed > TURNS // 2 - 1024 for each in acks), "upstreams keep it all"


def test_with_fewer_marks_no_more_is_let_go_than_before() -> None:
    """What is asked for again is never later than the turns that would be repeated, nor far off."""
    marks, before = Frontiers(2), {}
    consumed = [0, 0]
    random = Random(7)
    for start in range(0, 6_000, 2):
        channel = random.choice((0, 1, None))
        before[start] = list(consumed)
        marks.note(start, channel, consumed)
        if channel is not None:
            consumed[channel] += 2
    told = [0, 0]
    for position in sorted(random.sample(range(6_000), 500)):
        exact, needed = before[position - position % 2], marks.needed(position)
        assert needed is not None
        assert all(
            low <= each <= right + 1 for low, each, right in zip(told, needed, exact, strict=True)
        )
        assert sum(exact) - sum(needed) <= 6_000 // 128
        told = needed
