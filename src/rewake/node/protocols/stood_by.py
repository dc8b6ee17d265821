"""Stood by: the approach keeps records itself, in the memory of the node's other places.

What always holds: output waits until the approach says that its record is kept, and then stays in
memory until no node can ask for it again.  A place that is promoted makes its output again from the
records it holds, and everybody goes on where they are.
"""

from __future__ import annotations

from typing import ClassVar

from rewake.log.frame import TurnRecord
from rewake.node.channels.packets import packet_in
from rewake.node.commands import NodeCommand
from rewake.node.protocols.holding import Holding
from rewake.node.protocols.protocol import LogSoFar, Shell
from rewake.recovery.approach import Kept

__all__ = ["StoodBy"]


class StoodBy(Holding):
    """Hands its records to its approach, which has other places hold them."""

    kept: ClassVar[Kept] = Kept.IN_QUEUE

    def __init__(self, shell: Shell, past: LogSoFar) -> None:
        super().__init__(shell, past)
        self._refill(past)

    def _refill(self, past: LogSoFar) -> None:
        """Have the output of these records at hand: somebody may not have got it yet."""
        frames = sorted(past.frames, key=lambda frame: frame.sequence)
        outputs = range(len(self.shell.plan.outputs))
        if frames:
            self.shell.outputs.restart(frames[0].position)
        for frame in frames:
            packets = [packet_in(frame, output) for output in outputs]
            if all(packets):  # it sends something, if only a watermark
                self.shell.outputs.offer([each for each in packets if each is not None])
            self._frame_marks.put(frame.position + frame.tuples, frame.sequence + 1)

    # --- records -----------------------------------------------------------------------------

    def _hand_over(self, sequence: int, position: int, record: TurnRecord) -> list[NodeCommand]:
        return self._carry(self.recovery.keep(sequence, position, record))

    def _forget(self, before: int) -> list[NodeCommand]:
        return self._carry(self.recovery.forget(before))

    # --- places ------------------------------------------------------------------------------

    def joined(self, place: int) -> list[NodeCommand]:
        """It knows nothing yet but what it says first."""
        return self._carry(self.recovery.joined(place))

    def left(self, place: int) -> list[NodeCommand]:
        """What waited for it need not wait."""
        return self._carry(self.recovery.left(place))

    def heard(self, place: int, words: bytes) -> list[NodeCommand]:
        """What it means is the approach's matter."""
        return self._carry(self.recovery.heard(place, words))
