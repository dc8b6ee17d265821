"""The output side of a node: whoever connects to it and says what it wants."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from rewake.graph.plan import NodePlan
from rewake.model.errors import BadPeer, UsageError
from rewake.net.connection import Connection
from rewake.net.loop import Loop
from rewake.node.commands import NodeCommand
from rewake.node.messages import Ack, Begins, Packet, Peek, Produce, Refused, Subscribe
from rewake.node.node import Node


class Downstream:
    """Subscribers and producers; a `Handler` of the loop."""

    def __init__(
        self,
        plan: NodePlan,
        epoch: int,
        node: Node,
        loop: Loop,
        perform: Callable[[str, list[NodeCommand]], None],
        forget: Callable[[int], None],
    ) -> None:
        self._plan = plan
        self._epoch = epoch
        self._node = node
        self._loop = loop
        self._perform = perform
        self._forget = forget
        self._numbers = count(1)
        self._subscribers: dict[int, Connection] = {}
        self._number_of: dict[Connection, int] = {}
        self._producers: dict[int, Connection] = {}
        self._produces: dict[Connection, int] = {}
        # Producers that are to hear where they begin, and per channel up to where all is safe.
        self._unanswered: set[int] = set()
        self._safe = {number: node.merge.expected(number) for number in range(len(plan.inputs))}

    # --- commands ----------------------------------------------------------------------------

    def send(self, number: int, message: object) -> None:
        """Send to a subscriber, if it is still there."""
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

    def acknowledge(self, channel: int, ack: Ack) -> None:
        """Tell a producer what is safe."""
        self._safe[channel] = max(self._safe[channel], ack.needed)
        self._let_begin(channel)
        connection = self._producers.get(channel)
        if connection is not None and channel not in self._unanswered:
            connection.send(ack)

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
        if isinstance(message, Ack) and number is not None:
            self._perform("acked", self._node.acked(number, message))
        elif isinstance(message, Packet) and connection in self._produces:
            self._perform("arrived", self._node.arrived(self._produces[connection], message))
        elif isinstance(message, Subscribe) and number is None:
            self._subscribe(connection, message)
        elif isinstance(message, Produce) and connection not in self._produces:
            self._produce(connection, message)
        elif isinstance(message, Peek) and number is None:
            self._answer(connection, message)
        else:
            raise BadPeer(f"{connection.peer} sent {type(message).__name__} out of turn")

    def _subscribe(self, connection: Connection, message: Subscribe) -> None:
        if message.node != self._plan.name:
            raise BadPeer(f"this is node {self._plan.name!r}, not {message.node!r}")
        number = next(self._numbers)
        self._subscribers[number] = connection
        self._number_of[connection] = number
        self._perform("subscribed", self._node.subscribed(number, message))

    def _answer(self, connection: Connection, message: Peek) -> None:
        if message.node != self._plan.name:
            raise BadPeer(f"this is node {self._plan.name!r}, not {message.node!r}")
        try:
            connection.send(self._node.early())
        except UsageError as error:
            connection.send(Refused(str(error)))
        connection.finish(self._loop.now())

    def _produce(self, connection: Connection, message: Produce) -> None:
        channel = next(
            (
                number
                for number, each in enumerate(self._plan.inputs)
                if each.produced and each.name == message.channel
            ),
            None,
        )
        if channel is None or message.node != self._plan.name:
            raise BadPeer(f"node {self._plan.name!r} takes no tuples for {message.channel!r}")
        earlier = self._producers.get(channel)
        if earlier is not None:
            # Of two producers that claim to continue one stream, the later one is the restarted.
            self._produces.pop(earlier, None)
            earlier.close()
        self._producers[channel] = connection
        self._produces[connection] = channel
        self._unanswered.add(channel)
        self._let_begin(channel)

    def _let_begin(self, channel: int) -> None:
        """A producer begins when all that its predecessor sent is safe.

        Sooner, it would take for done what a crash may still undo, and what nobody else can send.
        """
        begin = self._node.merge.expected(channel)
        if channel in self._unanswered and self._safe[channel] >= begin:
            self._unanswered.discard(channel)
            self._producers[channel].send(Begins(begin, self._epoch))

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        self._gone(connection)

    def _gone(self, connection: Connection) -> None:
        channel = self._produces.pop(connection, None)
        if channel is not None:
            self._producers.pop(channel, None)
            self._unanswered.discard(channel)
        number = self._forget_subscriber(connection)
        if number is not None:
            self._perform("unsubscribed", self._node.unsubscribed(number))

    def _forget_subscriber(self, connection: Connection) -> int | None:
        number = self._number_of.pop(connection, None)
        if number is not None:
            del self._subscribers[number]
            self._forget(number)
        return number
