"""The channels of a fragment, merged into one line of turns."""

import pyarrow as pa
import pytest

from rewake.log.frame import Frame, Section
from rewake.model.errors import BadPeer, DamagedFrame, DamagedLog
from rewake.model.stream_event import CLOCK_PORT, END_OF_TIME, StreamEvent
from rewake.node.channels.input_merge import InputMerge
from rewake.node.channels.packets import packet_of
from rewake.node.messages import Packet

SCHEMA = pa.schema([("value", pa.int64())])


def event(position: int, rows: int, *, start: int = -1, watermark: int | None = None):
    batch = pa.RecordBatch.from_pydict(
        {"value": list(range(position, position + rows))}, schema=SCHEMA
    )
    return StreamEvent(position, batch, watermark, start)


def frame(sequence: int, t_end: int, section: Section) -> Frame:
    return Frame(1, sequence, 0, t_end, 0, 0, 0, 0, 0, 0, (section,), "segment", 0)


def values(taken):
    return taken.here.batch.column(0).to_pylist()


def test_one_channel_keeps_its_positions():
    """With one channel the fragment's time is the channel's."""
    merge = InputMerge([SCHEMA])
    merge.offer(0, packet_of(event(2, 3, start=0)))
    taken = merge.take()
    assert (taken.here.start, taken.here.position, taken.here.end) == (0, 2, 5)
    assert merge.section() is None


def test_what_is_known_is_dropped_and_what_overlaps_is_cut():
    """A channel's positions are handed out without gap or repeat."""
    merge = InputMerge([SCHEMA])
    assert merge.offer(0, event(0, 4))
    assert not merge.offer(0, event(0, 4))
    assert merge.offer(0, event(2, 4))
    assert values(merge.take()) == [0, 1, 2, 3]
    taken = merge.take()
    assert values(taken) == [4, 5]
    assert taken.here.start == 4


def test_a_gap_is_refused():
    """Missing tuples are an error of the peer, never skipped."""
    merge = InputMerge([SCHEMA])
    with pytest.raises(BadPeer, match="0 comes next"):
        merge.offer(0, event(3, 1))


def test_a_bridged_gap_passes_its_positions():
    """What an upstream lost still takes its time."""
    merge = InputMerge([SCHEMA])
    merge.offer(0, event(0, 2))
    merge.take()
    merge.bridge(0, 100)
    merge.offer(0, event(100, 2))
    taken = merge.take()
    assert (taken.here.start, taken.here.position, taken.here.end) == (2, 100, 102)


def test_two_channels_share_one_time_and_leave_determinants():
    """Each stretch consumed takes as many positions of the fragment's own time."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(1, event(0, 2))
    merge.offer(0, event(0, 3))
    first, second = merge.take(), merge.take()
    assert [first.channel, second.channel] == [0, 1]
    assert (second.here.start, second.here.end) == (3, 5)
    assert merge.section() is not None


def test_the_recorded_order_is_followed_after_a_crash():
    """Turns up to the end of the log are taken as they were, whatever arrives first."""
    merge = InputMerge([SCHEMA, SCHEMA])
    for channel, position in ((1, 0), (1, 2), (0, 0), (1, 4)):
        merge.offer(channel, event(position, 2))
        merge.take()
    section = merge.section()

    again = InputMerge([SCHEMA, SCHEMA])
    starts = again.recover([frame(0, 7, section)], 3)
    assert starts == [0, 3]
    again.offer(0, event(0, 2))
    assert again.take() is None  # channel 1 was consumed first
    again.offer(1, event(2, 2))
    again.offer(1, event(4, 2))
    order = []
    while (taken := again.take()) is not None:
        order.append((taken.channel, values(taken), taken.here.start))
    assert order == [(1, [3], 3), (0, [0, 1], 4), (1, [4, 5], 6)]
    assert not again.following


def test_followed_turns_are_not_recorded_twice():
    """What the log has already must not be in the next frame again."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(1, event(0, 2))
    merge.take()
    section = merge.section()
    again = InputMerge([SCHEMA, SCHEMA])
    again.recover([frame(0, 1, section)], 0)
    again.offer(1, event(0, 2))
    again.take()
    again.offer(0, event(0, 1))
    again.take()
    later = again.section()
    third = InputMerge([SCHEMA, SCHEMA])
    assert third.recover([frame(1, 2, later), frame(0, 1, section)], 0) == [0, 0]
    assert third.recover([frame(1, 2, later)], 2) == [0, 2]


def test_a_log_that_does_not_reach_back_is_refused():
    """Without the order of the input the state cannot be rebuilt."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(0, event(0, 2))
    merge.take()
    merge.section()
    merge.offer(1, event(0, 2))
    merge.take()
    section = merge.section()
    with pytest.raises(DamagedLog, match="trimmed too far"):
        InputMerge([SCHEMA, SCHEMA]).recover([frame(1, 3, section)], 0)


def test_determinants_of_another_shape_are_refused():
    """A log of a fragment with other channels belongs to another query."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(0, event(0, 1))
    merge.take()
    section = merge.section()
    with pytest.raises(DamagedFrame, match="another query"):
        InputMerge([SCHEMA] * 3).recover([frame(0, 0, section)], 0)


def test_what_is_needed_again_is_told_per_channel():
    """The input of turns from a time on, in the positions of each channel."""
    merge = InputMerge([SCHEMA, SCHEMA])
    for channel, position in ((0, 0), (1, 0), (0, 3)):
        merge.offer(channel, event(position, 3))
        merge.take()
    assert merge.needed(0) == [0, 0]
    assert merge.needed(4) == [3, 1]
    assert merge.needed(9) == [6, 3]


def test_the_watermark_is_the_lowest_of_all_channels():
    """A merged stream is only as far as its slowest input."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(0, event(0, 1, watermark=50))
    assert merge.take().here.watermark is None
    merge.offer(1, event(0, 1, watermark=30))
    assert merge.take().here.watermark == 30
    merge.offer(1, Packet(1, 1, final=True))
    assert merge.take().here.watermark == 50
    merge.offer(0, Packet(1, 1, final=True))
    assert merge.take().here.watermark == END_OF_TIME
    assert merge.ended


def test_a_channel_that_goes_back_takes_the_whole_stream_event():
    """A filter must see the same stream event to give its tuples the same positions."""
    merge = InputMerge([SCHEMA])
    merge.go_to_event_at(5)
    merge.offer(0, event(4, 4))
    taken = merge.take()
    assert (taken.here.start, taken.here.end) == (4, 8)
    merge.check_invariants()


def test_the_clock_takes_positions_and_comes_again_in_the_recorded_order():
    """What it showed is in the log; no channel is asked for it."""
    merge = InputMerge([SCHEMA], clocked=True)
    merge.offer(0, event(0, 2))
    tick, tuples, later = merge.take(100), merge.take(), merge.take(130)
    assert (tick.here.start, tick.here.end, tick.here.watermark) == (0, 1, 100)
    assert tick.channel is None
    assert tick.passed_on is None
    assert (tuples.here.start, tuples.here.end) == (1, 3)
    assert later.here.port == CLOCK_PORT
    assert merge.needed(0) == [0]
    section = merge.section()
    successor = InputMerge([SCHEMA], clocked=True)
    assert successor.recover([frame(0, 3, section)], 0) == [0]
    assert successor.take(999).here.watermark == 100
    assert successor.take(999) is None, "the tuples of the recorded order have not come"
    successor.offer(0, event(0, 2))
    assert values(successor.take(999)) == [0, 1]
    assert successor.take(999).here.watermark == 130
    assert not successor.following


def test_a_log_with_ticks_is_of_a_fragment_that_goes_by_the_clock():
    """To anybody else it is a log of another query."""
    merge = InputMerge([SCHEMA, SCHEMA], clocked=True)
    merge.take(5)
    section = merge.section()
    with pytest.raises(DamagedFrame, match="another query"):
        InputMerge([SCHEMA, SCHEMA]).recover([frame(0, 0, section)], 0)
