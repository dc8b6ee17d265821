"""What a host of continuous eventual checkpointing may rely on, turn by turn."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewake.log.frame import SectionKind, decode_frame, encode_frame
from rewake.log.results import result_batch
from rewake.model.errors import ReplayMismatch, SchemaMismatch
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Count
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.fragment import FilterStep, FragmentProgram, OutputRoute
from rewake.operators.windows.specs import count_window, time_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def start(window, frames=(), **more):
    """A count per key."""
    spec = AggregateSpec(["k"], window, [Count()], **more)
    return ContinuousEventualCheckpointing.recover(
        Aggregate(spec, SCHEMA), OpenOnly(), reversed(frames)
    )


def event(position, keys, times=None, watermark=None, start=-1):
    times = [0] * len(keys) if times is None else times
    columns = [pa.array(keys, pa.int64()), pa.array(times, pa.int64())]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return StreamEvent(position, batch, watermark, start)


def stored(turn, sequence=0):
    return frame_of(turn.record, sequence)


def frame_of(record, sequence=0):
    return decode_frame(
        encode_frame(record, log_id=1, epoch=1, sequence=sequence, position=0, durable=0)
    )


def positive(batch):
    return pc.greater(batch.column("k"), 0)


EVERYTHING = (OutputRoute(),)


def filtered(frames=(), routes=EVERYTHING):
    """Windows of two per key, of positive keys only."""
    spec = AggregateSpec(["k"], count_window(2), [Count()])
    program = FragmentProgram((FilterStep(positive),), spec, routes=routes)
    return ContinuousEventualCheckpointing.recover(
        program.operator(SCHEMA), OpenOnly(), reversed(frames), program.emit
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


# --- streams with positions that have no tuples ----------------------------------------------


def test_a_stream_event_follows_when_its_positions_do():
    """What counts is where it starts to cover, not where its first tuple is."""
    cec = start(count_window(2))
    cec.turn(event(5, [1], start=0))
    assert (cec.position, cec.acknowledged) == (6, 4)
    cec.turn(event(9, [], start=6))
    assert cec.turn(event(12, [1], start=9)).on(0).to_pylist() == [{"k": 1, "count": 2}]
    assert cec.position == 13


def test_replay_ends_in_the_middle_of_positions_without_tuples():
    """The rest of them is consumed, too, although it says nothing."""
    first = start(count_window(3))
    frames = [stored(first.turn(event(0, [1])))]
    first.turn(event(4, [], start=1))
    frames.append(frame_of(first.bare_record(), 1))
    cec = start(count_window(3), frames)
    cec.turn(event(0, [1]))
    assert (cec.recovering, cec.position) == (True, 1)
    assert cec.turn(event(9, [], start=1)) == (None, (), 0)
    assert (cec.recovering, cec.position) == (False, 9)


# --- bare records ----------------------------------------------------------------------------


def test_a_bare_record_says_that_input_was_consumed():
    """Replay goes on through it, and no further."""
    first = start(count_window(3))
    frames = [stored(first.turn(event(0, [1])))]
    first.turn(event(1, [1]))
    record = first.bare_record()
    assert (record.t_end, record.open_windows, record.tuples, record.records) == (1, 1, 0, 0)
    frames.append(frame_of(record, 1))
    assert first.frames_needed == 2
    cec = start(count_window(3), frames)
    cec.turn(event(0, [1]))
    assert cec.recovering
    assert cec.turn(event(1, [1, 1])).on(0).to_pylist() == [{"k": 1, "count": 3}]


def test_a_bare_record_before_any_input_is_one_of_time_minus_one():
    """A watermark may come before the first tuple."""
    first = start(time_window(10), time="t")
    first.turn(event(0, [], [], 25))
    frames = [frame_of(first.bare_record())]
    cec = start(time_window(10), frames, time="t")
    assert (cec.position, cec.recovering, cec.operator.clock) == (0, False, 25)


# --- outputs ---------------------------------------------------------------------------------


def test_a_log_position_counts_the_tuples_of_all_outputs():
    """Results are written per output; each in a section of its own."""
    cec = filtered(routes=(OutputRoute(), *(OutputRoute(0, ("k",), part, 2) for part in range(2))))
    turn = cec.turn(event(0, [1, 2, 3, 1, 2, 3]))
    assert turn.record.tuples == 6
    frame = stored(turn)
    batches = [result_batch(frame, cec.operator.output_schema, output) for output in range(3)]
    assert batches[0].column("k").to_pylist() == [1, 2, 3]
    parts = [[] if each is None else each.column("k").to_pylist() for each in batches[1:]]
    assert sorted(parts[0] + parts[1]) == [1, 2, 3]
    assert [dict(turn.outputs).get(output) for output in range(3)] == batches


def test_progress_says_what_a_recovery_would_cost():
    """Windows, records and tuples."""
    cec = start(count_window(2))
    cec.turn(event(0, [1, 2, 3, 3]))
    assert cec.progress() == {
        "open_windows": 2,
        "extent_records": 2,
        "replay_tuples": 4,
        "checks": 0,
    }


# --- steps before the state ------------------------------------------------------------------


def test_where_tuples_are_left_out_replay_starts_with_a_whole_turn():
    """Positions behind a filter depend on the whole stream event, so it is asked for again."""
    first = filtered()
    frames = [stored(first.turn(event(0, [1, 1])))]
    turn = first.turn(event(2, [0, 5, 0, 5, 6, 0]))  # 5, 5 and 6 are at positions 5, 6 and 7
    assert first.acknowledged == 1
    assert turn.record.open_windows == 1
    frames.append(stored(turn, 1))
    cec = filtered(frames)
    assert cec.position == 2
    cec.turn(event(2, [0, 5, 0, 5, 6, 0]))
    assert not cec.recovering
    assert cec.turn(event(8, [6])).on(0).to_pylist() == [{"k": 6, "count": 2}]


def test_stream_events_that_are_cut_differently_behind_a_filter_are_refused():
    """The log ends in the middle of one: it would mean other positions."""
    first = filtered()
    frames = [stored(first.turn(event(0, [1, 0])))]
    with pytest.raises(ReplayMismatch, match=r"ends at input position 1, inside .* from 0 to 3"):
        filtered(frames).turn(event(0, [1, 0, 1]))


def test_a_fragment_without_state_replays_nothing():
    """N = 0: what is in the log is done, and T = tc."""
    program = FragmentProgram((FilterStep(positive),))

    def build(frames):
        operator = program.operator(SCHEMA)
        return ContinuousEventualCheckpointing.recover(operator, OpenOnly(), frames, program.emit)

    first = build([])
    turn = first.turn(event(0, [1, 0, 2], watermark=40))
    assert (turn.record.open_windows, turn.record.tuples, turn.record.t_end) == (0, 2, 2)
    assert [section.kind for section in turn.record.sections] == [SectionKind.RESULTS]
    assert first.turn(event(3, [0])).record is None
    assert (first.acknowledged, first.frames_needed) == (2, 1)
    cec = build([stored(turn)])
    assert (cec.position, cec.recovering, cec.operator.clock) == (3, False, 40)
