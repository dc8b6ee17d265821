"""A link between two nodes of one server, and who comes to a server."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from rewake import Batches
from rewake.graph.query import Query
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.lane import Lane, lane
from rewake.node.channels.reception import Reception
from rewake.node.commands import Answer, NodeCommand, Send
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack, Begins, Packet, Peek, Produce, Refused, Subscribe
from rewake.node.node import Node
from rewake.operators.windows.specs import count_window


class Loop:
    """What is to be called, in order."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()

    def run(self) -> None:
        while self.calls:
            self.calls.popleft()()


class End:
    """Hears what is said, and answers if a test wants it to."""

    def __init__(self, answer: Callable[[Any, Any], None] | None = None) -> None:
        self.heard: list[Any] = []
        self.depth = 0
        self._answer = answer

    def received(self, line: Any, messages: list[Any]) -> None:
        assert not self.depth, "told while it is being told"
        self.depth += 1
        for message in messages:
            self.heard.append(message)
            if self._answer is not None:
                self._answer(line, message)
        self.depth -= 1

    def closed(self, line: Any) -> None:  # noqa: ARG002 (a Hearer)
        self.heard.append("closed")


def joined(one: End, other: End) -> tuple[Loop, Lane, Lane]:
    loop = Loop()
    return loop, *lane(loop.calls.append, one, other)


def test_messages_are_told_in_order_and_never_at_once() -> None:
    """Whoever says something is done with what it was at before the other hears of it."""
    one, other = End(), End()
    loop, here, _ = joined(one, other)
    for number in range(5):
        here.send(number)
    assert other.heard == []
    assert len(loop.calls) == 1, "one call for many messages"
    loop.run()
    assert other.heard == [0, 1, 2, 3, 4]


def test_two_that_answer_each_other_do_not_call_each_other() -> None:
    """Each answer is another call of the loop, however long it goes on."""

    def answer(line: Any, number: int) -> None:
        if number < 10_000:
            line.send(number + 1)

    one, other = End(answer), End(answer)
    loop, here, _ = joined(one, other)
    here.send(0)
    loop.run()
    assert other.heard[-1] == 10_000
    assert len(one.heard) + len(other.heard) == 10_001


def test_the_other_is_told_the_end_once_behind_what_was_said() -> None:
    """And says nothing more itself."""
    one, other = End(), End()
    loop, here, there = joined(one, other)
    here.send("last words")
    here.finish()
    here.send("nothing more")
    there.send("to nobody")
    loop.run()
    here.close()
    loop.run()
    assert other.heard == ["last words", "closed"]
    assert one.heard == []


def test_what_is_under_way_is_lost_when_a_lane_is_closed() -> None:
    """As when a socket is."""
    one, other = End(), End()
    loop, here, there = joined(one, other)
    here.send("lost")
    there.send("lost as well")
    here.close()
    loop.run()
    assert (one.heard, other.heard) == ([], ["closed"])


def test_an_end_that_hangs_up_while_it_is_told_hears_no_end() -> None:
    """Whoever ends a line is told nothing more of it."""
    one, other = End(), End(lambda line, _message: line.finish())
    loop, here, _ = joined(one, other)
    here.send("hello")
    here.finish()
    loop.run()
    assert other.heard == ["hello"]


def test_what_waits_is_counted() -> None:
    """A server that leaves can see whether all was taken."""
    loop, here, _ = joined(End(), End())
    here.send(Packet(0, 1, 1, None, b"x" * 100))
    assert here.queued_bytes == 164
    loop.run()
    assert here.queued_bytes == 0


def test_a_slow_reader_holds_its_upstream_back_across_a_lane() -> None:
    """What is under way is bounded by the window, and acks free it, as on any link."""
    rows = pa.table({"n": list(range(100))})
    query = Query("q")
    items = query.source("items", Batches(rows, event_tuples=10))
    items.aggregate(by="n", window=count_window(10), count=True, name="sums").to_stream("sums")
    limits = NodeLimits(window_bytes=2_000, queue_bytes=2_000, input_bytes=2_000)
    node = Node(query.plan().node("items"), 1, limits=limits)
    reader = End()
    loop, here, _ = joined(End(), reader)

    def perform(commands: Sequence[NodeCommand]) -> None:
        for each in commands:
            if isinstance(each, Answer | Send):
                here.send(each.packet if isinstance(each, Send) else each.message)

    def feed(position: int) -> int:
        """Give it input for as long as it wants some; where that ends."""
        while node.wants(0) and position < 100_000:
            batch = pa.record_batch({"n": list(range(position, position + 10))})
            perform(node.arrived(0, StreamEvent(position, batch)))
            perform(node.work(0.0))
            position += 10
        return position

    perform(node.start())
    perform(node.subscribed(1, Subscribe("items", 0, "sums", 1, 0)))
    first = end = feed(0)
    assert end < 1_000, "it does not want more than it can send"
    assert here.queued_bytes < 4_000
    for _ in range(20):
        loop.run()
        last = next(each for each in reversed(reader.heard) if isinstance(each, Packet))
        perform(node.acked(1, Ack(last.end, last.end)))
        for _ in range(10):
            perform(node.work(0.0))  # what had come before
        end = feed(end)
        assert here.queued_bytes < 4_000
    assert end > 3 * first, "acks make room"


# --- who comes to a server -----------------------------------------------------------------------

WANTED = Subscribe("b", 0, "c", 1, 0)


class Server:
    """Remembers who came to which node, and who was sent away."""

    def __init__(self) -> None:
        self.come: list[tuple[str, str, list[Any]]] = []
        self.refused: list[tuple[str, str]] = []
        self.reception: Reception[str] = Reception(
            ["a", "b"],
            lambda node, line, said: self.come.append((node, line, said)),
            lambda line, why: self.refused.append((line, why.reason)),
        )


def test_who_comes_is_shown_to_the_node_that_it_names() -> None:
    """With all that it has said already."""
    server = Server()
    server.reception.opened("b")
    server.reception.received("line", [WANTED, Ack(5, 5)])
    assert server.come == [("b", "line", [WANTED, Ack(5, 5)])]


def test_who_comes_early_waits_until_the_node_is_open() -> None:
    """In the order in which they came; of acks the last counts."""
    server = Server()
    server.reception.received("first", [WANTED])
    server.reception.received("second", [Peek("b")])
    for position in range(1_000):
        server.reception.received("first", [Ack(position, 0)])
    server.reception.opened("a")
    assert server.come == []
    server.reception.opened("b")
    assert server.come == [("b", "first", [WANTED, Ack(999, 0)]), ("b", "second", [Peek("b")])]
    assert server.refused == []


def test_who_has_left_is_not_waited_with() -> None:
    """Its line may have another meaning by then."""
    server = Server()
    server.reception.received("line", [WANTED])
    server.reception.closed("line")
    server.reception.opened("b")
    assert server.come == []


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([Begins(0, 1)], "a peer sent Begins out of turn"),
        ([Subscribe("z", 0, "c", 1, 0)], "this is the server of 'a', 'b', not of 'z'"),
        ([WANTED, Packet(0, 0)], "a peer sent Packet out of turn"),
        ([Produce("b", "b", "p"), Ack(0, 0), Ack(0, 0)], "a peer sent Ack out of turn"),
        ([Refused("no")], "a peer sent Refused out of turn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_says_anything_else_is_refused_once(messages: list[Any], why: str) -> None:
    """And does not wait."""
    server = Server()
    server.reception.received("line", messages)
    assert server.refused == [("line", why)]
    server.reception.opened("b")
    assert server.come == []
