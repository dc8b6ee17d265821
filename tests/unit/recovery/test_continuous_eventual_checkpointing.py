"""What a host of continuous eventual checkpointing may rely on, turn by turn."""

import numpy as np
import pyarrow as pa
import pytest

from rewake.log.frame import SectionKind, decode_frame, encode_frame
from rewake.model.errors import SchemaMismatch
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate import Aggregate, AggregateSpec
from rewake.operators.functions import Count
from rewake.operators.windows import count_window, time_window
from rewake.recovery.continuous_eventual_checkpointing import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def start(window, frames=(), **more):
    """A count per key."""
    spec = AggregateSpec(["k"], window, [Count()], **more)
    return ContinuousEventualCheckpointing.recover(
        Aggregate(spec, SCHEMA), OpenOnly(), reversed(frames)
    )


def event(position, keys, times=None, watermark=None):
    times = [0] * len(keys) if times is None else times
    columns = [pa.array(keys, pa.int64()), pa.array(times, pa.int64())]
    return StreamEvent(position, pa.RecordBatch.from_arrays(columns, schema=SCHEMA), watermark)


def stored(turn, sequence=0):
    return decode_frame(
        encode_frame(turn.record, log_id=1, epoch=1, sequence=sequence, position=0, durable=0)
    )


def test_input_out_of_turn_is_a_broken_invariant():
    """The host delivers from `position` on, without gap or repeat."""
    cec = start(count_window(2))
    cec.turn(event(0, [1, 2]))
    for position in (0, 1, 3):
        with pytest.raises(AssertionError, match=f"at {position} is not the next one: 2"):
            cec.turn(event(position, [1]))


def test_a_refused_event_leaves_everything_as_it_was():
    """The host may drop it and go on at the same position."""
    cec = start(count_window(2))
    cec.turn(event(0, [1]))
    with pytest.raises(SchemaMismatch):
        cec.turn(StreamEvent(1, pa.record_batch([pa.array(["x"])], ["k"])))
    assert cec.position == 1
    assert cec.turn(event(1, [1])).on(0).to_pylist() == [{"k": 1, "count": 2}]


def test_the_record_of_a_turn_states_its_results():
    """Tuples are results; records are results and footprints."""
    turn = start(count_window(2)).turn(event(0, [1, 1, 2, 3]))
    assert (turn.record.tuples, turn.record.records, turn.record.open_windows) == (1, 3, 2)
    assert turn.record.t_end == 3
    assert [section.kind for section in turn.record.sections] == [
        SectionKind.RESULTS,
        SectionKind.OPENS,
    ]


def test_a_fresh_process_needs_nothing():
    """No frames, no input."""
    cec = start(count_window(2))
    assert (cec.frames_needed, cec.acknowledged, cec.position, cec.recovering) == (0, -1, 0, False)


def test_the_newest_frame_is_needed_even_without_open_windows():
    """It says that there are none."""
    cec = start(count_window(1))
    for position in range(3):
        cec.turn(event(position, [1]))
    assert cec.frames_needed == 1
    assert cec.acknowledged == 2


def test_a_watermark_between_the_last_record_and_the_crash_is_applied_after_recovery():
    """It may come with the last replayed tuple, or behind it in an event of its own."""
    first = start(time_window(10), time="t")
    frames = [stored(first.turn(event(0, [1], [3])))]
    for replayed in ([event(0, [1], [3], 10)], [event(0, [1], [3]), event(1, [], [], 10)]):
        cec = start(time_window(10), frames, time="t")
        turns = [cec.turn(each) for each in replayed]
        assert turns[-1].on(0).column("count").to_pylist() == [1]


def test_replay_ends_in_the_middle_of_an_event():
    """Its first part is replayed, its second processed."""
    first = start(count_window(3))
    frames = [stored(first.turn(event(0, [1])))]
    cec = start(count_window(3), frames)
    assert cec.recovering
    turn = cec.turn(event(0, [1, 1, 1, 2]))
    assert not cec.recovering
    assert turn.on(0).to_pylist() == [{"k": 1, "count": 3}]
    assert cec.position == 4


def test_closing_very_many_windows_at_once_leaves_nothing_behind():
    """Footprints of windows that are gone are dropped, all of them if need be."""
    cec = start(count_window(2))
    keys = np.arange(70_000)
    cec.turn(event(0, keys, np.zeros_like(keys)))
    turn = cec.turn(event(keys.size, keys, np.zeros_like(keys)))
    assert turn.on(0).num_rows == keys.size
    assert cec.extent().records == 0
    cec.check_invariants()
