"""The input side of a node: a connection per upstream, kept alive as upstreams die and come back.

What always holds: a channel has at most one connection, and only what that one delivers reaches the
node; when it ends, the node is told (`lost`) before anything of a later one arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rewake.graph.plan.plan import NodePlan
from rewake.model.errors import BadPeer, Fenced, HistoryMismatch, StorageFull
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop
from rewake.node.commands import NodeCommand
from rewake.node.messages import Ack, Begins, Packet, Peer, Refused, Subscribe
from rewake.node.node import Node

_RETRY_SECONDS = 0.02
_FULL_SECONDS = 0.25


@dataclass(slots=True)
class _Channel:
    number: int
    upstream: str
    output: int
    wanted: int | None = None
    connection: Connection | None = None


class Upstream:
    """The connections to all upstream nodes; a `Handler` of the loop."""

    def __init__(
        self,
        plan: NodePlan,
        epoch: int,
        node: Node,
        loop: Loop,
        token: Token,
        perform: Callable[[str, list[NodeCommand]], None],
    ) -> None:
        self._plan = plan
        self._epoch = epoch
        self._node = node
        self._loop = loop
        self._token = token
        self._perform = perform
        self._channels = {
            number: _Channel(number, each.upstream, each.output)
            for number, each in enumerate(plan.inputs)
            if each.upstream is not None
        }
        self._by_connection: dict[Connection, _Channel] = {}
        self._peers: dict[str, Peer] = {}

    def __contains__(self, channel: int) -> bool:
        return channel in self._channels

    # --- commands ----------------------------------------------------------------------------

    def connect(self, channel: int, position: int) -> None:
        """Have a channel deliver from `position` on."""
        each = self._channels[channel]
        self._drop(each)
        each.wanted = position
        self._try(each)

    def acknowledge(self, channel: int, ack: Ack) -> None:
        """Tell an upstream how far the node is."""
        connection = self._channels[channel].connection
        if connection is not None:
            connection.send(ack)

    def _drop(self, channel: _Channel) -> None:
        if channel.connection is not None:
            self._by_connection.pop(channel.connection, None)
            channel.connection.close()
            channel.connection = None

    def _try(self, channel: _Channel) -> None:
        """Connect if it is wanted, not there yet, and known where."""
        peer = self._peers.get(channel.upstream)
        if channel.wanted is None or channel.connection is not None or peer is None:
            return
        connection = Connection.connect(peer.address, self._token, self._loop.now())
        channel.connection = connection
        self._by_connection[connection] = channel
        connection.send(
            Subscribe(
                node=channel.upstream,
                output=channel.output,
                subscriber=self._plan.name,
                epoch=self._epoch,
                position=channel.wanted,
                expects=peer.epoch,
            )
        )
        self._loop.add(connection, self)

    # --- where upstreams are -----------------------------------------------------------------

    def moved(self, name: str, peer: Peer | None) -> None:
        """An upstream runs elsewhere now, or is lost."""
        known = self._peers.get(name)
        if peer is None:
            self._peers.pop(name, None)
            return
        if known is not None and peer.epoch <= known.epoch:
            return
        self._peers[name] = peer
        for channel in self._channels.values():
            if channel.upstream != name:
                continue
            if channel.connection is not None:
                # It leads to an attempt that has been superseded.
                self._drop(channel)
                self._perform("lost", self._node.lost(channel.number))
            self._try(channel)

    # --- what upstreams say (Handler) --------------------------------------------------------

    def authenticated(self, connection: Connection) -> None:
        """Nothing to say beyond the subscription that is under way."""

    def received(self, connection: Connection, messages: list[Any]) -> None:
        """Packets, and the answer before them."""
        for message in messages:
            channel = self._by_connection.get(connection)
            if channel is None:
                return
            try:
                self._take(channel, message)
            except BadPeer:
                self._drop(channel)
                self._perform("lost", self._node.lost(channel.number))

    def _take(self, channel: _Channel, message: Any) -> None:
        if isinstance(message, Packet):
            self._perform("arrived", self._node.arrived(channel.number, message))
        elif isinstance(message, Begins):
            self._began(channel, message)
        elif isinstance(message, Refused):
            if message.fenced:
                raise Fenced(message.reason)
            if message.misfit:
                raise HistoryMismatch(message.reason)
            self._drop(channel)
            self._again(channel)
        else:
            raise BadPeer(f"{channel.upstream} sent {type(message).__name__} on a channel")

    def _began(self, channel: _Channel, message: Begins) -> None:
        commands = self._node.began(channel.number, message.position, message.lineage)
        try:
            self._perform("began", commands)
        except StorageFull:
            # Where its input is from cannot be remembered yet: take nothing, ask again.
            self._drop(channel)
            # From where it is by then: it may have come far since it first asked.
            channel.wanted = None
            self._loop.call_after(_FULL_SECONDS, lambda: self._lost(channel))

    def closed(self, connection: Connection) -> None:
        """An upstream is gone; it may be back under the same address, or somewhere else."""
        channel = self._by_connection.pop(connection, None)
        if channel is None:
            return
        channel.connection = None
        channel.wanted = None
        self._loop.call_after(_RETRY_SECONDS, lambda: self._lost(channel))

    def _lost(self, channel: _Channel) -> None:
        if channel.connection is None and channel.wanted is None:
            self._perform("lost", self._node.lost(channel.number))

    def _again(self, channel: _Channel) -> None:
        self._loop.call_after(_RETRY_SECONDS, lambda: self._try(channel))
