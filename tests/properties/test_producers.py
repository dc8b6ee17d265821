"""Any number of producers on one entry, whatever happens: each has its tuples there once, in order.

A model of the world outside: producers that send, die, come back and claim each other's names; a
wire that cuts, and that repeats packets; an entry that dies between any two events and loses what
was not durable.  The oracle is one list per name.
"""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.graph.plan.plan import NodePlan
from rewake.graph.query import Query
from rewake.log.frame import Frame, TurnRecord
from rewake.model.errors import BadPeer, ProducerSuperseded
from rewake.node.channels.outbox import Outbox
from rewake.node.channels.packets import event_of, packet_in
from rewake.node.commands import Answer, Append, Confirm, Disconnect, NodeCommand, Trim
from rewake.node.limits import NodeLimits
from rewake.node.messages import Begins, Packet
from rewake.node.node import Node
from rewake.recovery.approach import approach_named
from rewake.recovery.driven import LogSoFar

SCHEMA = pa.schema([("name", pa.int64()), ("at", pa.int64()), ("life", pa.int64())])
NAMES = ("a", "b")


def entry(approach: str) -> NodePlan:
    """The plan of an entry; nobody reads it, so everything may be trimmed."""
    query = Query("q")
    query.entry("entry", SCHEMA, approach=approach_named(approach)).to_stream("entry")
    return query.plan().node("entry")


class Life:
    """A producer from its start to its death, with what it has on the wire."""

    def __init__(self, name: str, number: int) -> None:
        self.outbox = Outbox("entry", name)
        self.name, self.number = name, number
        self.connection: int | None = None
        self.wire: list[Packet] = []
        self.first: int | None = None
        self.superseded = False


class World:
    """The world outside and an entry."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        approach = self.random.choice(("cec", "instant"))
        turns_per_trim = self.random.randrange(1, 5)
        self.plan = entry(approach)
        self.limits = NodeLimits(turns_per_trim=turns_per_trim)
        self.frames: list[Frame] = []
        self.durable = self.trimmed = 0
        self.epoch = 0
        self.connections = 0
        self.lives: list[Life] = []
        self.start()

    def step(self) -> None:
        """Something happens."""
        random = self.random
        kinds = (self.send, self.deliver, self.work, self.another, self.reconnect, self.hang_up,
                 self.crash)  # fmt: skip
        (kind,) = random.choices(kinds, (6, 6, 6, 1, 2, 1, 1))
        kind()

    # --- the entry ---------------------------------------------------------------------------

    def start(self) -> None:
        self.epoch += 1
        left = reversed(self.frames[self.trimmed :])
        past = LogSoFar(left, len(self.frames), self.position)
        self.node = Node(self.plan, self.epoch, past, limits=self.limits)
        self.perform(self.node.start())

    @property
    def position(self) -> int:
        return self.frames[-1].position + self.frames[-1].tuples if self.frames else 0

    def perform(self, commands: list[NodeCommand]) -> None:
        for command in commands:
            match command:
                case Append(record):
                    self.frames.append(self.framed(record))
                case Answer(number, Begins() as message):
                    for life in self.on(number):
                        life.outbox.began(message)
                        if life.first is None:
                            life.first = message.position
                        life.wire += life.outbox.unsent()
                case Answer(number, message):
                    assert message.fenced, message.reason
                    for life in self.on(number):
                        life.outbox.refused(message)
                        life.superseded = True
                        self.cut(life)
                case Disconnect(number):
                    for life in self.on(number):
                        self.cut(life)
                case Trim(before):
                    self.trimmed = max(self.trimmed, before)
                case Confirm(number, ack):
                    for life in self.on(number):
                        life.outbox.acked(ack)

    def framed(self, record: TurnRecord) -> Frame:
        return Frame(
            self.epoch, len(self.frames), self.position, record.t_end, record.timestamp,
            record.open_windows, record.tuples, record.records, 0, 0, tuple(record.sections),
            "segment", 0,
        )  # fmt: skip

    def on(self, number: int) -> list[Life]:
        return [each for each in self.lives if each.connection == number]

    def cut(self, life: Life) -> None:
        life.connection = None
        life.wire.clear()

    def work(self) -> None:
        """Some turns, and perhaps all that was appended becomes durable."""
        for _ in range(self.random.randrange(1, 7)):
            self.perform(self.node.work(0.0))
        if self.random.random() < 0.6:
            self.sync()

    def sync(self) -> None:
        self.durable = len(self.frames)
        self.perform(self.node.durable(self.durable))
        self.perform(self.node.tick(0.0))

    def crash(self) -> None:
        """Frames that were not durable may be there, but for the last ones."""
        self.durable = min(len(self.frames), self.durable + self.random.randrange(4))
        del self.frames[self.durable :]
        for life in self.lives:
            self.cut(life)
        self.start()

    # --- producers ---------------------------------------------------------------------------

    def another(self) -> None:
        self.lives.append(Life(self.random.choice(NAMES), len(self.lives)))
        self.connect(self.lives[-1])

    def connect(self, life: Life) -> None:
        self.connections += 1
        life.connection = self.connections
        assert self.node.producers is not None
        message = life.outbox.hello("entry")
        self.perform(self.node.producers.claimed(self.connections, message))

    def pick(self) -> Life | None:
        """One that has not heard that it is superseded."""
        lives = [each for each in self.lives if not each.superseded]
        return self.random.choice(lives) if lives else None

    def send(self) -> None:
        """Some packets go on the wire; how many of them arrive is another matter."""
        life = self.pick()
        if life is None or life.first is None:
            return
        for _ in range(self.random.randrange(1, 4)):
            first, size = life.outbox.position, self.random.randrange(6)
            rows = [
                {"name": NAMES.index(life.name), "at": at, "life": life.number}
                for at in range(first, first + size)
            ]
            life.outbox.put(pa.RecordBatch.from_pylist(rows, SCHEMA))
        if life.connection is not None:
            life.wire += life.outbox.unsent()

    def reconnect(self) -> None:
        """Also when the entry has not noticed that the earlier connection is gone."""
        life = self.pick()
        if life is not None:
            self.cut(life)
            self.connect(life)

    def hang_up(self) -> None:
        life = self.pick()
        if life is not None and life.connection is not None:
            assert self.node.producers is not None
            self.node.producers.gone(life.connection)
            self.cut(life)

    def deliver(self) -> None:
        """The oldest packets on a wire arrive, the last of them perhaps twice."""
        life = self.pick()
        if life is None:
            return
        for _ in range(self.random.randrange(1, 6)):
            if life.connection is None or not life.wire:
                return
            connection, packet = life.connection, life.wire[0]
            self.deliver_one(life)
        producers = self.node.producers
        assert producers is not None
        if packet.rows and self.random.random() < 0.2:
            with pytest.raises(BadPeer, match="comes next"):
                producers.arrived(connection, packet)
            producers.gone(connection)
            self.cut(life)

    # --- what must hold ----------------------------------------------------------------------

    def everyone_has_its_own(self) -> None:
        self.node.check_invariants()
        written: dict[int, list[dict[str, Any]]] = {number: [] for number in range(len(NAMES))}
        for frame in self.frames[: self.durable]:
            packet = packet_in(frame, 0)
            if packet is not None:
                for row in event_of(packet, SCHEMA).batch.to_pylist():
                    written[row["name"]].append(row)
        for rows in written.values():
            assert [row["at"] for row in rows] == list(range(len(rows)))
        for life in self.lives:
            rows = written[NAMES.index(life.name)]
            assert life.outbox.acknowledged <= len(rows)
            told = rows[life.first or 0 : life.outbox.acknowledged]
            assert all(row["life"] == life.number for row in told)

    def settle(self) -> None:
        """In the end everything that anybody still answers for gets there."""
        current = {life.name: life for life in self.lives if not life.superseded}
        for life in current.values():
            self.cut(life)
            self.connect(life)
        for _ in range(3):
            while commands := self.node.work(0.0):
                self.perform(commands)
            self.sync()
            for life in current.values():
                while life.wire and life.connection is not None:
                    self.deliver_one(life)
        self.everyone_has_its_own()
        for life in current.values():
            if life.superseded:
                with pytest.raises(ProducerSuperseded):
                    life.outbox.check()
            else:
                assert life.outbox.empty
                assert life.outbox.acknowledged == life.outbox.position

    def deliver_one(self, life: Life) -> None:
        assert self.node.producers is not None
        assert life.connection is not None
        self.perform(self.node.producers.arrived(life.connection, life.wire.pop(0)))


@given(st.integers(0, 2**32))
def test_each_producer_has_its_tuples_there_once_in_any_interleaving(seed: int) -> None:
    """And what one was told to be durable is its own, not a rival's under its name."""
    world = World(seed)
    for _ in range(120):
        world.step()
        world.everyone_has_its_own()
    world.settle()
