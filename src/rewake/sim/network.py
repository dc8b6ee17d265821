"""Connections between simulated processes.

What always holds: what one end sends on a connection arrives at the other in order, each message
once, and may be cut off anywhere; nothing arrives after the end of a connection was noticed.
Messages on different connections overtake each other freely.  While two processes are partitioned,
what they send each other waits; a connection that crosses a partition may be given up by either end
without the other noticing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial

from rewake.sim.world import Action, Process, World

Address = tuple[str, int]


class Endpoint(Process):
    """A process that can be connected to."""

    address: Address

    def accepted(self, connection: Connection) -> None:
        """Somebody has connected."""

    def received(self, connection: Connection, message: object) -> None:
        """A message has arrived."""

    def closed(self, connection: Connection) -> None:
        """A connection has ended, and not by this end's doing."""


@dataclass(slots=True)
class _Direction:
    """What is under way to one end."""

    to: Endpoint
    open: bool = True
    arrives_ms: float = 0.0
    # What was sent while the two were partitioned.
    waiting: deque[object] = field(default_factory=deque)


_END = object()


class Connection:
    """One connection; `number` names it at both ends."""

    def __init__(self, network: Network, number: int, caller: Endpoint, called: Endpoint) -> None:
        self.network = network
        self.number = number
        self.ends = (_Direction(caller), _Direction(called))

    def peer_of(self, process: Endpoint) -> Endpoint:
        """The process at the other end."""
        return self.ends[1].to if self.ends[0].to is process else self.ends[0].to

    def _towards(self, process: Endpoint) -> _Direction:
        return self.ends[0] if self.ends[0].to is process else self.ends[1]

    def send(self, sender: Endpoint, message: object) -> None:
        """Send to the other end; lost when the connection is not there any more."""
        if self._towards(sender).open:
            self.network.transmit(self, self._towards(self.peer_of(sender)), message)

    def close(self, closer: Endpoint) -> None:
        """End it from one end: the other will notice after what was sent before."""
        mine = self._towards(closer)
        if not mine.open:
            return
        mine.open = False
        mine.waiting.clear()
        self.network.transmit(self, self._towards(self.peer_of(closer)), _END)


class Network:
    """All connections, and who cannot reach whom."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._listening: dict[Address, Endpoint] = {}
        self._connections: dict[int, Connection] = {}
        self._partitions: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self._partition_numbers = 0
        self.slowest_ms = 2.0

    # --- processes -----------------------------------------------------------------------------

    def listen(self, process: Endpoint) -> None:
        """A process can be connected to from now on."""
        self._listening[process.address] = process

    def gone(self, process: Endpoint) -> None:
        """A process has died: its connections end, and what it sent last may be lost."""
        self._listening.pop(process.address, None)
        for connection in self._of(process):
            if self._world.chance(0.3):
                self.lose(connection)
            connection.close(process)

    def _of(self, process: Endpoint) -> list[Connection]:
        return [
            each
            for each in self._connections.values()
            if any(end.to is process for end in each.ends)
        ]

    @property
    def connections(self) -> list[Connection]:
        """Those that are still open at an end."""
        return list(self._connections.values())

    # --- connections ---------------------------------------------------------------------------

    def connect(self, caller: Endpoint, address: Address) -> Connection | None:
        """Connect to an address; None when nobody listens there.  What is sent at once follows."""
        called = self._listening.get(address)
        if called is None:
            return None
        self._numbers += 1
        connection = Connection(self, self._numbers, caller, called)
        self._connections[connection.number] = connection
        self.transmit(connection, connection.ends[1], called)
        return connection

    def transmit(self, connection: Connection, direction: _Direction, message: object) -> None:
        """Put a message on its way, behind those that are under way already."""
        other = connection.ends[0] if direction is connection.ends[1] else connection.ends[1]
        if direction.waiting or self.partitioned(direction.to, other.to):
            direction.waiting.append(message)
            return
        delay = self._world.between(0.05, self.slowest_ms)
        direction.arrives_ms = max(direction.arrives_ms, self._world.now_ms + delay)
        self._world.schedule(
            direction.arrives_ms - self._world.now_ms,
            lambda: direction.to.hear(lambda: self._arrive(connection, direction, message)),
        )

    def _arrive(self, connection: Connection, direction: _Direction, message: object) -> None:
        if not direction.open:
            return
        if message is direction.to:
            direction.to.accepted(connection)
        elif message is _END:
            direction.open = False
            self._forget(connection)
            direction.to.closed(connection)
        else:
            direction.to.received(connection, message)

    def _forget(self, connection: Connection) -> None:
        if not any(end.open and end.to.alive for end in connection.ends):
            self._connections.pop(connection.number, None)

    def lose(self, connection: Connection) -> None:
        """Break a connection: what is under way is lost, both ends notice in their own time."""
        for end in connection.ends:
            if end.open:
                end.open = False
                end.waiting.clear()
                self._world.schedule(self._world.between(0.1, 50), self._notice(connection, end.to))
        self._connections.pop(connection.number, None)

    def _notice(self, connection: Connection, process: Endpoint) -> Action:
        return lambda: process.hear(lambda: process.closed(connection))

    # --- partitions ----------------------------------------------------------------------------

    def partition(self, some: frozenset[str], others: frozenset[str], heals_ms: float) -> None:
        """Nothing passes between two sets of processes, by name, until it heals."""
        number = self._partition_numbers = self._partition_numbers + 1
        self._partitions[number] = (some, others)
        self._world.schedule(heals_ms, lambda: self._heal(number))
        for connection in self.connections:
            if self.partitioned(connection.ends[0].to, connection.ends[1].to):
                patience = self._world.between(200, 2000)
                self._world.schedule(patience, partial(self._give_up, connection))

    def partitioned(self, one: Endpoint, other: Endpoint) -> bool:
        """Whether two processes cannot reach each other now."""
        return any(
            (one.name in some and other.name in others)
            or (one.name in others and other.name in some)
            for some, others in self._partitions.values()
        )

    def _give_up(self, connection: Connection) -> None:
        """One end has waited too long for an answer; the other need not know."""
        if connection.number in self._connections and self.partitioned(
            connection.ends[0].to, connection.ends[1].to
        ):
            end = connection.ends[self._world.random.randrange(2)]
            if end.open:
                connection.close(end.to)
                end.to.hear(lambda: end.to.closed(connection))

    def _heal(self, number: int) -> None:
        del self._partitions[number]
        self._world.say("network", f"partition {number} heals")
        for connection in self.connections:
            if self.partitioned(connection.ends[0].to, connection.ends[1].to):
                continue
            for direction in connection.ends:
                waiting, direction.waiting = direction.waiting, deque()
                for message in waiting:
                    self.transmit(connection, direction, message)
