"""How a node's host treats clients: producers that take over, subscribers that come too late."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewake.graph.query import Query
from rewake.model.errors import OutOfRange
from rewake.model.stream_event import StreamEvent
from rewake.net.authentication import TOKEN_BYTES, Token
from rewake.net.downstream import Downstream
from rewake.net.loop import Loop
from rewake.net.node_host import NodeHost, NodeTask
from rewake.node.commands import Acknowledge, NodeCommand
from rewake.node.messages import Ack, Begins, Packet, Produce, Refused, Subscribe
from rewake.node.node import Node
from rewake.node.packets import packet_of

SCHEMA = pa.schema([("k", pa.int64())])


class Line:
    """The host's end of a connection: remembers what was said."""

    peer = "somebody"

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.closed = False
        self.queued_bytes = 0

    def send(self, message: Any) -> None:
        self.said.append(message)

    def close(self) -> None:
        self.closed = True

    def finish(self, _now: float) -> None:
        self.closed = True


def entry() -> Any:
    """The plan of a node that producers write to."""
    query = Query("entered")
    query.entry("entry", SCHEMA).to_stream("entry")
    return query.plan().node("entry")


def packet(first: int, last: int) -> Packet:
    """Tuples at these positions."""
    return packet_of(StreamEvent(first, pa.record_batch({"k": list(range(first, last))}, SCHEMA)))


class Host:
    """A node and its downstream; what it appends is durable when a test says so."""

    def __init__(self) -> None:
        self.node = Node.recover(entry(), 1)
        self.downstream = Downstream(
            self.node.plan, 1, self.node, Loop(), self.perform, lambda _number: None
        )

    def perform(self, _event: str, commands: list[NodeCommand]) -> None:
        for command in commands:
            if isinstance(command, Acknowledge):
                self.downstream.acknowledge(command.channel, command.ack)

    def produce(self) -> Line:
        line = Line()
        self.downstream.received(line, [Produce("entry", "entry", "producer")])
        return line


def test_a_producer_begins_where_everything_before_it_is_durable() -> None:
    """What its predecessor sent may still be lost, and then nobody could send it again."""
    host = Host()
    first = host.produce()
    assert first.said == [Begins(0, 1)]
    host.downstream.received(first, [packet(0, 10), packet(10, 20)])
    host.perform("work", host.node.work(0.0))
    second = host.produce()
    assert first.closed
    host.perform("work", host.node.work(0.0))
    assert second.said == [], "ten tuples are on their way to the disk, ten are not even that"
    host.perform("durable", host.node.durable(2))
    host.perform("tick", host.node.tick(0.0))
    assert second.said[0] == Begins(20, 1)


def test_a_producer_that_left_while_it_waited_is_not_answered() -> None:
    """The next one is, in its place."""
    host = Host()
    first = host.produce()
    host.downstream.received(first, [packet(0, 10)])
    second = host.produce()
    host.downstream.closed(second)
    third = host.produce()
    host.perform("work", host.node.work(0.0))
    host.perform("durable", host.node.durable(1))
    host.perform("tick", host.node.tick(0.0))
    assert second.said == []
    assert third.said[0] == Begins(10, 1)
    assert isinstance(third.said[-1], Begins | Ack)


class Trimmed:
    """A log that has only what is new."""

    def read_back(self, _subscriber: int, position: int, _sequence: int) -> list[Any]:
        raise OutOfRange(f"position {position} has been trimmed")

    def forget(self, _subscriber: int) -> None:
        """Nothing is kept."""


@pytest.fixture
def host(tmp_path: Path) -> Any:
    """A node's host whose log has been trimmed, with nobody connected."""
    token = Token(bytes(TOKEN_BYTES)).reveal()
    made = NodeHost(NodeTask(entry(), str(tmp_path), "", ("127.0.0.1", 1), token))
    made._node = Node.recover(entry(), 2, next_sequence=5, next_position=50)
    made._log = Trimmed()
    made._downstream = Downstream(
        made._plan, 2, made._node, made._loop, made._perform, made._forget
    )
    yield made
    made.close()


def test_a_client_that_asks_for_what_was_trimmed_is_turned_away(host: Any) -> None:
    """Its mistake is its own: the query goes on."""
    line = Line()
    host._downstream.received(line, [Subscribe("entry", 0, "client", 0, 0)])
    host._read_log()
    assert line.said[-1] == Refused("position 0 has been trimmed")
    assert line.closed
    host._read_log()
    host._node.check_invariants()
