"""A fragment under a recovery approach: what logged and forgetful nodes have in common.

The approach drives the operator and says what a turn's record holds; who writes it, and when
output may leave, is up to those who derive from this.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final

from rewake.graph.plan.plan import NodePlan
from rewake.log.frame import Frame
from rewake.model.stream_event import IDLE, NO_TIME
from rewake.node.channels.input_merge import Taken
from rewake.node.channels.producers import Note
from rewake.node.commands import Announce, Connect, NodeCommand
from rewake.node.messages import KeepBookmark, Packet
from rewake.node.protocols.protocol import LogSoFar, Protocol, Shell
from rewake.recovery.approach import Emissions, Keeper, Recovery, Turn
from rewake.recovery.driven import Forward, GoOn, Hold, Keep, Marker, RecoveryCommand
from rewake.recovery.promises.rates import RecoveryRates

__all__ = ["UnderApproach"]

_AT_ANY_POSITION: Final = -1


class UnderApproach(Protocol):
    """Takes turns with an operator that its approach rebuilds after a crash, or forgets."""

    def __init__(self, shell: Shell, past: LogSoFar) -> None:
        super().__init__(shell, past)
        assert shell.recovery is not None
        self.recovery: Recovery = shell.recovery
        delay = self.recovery.operator.delay
        # How far results may be behind the clock; -1: any far.
        self._delay = -1 if delay is None else delay
        # Tuples, CHECKs and their bytes of the last turn, which somebody may measure.
        self._last_turn = (0, 0, 0)
        # Output before this position is asked for no more, as the approach was told last; whether
        # it listens at all.
        self._released = 0
        self._listens = type(self.recovery).released is not Recovery.released

    @classmethod
    def rebuild(cls, plan: NodePlan, frames: Iterable[Frame], past: LogSoFar) -> Recovery:
        """The operator as its approach brings it back."""
        if past.alive is not None:
            return plan.approach.resume(past.alive, frames)
        operator = plan.program.operator(*plan.input_schemas)
        if past.bookmark is not None:
            return plan.approach.go_back(operator, plan.program.emit, past.bookmark)
        return plan.approach.build(operator, plan.program.emit, frames)

    # --- inputs ------------------------------------------------------------------------------

    @property
    def _forgets(self) -> bool:
        return self.shell.plan.approach.keeper is Keeper.NOBODY

    def start(self, committed: Sequence[int]) -> list[NodeCommand]:
        """Without a state there is no past to continue: then take what comes next."""
        began = self._carry(self.recovery.began())
        if self.shell.producers is not None:
            return began  # they connect
        if self._forgets and self.shell.epoch > 1:
            channels = range(len(self.needed))
            return [*began, *(Connect(channel, _AT_ANY_POSITION) for channel in channels)]
        return began + super().start(committed)

    def began(self, channel: int, position: int) -> None:
        """Who has forgotten everything, and has taken nothing yet, begins where its input does."""
        merge = self.shell.merge
        if self.shell.tuples_in or not self._forgets:
            merge.bridge(channel, position)
            return
        merge.go_to(channel, position)
        self.recovery.position = merge.position

    # --- turns -------------------------------------------------------------------------------

    def turn(self, taken: Taken, now_ms: float, note: Note | None) -> list[NodeCommand]:
        """Have the operator take it, and let its output leave as the protocol says."""
        replayed = self.recovery.recovering
        turn = self.recovery.turn(taken.here, now_ms)
        self._last_turn = (int(taken.here.batch.num_rows), turn.checks, turn.check_bytes)
        rows = self.shell.count(turn.outputs)
        watermark = None if replayed else self._told(taken.passed_on)
        return self._leave(turn, rows, watermark, note)

    @abstractmethod
    def _leave(
        self, turn: Turn, rows: int, watermark: int | None, note: Note | None
    ) -> list[NodeCommand]:
        """A turn has given so many rows, and this is what is told of time."""

    def _packets(
        self, outputs: Emissions, start: int, end: int, watermark: int | None
    ) -> list[Packet]:
        """What a turn gave, one packet for each output: all of them cover the same positions."""
        packets = [Packet(start, end, 0, watermark)] * len(self.shell.plan.outputs)
        for output, batch in outputs:
            packets[output] = Packet(start, end, batch.num_rows, watermark, batch.serialize())
        return packets

    def _told(self, watermark: int | None) -> int | None:
        """What those who come next are told of time: no more than that results may be behind."""
        if watermark is None or watermark >= IDLE or not self._delay:
            return watermark
        return None if self._delay < 0 else max(watermark - self._delay, NO_TIME)

    # --- what its approach asks for ----------------------------------------------------------

    def woke(self, now_ms: float) -> list[NodeCommand]:
        """The approach's timer."""
        return self._carry(self.recovery.woke(now_ms))

    def marked(self, channel: int, words: bytes) -> list[NodeCommand]:
        """What it means is the approach's matter."""
        return self._carry(self.recovery.marked(channel, words))

    def ended(self, channel: int) -> list[NodeCommand]:
        """Nobody will say anything by it any more."""
        return self._carry(self.recovery.ended(channel))

    def acked(self) -> list[NodeCommand]:
        """The approach hears of what nobody needs any more."""
        if not self._listens:
            return []
        needed = self.shell.outputs.needed()
        if needed <= self._released:
            return []
        self._released = needed
        return self._carry(self.recovery.released(needed))

    def _carry(self, commands: Iterable[RecoveryCommand]) -> list[NodeCommand]:
        """What the approach's commands mean for the node."""
        carried: list[NodeCommand] = []
        for command in commands:
            match command:
                case Forward(before):
                    carried += self._forward(before)
                case Marker(words):
                    carried += self._mark(words)
                case Keep(bookmark):
                    node, epoch = self.shell.plan.name, self.shell.epoch
                    carried.append(Announce(KeepBookmark(node, epoch, bookmark)))
                case Hold(channel):
                    self.shell.merge.hold(channel)
                case GoOn(channel):
                    self.shell.merge.go_on(channel)
                case _:
                    carried.append(command)
        return carried

    def _mark(self, words: bytes) -> list[NodeCommand]:
        """Say this behind all output so far."""
        return self.shell.outputs.mark(words)

    def _forward(self, before: int) -> list[NodeCommand]:
        """What turns before this sequence recorded is kept: their output may leave."""
        raise AssertionError(f"nothing waits that was recorded before {before}")

    def took(self, rates: RecoveryRates, elapsed_us: float) -> None:
        """The last turn took so long: what its tuples and CHECKs cost."""
        tuples, checks, check_bytes = self._last_turn
        if checks:
            rates.checked(checks, elapsed_us - tuples * rates.work_us, check_bytes)
        elif tuples:
            rates.processed(tuples, elapsed_us)
        self._last_turn = (0, 0, 0)

    def _tell_producers(self, notes: Iterable[Note]) -> list[NodeCommand]:
        producers = self.shell.producers
        return [] if producers is None else producers.durable(notes)
