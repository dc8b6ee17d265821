"""What an entry knows of its producers, and what its log says of them."""

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rewake.graph.query import Query
from rewake.log.frame import Frame, SectionKind
from rewake.model.errors import (
    DamagedFrame,
    DamagedLog,
    InvalidName,
    ProducerSuperseded,
    UsageError,
)
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.node.channels.outbox import Outbox
from rewake.node.channels.packets import packet_of, punctuation_in
from rewake.node.channels.producers import MOST_PRODUCERS, producers_in
from rewake.node.commands import Answer, Append, NodeCommand
from rewake.node.messages import Begins, Packet, Produce, Refused
from rewake.node.node import Node
from rewake.recovery.approach import approach_named
from rewake.recovery.driven import LogSoFar

SCHEMA = pa.schema([("k", pa.int64())])


class Entry:
    """An entry whose frames are durable at once."""

    def __init__(self, approach: str = "cec") -> None:
        query = Query("q")
        query.entry("entry", SCHEMA, approach=approach_named(approach)).to_stream("entry")
        self.plan = query.plan().node("entry")
        self.frames: list[Frame] = []
        self.epoch = 0
        self.restart()

    def restart(self, first: int = 0) -> None:
        """The log is all that is left, from a frame on."""
        self.epoch += 1
        end = self.frames[-1].position + self.frames[-1].tuples if self.frames else 0
        past = LogSoFar(reversed(self.frames[first:]), len(self.frames), end)
        self.node = Node(self.plan, self.epoch, past)
        self.work()

    @property
    def producers(self) -> Any:
        return self.node.producers

    def work(self) -> list[NodeCommand]:
        """All turns there are; what is answered."""
        answers: list[NodeCommand] = []
        while commands := self.node.work(0.0):
            for each in commands:
                if isinstance(each, Append):
                    self._append(each)
            answers += self.node.durable(len(self.frames))
        return answers

    def _append(self, command: Append) -> None:
        t_end, timestamp, windows, tuples, records, sections = command.record
        at = self.frames[-1].position + self.frames[-1].tuples if self.frames else 0
        self.frames.append(
            Frame(
                self.epoch,
                len(self.frames),
                at,
                t_end,
                timestamp,
                windows,
                tuples,
                records,
                0,
                0,
                tuple(sections),
                "segment",
                0,
            )
        )

    def claim(self, number: int, name: str, epoch: int = 0, position: int = 0) -> Any:
        """Somebody comes; what it is told."""
        commands = self.producers.claimed(number, Produce("entry", "entry", name, epoch, position))
        told = [*commands, *self.work()]
        (answer,) = (
            each.message for each in told if isinstance(each, Answer) and each.subscriber == number
        )
        return answer

    def send(self, number: int, first: int, rows: int, watermark: int | None = None) -> None:
        """A packet of a producer."""
        batch = pa.record_batch({"k": list(range(rows))}, SCHEMA)
        self.producers.arrived(number, packet_of(StreamEvent(first, batch, watermark)))
        self.work()

    @property
    def times(self) -> list[int]:
        """The watermarks in the log."""
        return [time for each in self.frames if (time := punctuation_in(each)) is not None]


@pytest.mark.parametrize("approach", ["cec", "instant"])
def test_after_a_crash_everyone_goes_on_where_the_log_ends_for_him(approach: str) -> None:
    """Whatever the approach: producers cannot be asked again for what is in the log."""
    entry = Entry(approach)
    assert entry.claim(1, "a") == Begins(0, 1)
    assert entry.claim(2, "b") == Begins(0, 1)
    entry.send(1, 0, 7)
    entry.send(2, 0, 3)
    entry.restart()
    assert not entry.node.recovering
    assert entry.claim(3, "a", 1, 7) == Begins(7, 1)
    assert entry.claim(4, "b") == Begins(3, 2)
    entry.send(4, 3, 1)
    refused = entry.claim(5, "b", 1, 3)
    assert refused == Refused("epoch 1 of producer 'b' was superseded by 2", fenced=True)


def test_a_log_that_is_older_than_a_producer_is_refused() -> None:
    """That what was acknowledged is not there is proof of a loss."""
    entry = Entry()
    entry.claim(1, "a")
    entry.send(1, 0, 10)
    entry.frames = entry.frames[:-1]
    entry.restart()
    assert "older than it was" in entry.claim(2, "a", 1, 10).reason
    assert "older than it was" in entry.claim(3, "a", 2, 0).reason


def test_names_are_bounded_and_a_frame_says_few_of_them() -> None:
    """None may be forgotten, so one too many is refused; recovery reads a bounded part."""
    entry = Entry()
    for number in range(MOST_PRODUCERS):
        assert entry.claim(number, f"producer{number}") == Begins(0, 1)
    assert "1024 producers" in entry.claim(-1, "one-more").reason
    for turn in range(3 * MOST_PRODUCERS):
        entry.send(turn % 7, turn // 7, 1)
    last = entry.frames[-2 * MOST_PRODUCERS :]
    sizes = [len(each.section(SectionKind.PRODUCERS) or b"") for each in last]
    assert sum(sizes) / len(sizes) < 300, "names cost more than they must"
    needed = entry.producers.frames_needed
    assert needed <= MOST_PRODUCERS
    entry.restart(len(entry.frames) - needed)
    assert entry.claim(0, "producer0") == Begins((3 * MOST_PRODUCERS + 6) // 7, 2)
    assert entry.claim(1, "producer900") == Begins(0, 2)


def test_a_log_that_was_cut_too_far_or_is_another_is_refused() -> None:
    """Names that nobody can know any more would begin anew."""
    entry = Entry()
    for number, name in enumerate("abcdef"):
        entry.claim(number, name)
    (whole,) = [each.sequence for each in entry.frames if producers_in(each)[1]][-1:]
    assert whole < len(entry.frames) - 1
    with pytest.raises(DamagedLog, match="trimmed too far"):
        entry.restart(whole + 1)
    bare = [each for each in entry.frames[-1].sections if each.kind != SectionKind.PRODUCERS]
    entry.frames[-1] = entry.frames[-1]._replace(sections=tuple(bare))
    with pytest.raises(DamagedFrame, match="whose its tuples are"):
        entry.restart()


def test_time_is_that_of_the_producer_furthest_behind() -> None:
    """Also after a crash; who has ended is not waited for; the end of all is that of time."""
    entry = Entry()
    entry.claim(1, "fast")
    entry.send(1, 0, 1, watermark=5)
    entry.claim(2, "slow")
    entry.send(1, 1, 1, watermark=100)
    entry.send(2, 0, 1, watermark=20)
    assert entry.times == [5, 20]
    entry.restart()
    entry.claim(3, "slow", 1, 1)
    entry.send(3, 1, 1, watermark=50)
    assert entry.times[-1] == 50
    entry.producers.arrived(3, Packet(2, 2, final=True))
    entry.work()
    assert entry.times[-1] == 100
    assert not entry.node.finished
    entry.claim(4, "fast", 1, 2)
    entry.producers.arrived(4, Packet(2, 2, final=True))
    entry.work()
    assert entry.times[-1] == END_OF_TIME
    assert entry.node.finished
    assert "too late" in entry.claim(5, "new").reason
    entry.restart()
    assert entry.node.finished, "an end is as durable as tuples are"


def test_a_producer_that_was_superseded_says_so_whatever_it_does() -> None:
    """And sends nothing more."""
    outbox = Outbox("entry", "a")
    outbox.began(Begins(3, 1))
    outbox.put(pa.record_batch({"k": [1]}, SCHEMA))
    outbox.refused(Refused("epoch 1 was superseded by 2", fenced=True))
    assert outbox.unsent() == []
    assert outbox.acknowledged == 3
    for what in (outbox.check, outbox.end, lambda: outbox.put(pa.record_batch({"k": [1]}, SCHEMA))):
        with pytest.raises(ProducerSuperseded, match="before position 3 are durable"):
            what()
    with pytest.raises(InvalidName):
        Outbox("entry", "x" * 201)


@pytest.mark.parametrize("watermark", [2**62, 2**63 - 2, END_OF_TIME, 2**64, -(2**62), -(2**70)])
def test_a_watermark_that_is_no_time_is_refused_when_it_is_sent(watermark: int) -> None:
    """Before it is bytes; whoever means the end of the stream is told how to say so."""
    outbox = Outbox("entry", "a")
    with pytest.raises(UsageError, match=r"watermark of -?\d+ is no time.*unit, or call end\(\)"):
        outbox.put(pa.record_batch({"k": [1]}), watermark)
    assert outbox.empty


@pytest.mark.parametrize("watermark", [1.5, "12:00", True, datetime(2026, 3, 1)])
def test_a_watermark_is_a_whole_number(watermark: Any) -> None:
    """In the unit of the time column, which a moment does not say."""
    outbox = Outbox("entry", "a")
    with pytest.raises(UsageError, match="a watermark is a whole number in the unit of the time"):
        outbox.put(pa.record_batch({"k": [1]}), watermark)
    outbox.put(pa.record_batch({"k": [1]}), np.int64(5))
    assert outbox.position == 1
