"""Forgetful: nothing is logged; output leaves at once, and a crash loses what was in memory.

What always holds: each life of a node numbers its output from a line of its own, so that nothing it
lost can be mistaken for something it says now.
"""

from __future__ import annotations

from typing import ClassVar, Final

from rewake.node.channels.producers import Note
from rewake.node.commands import NodeCommand
from rewake.node.protocols.protocol import LogSoFar
from rewake.node.protocols.under_approach import UnderApproach
from rewake.recovery.approach import Emissions, Kept, Turn

__all__ = ["POSITIONS_PER_LIFE", "Forgetful"]

POSITIONS_PER_LIFE: Final = 1 << 40


class Forgetful(UnderApproach):
    """Forwards what a turn gives, and needs nothing again."""

    kept: ClassVar[Kept] = Kept.NOWHERE

    @classmethod
    def first_position(cls, epoch: int, past: LogSoFar) -> int:  # noqa: ARG003
        """A line of its own for each life."""
        return epoch * POSITIONS_PER_LIFE

    def _leave(
        self, turn: Turn, rows: int, watermark: int | None, note: Note | None
    ) -> list[NodeCommand]:
        commands = self._send(turn.outputs, rows, watermark)
        return commands if note is None else commands + self._tell_producers([note])

    def _send(self, outputs: Emissions, rows: int, watermark: int | None) -> list[NodeCommand]:
        if not rows and watermark is None:
            return []
        start, self.end = self.end, self.end + rows
        return self.shell.outputs.offer(self._packets(outputs, start, self.end, watermark))

    def acknowledge(self, channel: int) -> list[NodeCommand]:
        """What was consumed is not needed again."""
        self.needed[channel] = self.shell.merge.consumed(channel)
        return super().acknowledge(channel)
