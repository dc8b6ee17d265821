"""Places of a node: one takes turns, the other holds what it is told to, and goes on when it must.

The approach is one from outside the package.  A small world delivers events in an order drawn by a
seed: input, turns, timers, words between the places, acks; and takes away either place.
"""

import sys
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "drill"))

from mirrored import Mirrored

from rewake.graph.plan.plan import InputPlan, NodePlan, OutputPlan
from rewake.model.errors import Fenced, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.channels import Channels
from rewake.node.channels.packets import event_of
from rewake.node.commands import Announce, Answer, Dial, HangUp, Rest, Send, Tell
from rewake.node.limits import NodeLimits
from rewake.node.messages import (
    MAX_WORDS_BYTES,
    Ack,
    Follow,
    InSync,
    Peer,
    Refused,
    Subscribe,
    Words,
)
from rewake.node.node import Node
from rewake.node.standing_by import StandingBy
from rewake.node.whereabouts import Whereabouts
from rewake.operators.aggregate.functions import Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.fragment import FragmentProgram
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import Kept
from rewake.recovery.driven import LogSoFar, Say, Vouch, Wake

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PROGRAM = FragmentProgram(stateful=AggregateSpec(["k"], count_window(3), [Sum("v", "sum")]))
PLAN = NodePlan(
    "sums", "sums", 0, 1,
    (InputPlan("items", SCHEMA, "items"),),
    (OutputPlan("sums", PROGRAM.output_schema(SCHEMA), ("down",)),),
    PROGRAM, Mirrored(), Kept.IN_QUEUE, "", places=2,
)  # fmt: skip
TUPLES = 240
ADDRESS = ("machine", 1)


def rows(start: int, end: int) -> StreamEvent:
    columns = {"k": [at % 5 for at in range(start, end)], "v": list(range(start, end))}
    return StreamEvent(start, pa.RecordBatch.from_pydict(columns, schema=SCHEMA))


def expected() -> list[int]:
    """The sums of three consecutive tuples of a key, in the order in which they are complete."""
    seen: dict[int, list[int]] = {}
    sums = []
    for at in range(TUPLES):
        window = seen.setdefault(at % 5, [])
        window.append(at)
        if len(window) == 3:
            sums.append(sum(window))
            window.clear()
    return sums


class World:
    """The input, two places, whoever is downstream, and the coordinator's word."""

    def __init__(self, seed: int, *, careless: bool = False) -> None:
        self.random = Random(seed)
        self.careless = careless
        self.epochs = count(1)
        self.needed = 0  # of the input, as upstream knows
        self.received: list[int] = []
        self.position = 0  # of the downstream
        self.vouched = self.alive = False
        self.deaths = 0
        self.run_node(LogSoFar())
        self.join()

    # --- the places ----------------------------------------------------------------------

    def run_node(self, past: LogSoFar) -> None:
        self.epoch = next(self.epochs)
        self.node = Node(PLAN, self.epoch, past, limits=NodeLimits(turns_per_trim=1))
        self.channels = Channels(self.node, Whereabouts(), count(1))
        self.to_node: list[tuple[int, object]] = []
        self.to_standby: list[object] = []
        self.at, self.waking = 0, False
        self.do(self.node.start())
        self.do(self.node.subscribed(99, Subscribe("sums", 0, "down", 1, self.position)))

    def join(self) -> None:
        self.standby = StandingBy(
            PLAN, 1, next(self.epochs), {"sums": Peer(ADDRESS, self.epoch)}, count(500)
        )
        self.alive, self.vouched = True, False
        self.to_standby, self.link = [], self.channels.accept()
        self.carry_out(self.standby.start())

    def carry_out(self, commands) -> None:
        """What the standby asks for."""
        for command in commands:
            match command:
                case Dial(link, _, message):
                    self.standby_link = link
                    self.to_node.append((self.link, message))
                case Tell(_, message):
                    self.to_node.append((self.link, message))
                case _:
                    raise AssertionError(command)

    def do(self, commands) -> None:
        """What the node asks for."""
        for command in commands:
            match command:
                case Send(_, packet):
                    self.received_packet(packet)
                case Say() | Vouch():
                    self.do(self.channels.carry(command))
                case Tell(link, message) if link == self.link:
                    self.to_standby.append(message)
                case Announce(InSync(_, _, _, standby)):
                    self.vouched = self.alive and standby == self.standby.epoch
                case Wake():
                    self.waking = True
                case _ if hasattr(command, "channel") and hasattr(command, "position"):
                    self.at = command.position
                case _ if hasattr(command, "ack"):
                    self.needed = max(self.needed, command.ack.needed)
                case Answer(_, message):
                    assert not isinstance(message, Refused), message

    def received_packet(self, packet) -> None:
        assert packet.start <= self.position, "a gap"
        event = event_of(packet, PROGRAM.output_schema(SCHEMA))
        if event.start < self.position:
            event = event.split(self.position)[1]
        self.received += event.batch.column("sum").to_pylist()
        self.position = max(self.position, packet.end)

    # --- what happens ------------------------------------------------------------------------

    def step(self) -> None:
        what = self.random.choice(["arrive", "work", "wake", "hear", "hear", "tell", "ack", "tick"])
        getattr(self, f"_{what}")()
        self.channels.check_invariants()

    def _arrive(self) -> None:
        end = min(self.at + self.random.randrange(1, 8), TUPLES)
        if self.at < end:
            assert self.at >= self.needed, "input that was said not to be needed any more"
            self.do(self.node.arrived(0, rows(self.at, end)))
            self.at = end

    def _work(self) -> None:
        self.do(self.node.work(0.0))

    def _wake(self) -> None:
        if self.waking:
            self.waking = False
            self.do(self.node.woke(0.0))

    def _tick(self) -> None:
        self.do(self.node.tick(0.0))

    def _hear(self) -> None:
        if self.to_node:
            link, message = self.to_node.pop(0)
            self.do(self.channels.received(link, message))

    def _tell(self) -> None:
        if self.alive and self.to_standby:
            self.carry_out(self.standby.received(self.standby_link, self.to_standby.pop(0)))

    def _ack(self) -> None:
        self.do(self.node.acked(99, Ack(self.position, self.position)))

    def kill_node(self) -> None:
        """The coordinator promotes who is in sync; a careless one does not look."""
        if not (self.alive and (self.vouched or self.careless)):
            return
        self.deaths += 1
        _, past = self.standby.promoted()
        self.run_node(past)
        self.alive = self.vouched = False
        self.join()

    def kill_standby(self) -> None:
        """The coordinator drops it, then tells the node; another attempt comes."""
        if not self.alive:
            return
        self.deaths += 1
        self.alive = self.vouched = False
        self.do(self.channels.place_lost(1, self.standby.epoch))
        self.to_node = [each for each in self.to_node if each[0] != self.link]
        self.join()

    def run(self, *, deaths: float) -> list[int]:
        for _ in range(60_000):
            if self.random.random() < deaths:
                self.random.choice([self.kill_node, self.kill_standby])()
            self.step()
            if len(self.received) >= len(expected()):
                break
        return self.received


@pytest.mark.parametrize("seed", range(16))
def test_whichever_place_is_lost_nothing_is_lost_or_repeated(seed):
    """Downstream gets what it would have got without, whatever came in which order."""
    world = World(seed)
    assert world.run(deaths=0.03) == expected()
    assert world.deaths


def test_a_place_that_is_promoted_before_it_is_in_sync_is_found():
    """The planted bug: somebody promotes whoever stands by, as if it held all."""
    wrong = 0
    for seed in range(10):
        try:
            wrong += World(seed, careless=True).run(deaths=0.02) != expected()
        except AssertionError:
            wrong += 1
    assert wrong


def test_output_waits_for_the_standby_once_it_is_in_sync():
    """Before that the node is alone, and nothing would be gained by waiting."""
    world = World(0)
    world._arrive()
    while not world.received:
        world._arrive()
        world._work()
    while not world.vouched:
        world._wake()
        world._hear()
        world._tell()
    before = len(world.received)
    for _ in range(20):
        world._arrive()
        world._work()
    assert len(world.received) == before
    world.kill_standby()
    assert len(world.received) > before


# --- links ---------------------------------------------------------------------------------------


def test_of_two_attempts_at_a_place_only_the_later_is_heard():
    """The earlier one learns that it is superseded, and what waited for it does not any more."""
    world = World(1)
    world._hear()
    link = world.channels.accept()
    commands = world.channels.received(link, Follow("sums", 1, 9))
    assert any(type(each).__name__ == "Disconnect" for each in commands)
    late = world.channels.accept()
    (answer,) = world.channels.received(late, Follow("sums", 1, 2))
    assert answer.message.fenced
    with pytest.raises(Fenced):
        world.standby.received(world.standby_link, answer.message)


def test_an_attempt_that_was_given_up_cannot_come_back():
    """The coordinator's word may arrive before the attempt does."""
    world = World(2)
    world.to_node.clear()
    world.channels.place_lost(1, world.standby.epoch)
    (answer,) = world.channels.received(world.link, Follow("sums", 1, world.standby.epoch))
    assert answer.message.fenced


def test_what_is_said_before_a_node_is_open_is_known_when_it_is():
    """A place was lost while the promoted node opened: its attempt has come, and is not heard."""
    others = Whereabouts({"sums": Peer(ADDRESS, 1)})
    others.place_lost(1, 7)
    others.place_lost(1, 6)
    others.welcomed({"up": Peer(ADDRESS, 2)})
    others.moved("up", None)
    channels = Channels(Node(PLAN, 8), others, count(1))
    for epoch in (6, 7):
        (answer,) = channels.received(channels.accept(), Follow("sums", 1, epoch))
        assert answer.message.fenced
    assert not any(
        isinstance(each, Answer)
        for each in channels.received(channels.accept(), Follow("sums", 1, 9))
    )
    assert others.peers == {}


def test_a_place_that_the_plan_does_not_have_is_sent_away():
    """Nobody stands by in a third place of two."""
    world = World(3)
    commands = world.channels.received(world.channels.accept(), Follow("sums", 2, 9))
    assert "no place 2" in commands[0].message.reason


def test_a_standby_that_loses_its_link_keeps_what_it_holds_and_asks_again():
    """Either it is promoted, or it hears where the node runs now."""
    world = World(4)
    assert world.standby.closed(world.standby_link) == [Rest(0, 50.0)]
    dial, greeting = world.standby.rested()
    assert isinstance(dial.message, Follow)
    assert isinstance(greeting.message, Words)
    moved = world.standby.moved("sums", Peer(("elsewhere", 2), 7))
    assert isinstance(moved[0], HangUp)
    assert moved[1].address == ("elsewhere", 2)
    assert world.standby.moved("others", Peer(("x", 1), 1)) == []


def test_words_have_a_limit():
    """An approach says more in several messages."""
    with pytest.raises(UsageError, match="say it in several messages"):
        Words(bytes(MAX_WORDS_BYTES + 1))
