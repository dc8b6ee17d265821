"""One life of a simulated server: a process with an attempt of each of its nodes.

It registers them with the coordinator, shows whoever comes to the node that they want, and dies as
one: killed, superseded, stopped, or without its coordinator, because it cannot know whether it may
go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rewake.node.channels.lane import Hearer, Lane, lane
from rewake.node.channels.reception import Reception
from rewake.node.messages import (
    Address,
    KeepBookmark,
    PeerMoved,
    PlaceLost,
    Refused,
    Register,
    Stop,
    Superseded,
    Welcome,
)
from rewake.recovery.approach import Kept
from rewake.sim.network import Connection, Endpoint
from rewake.sim.node_host import Call, NodeHost

if TYPE_CHECKING:
    from rewake.sim.cluster import Cluster

_RETRY_MS = 20.0


class Server(Endpoint):
    """One life of the server of this name; `attempt` numbers the lives of all."""

    def __init__(self, cluster: Cluster, machine: str, attempt: int) -> None:
        super().__init__(cluster.world, f"{machine}#{attempt}")
        self.cluster = cluster
        self.machine = machine
        self.attempt = attempt
        self.address: Address = (machine, attempt)
        names = cluster.machines[machine]
        self.hosts = {each: NodeHost(cluster, self, cluster.plan.node(each)) for each in names}
        self._places = cluster.places[machine]
        self._control: Connection | None = None
        self.reception: Reception[Call | Lane] = Reception(names, self._admit, self._refuse)
        self._calls: dict[Connection, Call] = {}
        # Set by a fault: die when so many further commands have been performed.
        self.commands_to_live: int | None = None
        # Set by a fault: happens while the next append is on its way to the disk.
        self.on_append: Callable[[], None] | None = None
        cluster.network.listen(self)
        self.say("starts")
        self._call_coordinator()

    @property
    def logs(self) -> bool:
        """Whether any of its nodes has a log."""
        return any(each.plan.kept is Kept.IN_LOG for each in self.hosts.values())

    def died(self) -> None:
        """The network and the launcher notice."""
        for host in self.hosts.values():
            host.died()
        self.cluster.network.gone(self)
        self.cluster.launcher.ended(self)

    # --- the coordinator ---------------------------------------------------------------------

    def _call_coordinator(self) -> None:
        self._control = self.cluster.network.connect(self, self.cluster.driver_address)
        if self._control is None:
            self.after(_RETRY_MS, self._call_coordinator)
            return
        for node in self.hosts:
            place = self._places[node]
            self.tell(Register(node, self.address, self.attempt, self.name, self.machine, place))

    def tell(self, message: object) -> None:
        """Say something to the coordinator."""
        if self._control is not None:
            self._control.send(self, message)

    def _from_coordinator(self, message: object) -> None:
        match message:
            case Welcome(node):
                self.hosts[node].welcomed(message)
            case PeerMoved(name, peer):
                for host in self.hosts.values():
                    host.moved(name, peer)
            case PlaceLost(node, place, epoch):
                self.hosts[node].place_lost(place, epoch)
            case KeepBookmark(node):
                self.hosts[node].bookmark_kept(message)
            case Superseded(epoch, node):
                self.die(f"{node} is superseded by epoch {epoch}")
            case Stop(reason):
                self.die(f"stopped: {reason}")
            case _:
                self.die(f"the coordinator said {message}")

    # --- lines -------------------------------------------------------------------------------

    def dial(self, address: Address, hearer: Hearer) -> Call | Lane | None:
        """A line to whoever is there, over the network if that is another server."""
        if address == self.address:
            return lane(lambda call: self.after(0.0, call), hearer, self.reception)[0]
        connection = self.cluster.network.connect(self, address)
        if connection is None:
            return None
        call = self._calls[connection] = Call(self, connection, hearer)
        return call

    def accepted(self, connection: Connection) -> None:
        """Somebody has connected, and will say to which node."""
        self._calls[connection] = Call(self, connection, self.reception)

    def received(self, connection: Connection, message: object) -> None:
        """From the coordinator, or on one of the lines."""
        if connection is self._control:
            self._from_coordinator(message)
        elif connection in self._calls:
            call = self._calls[connection]
            call.hearer.received(call, [message])

    def closed(self, connection: Connection) -> None:
        """A connection broke."""
        if connection is self._control:
            self.die("its coordinator is gone")
            return
        call = self._calls.pop(connection, None)
        if call is not None:
            call.hearer.closed(call)

    def _admit(self, node: str, line: Call | Lane, messages: list[object]) -> None:
        self.hosts[node].admit(line, messages)

    def _refuse(self, line: Call | Lane, why: Refused) -> None:
        self.say(f"refuses: {why.reason}")
        line.send(why)
        line.finish()
