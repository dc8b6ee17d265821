"""How a node's host treats clients: producers that take over, subscribers that come too late."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from log_vocabulary import sample_turn
from net_vocabulary import TOKEN, Building

from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.net.clients.client import Endpoint, Subscription
from rewake.net.nodes.links import Links
from rewake.net.nodes.log import LIMITS, NodeLog
from rewake.net.nodes.read_back import ReadBack
from rewake.net.nodes.share import Share
from rewake.node.channels.channels import Channels
from rewake.node.channels.packets import packet_of
from rewake.node.channels.producers import MOST_WINDOW_BYTES
from rewake.node.commands import (
    Answer,
    Append,
    Confirm,
    Disconnect,
    HangUp,
    HostCommand,
    ReadLog,
    Tell,
)
from rewake.node.messages import Ack, Begins, Packet, Produce, Refused, Subscribe
from rewake.node.node import Node
from rewake.node.whereabouts import Whereabouts
from rewake.recovery.driven import LogSoFar

SCHEMA = pa.schema([("k", pa.int64())])


def until(happened: Callable[[], object]) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + 40.0
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


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


def entry(**kept: Any) -> Any:
    """The plan of a node that producers write to."""
    query = Query("entered")
    query.entry("entry", SCHEMA).to_stream("entry", **kept)
    return query.plan().node("entry")


def packet(first: int, last: int) -> Packet:
    """Tuples at these positions."""
    return packet_of(StreamEvent(first, pa.record_batch({"k": list(range(first, last))}, SCHEMA)))


class Host:
    """A node and its links; what it appends is durable when a test says so."""

    def __init__(self, log: NodeLog | None = None) -> None:
        past = LogSoFar()
        if log is not None:
            past = LogSoFar((), log.next_sequence, log.next_position)
        self.node = Node(entry(), 1, past)
        self.read_back = ReadBack(self.node, log, self.perform)
        self.channels = Channels(self.node, Whereabouts(), count(1))
        share = Share(Building())
        self.links = Links(self.channels, share, self.perform, self.read_back.forget)
        self.frames = 0

    def perform(self, _event: str, commands: Sequence[HostCommand]) -> None:
        for command in commands:
            match command:
                case Append():
                    self.frames += 1
                case Answer() | Disconnect():
                    for each in self.channels.carry(command):
                        self.links.carry_out(each)
                case Tell() | HangUp():
                    self.links.carry_out(command)
                case Confirm(number, ack):
                    self.links.tell(number, ack)
                case ReadLog(number, position, sequence):
                    self.read_back.wanted(number, position, sequence)

    def work(self) -> None:
        """Take all turns there are; nothing becomes durable."""
        while commands := self.node.work(0.0):
            self.perform("work", commands)

    def sync(self) -> None:
        """What was appended is durable."""
        self.work()
        self.perform("durable", self.node.durable(self.frames))

    def comes(self, message: Any) -> Line:
        """Somebody has connected, and says this."""
        line: Any = Line()
        self.links.admit(line, [message])
        return line

    def produce(self, name: str = "producer", epoch: int = 0, position: int = 0) -> Line:
        return self.comes(Produce("entry", "entry", name, epoch, position))

    def subscribe(self, position: int) -> Line:
        return self.comes(Subscribe("entry", 0, "client", 0, position))


def test_a_producer_begins_where_everything_before_it_is_durable() -> None:
    """What its predecessor sent may still be lost, and then nobody could send it again."""
    host = Host()
    first = host.produce()
    assert first.said == [], "not even its name is durable"
    host.sync()
    assert first.said == [Begins(0, 1)]
    host.links.received(first, [packet(0, 10), packet(10, 20)])
    host.perform("work", host.node.work(0.0))
    second = host.produce()
    assert first.said[-1] == Refused("epoch 1 of producer 'producer' was superseded by 2", True)
    assert first.closed
    host.work()
    assert second.said == [], "twenty tuples are on their way to the disk"
    host.sync()
    assert second.said == [Begins(20, 2)]


def test_a_producer_that_left_while_it_waited_is_not_answered() -> None:
    """The next one is, in its place."""
    host = Host()
    first = host.produce()
    host.sync()
    host.links.received(first, [packet(0, 10)])
    second = host.produce()
    host.links.closed(second)
    third = host.produce()
    host.sync()
    assert second.said == []
    assert third.said == [Begins(10, 3)]


def test_each_producer_hears_of_its_own_packets_alone() -> None:
    """Positions are a producer's own; the entry has all of them in the order of their turns."""
    host = Host()
    one, other = host.produce("one"), host.produce("other")
    host.sync()
    host.links.received(one, [packet(0, 10), packet(10, 20)])
    host.links.received(other, [packet(0, 5)])
    host.sync()
    assert one.said == [Begins(0, 1), Ack(2, 20)]
    assert other.said == [Begins(0, 1), Ack(1, 5)]
    assert host.node.progress()["output_position"] == 25


BAD_PACKETS = {
    "goes backwards": Packet(5, 15, 10, payload=packet(5, 15).payload),
    "leaves a gap": packet(11, 12),
    "leaves positions without tuples": Packet(10, 30, 10, payload=packet(10, 20).payload),
    "says how many tuples by the payload alone": Packet(10, 20, -1, payload=packet(10, 20).payload),
    "holds no tuples": Packet(10, 20, 10, payload=b"x" * 64),
    "ends with tuples": Packet(10, 20, 10, None, packet(10, 20).payload, final=True),
    "has a time that no clock has": Packet(10, 10, watermark=2**63 - 1),
}


@pytest.mark.parametrize("what", BAD_PACKETS)
def test_a_packet_that_cannot_be_is_refused(what: str) -> None:
    """The producer is cut off with a word; what it sent before counts, and the entry goes on."""
    host = Host()
    line, other = host.produce(), host.produce("other")
    host.sync()
    host.links.received(line, [packet(0, 10), BAD_PACKETS[what], packet(10, 20)])
    assert isinstance(line.said[-1], Refused)
    assert line.closed
    host.links.received(other, [packet(0, 5)])
    host.sync()
    assert other.said[-1] == Ack(1, 5)
    again = host.produce(epoch=1)
    host.sync()
    assert again.said == [Begins(10, 1)]


BAD_CLAIMS = {
    "a name that is too long": ("x" * 201, 0, 0),
    "a name that is none": ("../x", 0, 0),
    "no name": ("", 0, 0),
    "an epoch that nobody gave": ("known", 2**63 - 1, 0),
    "an epoch of a name that nobody knows": ("unknown", 1, 0),
    "a position that is not there": ("known", 1, 11),
}


@pytest.mark.parametrize("what", BAD_CLAIMS)
def test_a_claim_that_cannot_be_is_refused(what: str) -> None:
    """It disturbs nobody, and leaves nothing behind."""
    host = Host()
    known = host.produce("known")
    host.sync()
    host.links.received(known, [packet(0, 10)])
    line = host.produce(*BAD_CLAIMS[what])
    assert isinstance(line.said[-1], Refused)
    assert line.closed
    host.links.received(line, [packet(0, 1)])
    host.sync()
    assert known.said == [Begins(0, 1), Ack(1, 10)]
    assert host.node.progress()["output_position"] == 10


def test_tuples_before_the_answer_are_refused() -> None:
    """Who does not know where it begins cannot know what it sends."""
    host = Host()
    line = host.produce()
    host.links.received(line, [packet(0, 10)])
    assert isinstance(line.said[-1], Refused)
    host.sync()
    assert host.node.progress()["output_position"] == 0


def test_a_producer_that_does_not_wait_is_refused() -> None:
    """What it may have under way is bounded, so that memory is."""
    host = Host()
    line = host.produce()
    host.sync()
    large = MOST_WINDOW_BYTES // 16
    at = 0
    while not line.closed:
        host.links.received(line, [packet(at, at + large // 8)])
        at += large // 8
        assert at * 8 < 2 * MOST_WINDOW_BYTES
    assert "without waiting" in line.said[-1].reason
    assert at * 8 > MOST_WINDOW_BYTES


def trimmed(folder: Path) -> NodeLog:
    """A node's log of many small segments, of which only the last ones are left."""
    plan = entry(keep_bytes=0)
    limits = replace(LIMITS, segment_bytes=2_000)
    log = NodeLog(folder, plan, "", 1, lambda _sequence: None, limits=limits)
    for number in range(600):
        log.append(sample_turn(number))
        if number % 50 == 49:  # what is written at once is one segment, however long
            until(lambda done=number + 1: log.durable() == done)
    log.trim(500)
    return log


@pytest.mark.parametrize("begin", [-1, 2**62, 2**63, 2**64, 1.5, True, "lates", None, [0, 1], ""])
def test_a_position_that_no_stream_has_is_refused_when_it_is_asked_for(begin: Any) -> None:
    """A node would hang up on it, and whoever reads would ask again for ever."""
    endpoint = Endpoint(("127.0.0.1", 1), TOKEN)
    with pytest.raises(UsageError, match=r"stream 's': begin=.* give .*position"):
        Subscription(endpoint, "s", SCHEMA, begin=begin)
    Subscription(endpoint, "s", SCHEMA, begin=2**62 - 1).close()


def test_a_client_that_asks_for_what_was_trimmed_is_turned_away_alone(tmp_path: Path) -> None:
    """Its mistake is its own: the query goes on, and others stay."""
    with closing(trimmed(tmp_path)) as log:
        host = Host(log)
        late = host.subscribe(0)
        other = host.subscribe(log.next_position)
        host.read_back.read()
        assert isinstance(late.said[-1], Refused)
        assert "position 0 is not in the log" in late.said[-1].reason
        assert late.closed
        assert not other.closed
        host.read_back.read()
        host.node.check_invariants()
