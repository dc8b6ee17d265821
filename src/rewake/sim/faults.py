"""What goes wrong, and when: a schedule grown from the seed.

How much goes wrong differs from seed to seed, from nothing at all to something every few dozen
milliseconds.  At some moment the faults stop, everything that was broken works again, and the run
must come to its end.
"""

from __future__ import annotations

from collections.abc import Callable

from rewake.sim.cluster import Cluster
from rewake.sim.coordinator_host import DRIVER
from rewake.sim.server import Server

# Milliseconds between two faults, by density.
_SPACING_MS = (None, (150, 900), (60, 400), (20, 150))


class FaultSchedule:
    """Breaks a cluster at random until `stops_ms`."""

    def __init__(self, cluster: Cluster, stops_ms: float) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.stops_ms = stops_ms
        self.injected: dict[str, int] = {}
        self._spacing = self._world.random.choice(_SPACING_MS)
        self._kinds: list[tuple[int, str, Callable[[], None]]] = [
            (6, "kill", self._kill),
            (3, "kill several", self._kill_several),
            (4, "kill between commands", self._kill_between_commands),
            (3, "pause", self._pause),
            (2, "power loss", self._power_loss),
            (3, "power loss while writing", self._power_loss_while_writing),
            (3, "break a connection", self._break_connection),
            (2, "partition", self._partition),
            (2, "slow disk", self._slow_disk),
            (2, "full disk", self._full_disk),
            (1, "failed sync", self._failed_sync),
            (1, "driver killed", self._kill_driver),
            (1, "driver loses power", self._driver_power_loss),
            (2, "speculation", self._speculate),
            (3, "zombie", self._zombie),
            (2, "a client joins", self._cluster.join),
        ]

    def start(self) -> None:
        """Begin to break things, if this is such a seed."""
        self._world.schedule(self.stops_ms, self._stop)
        if self._spacing is not None:
            self._next()

    def _next(self) -> None:
        assert self._spacing is not None
        self._world.schedule(self._world.between(*self._spacing), self._inject)

    def _inject(self) -> None:
        if self._world.now_ms >= self.stops_ms or self._cluster.over:
            return
        weights = [weight for weight, _, _ in self._kinds]
        ((_, name, fault),) = self._world.random.choices(self._kinds, weights)
        self.injected[name] = self.injected.get(name, 0) + 1
        self._world.say("faults", name)
        fault()
        self._next()

    def _stop(self) -> None:
        self._world.say("faults", "stop; everything works again")
        for disk in self._cluster.disks.values():
            disk.heal()
        for server in list(self._cluster.launcher.servers):
            server.commands_to_live = server.on_append = None
            server.resume()

    # --- the faults --------------------------------------------------------------------------

    def _victim(self) -> Server | None:
        servers = self._cluster.launcher.servers
        return self._world.random.choice(servers) if servers else None

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.die("SIGKILL")

    def _kill_several(self) -> None:
        servers = list(self._cluster.launcher.servers)
        self._world.random.shuffle(servers)
        for victim in servers[: self._world.random.randrange(2, 5)]:
            victim.die("SIGKILL, with others")

    def _kill_between_commands(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.commands_to_live = self._world.random.randrange(20)

    def _pause(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.pause()
            self._world.schedule(self._world.between(20, 2500), victim.resume)

    def _zombie(self) -> None:
        """One sleeps while it writes, another takes over, then the first goes on where it was."""
        writers = [each for each in self._cluster.launcher.servers if each.logs]
        if not writers:
            return
        victim = self._world.random.choice(writers)

        def sleep() -> None:
            if victim.alive and self._cluster.launcher.driver is not None:
                victim.pause()
                self._world.schedule(self._world.between(20, 400), victim.resume)
                self._cluster.launcher.launch(victim.machine)

        victim.on_append = sleep

    def _machine(self) -> str:
        return self._cluster.machine_of(self._disk())

    def _disk(self) -> str:
        return self._world.random.choice([each.name for each in self._cluster.plan.nodes])

    def _power_loss(self) -> None:
        self._cluster.lose_power(self._machine())

    def _power_loss_while_writing(self) -> None:
        disk = self._cluster.disks[self._disk()]
        disk.cut_power_at(self._world.random.randrange(1, 20))

    def _driver_power_loss(self) -> None:
        self._cluster.lose_power(DRIVER)

    def _break_connection(self) -> None:
        connections = self._cluster.network.connections
        if connections:
            self._cluster.network.lose(self._world.random.choice(connections))

    def _partition(self) -> None:
        names = [each.name for each in self._cluster.launcher.servers]
        driver = self._cluster.launcher.driver
        names += [driver.name] if driver is not None else []
        self._world.random.shuffle(names)
        cut = self._world.random.randrange(len(names) + 1)
        some, others = frozenset(names[:cut]), frozenset(names[cut:])
        self._world.say("network", f"partition of {names[:cut]} from {names[cut:]}")
        self._cluster.network.partition(some, others, self._world.between(50, 1500))

    def _slow_disk(self) -> None:
        disk = self._cluster.disks[self._disk()]
        disk.slowness = self._world.between(5, 60)
        self._world.schedule(self._world.between(50, 800), disk.heal)

    def _full_disk(self) -> None:
        disk = self._cluster.disks[self._world.random.choice(sorted(self._cluster.disks))]
        disk.fill()
        self._world.schedule(self._world.between(20, 800), disk.heal)

    def _failed_sync(self) -> None:
        self._cluster.disks[self._disk()].fail_next_sync()

    def _kill_driver(self) -> None:
        driver = self._cluster.launcher.driver
        if driver is not None:
            driver.die("SIGKILL")

    def _speculate(self) -> None:
        driver = self._cluster.launcher.driver
        if driver is not None and not self._cluster.over:
            self._cluster.launcher.launch(self._machine())
