"""Spark's part: keeps one attempt of every node running, sometimes two, and the driver.

A node's attempt that ended is started again after Spark's delay.  An attempt that the coordinator
finds silent is ended; when its host cannot be reached either, it is given up for lost instead and
another is started: then it may come back as a zombie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewake.sim.coordinator_host import CoordinatorHost
from rewake.sim.node_host import NodeHost

if TYPE_CHECKING:
    from rewake.sim.cluster import Cluster


class Launcher:
    """Who runs, and who must be started."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.driver: CoordinatorHost | None = None
        self.attempts: list[NodeHost] = []
        self._lives = 0
        self._numbers = 0
        self._due: set[str] = set()
        # Attempts that run unobserved: given up for lost.
        self._lost: set[int] = set()
        self.started = 0

    def start(self) -> None:
        """Begin: the driver, then the nodes."""
        self._start_driver()

    def _start_driver(self) -> None:
        self._lives += 1
        self._cluster.driver_address = ("driver", self._lives)
        self.driver = CoordinatorHost(self._cluster, self._lives)
        for node in self._cluster.plan.nodes:
            self._start_later(node.name, 0, 50)

    def _start_later(self, node: str, low_ms: float, high_ms: float) -> None:
        if node in self._due:
            return
        self._due.add(node)
        self._world.schedule(self._world.between(low_ms, high_ms), lambda: self._start(node))

    def _start(self, node: str) -> None:
        self._due.discard(node)
        if self.driver is None or not self.driver.alive or self._cluster.over:
            return
        if not self._observed(node):
            self.launch(node)

    def launch(self, node: str) -> None:
        """Start another attempt, whoever else runs."""
        self._numbers += 1
        self.started += 1
        self.attempts.append(NodeHost(self._cluster, self._cluster.plan.node(node), self._numbers))

    def _observed(self, node: str) -> list[NodeHost]:
        return [each for each in self.running(node) if each.attempt not in self._lost]

    def running(self, node: str) -> list[NodeHost]:
        """All attempts of a node that are alive, zombies too."""
        return [each for each in self.attempts if each.alive and each.plan.name == node]

    # --- ends --------------------------------------------------------------------------------

    def ended(self, attempt: NodeHost) -> None:
        """An attempt has ended."""
        self.attempts.remove(attempt)
        if not self._cluster.over and not self._observed(attempt.plan.name):
            self._start_later(attempt.plan.name, 100, 600)

    def driver_ended(self, driver: CoordinatorHost) -> None:
        """The driver has ended: its attempts end too, and somebody starts it again."""
        if driver is self.driver and not self._cluster.over:
            self.driver = None
            self._world.schedule(self._world.between(200, 1500), self._start_driver)

    def kill_silent(self, node: str, attempt: int) -> None:
        """End a silent attempt, or give it up for lost."""
        for each in self.running(node):
            if each.attempt == attempt:
                if self._world.chance(0.6):
                    each.die("killed for its silence")
                else:
                    self._world.say("launcher", f"{each.name} is given up for lost")
                    self._lost.add(attempt)
                    self._start_later(node, 100, 600)
