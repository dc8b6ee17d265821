"""What an output keeps for a consumer that may need it again."""

from rewake.log.frame import Frame
from rewake.node.channels.output_queue import OutputQueue
from rewake.node.channels.packets import punctuation_section
from rewake.node.channels.subscriptions import Subscriptions
from rewake.node.commands import ReadLog, Send
from rewake.node.limits import NodeLimits
from rewake.node.messages import Packet, Subscribe
from rewake.recovery.approach import Kept


def _queue() -> OutputQueue:
    queue = OutputQueue(0, memory_bytes=1 << 20, window_bytes=1 << 20)
    queue.needed = {"down": 0}
    for start in range(0, 100, 10):
        queue.offer(Packet(start, start + 10, 10, payload=b"x"))
    return queue


def test_where_a_subscriber_goes_on_is_not_what_it_may_need_again() -> None:
    """A consumer that reconnects has what it asks from, but its recovery may start earlier."""
    queue = _queue()
    queue.subscribe(1, "down", 50, required=True)
    assert queue.needed == {"down": 0}
    queue.acked(1, 60, 20)
    queue.unsubscribe(1)
    queue.subscribe(2, "down", 70, required=True)
    assert queue.needed == {"down": 20}


def test_a_watermark_alone_is_not_forgotten_before_it_was_sent() -> None:
    """It ends where the subscriber stands already, and yet the subscriber does not have it."""
    queue = OutputQueue(0, memory_bytes=1 << 20, window_bytes=1)
    queue.subscribe(1, "down", 0, required=True)
    queue.offer(Packet(0, 10, 10, payload=b"x"))
    assert [packet.end for packet in queue.sendable(1)] == [10]
    queue.offer(Packet(10, 10, watermark=7))
    queue.offer(Packet(10, 20, 10, payload=b"x"))
    queue.forget_sent()
    queue.acked(1, 10, 10)
    assert [packet.watermark for packet in queue.sendable(1)] == [7]


def _frame(sequence: int, position: int, tuples: int, watermark: int | None = None) -> Frame:
    sections = () if watermark is None else (punctuation_section(watermark),)
    return Frame(1, sequence, position, 0, 0, 0, tuples, 0, 0, 0, sections, "segment", 0)


def test_a_watermark_alone_in_the_log_reaches_a_subscriber_that_stands_there() -> None:
    """Who reconnects after a restart gets what stands at its position, however often it was cut."""
    outputs = Subscriptions(
        [("down",)], 20, epoch=2, kept=Kept.IN_LOG, limits=NodeLimits(), sequence=4,
        rewind=lambda _position: [],
    )  # fmt: skip
    commands = outputs.subscribed(1, Subscribe("up", 0, "down", 1, 20))
    assert commands[-1] == ReadLog(1, 20, 0)
    frames = [_frame(1, 10, 10), _frame(2, 20, 0, 7)]
    assert outputs.read_back(1, frames, 20) == [
        Send(1, Packet(20, 20, watermark=7)),
        ReadLog(1, 20, 3),
    ]
    assert outputs.read_back(1, [_frame(3, 20, 0, 9)], 20) == [Send(1, Packet(20, 20, watermark=9))]
