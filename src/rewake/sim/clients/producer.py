"""A producer that writes into an entry from outside, through every failure, until it is superseded.

Its tuples say whose they are: producer, position, and which of the lives under that name sent them.
So what it was told to be durable can be told from what a rival wrote at the same positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rewake.model.errors import ProducerSuperseded
from rewake.node.messages import Ack, Address, Begins, Refused
from rewake.sim.network import Connection, Endpoint

if TYPE_CHECKING:
    from rewake.sim.cluster import Cluster
    from rewake.sim.scenarios import ProducerScript


class Producer(Endpoint):
    """One life of a producer; `life` numbers those of one name."""

    def __init__(self, cluster: Cluster, script: ProducerScript, life: int) -> None:
        super().__init__(cluster.world, f"{script.name}.{life}")
        self.cluster = cluster
        self.script = script
        self.life = life
        self.address: Address = (self.name, 0)
        self.outbox = cluster.kinds.outbox(script.entry, script.name)
        # Where it began, once it was told.
        self.first: int | None = None
        self._connection: Connection | None = None
        self._call()

    # --- connections -------------------------------------------------------------------------

    def _call(self) -> None:
        if self._connection is not None or not self.alive:
            return
        driver = self.cluster.launcher.driver
        node = self.script.entry
        peer = driver.peers().get(node) if driver is not None and driver.alive else None
        if peer is not None:
            self._connection = self.cluster.network.connect(self, peer.address)
        if peer is None or self._connection is None:
            self.after(self.world.between(10, 60), self._call)
            return
        self._connection.send(self, self.outbox.hello(node))

    def closed(self, connection: Connection) -> None:
        """Try again."""
        if connection is self._connection:
            self._connection = None
            self.after(self.world.between(10, 60), self._call)

    def received(self, connection: Connection, message: object) -> None:
        """What the entry says."""
        if connection is not self._connection:
            return
        match message:
            case Begins(position, epoch):
                self.say(f"begins at {position} with epoch {epoch}")
                self.outbox.began(message)
                if self.first is None:
                    self.first = position
                    self._write()
            case Ack():
                self.outbox.acked(message)
            case Refused(reason, fenced):
                self.say(f"is refused: {reason}")
                assert fenced, f"{self.name}: {reason}"
                self.outbox.refused(message)
                self._check()
        self._push()

    def _check(self) -> None:
        try:
            self.outbox.check()
        except ProducerSuperseded:
            self.die("superseded")

    def died(self) -> None:
        """Nobody hears of it any more."""
        self.cluster.network.gone(self)

    # --- what it sends -----------------------------------------------------------------------

    def _write(self) -> None:
        """The next tuples, or the end; some stay unsent, or without an answer, for a while."""
        script, first = self.script, self.outbox.position
        if first < script.tuples:
            last = min(script.tuples, first + self.world.random.randrange(1, 12))
            rows = [
                {"k": script.number, "v": position, "t": self.life}
                for position in range(first, last)
            ]
            batch = pa.RecordBatch.from_pylist(rows, script.schema)
            self.outbox.put(batch, last if self.world.chance(0.2) else None)
        elif self.cluster.all_produce:
            # An entry is over when all who ever began are.
            self.outbox.end()
        self._push()
        if not self.outbox.ended:
            self.after(self.world.between(0.1, self.cluster.pace_ms), self._write)

    def _push(self) -> None:
        if self._connection is not None and self.alive:
            for packet in self.outbox.unsent():
                self._connection.send(self, packet)
