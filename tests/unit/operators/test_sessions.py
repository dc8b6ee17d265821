"""Session windows: who belongs together, what is late, footprints and what is refused."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from rewake.connectors.memory import Batches
from rewake.graph.query import Query
from rewake.model.errors import (
    ArithmeticOverflow,
    DamagedFrame,
    InvalidWindow,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.operators.aggregate.functions import Avg, Count, First, Last, Max, Min, Stddev, Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.classes import OperatorClass
from rewake.operators.stateful import StoredParts
from rewake.operators.windows.specs import session_window

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
NOTHING = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])


def event(position, *rows, watermark=None):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(list(column), pa.int64()) for column in columns]
    return StreamEvent(position, pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), watermark)


def operator(*functions, gap=10, **options):
    functions = functions or (Count(),)
    return AggregateSpec(("k",), session_window(gap), functions, "t", **options).operator(SCHEMA)


def rows_of(batch):
    return [] if batch is None else [tuple(row.values()) for row in batch.to_pylist()]


def open_slots(made):
    return np.flatnonzero(made.opened_at >= 0).astype(np.int32)


def stored(ids, applied, columns):
    applied = np.full(ids.size, applied, np.int64)
    return StoredParts(ids, applied, [columns], [np.arange(ids.size)], [ids.size])


def test_tuples_closer_than_the_gap_are_one_session():
    """At exactly the gap another one starts; a session ends a gap after its last tuple."""
    made = operator()
    assert made.process(event(0, (1, 0, 0), (1, 0, 9), (1, 0, 18))).results is None
    outcome = made.process(event(3, (1, 0, 28)))
    assert rows_of(outcome.results) == [(1, 0, 28, 3)]
    assert rows_of(made.punctuate(4, END_OF_TIME).results) == [(1, 28, 38, 1)]


def test_a_tuple_between_two_sessions_makes_them_one():
    """With the functions' state of both, in order of arrival where that matters."""
    functions = [Count(), Sum("v"), Avg("v"), Min("v"), Max("v"), First("v"), Last("v")]
    made = operator(*functions, Stddev("v"), slack=100)
    made.process(event(0, (1, 5, 0), (1, 7, 16), (2, 1, 3)))
    outcome = made.process(event(3, (1, 9, 8), watermark=END_OF_TIME))
    assert rows_of(outcome.results) == [
        (2, 3, 13, 1, 1, 1.0, 1, 1, 1, 1, None),
        (1, 0, 26, 3, 21, 7.0, 5, 9, 5, 9, 2.0),
    ]


def test_a_tuple_is_late_when_its_own_session_would_have_ended():
    """Unless an open session takes it in."""
    made = operator(route_late=True)
    made.process(event(0, (1, 0, 0), (2, 0, 20)))
    outcome = made.process(event(2, (1, 7, 10), (2, 8, 11), (1, 9, 11)))
    assert rows_of(outcome.late) == [(1, 7, 10)]
    assert made.late_tuples == 1
    outcome = made.punctuate(5, END_OF_TIME)
    assert rows_of(outcome.results) == [(1, 11, 21, 1), (2, 11, 30, 2)]


def test_a_part_is_a_key_with_all_its_open_sessions():
    """It ends with the last of them, and a later tuple opens another."""
    made = operator(slack=5)
    outcome = made.process(event(0, (1, 0, 0), (2, 0, 1), (1, 0, 12)))
    assert (outcome.opened_ids.tolist(), made.open_parts) == ([0, 1], 2)
    outcome = made.process(event(3, (3, 0, 30)))
    assert sorted(outcome.ended_ids.tolist()) == [0, 1]
    assert [row[0] for row in rows_of(outcome.results)] == [1, 2, 1]
    assert made.process(event(4, (1, 0, 31))).opened_ids.tolist() == [4]


def test_what_a_watermark_alone_decides_leaves_a_check():
    """A session that closes beside another, and a tuple that is late for an open part."""
    made = operator(slack=50)
    made.process(event(0, (1, 0, 0), (1, 0, 40), (2, 0, 40)))
    outcome = made.punctuate(3, 15)
    assert made.ids_of(outcome.unrepeatable_slots).tolist() == [0]
    outcome = made.process(event(3, (2, 0, 2)))
    assert made.ids_of(outcome.unrepeatable_slots).tolist() == [2]
    assert made.process(event(4, (1, 0, 41))).unrepeatable_slots.size == 0


def test_a_gap_is_a_duration_in_the_unit_of_the_time_column():
    """As with windows of event time."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("ms"))])
    spec = AggregateSpec(("k",), session_window("2s"), (Count(),), "t")
    made = spec.operator(schema)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 1, 1]), pa.array([0, 1_999, 4_000], pa.timestamp("ms"))], schema=schema
    )
    outcome = made.process(StreamEvent(0, batch))
    assert outcome.results.column("count").to_pylist() == [2]
    assert outcome.results.column("window_end").cast(pa.int64()).to_pylist() == [3_999]


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"by": "q"}, SchemaMismatch, "no column 'q'"),
        ({"time": "T"}, SchemaMismatch, "did you mean 't'"),
        ({"sum": "w"}, SchemaMismatch, "no column 'w'"),
        ({"window": session_window(2**62)}, InvalidWindow, "beyond what 64-bit"),
        ({"timeout": "5s"}, InvalidWindow, "a session has no timeout"),
        ({"slack": -1}, InvalidWindow, "slack must not be negative"),
        ({"count": False}, UsageError, "at least one function"),
        ({"by": ()}, UsageError, "at least one key column"),
        ({"time": None}, InvalidWindow, "event-time column"),
        ({"null_keys": "lose"}, UsageError, "null_keys is"),
        ({"functions": [Sum("v", "k")]}, SchemaMismatch, "two result columns are named 'k'"),
    ],
)
def test_bad_settings_are_refused_when_the_step_is_added(options, error, complaint):
    """With the name of the step, and a near name for a column."""
    stream = Query("q").source("items", Batches(event(0, (1, 1, 0)).batch))
    options = {
        "by": "k",
        "window": session_window(5),
        "time": "t",
        "count": True,
        "name": "mine",
        **options,
    }
    with pytest.raises(error, match=f"step 'mine': .*{complaint}"):
        stream.aggregate(**options)


def test_sessions_are_a_step_of_a_query_and_say_what_they_do():
    """Keys, windows and functions give the result's columns."""
    query = Query("q")
    stream = query.source("items", Batches(event(0, (1, 1, 0)).batch))
    made = stream.aggregate(
        by="k", window=session_window(5), time="t", avg="v", route_late=True, slack=2
    )
    assert made.schema.names == ["k", "window_start", "window_end", "avg_v"]
    assert made.late.schema.names == ["k", "v", "t"]
    made.to_stream()
    told = [line.strip() for line in query.explain().splitlines()]
    at = told.index("avg(v) by k")
    assert told[at + 1] == "sessions with gaps of 5 of t, slack 2"


def test_a_replayed_part_knows_what_the_clock_was_when_it_opened():
    """Also if the tuple that told so is not replayed: what was late is late again."""
    stream = [event(0, (9, 1, 100)), event(1, (1, 1, 86)), event(2, (1, 1, 76))]
    made = operator(slack=5)
    for each in stream:
        assert made.process(each).unrepeatable_slots.size == 0
    assert made.late_tuples == 1
    slots = open_slots(made)
    slots = slots[made.ids_of(slots) == 1]
    again = operator(slack=5)
    openings = stored(made.ids_of(slots), 0, made.opening_columns(slots))
    again.restore(openings, NOTHING, clock=made.clock, late_tuples=1)
    assert [again.replay(each) for each in stream[1:]] == [1, 0]
    again.end_replay()
    assert rows_of(again.punctuate(3, END_OF_TIME).results) == [(1, 86, 96, 1)]


def test_hostile_footprints_raise_damaged_frame_and_nothing_else():
    """Whatever is in the columns: other types, other lengths, values out of range."""
    functions = Count(), Sum("v"), Stddev("v")
    made = operator(*functions, slack=100)
    made.process(event(0, (1, 1, 0), (1, 1, 30), (2, 1, 5), (1, 2, 15), (1, 2, 8), (1, 3, 60)))
    slots = open_slots(made)
    good = made.snapshot_columns(slots)
    random = np.random.default_rng(1)
    damaged = 0
    for trial in range(600):
        columns = [column.copy() for column in good]
        which = int(random.integers(len(columns)))
        column = columns[which]
        match trial % 4:
            case 0:
                columns[which] = column.astype(np.float32)
            case 1:
                columns[which] = np.concatenate([column, column[:1]])
            case 2:
                bits = random.integers(0, 256, column.nbytes, dtype=np.uint8)
                columns[which] = bits.view(column.dtype)
            case _:
                place = int(random.integers(max(column.size, 1)))
                columns[which][place : place + 1] = random.integers(0, 3)
        again = operator(*functions, slack=100)
        parts = stored(made.ids_of(slots), 5, columns)
        try:
            again.restore(NOTHING, parts, clock=made.clock, late_tuples=0)
        except DamagedFrame:
            damaged += 1
            continue
        # What could be a state is taken for one, and does no harm beyond its results.
        with np.errstate(all="ignore"), suppress(ArithmeticOverflow, ReplayMismatch):
            again.end_replay()
            again.process(event(6, (1, 1, 9), (2, 1, 44), watermark=END_OF_TIME))
    assert damaged > 200


def test_sessions_are_convergent_capable_and_no_more():
    """Started later, they become what they were; the session that was cut off is another one."""
    stream = [event(i, (i % 2, i, i + i // 7 * 30)) for i in range(60)]
    outputs = []
    for start in (0, 0, 4):
        made = operator(Count(), Sum("v"))
        turns = [rows_of(made.process(each).results) for each in stream[start:]]
        outputs.append([row for turn in turns for row in turn])
    assert outputs[0] == outputs[1]
    assert outputs[0][:2] != outputs[2][:2]
    assert outputs[0][2:] == outputs[2][2:]
    assert len(outputs[0]) > 10
    assert made.spec.operator_class is OperatorClass.CONVERGENT_CAPABLE
