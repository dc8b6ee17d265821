"""A small world around one bookmarked node: its input, its consumers, and the coordinator's word.

Events come in an order drawn by a seed: input, turns, timers, acks, bookmarks that become durable;
and crashes of the node, of consumers, and of the coordinator with what was on its way to its disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from rewake.graph.plan.plan import InputPlan, NodePlan, OutputPlan
from rewake.model.stream_event import StreamEvent
from rewake.node.commands import Acknowledge, Announce, Answer, Connect, Disconnect, Finish, Send
from rewake.node.messages import Ack, Begins, Packet, Subscribe
from rewake.node.node import Node
from rewake.operators.fragment import FragmentProgram
from rewake.recovery.approach import Kept
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.driven import LogSoFar, Wake
from rewake.recovery.upstream_backup import UpstreamBackup


def plan_of(program: FragmentProgram, schema: pa.Schema, outputs: Sequence[pa.Schema]) -> NodePlan:
    """A node with one consumer for each output."""
    given = tuple(OutputPlan(str(n), each, (f"c{n}",)) for n, each in enumerate(outputs))
    inputs = (InputPlan("items", schema, "items"),)
    return NodePlan(
        "node", "node", 0, 1, inputs, given, program, UpstreamBackup(), Kept.IN_QUEUE, ""
    )


class Consumer:
    """Who reads one output: how far it has come, and from where it may ask again."""

    def __init__(self) -> None:
        self.position = self.needed = 0
        self.link: int | None = None
        self.ended = False


class World:
    """Runs one schedule; `known` are the packets of a run to which nothing happened."""

    def __init__(
        self, plan: NodePlan, events: Sequence[StreamEvent], known: list[dict[int, Packet]] | None
    ) -> None:
        self.plan, self.events, self.known = plan, events, known
        self.found: list[dict[int, Packet]] = [{} for _ in plan.outputs]
        self.consumers = [Consumer() for _ in plan.outputs]
        self.links = self.epoch = 0
        self.input_needed = 0  # as the upstream knows
        self.durable: Bookmark | None = None
        self.asked: list[Bookmark] = []
        self.replays = self.kept = 0
        self.begin()

    # --- the node ----------------------------------------------------------------------------

    def begin(self) -> None:
        """An attempt of the node, with what the coordinator has kept."""
        self.epoch += 1
        self.finished = self.woken = False
        self.feed: list[StreamEvent] = []
        past = LogSoFar(bookmark=self.durable)
        self.node = Node(self.plan, self.epoch, past)
        self.perform(self.node.start())
        self.replays += self.node.recovering

    def crash(self, *, kept: bool) -> None:
        """The node dies; what was on its way to the coordinator's disk arrives there or not."""
        if kept and self.asked:
            self.durable = self.asked[0]
        self.asked.clear()
        for each in self.consumers:
            each.link = None
        self.begin()

    def perform(self, commands: Iterable[Any]) -> None:
        for command in commands:
            match command:
                case Connect(0, position):
                    assert position >= self.input_needed, "asks for input that was given up"
                    self.feed = [
                        each
                        for each in self.events
                        if each.end > position or each.start >= position
                    ]
                case Acknowledge(0, Ack(_, needed)):
                    start = 0 if self.durable is None else self.durable.start
                    assert needed <= start, "gives up input that the durable bookmark needs"
                    self.input_needed = max(self.input_needed, needed)
                case Announce(message):
                    self.asked.append(message.bookmark)
                case Send(link, packet):
                    self.receive(link, packet)
                case Answer(_, message):
                    assert isinstance(message, Begins), message
                case Wake():
                    self.woken = True
                case Finish():
                    self.finished = True
                case Disconnect():
                    raise AssertionError("a consumer is sent away")
        self.node.check_invariants()

    # --- what happens ------------------------------------------------------------------------

    def arrive(self) -> None:
        """The next stream event of the input, or its end."""
        if self.feed:
            self.perform(self.node.arrived(0, self.feed.pop(0)))
        elif not self.node.merge.announced_end(0):
            self.perform(self.node.source_ended(0))

    def work(self) -> None:
        """A turn."""
        self.perform(self.node.work(0.0))

    def wake(self) -> None:
        """A candidate is due."""
        self.perform(self.node.woke(0.0))

    def keep(self) -> None:
        """What the coordinator was asked for is durable, and it says so."""
        if self.asked:
            self.durable = self.asked.pop(0)
            self.kept += 1
            self.perform(self.node.bookmark_kept(self.durable))

    def connect(self, number: int) -> None:
        """A consumer asks from its position on."""
        each = self.consumers[number]
        if each.link is None:
            self.links += 1
            each.link = self.links
            message = Subscribe("node", number, f"c{number}", 1, each.position, self.epoch)
            self.perform(self.node.subscribed(each.link, message))

    def receive(self, link: int, packet: Packet) -> None:
        """As every consumer does: what it has, it drops."""
        number, each = next(
            (number, each) for number, each in enumerate(self.consumers) if each.link == link
        )
        if packet.final:
            each.ended = True
            return
        assert packet.start < packet.end, "a packet that no position tells"
        assert packet.start <= each.position, "a gap"
        self.check(number, packet)
        each.position = max(each.position, packet.end)

    def check(self, number: int, packet: Packet) -> None:
        """Cuts, tuples and watermarks are those of a run to which nothing happened."""
        if self.known is not None:
            assert packet.start in self.known[number], f"cut anew: {packet}"
            same = self.known[number][packet.start]
            assert (same.end, same.watermark) == (packet.end, packet.watermark)
            assert bytes(same.payload) == bytes(packet.payload)
        self.found[number][packet.start] = packet

    def ack(self, number: int, needed: int) -> None:
        """A consumer says from where it may ask again."""
        each = self.consumers[number]
        each.needed = max(each.needed, min(needed, each.position))
        if each.link is not None:
            self.perform(self.node.acked(each.link, Ack(each.position, each.needed)))

    def restart(self, number: int) -> None:
        """A consumer dies, and comes back to where it must go on."""
        each = self.consumers[number]
        if each.link is not None:
            self.perform(self.node.unsubscribed(each.link))
        each.link, each.position, each.ended = None, each.needed, False

    # --- runs --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing more goes wrong: everything comes to its end."""
        for number in range(len(self.consumers)):
            self.connect(number)
        for _ in range(4 * len(self.events) + 8):
            self.arrive()
            self.work()
            for number, each in enumerate(self.consumers):
                self.ack(number, each.position)
        assert self.finished
        assert all(each.ended for each in self.consumers)

    def run(self, seed: int, steps: int, crashes: float) -> None:
        """So many events at random, then none."""
        random = Random(seed)
        for _ in range(steps):
            number = random.randrange(len(self.consumers))
            each = self.consumers[number]
            what = random.random()
            if what < crashes:
                self.crash(kept=random.random() < 0.5)
            elif what < 2 * crashes:
                self.restart(number)
            elif what < 0.35:
                self.arrive()
            elif what < 0.6:
                self.work()
            elif what < 0.7:
                self.connect(number)
            elif what < 0.8:
                self.ack(number, random.randint(each.needed, each.position))
            elif what < 0.9:
                self.wake()
            else:
                self.keep()
        self.settle()
