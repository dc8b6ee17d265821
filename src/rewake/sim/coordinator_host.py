"""The simulated driver: performs the coordinator's commands; its state outlives it on a disk."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rewake.log.store import publish
from rewake.model.errors import StorageFault, StorageFull
from rewake.node.commands import CoordinatorCommand, EndQuery, HangUp, KillServer, Persist, Tell
from rewake.node.coordinator.state import STATE_FILE, decode_state, encode_state
from rewake.node.messages import (
    Address,
    Failed,
    Finished,
    Heartbeat,
    InSync,
    KeepBookmark,
    Peer,
    Register,
)
from rewake.sim.memory import PowerLost
from rewake.sim.network import Connection, Endpoint

if TYPE_CHECKING:
    from rewake.sim.cluster import Cluster

DRIVER = "driver"
_TICK_MS = 50.0
_FULL_MS = 250.0


class CoordinatorHost(Endpoint):
    """One life of the driver."""

    def __init__(self, cluster: Cluster, life: int) -> None:
        super().__init__(cluster.world, f"{DRIVER}#{life}")
        self.cluster = cluster
        self.address: Address = (DRIVER, life)
        self._store = cluster.disks[DRIVER].store.attach()
        state = None
        if STATE_FILE in self._store.names():
            state = decode_state(self._store.read(STATE_FILE, 0, self._store.size(STATE_FILE)))
        self.coordinator = cluster.kinds.coordinator(cluster.plan, state)
        self._connections: dict[int, Connection] = {}
        self._persisting: deque[Persist] = deque()
        cluster.network.listen(self)
        self.say(f"starts with {state}")
        self._tick()

    def died(self) -> None:
        """The network and the launcher notice."""
        self.cluster.network.gone(self)
        self.cluster.launcher.driver_ended(self)

    def peers(self) -> dict[str, Peer]:
        """Where clients find the nodes."""
        return self.coordinator.peers()

    # --- events ------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._perform(self.coordinator.tick(self.world.now_ms))
        self.after(_TICK_MS, self._tick)

    def accepted(self, connection: Connection) -> None:
        """A server has connected; it will register its nodes."""
        self._connections[connection.number] = connection

    def received(self, connection: Connection, message: object) -> None:
        """A server says something."""
        number, now_ms = connection.number, self.world.now_ms
        if number not in self._connections:
            return
        match message:
            case Register():
                commands = self.coordinator.registered(number, message, now_ms)
            case Heartbeat():
                commands = self.coordinator.heartbeat(number, message, now_ms)
            case InSync():
                commands = self.coordinator.in_sync(number, message)
            case KeepBookmark():
                commands = self.coordinator.keep_bookmark(number, message)
            case Finished():
                commands = self.coordinator.finished(number, message)
            case Failed():
                commands = self.coordinator.failed(number, message)
            case _:
                return
        self._perform(commands)

    def closed(self, connection: Connection) -> None:
        """A server is gone."""
        self._connections.pop(connection.number, None)
        self._perform(self.coordinator.disconnected(connection.number))

    # --- commands ----------------------------------------------------------------------------

    def _perform(self, commands: list[CoordinatorCommand]) -> None:
        self.coordinator.check_invariants()
        for command in commands:
            self.say(repr(command))
            self._perform_one(command)

    def _perform_one(self, command: CoordinatorCommand) -> None:
        match command:
            case Persist():
                self._persisting.append(command)
                if len(self._persisting) == 1:
                    self._persist_later()
            case Tell(connection, message):
                if connection in self._connections:
                    self._connections[connection].send(self, message)
            case HangUp(connection):
                gone = self._connections.pop(connection, None)
                if gone is not None:
                    gone.close(self)
            case KillServer(_, pid, _):
                self.cluster.launcher.kill_silent(pid)
            case EndQuery(error):
                self.cluster.ended(error)

    def _persist_later(self) -> None:
        duration = self.world.between(0.5, 8) * self.cluster.disks[DRIVER].slowness
        self.after(duration, self._persist)

    def _persist(self) -> None:
        command = self._persisting[0]
        try:
            publish(self._store, STATE_FILE, encode_state(command.state))
        except StorageFull as error:
            self.coordinator.stalled(str(error))
            self.after(_FULL_MS, self._persist)
            return
        except StorageFault as error:
            self.die(f"its state cannot be kept: {error}")
            return
        except PowerLost:
            self.cluster.lose_power(DRIVER)
            return
        self._persisting.popleft()
        if self._persisting:
            self._persist_later()
        self._perform(self.coordinator.persisted(command.version))
