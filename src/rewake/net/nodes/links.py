"""The links of a node as lines: whatever `Channels` asks for, and whatever they say.

What always holds: a link that was hung up says nothing more; one that ended by itself is told of
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rewake.model.errors import StorageFull
from rewake.net.nodes.share import Line, Share
from rewake.node.channels.channels import Channels
from rewake.node.commands import Dial, HangUp, HostCommand, LinkCommand, Rest, Tell
from rewake.node.messages import Ack, Begins, Packet, Produce, Subscribe

__all__ = ["Links"]

# What a message is to the node, for whoever wants to be there when it is told.
_EVENTS: Final[dict[type, str]] = {
    Packet: "arrived",
    Begins: "began",
    Ack: "acked",
    Subscribe: "subscribed",
    Produce: "claimed",
}

Perform = Callable[[str, Sequence[HostCommand]], None]


class Links:
    """Lines by number, and the `Hearer` of each.  `gone` is called for each that has ended."""

    def __init__(
        self,
        channels: Channels,
        share: Share,
        perform: Perform,
        gone: Callable[[int], None],
    ) -> None:
        self._channels = channels
        self._share = share
        self._perform = perform
        self._gone = gone
        self._lines: dict[int, Line] = {}
        self._number_of: dict[Line, int] = {}

    # --- commands ----------------------------------------------------------------------------

    def tell(self, link: int, message: object) -> None:
        """Say something, if the link is still there."""
        line = self._lines.get(link)
        if line is not None:
            line.send(message)

    def carry_out(self, command: LinkCommand) -> None:
        """Do what the channels ask for."""
        match command:
            case Tell(link, message):
                self.tell(link, message)
            case Dial(link, address, message):
                line = self._share.dial(address, self)
                self._keep(link, line)
                line.send(message)
            case HangUp(link, at_once):
                self._hang_up(link, at_once=at_once)
            case Rest(channel, ms):
                self._share.call_after(ms / 1e3, lambda: self._rested(channel))

    def _hang_up(self, link: int, *, at_once: bool) -> None:
        line = self._lines.pop(link, None)
        if line is None:
            return
        del self._number_of[line]
        self._gone(link)
        if at_once:
            line.close()
        else:
            line.finish(self._share.now())

    def _rested(self, channel: int) -> None:
        commands = self._channels.rested(channel)
        if commands:
            self._perform("lost", commands)

    def _keep(self, link: int, line: Line) -> None:
        self._lines[link] = line
        self._number_of[line] = link

    @property
    def unsent_bytes(self) -> int:
        """What the others have not been able to take yet."""
        return sum(each.queued_bytes for each in self._lines.values())

    # --- what lines say (Hearer) -------------------------------------------------------------

    def admit(self, line: Line, messages: list[Any]) -> None:
        """Somebody has come to this node, and has said this so far."""
        self._keep(self._channels.accept(), line)
        self._share.take(line, self)
        self.received(line, messages)

    def received(self, line: Line, messages: list[Any]) -> None:
        """Each in turn, until it is hung up."""
        for message in messages:
            link = self._number_of.get(line)
            if link is None:
                return
            commands = self._channels.received(link, message)
            try:
                self._perform(_EVENTS.get(type(message), "heard"), commands)
            except StorageFull:
                if not isinstance(message, Begins):
                    raise
                self._perform("lost", self._channels.no_room(link))

    def closed(self, line: Line) -> None:
        """It has ended by itself."""
        link = self._number_of.pop(line, None)
        if link is None:
            return
        del self._lines[link]
        self._gone(link)
        event = "dropped" if self._channels.dialled(link) else "unsubscribed"
        self._perform(event, self._channels.closed(link))
