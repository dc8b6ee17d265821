"""At a sink: tuples are given to it, and it commits them by position.

What always holds: input is needed again from where the sink's commits reach; after a crash it is
read from there, so that nothing is given twice that was committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rewake.node.channels.input_merge import Taken
from rewake.node.channels.producers import Note
from rewake.node.commands import Deliver, NodeCommand
from rewake.node.protocols.protocol import LogSoFar, Protocol, Shell
from rewake.recovery.approach import Kept

__all__ = ["AtASink"]


class AtASink(Protocol):
    """Delivers, and is done when all that was delivered is committed."""

    kept: ClassVar[Kept] = Kept.NOWHERE

    def __init__(self, shell: Shell, past: LogSoFar) -> None:
        super().__init__(shell, past)
        self._delivered = list(shell.starts)

    def start(self, committed: Sequence[int]) -> list[NodeCommand]:
        """Go on where the sink's commits reach."""
        for channel, position in enumerate(committed):
            self.shell.merge.go_to(channel, position)
        self.shell.starts = list(committed)
        self._delivered, self.needed = list(committed), list(committed)
        return super().start(committed)

    def turn(self, taken: Taken, now_ms: float, note: Note | None) -> list[NodeCommand]:  # noqa: ARG002
        """Give it to the sink."""
        assert taken.channel is not None, "a sink has no clock"
        return [Deliver(taken.channel, taken.there)]

    def delivered(self, channel: int, position: int) -> list[NodeCommand]:
        """What was committed is not needed again."""
        self._delivered[channel] = self.needed[channel] = position
        return self.acknowledge(channel)

    @property
    def busy(self) -> bool:
        """Whether something is given to the sink and not committed."""
        merge = self.shell.merge
        return any(at != merge.consumed(n) for n, at in enumerate(self._delivered))
