"""The coordinator: gives each attempt of a node its epoch, and tells everyone where the others are.

What always holds: an epoch is durable before anyone hears of it, so no two attempts of a node ever
have the same one, also across restarts of the driver.  No data passes through the coordinator.

It remembers of every log who it is, the epoch that last wrote to it, and how far that was durable:
at once when a log was opened, at the end, and every few seconds between.  An attempt is told, and
refuses a log that is older (`rewake.log.files.lineage`).

The host's duties: deliver messages as they come from authenticated connections; perform commands in
order; call `persisted` when a `Persist` is durable, `stalled` when there is no room for it now (and
try again), and `tick` every few tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewake.graph.plan.plan import Plan
from rewake.log.files.lineage import LogRecord
from rewake.node.commands import (
    CoordinatorCommand,
    EndQuery,
    HangUp,
    KillAttempt,
    Persist,
    Tell,
)
from rewake.node.coordinator.failure_detector import FailureDetector
from rewake.node.coordinator.state import check_folder
from rewake.node.coordinator.supervision import Supervision
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

# A node that nobody starts again for so long: whoever starts nodes is at a loss, or dead.
MISSING_AFTER_MS = 120_000.0
# A node that is started again and again for as long, and never gets any further, is missing too.
# Not sooner: whatever kills the same node all the time may stop, and the node goes on.
DEATHS_IN_VAIN = 20

# How an attempt ended, for people.
_ENDS = {
    "died": "died without a word; what its process printed says why",
    "failed": "failed",
    "silent": "fell silent: a call that takes longer than suspect_after, or never returns",
}

# How often what is known of logs is made durable while nothing else is.
_RECORD_MS = 5_000.0


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
    # Why it leaves, if it has said so.
    words: str = ""


@dataclass(slots=True)
class NodeStatus:
    """What is known of a node."""

    epoch: int = 0
    connection: int | None = None
    finished: bool = False
    progress: dict[str, Any] = field(default_factory=dict)
    # How many attempts were replaced, by cause: died, failed (it said why), silent, superseded.
    replaced: dict[str, int] = field(default_factory=dict)
    # Since when there is no attempt, by the clock of those who listen.
    missing_ms: float | None = None
    # What the last attempt that failed said of it.
    words: str = ""
    # What is known of its log.
    log: LogRecord | None = None

    @property
    def reached(self) -> float | None:
        """How far it has come, where that is known: what is replayed had been reached before."""
        return None if self.progress.get("recovering") else self.progress.get("input_position")

    def lost(self, cause: str) -> None:
        """An attempt is gone; another is due."""
        self.connection, self.finished = None, False
        self.replaced[cause] = self.replaced.get(cause, 0) + 1


class Coordinator:
    """One query's coordinator."""

    def __init__(
        self,
        plan: Plan,
        state: Mapping[str, Any] | None = None,
        detector: FailureDetector | None = None,
        *,
        missing_after_ms: float = MISSING_AFTER_MS,
    ) -> None:
        self.plan = plan
        self._detector = detector or FailureDetector()
        self._missing_after_ms = missing_after_ms
        self._supervision = Supervision(DEATHS_IN_VAIN, missing_after_ms)
        self.nodes = {each.name: NodeStatus() for each in plan.nodes}
        self._attempts: dict[int, _Attempt] = {}
        self._version = 0
        self._durable = 0
        self._over = False
        # Whether that is because all of a finite stream has been processed.
        self.complete = False
        # What is known of logs and not on its way to the disk yet, and since when.
        self._unrecorded: float | None = None
        if state is not None:
            self._restore(state)

    def _restore(self, state: Mapping[str, Any]) -> None:
        check_folder(self.plan, state)
        for name, epoch in state["epochs"].items():
            self.nodes[name].epoch = epoch
        for name, record in state["logs"].items():
            self.nodes[name].log = LogRecord(*record)

    def state(self) -> dict[str, Any]:
        """What must survive the driver."""
        return {
            "query": self.plan.query,
            "fingerprint": self.plan.fingerprint,
            "places_left_out": True,
            "sinks": [each.name for each in self.plan.nodes if each.sink is not None],
            "epochs": {name: status.epoch for name, status in self.nodes.items()},
            "logs": {
                name: list(status.log)
                for name, status in self.nodes.items()
                if status.log is not None
            },
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
        status.finished, status.missing_ms = False, None
        awaits = self._version + 1
        self._attempts[connection] = _Attempt(
            message.node, message.address, status.epoch, message.pid, message.host, awaits
        )
        self._detector.started(connection, message.node, now_ms)
        self._supervision.started(message.node, now_ms)
        return [*commands, self._persist()]

    def _persist(self) -> Persist:
        self._version += 1
        self._unrecorded = None
        return Persist(self._version, self.state())

    def _supersede(self, status: NodeStatus, epoch: int) -> list[CoordinatorCommand]:
        old = status.connection
        if old is None or old not in self._attempts:
            return []
        del self._attempts[old]
        self._detector.forget(old)
        status.lost("superseded")
        return [Tell(old, Superseded(epoch)), HangUp(old)]

    def persisted(self, version: int) -> list[CoordinatorCommand]:
        """The state of this version is durable: epochs up to it may be known."""
        self._durable = max(self._durable, version)
        commands: list[CoordinatorCommand] = []
        for connection, attempt in list(self._attempts.items()):
            if attempt.welcomed or attempt.awaits > self._durable:
                continue
            attempt.welcomed = True
            known = self.nodes[attempt.node].log
            welcome = Welcome(attempt.node, attempt.epoch, self.peers(), known)
            commands.append(Tell(connection, welcome))
            moved = PeerMoved(attempt.node, Peer(attempt.address, attempt.epoch))
            commands += self._tell_others(connection, moved)
        return commands

    def stalled(self, reason: str) -> None:
        """The state cannot be kept for want of room: who waits for its epoch waits on."""
        for attempt in self._attempts.values():
            if not attempt.welcomed:
                self.nodes[attempt.node].progress |= {"stalled": True, "trouble": reason}

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
        progress = message.progress
        self._detector.heard(connection, now_ms, starting=bool(progress.get("starting")))
        status = self.nodes[attempt.node]
        status.progress = progress
        self._supervision.heard(attempt.node, now_ms, status.reached)
        return self._note_log(status, message.log, now_ms)

    def _note_log(
        self, status: NodeStatus, log: LogRecord | None, now_ms: float
    ) -> list[CoordinatorCommand]:
        """Remember how far a log is: at once if it was just opened, else with the next reason."""
        if log is None or log == status.log:
            return []
        opened = status.log is None or status.log.epoch != log.epoch
        status.log = log
        if opened or self._over:
            return [self._persist()]
        if self._unrecorded is None:
            self._unrecorded = now_ms
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
            self.complete = True
            return self._end(None, "all of the stream has been processed")
        return []

    def failed(self, connection: int, message: Failed) -> list[CoordinatorCommand]:
        """A node cannot go on."""
        attempt = self._attempts.get(connection)
        if attempt is None:
            return []
        if not message.fatal:
            attempt.words = message.error
            return []
        error = f"node {message.node!r}: {message.error}"
        return self._end(error, "a node failed", misfit=message.misfit)

    # --- attempts go -------------------------------------------------------------------------

    def disconnected(self, connection: int) -> list[CoordinatorCommand]:
        """An attempt's connection is gone: it is dead, or will find out that it is superseded."""
        attempt = self._attempts.get(connection)
        return self._gone(connection, "failed" if attempt and attempt.words else "died")

    def _gone(self, connection: int, cause: str) -> list[CoordinatorCommand]:
        attempt = self._attempts.pop(connection, None)
        self._detector.forget(connection)
        if attempt is None:
            return []
        status = self.nodes[attempt.node]
        if self._over:
            status.connection, status.finished = None, False
            return []
        status.lost(cause)
        status.words = attempt.words
        if attempt.welcomed and self._supervision.ended(attempt.node):
            return self._end(self._died_in_vain(attempt.node, cause), "a node failed")
        return self._tell_others(connection, PeerMoved(attempt.node, None))

    def _died_in_vain(self, node: str, cause: str) -> str:
        words = self.nodes[node].words
        last = f"it last said: {words}" if words else f"the last one {_ENDS[cause]}"
        return (
            f"node {node!r} was started {self._supervision.in_vain(node)} times in a row and never "
            f"got any further; {last}"
        )

    def tick(self, now_ms: float) -> list[CoordinatorCommand]:
        """Declare dead who has been silent for too long, and the query if a node stays away."""
        commands: list[CoordinatorCommand] = []
        for connection, attempt in self._attempts.items():
            if not attempt.welcomed:
                # It is not late: it waits for its epoch, which is not durable yet.
                self._detector.started(connection, attempt.node, now_ms)
        for connection in self._detector.silent(now_ms):
            suspected = self._attempts.get(connection)
            if suspected is not None and not self._over:
                # A process that only sleeps keeps its place in Spark: end it, so another can come.
                commands.append(KillAttempt(suspected.node, suspected.pid, connection))
            commands += [HangUp(connection), *self._gone(connection, "silent")]
        if self._unrecorded is not None and now_ms - self._unrecorded >= _RECORD_MS:
            commands.append(self._persist())
        return commands + self._miss()

    def _miss(self) -> list[CoordinatorCommand]:
        """No attempt of a node has come for long: nobody starts it any more."""
        at_ms = self._detector.listened_ms
        for name, status in self.nodes.items():
            if status.connection is not None or self._over:
                continue
            if status.missing_ms is None:
                status.missing_ms = at_ms
            elif at_ms - status.missing_ms > self._missing_after_ms:
                return self._end(self._missed(name), "a node is missing")
        return []

    def _missed(self, node: str) -> str:
        words = self.nodes[node].words
        said = f"; the last one said: {words}" if words else ""
        return (
            f"node {node!r} is missing: for {self._missing_after_ms / 1e3:g} s no process or task "
            f"has come to run it{said}; look whether processes can be started, or whether Spark "
            "has a free slot, then start the query again: it continues"
        )

    # --- the end -----------------------------------------------------------------------------

    def stop(self, reason: str) -> list[CoordinatorCommand]:
        """The user wants it to end."""
        return [] if self._over else self._end(None, reason)

    def fail(self, error: str) -> list[CoordinatorCommand]:
        """It cannot go on, for a reason outside of the nodes; one that is over stays so."""
        return [] if self._over else self._end(error, error)

    def _end(
        self, error: str | None, reason: str, *, misfit: bool = False
    ) -> list[CoordinatorCommand]:
        self._over = True
        told: list[CoordinatorCommand] = [Tell(each, Stop(reason)) for each in self._attempts]
        if self._unrecorded is not None:
            told.append(self._persist())
        return [*told, EndQuery(error, misfit)]

    @property
    def over(self) -> bool:
        """Whether the query has ended."""
        return self._over

    @property
    def running(self) -> list[str]:
        """Nodes that have been welcomed and are connected."""
        return [each.node for each in tuple(self._attempts.values()) if each.welcomed]

    def node_of(self, connection: int) -> str | None:
        """The node that a connection runs."""
        attempt = self._attempts.get(connection)
        return None if attempt is None else attempt.node

    def pid_of(self, node: str) -> int | None:
        """The process of a node's current attempt."""
        # Others ask, too, while attempts come and go.
        attempts = tuple(self._attempts.values())
        return next((each.pid for each in attempts if each.node == node), None)

    def check_invariants(self) -> None:
        """What always holds between events."""
        for connection, attempt in self._attempts.items():
            status = self.nodes[attempt.node]
            assert status.connection == connection, "two attempts of one node"
            assert status.epoch == attempt.epoch, "an attempt with an epoch that is not the newest"
            assert not attempt.welcomed or attempt.awaits <= self._durable, "told too early"
