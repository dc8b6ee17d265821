"""One output: past and live on one line."""

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
