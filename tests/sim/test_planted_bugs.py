"""The simulator finds bugs: each of these breaks one rule on purpose."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rewake.drill.simulation import simulate
from rewake.graph.plan.plan import NodePlan
from rewake.log.frame import Section, SectionKind
from rewake.log.writing.commands import Confirm
from rewake.log.writing.host import DirectWriter
from rewake.node.channels.channels import Channels
from rewake.node.channels.input_merge import InputMerge, Taken
from rewake.node.channels.outbox import Outbox
from rewake.node.channels.producers import Known, Note, Producers
from rewake.node.channels.rounds import Rounds, Step
from rewake.node.channels.subscriptions import Subscriptions
from rewake.node.commands import (
    Answer,
    Append,
    Connect,
    HostCommand,
    NodeCommand,
    Rest,
    Trim,
)
from rewake.node.coordinator.coordinator import Coordinator
from rewake.node.messages import Begins, Peer, Produce, Refused
from rewake.node.node import Node
from rewake.node.protocols import Forgetful, Logged, LogSoFar, Protocol
from rewake.operators.columns.arrays import Int32s
from rewake.operators.stateful import Outcome
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.eventual.reading import pack_parts
from rewake.sim.cluster import Kinds

MOST_SEEDS = 150


class ForwardsBeforeDurable(Logged):
    """Sends results as soon as they are appended."""

    def turn(self, taken: Taken, now_ms: float, note: Note | None) -> list[NodeCommand]:
        commands = super().turn(taken, now_ms, note)
        return commands + self.durable(self.sequence)


class ForgetfulMerge(InputMerge):
    """Does not record in which order channels were consumed."""

    def section(self) -> Section | None:
        self._fresh = []
        return super().section()


class ForgetsTheOrder(Node):
    """Writes no determinants."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.merge.__class__ = ForgetfulMerge


class ReleasesTooMuchInput(Logged):
    """Tells upstream that what it has consumed is not needed any more."""

    def needs(self) -> tuple[list[int], int]:
        _, frames = super().needs()
        return [self.shell.merge.consumed(channel) for channel in range(len(self.needed))], frames


class TrimsTooFar(Logged):
    """Trims frames that its own recovery needs."""

    def release(self, inputs: list[int], own_frames: int) -> list[NodeCommand]:
        return [*super().release(inputs, own_frames), Trim(self.sequence)]


class LeavesOutWhatWasInFlight(Node):
    """Goes on behind what it has not got when a connection breaks."""

    def lost(self, channel: int) -> list[NodeCommand]:
        return [
            Connect(each.channel, each.position + 1) if isinstance(each, Connect) else each
            for each in super().lost(channel)
        ]


class LosesATurn(Logged):
    """Does not append one turn in a hundred, but goes on as if it had."""

    def turn(self, taken: Taken, now_ms: float, note: Note | None) -> list[NodeCommand]:
        commands = super().turn(taken, now_ms, note)
        return [
            each
            for each in commands
            if not isinstance(each, Append) or each.record.t_end % 100 != 50
        ]


class SaysAShorterLog(Subscriptions):
    """Forgets, when output is made again, how far the log behind it had come."""

    def restart(self, position: int) -> None:
        for queue in self.queues:
            queue.restart(position)


def with_outputs(kind: type[Subscriptions]) -> type[Node]:
    """A node that serves its subscribers otherwise."""

    class Planted(Node):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.outputs.__class__ = kind

    return Planted


def with_log(kind: type[Protocol], instead_of: type[Protocol] = Logged) -> type[Node]:
    """A node whose logged protocol is another."""

    class Planted(Node):
        @staticmethod
        def protocol_of(plan: NodePlan) -> type[Protocol]:
            usual = Node.protocol_of(plan)
            return kind if usual is instead_of else usual

    return Planted


class NoticesNothing(Rounds):
    """Says of every round that it took nothing in it."""

    def step(self, outside_ended: bool) -> Step | None:
        self._moved = False
        return super().step(outside_ended)


class EndsTooSoon(Node):
    """Takes its loop for over while tuples go around."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.merge.rounds is not None:
            self.merge.rounds.__class__ = NoticesNothing


class RepeatsPositions(Forgetful):
    """Numbers its output in every life as in the first."""

    @classmethod
    def first_position(cls, epoch: int, past: LogSoFar) -> int:
        return super().first_position(min(epoch, 1), past)


class DatesChecksLater(ContinuousEventualCheckpointing):
    """Says of the windows in its CHECKs that they hold the next few tuples already."""

    def _parts(self, outcome: Outcome, checked: Int32s, t_end: int) -> list[Section]:
        sections = super()._parts(outcome, checked[:0], t_end)
        if checked.size:
            columns = self.operator.snapshot_columns(checked)
            later = pack_parts(self.operator.ids_of(checked), t_end + 4, columns, self._pack)
            sections.append(Section(SectionKind.CHECKS, later))
        return sections


class KeepsNoPromise(Node):
    """Its CHECKs are not what they say."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.recovery is not None and self.recovery.rates is not None:
            self.recovery.__class__ = DatesChecksLater


class AsksOnce(Channels):
    """Does not ask again when a link has ended."""

    def closed(self, link: int) -> Sequence[HostCommand]:
        return [each for each in super().closed(link) if not isinstance(each, Rest)]


class StaysWithTheDead(Channels):
    """Does not hear that an upstream runs elsewhere."""

    def moved(self, name: str, peer: Peer | None) -> Sequence[HostCommand]:
        return [] if name in self._others.peers else super().moved(name, peer)


class ForgetsEpochs(Coordinator):
    """Does not keep which epochs were given."""

    def state(self) -> dict[str, Any]:
        return super().state() | {"epochs": dict.fromkeys(self.nodes, 0)}


class IgnoresFencing(DirectWriter):
    """Completes frames without looking whether it still owns the log."""

    def step(self) -> Any:
        if self._queue and isinstance(self._queue[0], Confirm):
            command = self._queue.popleft()
            self._queue.extendleft(reversed(self.pipeline.done(command)))
            return command
        return super().step()


class AnswersAtOnce(Producers):
    """Tells a producer where it begins before that is durable."""

    def claimed(self, connection: int, message: Produce) -> list[NodeCommand]:
        commands = super().claimed(connection, message)
        line = self._lines.get(connection)
        if line is None:
            return commands
        line.begun = True
        known = self._arrived[line.name]
        return [*commands, Answer(connection, Begins(known.position, known.epoch))]

    def durable(self, notes: Iterable[Note]) -> list[NodeCommand]:
        return super().durable([each for each in notes if each.packets])


class HearsOldEpochs(Producers):
    """Lets a producer go on whose name another has claimed."""

    def _refusal(self, message: Produce) -> Refused | None:
        refusal = super()._refusal(message)
        return None if refusal is not None and refusal.fenced else refusal


class WritesClaimsOnly(Producers):
    """Does not write whose the tuples of a frame are."""

    def taken(self) -> Note | None:
        before = dict(self._written)
        note = super().taken()
        if note is not None and note.packets:
            self._written = before
        return note


def with_producers(kind: type[Producers]) -> type[Node]:
    """A node that treats its producers otherwise."""

    class Planted(Node):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if self.producers is not None:
                self.producers.__class__ = kind

    return Planted


class ClaimsAgain(Outbox):
    """Claims its name whenever it connects, as if nobody else could have it."""

    def hello(self, node: str) -> Produce:
        return replace(super().hello(node), epoch=0)

    def refused(self, message: Refused) -> None:
        """Does not listen."""


class ForgetsWatermarks(Outbox):
    """Takes what stands at the position where it begins for durable, though it covers none."""

    def began(self, message: Begins) -> None:
        super().began(message)
        while self._packets and self._packets[0].end <= message.position:
            self._drop()


class WaitsForAnAnswer(Outbox):
    """Waits for who has left to confirm its end, and never asks the log."""

    def over(self, known: Mapping[str, Known]) -> None:
        """Does not look."""


PLANTED = {
    "forwards before durable": Kinds(node=with_log(ForwardsBeforeDurable)),
    "forgets the order of channels": Kinds(node=ForgetsTheOrder),
    "releases input that it needs": Kinds(node=with_log(ReleasesTooMuchInput)),
    "trims frames that it needs": Kinds(node=with_log(TrimsTooFar)),
    "leaves out what was in flight": Kinds(node=LeavesOutWhatWasInFlight),
    "loses a turn": Kinds(node=with_log(LosesATurn)),
    "says a shorter log": Kinds(node=with_outputs(SaysAShorterLog)),
    "asks once": Kinds(channels=AsksOnce),
    "stays with the dead": Kinds(channels=StaysWithTheDead),
    "forgets epochs": Kinds(coordinator=ForgetsEpochs),
    "ignores fencing": Kinds(writer=IgnoresFencing),
}
OF_PRODUCERS = {
    "answers producers at once": Kinds(node=with_producers(AnswersAtOnce)),
    "hears old epochs of producers": Kinds(node=with_producers(HearsOldEpochs)),
    "does not write whose tuples are": Kinds(node=with_producers(WritesClaimsOnly)),
    "claims a producer's name again": Kinds(outbox=ClaimsAgain),
    "takes the end for durable": Kinds(outbox=ForgetsWatermarks),
    "waits for who has left": Kinds(outbox=WaitsForAnAnswer),
}
OF_LOOPS = {"ends a loop too soon": Kinds(node=EndsTooSoon)}
OF_AMNESIA = {"repeats positions": Kinds(node=with_log(RepeatsPositions, Forgetful))}
OF_PROMISES = {"dates CHECKs later": Kinds(node=KeepsNoPromise)}
ALL = PLANTED | OF_PRODUCERS | OF_LOOPS | OF_AMNESIA | OF_PROMISES
# Where the search begins, so that it is short.
FIRST = {
    "releases input that it needs": 50,
    "leaves out what was in flight": 18,
    "ignores fencing": 12,
    "says a shorter log": 140,
    "answers producers at once": 189,
    "takes the end for durable": 309,
    "ends a loop too soon": 150,
    "repeats positions": 25,
    "dates CHECKs later": 65,
}
# Only every so many seeds have what these need: the first, and how many to the next.
SEEDS = (
    dict.fromkeys(OF_PRODUCERS, (5, 8))
    | dict.fromkeys(OF_LOOPS, (6, 8))
    | dict.fromkeys(OF_AMNESIA, (9, 16))
    | dict.fromkeys(OF_PROMISES, (1, 16))
)


@pytest.mark.parametrize("bug", ALL)
def test_a_planted_bug_is_found(bug: str) -> None:
    """Whoever breaks a rule is found within a few seeds, all of which hold without the bug."""
    usual, step = SEEDS.get(bug, (0, 1))
    first = FIRST.get(bug, usual)
    for seed in range(first, first + MOST_SEEDS * step, step):
        if simulate(seed, kinds=ALL[bug]).failure:
            return
    pytest.fail(f"a node that {bug} passes {MOST_SEEDS} seeds")
