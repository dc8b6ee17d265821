"""The links of a node as sockets: whatever `Channels` asks for, and whatever connections say.

What always holds: a link that was hung up says nothing more; one that ended by itself is told of
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rewake.model.errors import StorageFull
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop
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
    """Connections by number; a `Handler` of the loop.  `gone` is called for each that has ended."""

    def __init__(
        self,
        channels: Channels,
        loop: Loop,
        token: Token,
        perform: Perform,
        gone: Callable[[int], None],
    ) -> None:
        self._channels = channels
        self._loop = loop
        self._token = token
        self._perform = perform
        self._gone = gone
        self._connections: dict[int, Connection] = {}
        self._number_of: dict[Connection, int] = {}

    # --- commands ----------------------------------------------------------------------------

    def tell(self, link: int, message: object) -> None:
        """Say something, if the link is still there."""
        connection = self._connections.get(link)
        if connection is not None:
            connection.send(message)

    def carry_out(self, command: LinkCommand) -> None:
        """Do what the channels ask for."""
        match command:
            case Tell(link, message):
                self.tell(link, message)
            case Dial(link, address, message):
                connection = Connection.connect(address, self._token, self._loop.now())
                self._keep(link, connection)
                connection.send(message)
                self._loop.add(connection, self)
            case HangUp(link, at_once):
                self._hang_up(link, at_once=at_once)
            case Rest(channel, ms):
                self._loop.call_after(ms / 1e3, lambda: self._rested(channel))

    def _hang_up(self, link: int, *, at_once: bool) -> None:
        connection = self._connections.pop(link, None)
        if connection is None:
            return
        del self._number_of[connection]
        self._gone(link)
        if at_once:
            connection.close()
        else:
            connection.finish(self._loop.now())

    def _rested(self, channel: int) -> None:
        commands = self._channels.rested(channel)
        if commands:
            self._perform("lost", commands)

    def _keep(self, link: int, connection: Connection) -> int:
        self._connections[link] = connection
        self._number_of[connection] = link
        return link

    @property
    def unsent_bytes(self) -> int:
        """What the others have not been able to take yet."""
        return sum(each.queued_bytes for each in self._connections.values())

    # --- what connections say (Handler) ------------------------------------------------------

    def authenticated(self, connection: Connection) -> None:
        """Whoever has opened it says what it wants."""
        if connection not in self._number_of:
            self._keep(self._channels.accept(), connection)

    def received(self, connection: Connection, messages: list[Any]) -> None:
        """Each in turn, until it is hung up."""
        for message in messages:
            link = self._number_of.get(connection)
            if link is None:
                return
            commands = self._channels.received(link, message)
            try:
                self._perform(_EVENTS.get(type(message), "heard"), commands)
            except StorageFull:
                if not isinstance(message, Begins):
                    raise
                self._perform("lost", self._channels.no_room(link))

    def closed(self, connection: Connection) -> None:
        """It has ended by itself."""
        link = self._number_of.pop(connection, None)
        if link is None:
            return
        del self._connections[link]
        self._gone(link)
        event = "dropped" if self._channels.dialled(link) else "unsubscribed"
        self._perform(event, self._channels.closed(link))
