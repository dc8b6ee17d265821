"""Everything of one simulated run: processes, disks, network, and what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rewake.graph.plan.plan import Plan
from rewake.log.log import Log
from rewake.log.writing.host import DirectWriter
from rewake.node.channels.channels import Channels
from rewake.node.channels.outbox import Outbox
from rewake.node.coordinator.coordinator import Coordinator
from rewake.node.limits import NodeLimits
from rewake.node.messages import Address, Refused
from rewake.node.node import Node
from rewake.recovery.approach import Kept
from rewake.sim.check import Archive
from rewake.sim.clients.client import Client
from rewake.sim.clients.producer import Producer
from rewake.sim.coordinator_host import DRIVER
from rewake.sim.disk import Disk
from rewake.sim.launcher import Launcher
from rewake.sim.lives.notes import Lives
from rewake.sim.memory import Choices
from rewake.sim.network import Network
from rewake.sim.scenarios import ProducerScript
from rewake.sim.world import World


@dataclass(frozen=True, slots=True)
class Kinds:
    """The classes under test; tests plant bugs by giving others."""

    node: type[Node] = Node
    channels: type[Channels] = Channels
    coordinator: type[Coordinator] = Coordinator
    writer: type[DirectWriter] | None = None
    outbox: type[Outbox] = Outbox


class Cluster:
    """One query on its machines, with a server each; every node has a disk of its own."""

    def __init__(self, world: World, plan: Plan, *, kinds: Kinds, limits: NodeLimits) -> None:
        self.world = world
        self.plan = plan
        self.kinds = kinds
        self.limits = limits
        self.pace_ms = 3.0
        self.network = Network(world)
        self.disks = {DRIVER: Disk()} | {each.name: Disk() for each in plan.nodes}
        for number, each in enumerate(plan.nodes):
            if each.kept is Kept.IN_LOG:
                Log.create(self.disks[each.name].store, each.name, log_id=number + 1)
                self.disks[each.name].store.sync_directory()
        # What each machine hosts, by the name of its server.
        self.machines = {
            each.name: tuple(seat.node for seat in each.seats) for each in plan.hosting
        }
        # On each machine: which place of a node that is.
        self.places = {
            each.name: {seat.node: seat.place for seat in each.seats} for each in plan.hosting
        }
        self.archive = Archive(plan)
        self.lives = Lives()
        self.driver_address: Address = (DRIVER, 0)
        self.launcher = Launcher(self)
        self.clients: list[Client] = []
        self.producers: list[Producer] = []
        self.over = False

    def start(self, producers: Sequence[ProducerScript] = ()) -> None:
        """Begin."""
        self.launcher.start()
        for name, places in self.plan.streams.items():
            for shard, (node, output) in enumerate(places):
                self.clients.append(Client(self, f"client.{name}.{shard}", node, output))

        for script in producers:
            for delay_ms in (0.0, *script.rivals_ms):
                self.world.schedule(delay_ms, partial(self._produce, script))

    def _produce(self, script: ProducerScript) -> None:
        """Another life of a producer begins, whether or not the one before it has noticed."""
        life = sum(each.script.name == script.name for each in self.producers)
        self.producers.append(Producer(self, script, life))

    @property
    def all_produce(self) -> bool:
        """Whether somebody has begun under every name."""
        names = {each.script.name for each in self.producers}
        begun = {each.script.name for each in self.producers if each.first is not None}
        return names == begun

    def join(self) -> None:
        """A client comes late, and reads a stream from its beginning into the present."""
        streams = sorted(self.plan.streams)
        places = self.plan.streams[self.world.random.choice(streams)]
        node, output = self.world.random.choice(places)
        name = f"late-client.{len(self.clients)}"
        self.clients.append(Client(self, name, node, output))

    def lose_power(self, name: str) -> None:
        """A machine goes off: whatever runs on it ends, and what was not synced may be lost."""
        self.world.say("cluster", f"the machine of {name} loses power")
        driver = self.launcher.driver
        if name != DRIVER:
            for server in self.launcher.running(name):
                server.die("power loss")
        elif driver is not None:
            driver.die("power loss")
        for disk in self.machines.get(name, (DRIVER,)):
            self.disks[disk].lose_power(Choices(self.world.random.getrandbits(48)))

    def machine_of(self, node: str) -> str:
        """The machine that hosts a node."""
        return next(name for name, nodes in self.machines.items() if node in nodes)

    def turns_away(self, node: str, message: Refused) -> bool:
        """Whether a client is refused because it asks for what is kept no more, as may be."""
        allowed = not self.plan.node(node).keeps_history
        return allowed and not message.misfit and "superseded" not in message.reason

    def refused(self, who: str, message: Refused) -> None:
        """A subscription was refused: only ever because of an epoch that is not the newest."""
        assert "superseded" in message.reason, f"{who}: {message.reason}"

    def ended(self, error: str | None) -> None:
        """The coordinator says that the query is over."""
        assert error is None, error
        self.over = True
