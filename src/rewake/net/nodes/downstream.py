"""The output side of a node: whoever connects to it and says what it wants."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from rewake.graph.plan.plan import NodePlan
from rewake.model.errors import BadPeer, UsageError
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop
from rewake.node.commands import NodeCommand
from rewake.node.messages import Ack, Packet, Peek, Produce, Refused, Subscribe
from rewake.node.node import Node


class Downstream:
    """Subscribers and producers; a `Handler` of the loop."""

    def __init__(
        self,
        plan: NodePlan,
        node: Node,
        loop: Loop,
        perform: Callable[[str, list[NodeCommand]], None],
        forget: Callable[[int], None],
    ) -> None:
        self._plan = plan
        self._node = node
        self._loop = loop
        self._perform = perform
        self._forget = forget
        self._numbers = count(1)
        # Subscribers and producers, by number.
        self._subscribers: dict[int, Connection] = {}
        self._number_of: dict[Connection, int] = {}
        # Those of them that are producers.
        self._produces: set[int] = set()

    # --- commands ----------------------------------------------------------------------------

    def send(self, number: int, message: object) -> None:
        """Send to a subscriber or producer, if it is still there."""
        connection = self._subscribers.get(number)
        if connection is not None:
            connection.send(message)

    def refuse(self, number: int, message: object) -> None:
        """Say why not, and hang up."""
        connection = self._subscribers.get(number)
        if connection is not None:
            connection.send(message)
            self._forget_subscriber(connection)
            connection.finish(self._loop.now())

    def disconnect(self, number: int) -> None:
        """Hang up."""
        connection = self._subscribers.get(number)
        if connection is not None:
            self._forget_subscriber(connection)
            connection.close()

    @property
    def unsent_bytes(self) -> int:
        """What subscribers have not been able to take yet."""
        return sum(each.queued_bytes for each in self._subscribers.values())

    # --- what they say (Handler) -------------------------------------------------------------

    def authenticated(self, connection: Connection) -> None:
        """It speaks first."""

    def received(self, connection: Connection, messages: list[Any]) -> None:
        """Subscriptions, acks, offers and produced packets."""
        for message in messages:
            try:
                self._take(connection, message)
            except BadPeer as error:
                connection.send(Refused(str(error)))
                self._gone(connection)
                connection.finish(self._loop.now())
                return

    def _take(self, connection: Connection, message: Any) -> None:
        number = self._number_of.get(connection)
        if isinstance(message, Ack) and number is not None and number not in self._produces:
            self._perform("acked", self._node.acked(number, message))
        elif isinstance(message, Packet) and number in self._produces:
            assert self._node.producers is not None
            assert number is not None
            self._perform("arrived", self._node.producers.arrived(number, message))
        elif isinstance(message, Subscribe) and number is None:
            self._subscribe(connection, message)
        elif isinstance(message, Produce) and number is None:
            self._produce(connection, message)
        elif isinstance(message, Peek) and number is None:
            self._answer(connection, message)
        else:
            raise BadPeer(f"{connection.peer} sent {type(message).__name__} out of turn")

    def _subscribe(self, connection: Connection, message: Subscribe) -> None:
        if message.node != self._plan.name:
            raise BadPeer(f"this is node {self._plan.name!r}, not {message.node!r}")
        number = self._admit(connection)
        self._perform("subscribed", self._node.subscribed(number, message))

    def _admit(self, connection: Connection) -> int:
        number = next(self._numbers)
        self._subscribers[number] = connection
        self._number_of[connection] = number
        return number

    def _answer(self, connection: Connection, message: Peek) -> None:
        if message.node != self._plan.name:
            raise BadPeer(f"this is node {self._plan.name!r}, not {message.node!r}")
        try:
            connection.send(self._node.early())
        except UsageError as error:
            connection.send(Refused(str(error)))
        connection.finish(self._loop.now())

    def _produce(self, connection: Connection, message: Produce) -> None:
        producers = self._node.producers
        names = [each.name for each in self._plan.inputs if each.produced]
        if producers is None or message.node != self._plan.name or message.channel not in names:
            raise BadPeer(f"node {self._plan.name!r} takes no tuples for {message.channel!r:.100}")
        number = self._admit(connection)
        self._produces.add(number)
        self._perform("claimed", producers.claimed(number, message))

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        self._gone(connection)

    def _gone(self, connection: Connection) -> None:
        produced = self._number_of.get(connection) in self._produces
        number = self._forget_subscriber(connection)
        if number is not None and not produced:
            self._perform("unsubscribed", self._node.unsubscribed(number))

    def _forget_subscriber(self, connection: Connection) -> int | None:
        number = self._number_of.pop(connection, None)
        if number is None:
            return None
        del self._subscribers[number]
        if number in self._produces:
            self._produces.discard(number)
            assert self._node.producers is not None
            self._node.producers.gone(number)
        else:
            self._forget(number)
        return number
