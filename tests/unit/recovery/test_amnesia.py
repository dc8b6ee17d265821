"""Amnesia: no records, no memory."""

import pyarrow as pa
import pytest

from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Count
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window
from rewake.recovery.amnesia import Amnesia
from rewake.recovery.approach import by_port

SCHEMA = pa.schema([("k", pa.int64())])


def build():
    operator = Aggregate(AggregateSpec(["k"], count_window(2), [Count()]), SCHEMA)
    return Amnesia().build(operator, by_port, ["no frame at all"])


def event(position, keys):
    return StreamEvent(position, pa.RecordBatch.from_pydict({"k": keys}, schema=SCHEMA))


def test_nothing_is_recorded_and_nothing_is_needed():
    """Its input may be dropped as soon as it is processed."""
    driven = build()
    turn = driven.turn(event(0, [1, 1, 2]))
    assert turn.record is None
    assert turn.on(0).to_pylist() == [{"k": 1, "count": 2}]
    assert (driven.acknowledged, driven.frames_needed, driven.recovering) == (2, 0, False)
    assert driven.progress() == {"open_windows": 1, "extent_records": 0, "replay_tuples": 0}
    assert driven.bare_record().t_end == 2
    driven.check_invariants()


def test_a_new_life_begins_where_the_host_says_and_knows_nothing():
    """The open window of the first life is lost."""
    build().turn(event(0, [1]))
    driven = build()
    driven.position = 40
    assert driven.turn(event(40, [1])).outputs == []
    assert driven.turn(event(41, [1])).on(0).to_pylist() == [{"k": 1, "count": 2}]
    with pytest.raises(AssertionError, match="at 7 is not the next one: 42"):
        driven.turn(event(7, [1]))
