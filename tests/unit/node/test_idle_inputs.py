"""Inputs that fall silent: nobody waits for their time, and what they bring later still counts."""

import pyarrow as pa

from rewake.connectors.memory import Batches
from rewake.graph.query import Query
from rewake.model.stream_event import END_OF_TIME, IDLE, StreamEvent
from rewake.node.channels.input_merge import InputMerge
from rewake.node.node import Node

SCHEMA = pa.schema([("value", pa.int64())])


def event(position: int, rows: int, watermark: int | None = None) -> StreamEvent:
    batch = pa.RecordBatch.from_pydict(
        {"value": list(range(position, position + rows))}, schema=SCHEMA
    )
    return StreamEvent(position, batch, watermark)


def taken_all(merge: InputMerge):
    found = []
    while (taken := merge.take()) is not None:
        found.append(taken)
    return found


def test_time_is_that_of_the_channel_furthest_behind_but_for_idle_ones():
    """One silent channel does not hold up the others."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(0, event(0, 1, watermark=10))
    merge.offer(1, event(0, 1, watermark=3))
    assert [each.here.watermark for each in taken_all(merge)] == [None, 3]
    merge.fell_silent(1)
    (silent,) = taken_all(merge)
    assert silent.here.watermark == 10
    assert not silent.idle
    merge.offer(0, event(1, 1, watermark=20))
    assert [each.here.watermark for each in taken_all(merge)] == [20]


def test_a_channel_that_speaks_again_is_waited_for_again():
    """From its next tuple on; time never goes back."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(0, event(0, 1, watermark=10))
    merge.fell_silent(1)
    assert [each.here.watermark for each in taken_all(merge)][-1] == 10
    merge.offer(1, event(0, 1, watermark=4))
    assert [each.here.watermark for each in taken_all(merge)] == [None]
    merge.offer(0, event(1, 1, watermark=30))
    assert [each.here.watermark for each in taken_all(merge)] == [None]
    merge.offer(1, event(1, 0, watermark=12))
    assert [each.here.watermark for each in taken_all(merge)] == [12]


def test_when_all_channels_are_silent_so_is_the_whole():
    """Told once, to those who come next and never to the operator."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.fell_silent(0)
    merge.fell_silent(1)
    first, second = taken_all(merge)
    assert [first.passed_on, second.passed_on] == [None, IDLE]
    assert [first.here.watermark, second.here.watermark] == [None, None]
    merge.offer(0, event(0, 1, watermark=5))
    (awake,) = taken_all(merge)
    assert awake.passed_on == 5


def test_the_end_of_one_channel_is_not_the_end_of_time_while_another_is_silent():
    """The silent one may still bring tuples."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.fell_silent(1)
    merge.end(0)
    assert [each.passed_on for each in taken_all(merge)][-1] == IDLE
    merge.end(1)
    assert [each.here.watermark for each in taken_all(merge)] == [END_OF_TIME]


def test_a_source_that_brings_nothing_for_long_is_told_once():
    """By the node that reads it, after the time that was said."""
    query = Query("q")
    source = Batches(event(0, 3).batch)
    query.source("items", source, idle_after="1s").to_stream("items")
    plan = query.plan().node("items")
    assert plan.inputs[0].idle_after_ms == 1000
    node = Node(plan, 1)
    node.start()
    for now_ms in (0.0, 600.0, 1200.0, 2000.0, 3000.0):
        node.tick(now_ms)
    told = [each.passed_on for each in taken_all(node.merge)]
    assert told == [IDLE]
    node.arrived(0, event(0, 1))
    node.tick(4000.0)
    node.tick(6000.0)
    assert [each.passed_on for each in taken_all(node.merge)] == [None, IDLE]
