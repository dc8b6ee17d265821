"""One output: past and live on one line."""

import pytest

from rewake.model.stream_event import IDLE
from rewake.node.channels.output_queue import OutputQueue
from rewake.node.messages import Packet


def packet(start: int, end: int, size: int = 100) -> Packet:
    return Packet(start, end, end - start, payload=b"x" * size)


def queue(position: int = 0, *, memory: int = 1 << 20, window: int = 1 << 20) -> OutputQueue:
    return OutputQueue(position, memory_bytes=memory, window_bytes=window)


def ends(packets) -> list[int]:
    return [each.end for each in packets]


def test_a_subscriber_gets_what_it_is_owed_once():
    """Everything from its position on, in order, and nothing again."""
    outputs = queue()
    outputs.offer(packet(0, 3))
    outputs.offer(packet(3, 5))
    outputs.subscribe(1, "sink", 3, required=True)
    assert ends(outputs.sendable(1)) == [5]
    assert ends(outputs.sendable(1)) == []


def test_the_window_bounds_what_is_in_flight():
    """More is sent only when the subscriber has consumed something."""
    outputs = queue(window=150)
    outputs.subscribe(1, "sink", 0, required=True)
    for start in range(4):
        outputs.offer(packet(start, start + 1))
    assert ends(outputs.sendable(1)) == [1]
    outputs.acked(1, 1, 0)
    assert ends(outputs.sendable(1)) == [2]


def test_a_subscriber_behind_memory_reads_the_log_and_then_goes_on_live():
    """The same cursor goes through the past and into the present."""
    outputs = queue(memory=300)
    for start in range(4):
        outputs.offer(packet(start, start + 1))
    outputs.forget_stored()
    assert outputs.first > 0
    cursor = outputs.subscribe(1, "sink", 0, required=True)
    assert ends(outputs.sendable(1)) == []
    assert outputs.must_read(1) == 0
    cursor.backlog.extend(packet(start, start + 1) for start in range(outputs.first))
    assert ends(outputs.sendable(1)) == [1, 2, 3, 4]
    assert outputs.must_read(1) is None


def test_what_an_absent_consumer_may_want_is_kept():
    """Without a log, memory is all there is for one that comes back."""
    outputs = queue()
    outputs.needed = {"a": 0, "b": 0}
    outputs.subscribe(1, "a", 0, required=True)
    outputs.offer(packet(0, 1))
    list(outputs.sendable(1))
    outputs.forget_sent()
    assert outputs.first == 0
    outputs.subscribe(2, "b", 0, required=True)
    list(outputs.sendable(2))
    outputs.forget_sent()
    assert outputs.first == 1
    outputs.check_invariants()


def test_the_end_is_told_once_after_everything_else():
    """A finite stream says that it is over."""
    outputs = queue()
    outputs.subscribe(1, "sink", 0, required=True)
    outputs.offer(packet(0, 2))
    outputs.finish()
    sent = list(outputs.sendable(1))
    assert [each.final for each in sent] == [False, True]
    assert list(outputs.sendable(1)) == []


def test_output_made_again_is_sent_only_to_those_who_lack_it():
    """A rewind for one subscriber repeats nothing for another."""
    outputs = queue()
    outputs.subscribe(1, "ahead", 0, required=True)
    outputs.offer(packet(0, 2))
    list(outputs.sendable(1))
    outputs.restart(0)
    outputs.subscribe(2, "behind", 0, required=True)
    outputs.offer(packet(0, 2))
    outputs.offer(packet(2, 3))
    assert ends(outputs.sendable(1)) == [3]
    assert ends(outputs.sendable(2)) == [2, 3]


def watermark(position: int, time: int) -> Packet:
    return Packet(position, position, 0, time)


@pytest.mark.parametrize("forget", ["forget_sent", "forget_unneeded"])
def test_watermarks_alone_never_fill_a_queue(forget: str):
    """However long no tuple comes: who has been sent one needs no more than the latest."""
    outputs = queue(memory=1000)
    outputs.needed = {"sink": 0}
    outputs.subscribe(1, "sink", 0, required=True)
    outputs.offer(packet(0, 1))
    said = []
    for time in range(100):
        outputs.offer(watermark(1, time))
        said += [each.watermark for each in outputs.sendable(1)]
        outputs.acked(1, 1, 1)
        getattr(outputs, forget)()
        outputs.check_invariants()
    assert said == [None, *range(100)]
    assert outputs.bytes <= 1100
    assert outputs.has_room_unless_taken
    outputs.unsubscribe(1)
    outputs.subscribe(2, "sink", 1, required=True)
    assert [each.watermark for each in outputs.sendable(2)][-1] == 99


def test_a_reader_that_was_slow_leaves_no_watermarks_behind():
    """What it had not been sent is kept for it one by one, and goes when it has caught up."""
    outputs = queue(memory=1000, window=100)
    outputs.needed = {"sink": 0}
    outputs.subscribe(1, "sink", 0, required=True)
    for time in range(100):
        outputs.offer(watermark(0, time))
    said = []
    for _ in range(200):
        said += [each.watermark for each in outputs.sendable(1)]
        outputs.acked(1, 0, 0)
        outputs.forget_sent()
    assert said == list(range(100))
    assert outputs.has_room


def test_that_nobody_shall_wait_does_not_stand_for_how_far_time_has_come():
    """Silence and times take turns: both of the latest stay, and little of what was before."""
    outputs = queue(memory=200)
    outputs.needed = {"sink": 0}
    outputs.subscribe(1, "sink", 0, required=True)
    for time in range(10):
        outputs.offer(watermark(0, time))
        outputs.offer(watermark(0, IDLE))
        assert list(outputs.sendable(1))
        outputs.forget_sent()
    outputs.unsubscribe(1)
    outputs.subscribe(2, "sink", 0, required=True)
    assert [each.watermark for each in outputs.sendable(2)][-2:] == [9, IDLE]
    assert outputs.bytes <= 300


def test_a_marker_is_said_where_it_belongs_however_slow_the_reader():
    """Behind all that was offered before it, and before all that comes after it."""
    outputs = queue(window=150)
    outputs.subscribe(1, "sink", 0, required=True)
    outputs.subscribe(2, "client", 0, required=False)
    for start in range(4):
        outputs.offer(packet(start, start + 1))
        outputs.mark(b"%d" % start)
    said: list[Packet] = []
    for _ in range(8):
        said += outputs.sendable(1)
        outputs.acked(1, said[-1].end, 0)
    assert [(each.end, each.marker) for each in said] == [
        item for at in range(4) for item in ((at + 1, b""), (at + 1, b"%d" % at))
    ]
    assert not any(each.marker for each in outputs.sendable(2))


def test_a_marker_is_said_behind_what_is_read_from_the_log():
    """It is not lost with what has left memory."""
    outputs = queue(memory=100)
    cursor = outputs.subscribe(1, "sink", 0, required=True)
    cursor.window_bytes = 0
    for start in range(3):
        outputs.offer(packet(start, start + 1), start)
    list(outputs.sendable(1))
    outputs.mark(b"one")
    outputs.forget_stored()
    outputs.offer(packet(3, 4), 3)
    outputs.acked(1, 1, 0)
    assert list(outputs.sendable(1)) == []
    cursor.window_bytes = 1 << 20
    assert outputs.must_read(1) == 1
    cursor.backlog.extend(packet(start, start + 1) for start in range(1, outputs.first))
    cursor.seen = outputs.first_sequence
    said = [(each.end, each.marker) for each in outputs.sendable(1)]
    assert said == [(2, b""), (3, b""), (3, b"one"), (4, b"")]
