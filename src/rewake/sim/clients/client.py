"""A client that reads a stream from outside, from some position on, through every failure.

It trusts nothing: each stream event must continue the one before.  What it has received it keeps,
to be compared with what the log holds in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewake.node.messages import Ack, Address, Begins, Packet, Refused, Subscribe
from rewake.sim.network import Connection, Endpoint

if TYPE_CHECKING:
    from rewake.sim.cluster import Cluster


class Client(Endpoint):
    """Reads one output of one node."""

    def __init__(self, cluster: Cluster, name: str, node: str, output: int) -> None:
        super().__init__(cluster.world, name)
        self.cluster = cluster
        self.address: Address = (name, 0)
        self.node = node
        self.output = output
        self.position = 0
        self.packets: list[Packet] = []
        self.finished = False
        # What it asked for was trimmed: it can only give up.
        self.turned_away = False
        self._connection: Connection | None = None
        self._call()

    def _call(self) -> None:
        if self.finished or self._connection is not None:
            return
        driver = self.cluster.launcher.driver
        peer = driver.peers().get(self.node) if driver is not None and driver.alive else None
        if peer is not None:
            self._connection = self.cluster.network.connect(self, peer.address)
        if peer is None or self._connection is None:
            self.after(self.world.between(10, 60), self._call)
            return
        self._connection.send(self, Subscribe(self.node, self.output, self.name, 0, self.position))

    def received(self, connection: Connection, message: object) -> None:
        """What the node sends."""
        if connection is not self._connection:
            return
        if isinstance(message, Packet):
            self._take(connection, message)
        elif isinstance(message, Begins):
            assert message.position <= self.position, f"{self.name} was sent on beyond a gap"
        elif isinstance(message, Refused):
            self.say(f"is refused: {message.reason}")
            if self.cluster.turns_away(self.node, message):
                self.turned_away, self._connection = True, None
                return
            self.cluster.refused(self.name, message)
            self.closed(connection)

    def _take(self, connection: Connection, packet: Packet) -> None:
        assert packet.start <= self.position, f"{self.name} misses what is before {packet.start}"
        if packet.final:
            assert packet.end == self.position, f"{self.name} misses the end"
            self.say(f"has all {self.position} positions")
            self.finished = True
            connection.close(self)
            return
        if packet.end > self.position or packet.start == packet.end:
            self.packets.append(packet)
            self.position = max(self.position, packet.end)
        connection.send(self, Ack(self.position, self.position))

    def closed(self, connection: Connection) -> None:
        """Try again, from where it was."""
        if connection is self._connection:
            self._connection = None
            self.after(self.world.between(10, 60), self._call)
