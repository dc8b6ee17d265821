"""The simulator finds bugs: each of these breaks one rule on purpose."""

from typing import Any

import pytest

from rewake.lab.simulation import simulate
from rewake.log.commands import Confirm
from rewake.log.frame import Section, TurnRecord
from rewake.log.host import DirectWriter
from rewake.node.commands import Append, Connect, NodeCommand, Trim
from rewake.node.coordinator import Coordinator
from rewake.node.input_merge import InputMerge
from rewake.node.node import Node
from rewake.sim.cluster import Kinds

MOST_SEEDS = 150


class ForwardsBeforeDurable(Node):
    """Sends results as soon as they are appended."""

    def _append(self, record: TurnRecord, watermark: int | None) -> list[NodeCommand]:
        commands = super()._append(record, watermark)
        turn = self._pending[-1]
        if turn.packets is not None:
            self._pending[-1] = turn._replace(packets=None)
            self._durable_end = turn.end
            commands += self.outputs.offer(turn.packets, turn.sequence)
        return commands


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


class ReleasesTooMuchInput(Node):
    """Tells upstream that what it has consumed is not needed any more."""

    def _needs(self) -> tuple[list[int], int]:
        _, frames = super()._needs()
        return [self.merge.consumed(channel) for channel in range(len(self._needed))], frames


class TrimsTooFar(Node):
    """Trims frames that its own recovery needs."""

    def _release(self, inputs: list[int], own_frames: int) -> list[NodeCommand]:
        return [*super()._release(inputs, own_frames), Trim(self._sequence)]


class LeavesOutWhatWasInFlight(Node):
    """Goes on behind what it has not got when a connection breaks."""

    def lost(self, channel: int) -> list[NodeCommand]:
        return [
            Connect(each.channel, each.position + 1) if isinstance(each, Connect) else each
            for each in super().lost(channel)
        ]


class LosesATurn(Node):
    """Does not append one turn in a hundred, but goes on as if it had."""

    def _append(self, record: TurnRecord, watermark: int | None) -> list[NodeCommand]:
        commands = super()._append(record, watermark)
        if record.t_end % 100 != 50:
            return commands
        return [each for each in commands if not isinstance(each, Append)]


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


PLANTED = {
    "forwards before durable": Kinds(node=ForwardsBeforeDurable),
    "forgets the order of channels": Kinds(node=ForgetsTheOrder),
    "releases input that it needs": Kinds(node=ReleasesTooMuchInput),
    "trims frames that it needs": Kinds(node=TrimsTooFar),
    "leaves out what was in flight": Kinds(node=LeavesOutWhatWasInFlight),
    "loses a turn": Kinds(node=LosesATurn),
    "forgets epochs": Kinds(coordinator=ForgetsEpochs),
    "ignores fencing": Kinds(writer=IgnoresFencing),
}
# Where the search begins, so that it is short.
FIRST = {
    "releases input that it needs": 50,
    "leaves out what was in flight": 18,
    "ignores fencing": 12,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    """Whoever breaks a rule is found within a few seeds, all of which hold without the bug."""
    first = FIRST.get(bug, 0)
    for seed in range(first, first + MOST_SEEDS):
        if simulate(seed, kinds=PLANTED[bug]).failure:
            return
    pytest.fail(f"a node that {bug} passes {MOST_SEEDS} seeds")
