"""What an output keeps for a consumer that may need it again."""

from rewake.node.messages import Packet
from rewake.node.output_queue import OutputQueue


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
