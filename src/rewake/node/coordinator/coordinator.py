"""The coordinator: gives each attempt of a node its epoch, and tells everyone where the others are.

What always holds: an epoch is durable before anyone hears of it, so no two attempts of a node ever
have the same one, also across restarts of the driver.  No data passes through the coordinator.

A connection is a server's: one process with attempts of one or several nodes.  They come one by
one and go together: when it ends, falls silent, or one of its nodes is superseded.  What is counted
against nodes is counted for each.

A node may have several places: one attempt runs it, the others stand by.  Who is in sync is what
the attempt that runs it says, and only such a one is promoted when that is lost: it is the same
attempt with a new epoch.  What is known of that is not made durable: all places end with the
driver.  When none is in sync, what the node was is gone, and the query ends.

Of a node whose input is kept upstream it keeps the bookmark, durably before it says so; the next
attempt is welcomed with it.

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
    KillServer,
    Persist,
    Tell,
)
from rewake.node.coordinator.bookmarks import Bookmarks
from rewake.node.coordinator.failure_detector import FailureDetector
from rewake.node.coordinator.state import check_folder
from rewake.node.coordinator.supervision import Supervision
from rewake.node.messages import (
    Address,
    Failed,
    Finished,
    Heartbeat,
    InSync,
    KeepBookmark,
    Peer,
    PeerMoved,
    PlaceLost,
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
    """One server that runs, or wants to run, a node."""

    connection: int
    node: str
    server: str
    address: Address
    epoch: int
    pid: int
    host: str
    place: int
    # The version of the state that must be durable before it may hear of its epoch.
    awaits: int
    # Whether it holds what another attempt tells it to, and does not run the node.
    standby: bool = False
    welcomed: bool = False
    # Until it is heard of for the first time with this epoch, it loads its state.
    starting: bool = True
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
    # Whether an attempt has ever been told to run it.
    begun: bool = False
    # By place: the servers of those that stand by; and which of them may be promoted.
    standbys: dict[int, int] = field(default_factory=dict)
    in_sync: set[int] = field(default_factory=set)

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
        # By connection and node: a server has at most one place of a node.
        self._attempts: dict[tuple[int, str], _Attempt] = {}
        self._version = 0
        self._durable = 0
        self._over = False
        # Whether that is because all of a finite stream has been processed.
        self.complete = False
        # What is known of logs and not on its way to the disk yet, and since when.
        self._unrecorded: float | None = None
        self._bookmarks = Bookmarks(state or {})
        if state is not None:
            self._restore(state)

    def _restore(self, state: Mapping[str, Any]) -> None:
        check_folder(self.plan, state)
        for name, epoch in state["epochs"].items():
            self.nodes[name].epoch = epoch
            self.nodes[name].begun = epoch > 0
        for name, record in state["logs"].items():
            self.nodes[name].log = LogRecord(*record)

    def state(self) -> dict[str, Any]:
        """What must survive the driver."""
        return self._bookmarks.state(self.nodes) | {
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
        places = self.plan.node(message.node).places
        if message.place >= places:
            reason = f"node {message.node!r} has {places} places, and no place {message.place}"
            return [Tell(connection, Refused(reason)), HangUp(connection)]
        commands = self._supersede(message.node, status, message.place)
        standby = places > 1 and status.connection is not None
        if places > 1 and status.begun and not standby and not self.over:
            commands += self._all_lost(message.node)
        if self.over:
            return [*commands, Tell(connection, Stop("the query is over"))]
        status.epoch += 1
        if standby:
            status.standbys[message.place] = connection
        else:
            status.connection = connection
            status.finished, status.missing_ms = False, None
            self._supervision.started(message.node, now_ms)
        server = message.server or message.node
        self._attempts[connection, message.node] = _Attempt(
            connection, message.node, server, message.address, status.epoch, message.pid,
            message.host, message.place, awaits=self._version + 1, standby=standby,
        )  # fmt: skip
        self._detector.started(connection, server, now_ms)
        return [*commands, self._persist()]

    def _persist(self) -> Persist:
        self._version += 1
        self._unrecorded = None
        return Persist(self._version, self.state())

    def _supersede(self, node: str, status: NodeStatus, place: int) -> list[CoordinatorCommand]:
        """Another attempt comes to this place."""
        there = (status.connection, *status.standbys.values())
        known = (self._attempts.get((each, node)) for each in there if each is not None)
        old = next((each.connection for each in known if each and each.place == place), None)
        if old is None:
            return []
        return self._send_away(old, Superseded(status.epoch + 1, node), but_for=node)

    def _send_away(
        self, connection: int, why: Superseded, but_for: str = ""
    ) -> list[CoordinatorCommand]:
        """A server has to leave, with all its nodes; of one of them the next attempt is here."""
        commands: list[CoordinatorCommand] = [Tell(connection, why), HangUp(connection)]
        self._detector.forget(connection)
        for attempt in self._dismiss(connection):
            commands += self._lost(attempt, "superseded", quietly=attempt.node == but_for)
        return commands

    def _lost(
        self, attempt: _Attempt, cause: str, *, quietly: bool = False
    ) -> list[CoordinatorCommand]:
        """An attempt is gone: the others wait for the next one, or for the one that stood by."""
        status = self.nodes[attempt.node]
        if attempt.standby:
            return self._lost_standby(status, attempt)
        if self._over:
            status.connection, status.finished = None, False
            return []
        status.lost(cause)
        told = [] if quietly else self._tell_others(attempt, PeerMoved(attempt.node, None))
        several = self.plan.node(attempt.node).places > 1
        return told + self._promote(attempt.node) if several else told

    def _lost_standby(self, status: NodeStatus, attempt: _Attempt) -> list[CoordinatorCommand]:
        """It will never be promoted; where the node runs, nobody need wait for it."""
        del status.standbys[attempt.place]
        status.in_sync.discard(attempt.place)
        if status.connection is None or self._over:
            return []
        return [Tell(status.connection, PlaceLost(attempt.node, attempt.place, attempt.epoch))]

    def _promote(self, node: str) -> list[CoordinatorCommand]:
        """Have the node run where it stood by in sync: the same server, with a new epoch."""
        status = self.nodes[node]
        if not status.in_sync:
            return self._all_lost(node) if status.begun else []
        place = min(status.in_sync)
        status.connection = status.standbys.pop(place)
        # The others are in sync with nobody now.
        status.in_sync.clear()
        status.epoch += 1
        status.missing_ms = None
        attempt = self._attempts[status.connection, node]
        attempt.epoch, attempt.standby = status.epoch, False
        attempt.welcomed, attempt.awaits = False, self._version + 1
        attempt.starting = True
        self._detector.begins(attempt.connection)
        return [self._persist()]

    def _all_lost(self, node: str) -> list[CoordinatorCommand]:
        """No place holds what the node was, nor does a log: an empty one is no successor."""
        places = self.plan.node(node).places
        error = (
            f"node {node!r} is lost: what it was is only in the memory of its {places} places, and "
            "no place that was in sync is left; start the query in a new folder, or choose an "
            "approach with a log"
        )
        return self._end(error, "a node is lost")

    def in_sync(self, connection: int, message: InSync) -> list[CoordinatorCommand]:
        """Where a node runs it is said that a place holds all that it takes to go on."""
        attempt = self._attempts.get((connection, message.node))
        if attempt is None or attempt.standby or attempt.epoch != message.epoch:
            return []
        status = self.nodes[message.node]
        there = status.standbys.get(message.place)
        standby = None if there is None else self._attempts[there, message.node]
        if standby is not None and standby.epoch == message.standby:
            status.in_sync.add(message.place)
        return []

    def keep_bookmark(self, connection: int, message: KeepBookmark) -> list[CoordinatorCommand]:
        """A node has come to where it would go on: kept with the next tick, then said back."""
        attempt = self._attempts.get((connection, message.node))
        if attempt is None or not attempt.welcomed or attempt.epoch != message.epoch or self._over:
            return []
        self._bookmarks.keep(connection, message, self._version + 1)
        return []

    def _on(self, connection: int) -> list[_Attempt]:
        """The attempts of one server."""
        return [each for each in self._attempts.values() if each.connection == connection]

    def _dismiss(self, connection: int) -> list[_Attempt]:
        gone = self._on(connection)
        for each in gone:
            del self._attempts[connection, each.node]
        return gone

    def persisted(self, version: int) -> list[CoordinatorCommand]:
        """The state of this version is durable: epochs up to it may be known."""
        self._durable = max(self._durable, version)
        commands: list[CoordinatorCommand] = [*self._bookmarks.durable(self._durable)]
        for attempt in list(self._attempts.values()):
            if attempt.welcomed or attempt.awaits > self._durable:
                continue
            attempt.welcomed = True
            known, standby = self.nodes[attempt.node].log, attempt.standby
            bookmark = self._bookmarks.of(attempt.node)
            welcome = Welcome(attempt.node, attempt.epoch, self.peers(), known, standby, bookmark)
            commands.append(Tell(attempt.connection, welcome))
            if standby:
                continue
            self.nodes[attempt.node].begun = True
            moved = PeerMoved(attempt.node, Peer(attempt.address, attempt.epoch))
            commands += self._tell_others(attempt, moved)
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
            if each.welcomed and not each.standby
        }

    def _tell_others(self, attempt: _Attempt, message: PeerMoved) -> list[CoordinatorCommand]:
        """Once to each server with another node, its own among them."""
        others = dict.fromkeys(
            each.connection
            for each in self._attempts.values()
            if each.welcomed and each is not attempt
        )
        return [Tell(other, message) for other in others]

    # --- attempts live -----------------------------------------------------------------------

    def heartbeat(
        self, connection: int, message: Heartbeat, now_ms: float
    ) -> list[CoordinatorCommand]:
        """A sign of life."""
        attempt = self._attempts.get((connection, message.node))
        if attempt is None:
            why = Superseded(self._epoch_of(message.node), message.node)
            return self._send_away(connection, why)
        # What was said before a promotion says nothing of the node that runs here now.
        current = message.epoch == attempt.epoch
        if current:
            attempt.starting = bool(message.progress.get("starting"))
        # While one of its nodes loads, a server has no time for the others.
        starting = any(each.starting for each in self._on(connection))
        self._detector.heard(connection, now_ms, starting=starting)
        if attempt.standby or not current:
            return []
        status = self.nodes[attempt.node]
        status.progress = message.progress
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
        attempt = self._attempts.get((connection, message.node))
        if attempt is None or attempt.standby or attempt.epoch != message.epoch:
            return []
        self.nodes[attempt.node].finished = True
        if all(status.finished for status in self.nodes.values()):
            self.complete = True
            return self._end(None, "all of the stream has been processed")
        return []

    def failed(self, connection: int, message: Failed) -> list[CoordinatorCommand]:
        """A node cannot go on."""
        attempt = self._attempts.get((connection, message.node))
        if attempt is None:
            return []
        if not message.fatal:
            attempt.words = message.error
            return []
        error = f"node {message.node!r}: {message.error}"
        return self._end(error, "a node failed", misfit=message.misfit)

    # --- attempts go -------------------------------------------------------------------------

    def disconnected(self, connection: int) -> list[CoordinatorCommand]:
        """A server's connection is gone: it is dead, or will find out that it is superseded."""
        said = any(each.words for each in self._on(connection))
        return self._gone(connection, "failed" if said else "died")

    def _gone(self, connection: int, cause: str) -> list[CoordinatorCommand]:
        gone = self._dismiss(connection)
        self._detector.forget(connection)
        commands: list[CoordinatorCommand] = []
        in_vain: list[_Attempt] = []
        for attempt in gone:
            commands += self._lost(attempt, cause)
            if attempt.standby or self._over:
                continue
            self.nodes[attempt.node].words = attempt.words
            if attempt.welcomed and self._supervision.ended(attempt.node):
                in_vain.append(attempt)
        if in_vain:
            # Rather the one that has said why than one that went with it.
            first = max(in_vain, key=lambda each: bool(each.words))
            return self._end(self._died_in_vain(first.node, cause), "a node failed")
        return commands

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
        for attempt in self._attempts.values():
            if not attempt.welcomed:
                # It is not late: it waits for its epoch, which is not durable yet.
                self._detector.started(attempt.connection, attempt.server, now_ms)
        for connection in self._detector.silent(now_ms):
            suspected = self._on(connection)
            if suspected and not self._over:
                # A process that only sleeps keeps its place in Spark: end it, so another can come.
                nodes = tuple(each.node for each in suspected)
                commands.append(KillServer(nodes, suspected[0].pid, connection))
            commands += [HangUp(connection), *self._gone(connection, "silent")]
        logs_due = self._unrecorded is not None and now_ms - self._unrecorded >= _RECORD_MS
        if logs_due or self._bookmarks.wait_for(self._version):
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
        servers = dict.fromkeys(each.connection for each in self._attempts.values())
        told: list[CoordinatorCommand] = [Tell(each, Stop(reason)) for each in servers]
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
        attempts = tuple(self._attempts.values())
        return [each.node for each in attempts if each.welcomed and not each.standby]

    def nodes_of(self, connection: int) -> list[str]:
        """The nodes that a server runs."""
        return [each.node for each in self._on(connection) if not each.standby]

    def standing_by(self, connection: int) -> list[str]:
        """The nodes by which a server stands."""
        return [each.node for each in self._on(connection) if each.standby]

    def pid_of(self, node: str) -> int | None:
        """The process of a node's current attempt."""
        attempt = self._attempt_of(node)
        return None if attempt is None else attempt.pid

    def server_of(self, node: str) -> str | None:
        """The server that hosts a node's current attempt."""
        attempt = self._attempt_of(node)
        return None if attempt is None else attempt.server

    def _attempt_of(self, node: str) -> _Attempt | None:
        # Others ask, too, while attempts come and go.
        attempts = tuple(self._attempts.values())
        return next((each for each in attempts if each.node == node and not each.standby), None)

    def standbys_of(self, node: str) -> dict[int, dict[str, Any]]:
        """By place: the process that stands by, and whether it may be promoted."""
        status = self.nodes[node]
        attempts = [each for each in tuple(self._attempts.values()) if each.node == node]
        return {
            each.place: {"pid": each.pid, "in_sync": each.place in status.in_sync}
            for each in attempts
            if each.standby
        }

    def check_invariants(self) -> None:
        """What always holds between events."""
        for name, status in self.nodes.items():
            there = [status.connection, *status.standbys.values()]
            known = all(each is None or (each, name) in self._attempts for each in there)
            assert known, "a connection without an attempt"
            assert status.in_sync <= status.standbys.keys(), "in sync, and not there"
        for (connection, _), attempt in self._attempts.items():
            status = self.nodes[attempt.node]
            if attempt.standby:
                assert status.standbys[attempt.place] == connection, "two attempts at one place"
                continue
            assert status.connection == connection, "two attempts of one node"
            # Those that stand by have epochs of their own, which may be later.
            newest = status.epoch == attempt.epoch or self.plan.node(attempt.node).places > 1
            assert newest, "an attempt with an epoch that is not the newest"
            assert not attempt.welcomed or attempt.awaits <= self._durable, "told too early"
