"""The coordinator: gives each attempt of a node its epoch, and tells everyone where the others are.

What always holds: an epoch is durable before anyone hears of it, so no two attempts of a node ever
have the same one, also across restarts of the driver.  No data passes through the coordinator.

The host's duties: deliver messages as they come from authenticated connections; perform commands in
order; call `persisted` when a `Persist` is durable, and `tick` every few tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewake.graph.plan import Plan
from rewake.model.errors import UsageError
from rewake.node.commands import (
    CoordinatorCommand,
    EndQuery,
    HangUp,
    KillAttempt,
    Persist,
    Tell,
)
from rewake.node.failure_detector import FailureDetector
from rewake.node.messages import (
    Address,
    Failed,
    Finished,
    Heartbeat,
    Peer,
    PeerMoved,
    Refused,
    Register,
    Stop,
    Superseded,
    Welcome,
)


@dataclass(slots=True)
class _Attempt:
    """One connection that runs, or wants to run, a node."""

    node: str
    address: Address
    epoch: int
    pid: int
    host: str
    # The version of the state that must be durable before it may hear of its epoch.
    awaits: int
    welcomed: bool = False


@dataclass(slots=True)
class NodeStatus:
    """What is known of a node."""

    epoch: int = 0
    connection: int | None = None
    finished: bool = False
    progress: dict[str, Any] = field(default_factory=dict)


class Coordinator:
    """One query's coordinator."""

    def __init__(
        self,
        plan: Plan,
        state: Mapping[str, Any] | None = None,
        detector: FailureDetector | None = None,
    ) -> None:
        self.plan = plan
        self._detector = detector or FailureDetector()
        self.nodes = {each.name: NodeStatus() for each in plan.nodes}
        self._attempts: dict[int, _Attempt] = {}
        self._version = 0
        self._durable = 0
        self._over = False
        if state is not None:
            self._restore(state)

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state.get("fingerprint") != self.plan.fingerprint:
            raise UsageError(
                f"the folder holds the state of another query ({state.get('query')!r}, "
                f"{str(state.get('fingerprint'))[:12]}), not of {self.plan.query!r} as it is now "
                f"({self.plan.fingerprint[:12]}); use another folder, or the query that began here"
            )
        for name, epoch in state["epochs"].items():
            self.nodes[name].epoch = int(epoch)

    def state(self) -> dict[str, Any]:
        """What must survive the driver."""
        return {
            "query": self.plan.query,
            "fingerprint": self.plan.fingerprint,
            "epochs": {name: status.epoch for name, status in self.nodes.items()},
        }

    # --- attempts come -----------------------------------------------------------------------

    def registered(
        self, connection: int, message: Register, now_ms: float
    ) -> list[CoordinatorCommand]:
        """An attempt wants to run a node: it supersedes whatever ran it before."""
        status = self.nodes.get(message.node)
        if status is None:
            reason = f"query {self.plan.query!r} has no node {message.node!r}"
            return [Tell(connection, Refused(reason)), HangUp(connection)]
        if self._over:
            return [Tell(connection, Stop("the query is over"))]
        commands = self._supersede(status, status.epoch + 1)
        status.epoch += 1
        status.connection = connection
        status.finished = False
        self._version += 1
        self._attempts[connection] = _Attempt(
            message.node, message.address, status.epoch, message.pid, message.host, self._version
        )
        self._detector.started(connection, message.node, now_ms)
        return [*commands, Persist(self._version, self.state())]

    def _supersede(self, status: NodeStatus, epoch: int) -> list[CoordinatorCommand]:
        old = status.connection
        if old is None or old not in self._attempts:
            return []
        del self._attempts[old]
        self._detector.forget(old)
        return [Tell(old, Superseded(epoch)), HangUp(old)]

    def persisted(self, version: int) -> list[CoordinatorCommand]:
        """The state of this version is durable: epochs up to it may be known."""
        self._durable = max(self._durable, version)
        commands: list[CoordinatorCommand] = []
        for connection, attempt in list(self._attempts.items()):
            if attempt.welcomed or attempt.awaits > self._durable:
                continue
            attempt.welcomed = True
            welcome = Welcome(attempt.node, attempt.epoch, self.peers())
            commands.append(Tell(connection, welcome))
            moved = PeerMoved(attempt.node, Peer(attempt.address, attempt.epoch))
            commands += self._tell_others(connection, moved)
        return commands

    def peers(self) -> dict[str, Peer]:
        """Where the current attempt of each node listens, of those that may be known."""
        return {
            each.node: Peer(each.address, each.epoch)
            for each in self._attempts.values()
            if each.welcomed
        }

    def _tell_others(self, connection: int, message: object) -> list[CoordinatorCommand]:
        return [
            Tell(other, message)
            for other, attempt in self._attempts.items()
            if other != connection and attempt.welcomed
        ]

    # --- attempts live -----------------------------------------------------------------------

    def heartbeat(
        self, connection: int, message: Heartbeat, now_ms: float
    ) -> list[CoordinatorCommand]:
        """A sign of life."""
        attempt = self._attempts.get(connection)
        if attempt is None:
            return [Tell(connection, Superseded(self._epoch_of(message.node))), HangUp(connection)]
        self._detector.heard(connection, now_ms)
        self.nodes[attempt.node].progress = message.progress
        return []

    def _epoch_of(self, node: str) -> int:
        status = self.nodes.get(node)
        return 0 if status is None else status.epoch

    def finished(self, connection: int, message: Finished) -> list[CoordinatorCommand]:
        """A node has delivered all of a finite stream."""
        attempt = self._attempts.get(connection)
        if attempt is None or attempt.epoch != message.epoch:
            return []
        self.nodes[attempt.node].finished = True
        if all(status.finished for status in self.nodes.values()):
            return self._end(None, "all of the stream has been processed")
        return []

    def failed(self, connection: int, message: Failed) -> list[CoordinatorCommand]:
        """A node cannot go on."""
        attempt = self._attempts.get(connection)
        if attempt is None or not message.fatal:
            return []
        return self._end(f"node {message.node!r}: {message.error}", "a node failed")

    # --- attempts go -------------------------------------------------------------------------

    def disconnected(self, connection: int) -> list[CoordinatorCommand]:
        """An attempt's connection is gone: it is dead, or will find out that it is superseded."""
        attempt = self._attempts.pop(connection, None)
        self._detector.forget(connection)
        if attempt is None:
            return []
        status = self.nodes[attempt.node]
        status.connection, status.finished = None, False
        if self._over:
            return []
        return self._tell_others(connection, PeerMoved(attempt.node, None))

    def tick(self, now_ms: float) -> list[CoordinatorCommand]:
        """Declare dead who has been silent for too long."""
        commands: list[CoordinatorCommand] = []
        for connection in self._detector.silent(now_ms):
            attempt = self._attempts.get(connection)
            if attempt is not None and not self._over:
                # A process that only sleeps keeps its place in Spark: end it, so another can come.
                commands.append(KillAttempt(attempt.node, attempt.pid, connection))
            commands += [HangUp(connection), *self.disconnected(connection)]
        return commands

    # --- the end -----------------------------------------------------------------------------

    def stop(self, reason: str) -> list[CoordinatorCommand]:
        """The user wants it to end."""
        return [] if self._over else self._end(None, reason)

    def _end(self, error: str | None, reason: str) -> list[CoordinatorCommand]:
        self._over = True
        told: list[CoordinatorCommand] = [Tell(each, Stop(reason)) for each in self._attempts]
        return [*told, EndQuery(error)]

    @property
    def over(self) -> bool:
        """Whether the query has ended."""
        return self._over

    @property
    def running(self) -> list[str]:
        """Nodes that have been welcomed and are connected."""
        return [each.node for each in self._attempts.values() if each.welcomed]

    def node_of(self, connection: int) -> str | None:
        """The node that a connection runs."""
        attempt = self._attempts.get(connection)
        return None if attempt is None else attempt.node

    def pid_of(self, node: str) -> int | None:
        """The process of a node's current attempt."""
        return next((each.pid for each in self._attempts.values() if each.node == node), None)

    def check_invariants(self) -> None:
        """What always holds between events."""
        for connection, attempt in self._attempts.items():
            status = self.nodes[attempt.node]
            assert status.connection == connection, "two attempts of one node"
            assert status.epoch == attempt.epoch, "an attempt with an epoch that is not the newest"
            assert not attempt.welcomed or attempt.awaits <= self._durable, "told too early"
