"""Spark's part: keeps one life of every server running, sometimes two, and the driver.

A server that ended is started again after Spark's delay.  One that the coordinator finds silent is
ended; when its machine cannot be reached either, it is given up for lost instead and another is
started: then it may come back as a zombie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewake.sim.coordinator_host import CoordinatorHost
from rewake.sim.server import Server

if TYPE_CHECKING:
    from rewake.sim.cluster import Cluster


class Launcher:
    """Who runs, and who must be started."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.driver: CoordinatorHost | None = None
        self.servers: list[Server] = []
        self._lives = 0
        self._numbers = 0
        self._due: set[str] = set()
        # Lives that run unobserved: given up for lost.
        self._lost: set[int] = set()
        self.started = 0

    def start(self) -> None:
        """Begin: the driver, then the servers."""
        self._start_driver()

    def _start_driver(self) -> None:
        self._lives += 1
        self._cluster.driver_address = ("driver", self._lives)
        self.driver = CoordinatorHost(self._cluster, self._lives)
        for machine in self._cluster.machines:
            self._start_later(machine, 0, 50)

    def _start_later(self, machine: str, low_ms: float, high_ms: float) -> None:
        if machine in self._due:
            return
        self._due.add(machine)
        self._world.schedule(self._world.between(low_ms, high_ms), lambda: self._start(machine))

    def _start(self, machine: str) -> None:
        self._due.discard(machine)
        if self.driver is None or not self.driver.alive or self._cluster.over:
            return
        if not self._observed(machine):
            self.launch(machine)

    def launch(self, machine: str) -> None:
        """Start the server of a machine once more, whoever else runs."""
        self._numbers += 1
        self.started += 1
        self.servers.append(Server(self._cluster, machine, self._numbers))

    def _observed(self, machine: str) -> list[Server]:
        return [each for each in self.running(machine) if each.attempt not in self._lost]

    def running(self, machine: str) -> list[Server]:
        """All lives of a server, zombies too."""
        return [each for each in self.servers if each.alive and each.machine == machine]

    # --- ends --------------------------------------------------------------------------------

    def ended(self, server: Server) -> None:
        """A server has ended."""
        self.servers.remove(server)
        if not self._cluster.over and not self._observed(server.machine):
            self._start_later(server.machine, 100, 600)

    def driver_ended(self, driver: CoordinatorHost) -> None:
        """The driver has ended: its servers end too, and somebody starts it again."""
        if driver is self.driver and not self._cluster.over:
            self.driver = None
            self._world.schedule(self._world.between(200, 1500), self._start_driver)

    def kill_silent(self, attempt: int) -> None:
        """End a silent server, or give it up for lost."""
        for each in [each for each in self.servers if each.alive and each.attempt == attempt]:
            if self._world.chance(0.6):
                each.die("killed for its silence")
            else:
                self._world.say("launcher", f"{each.name} is given up for lost")
                self._lost.add(attempt)
                self._start_later(each.machine, 100, 600)
