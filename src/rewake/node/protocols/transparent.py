"""Transparent: no state, no log; output positions are input positions.

What always holds: any stretch of output can be made again, by reading input again from there.  So
it starts with nothing, reads from where somebody wants to read, and needs of its input what those
who read still need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rewake.log.files.lineage import Lineage
from rewake.node.channels.input_merge import Taken
from rewake.node.channels.packets import packet_of
from rewake.node.channels.producers import Note
from rewake.node.commands import Connect, NodeCommand
from rewake.node.messages import Packet
from rewake.node.protocols.protocol import LogSoFar, Protocol, Shell
from rewake.recovery.approach import Kept

__all__ = ["Transparent"]


class Transparent(Protocol):
    """Makes output again from its input whenever somebody asks."""

    kept: ClassVar[Kept] = Kept.UPSTREAM

    def __init__(self, shell: Shell, past: LogSoFar) -> None:
        super().__init__(shell, past)
        self._rewound = False

    @property
    def wants_input(self) -> bool:
        """As soon as somebody wants its output."""
        return self.shell.outputs.started

    def start(self, committed: Sequence[int]) -> list[NodeCommand]:  # noqa: ARG002
        """What to produce is what somebody asks for."""
        return []

    def inherit(self, lineage: Lineage) -> list[NodeCommand]:
        """The positions are the upstream's: those who read are told who wrote them."""
        return self.shell.outputs.inherit(lineage)

    def rewind(self, position: int) -> list[NodeCommand]:
        """Go back, and ask for the input from there on."""
        self.shell.merge.go_to_event_at(position)
        self.shell.outputs.restart(position)
        self._rewound = True
        return [Connect(0, position)]

    def turn(self, taken: Taken, now_ms: float, note: Note | None) -> list[NodeCommand]:  # noqa: ARG002
        """Pass on what the steps make of it, at the same positions."""
        shell = self.shell
        event = replace(taken.here, watermark=taken.passed_on)
        if self._rewound:
            self._rewound = False
            shell.outputs.restart(event.start)
        if taken.token is not None:
            return shell.outputs.tell(taken.token)
        emissions = shell.plan.program.apply(event.batch, event.end - event.start)
        packets = [Packet(event.start, event.end, 0, event.watermark)] * len(shell.plan.outputs)
        shell.count(emissions)
        for output, batch in emissions:
            packets[output] = packet_of(event.holding(batch))
        return shell.outputs.offer(packets)

    def marked(self, channel: int, words: bytes) -> list[NodeCommand]:  # noqa: ARG002
        """What is passed on keeps its place in the stream."""
        return self.shell.outputs.mark(words)

    def acknowledge(self, channel: int) -> list[NodeCommand]:
        """What those who read need is what it needs."""
        self.needed[channel] = min(self.shell.outputs.needed(), self.shell.merge.consumed(channel))
        return super().acknowledge(channel)

    def tick(self, now_ms: float) -> list[NodeCommand]:  # noqa: ARG002
        """What those who read need less of since the last turn, its input need not keep either."""
        needed = min(self.shell.outputs.needed(), self.shell.merge.consumed(0))
        return self.acknowledge(0) if needed > self.needed[0] else []
