"""The real host of the coordinator: a thread in the driver, and a folder that outlives it.

    <folder>/coordinator.json   the coordinator's state, replaced as a whole
    <folder>/endpoint.json      where the coordinator listens and the clients' token, for clients
                                of the same user; only while the query runs
    <folder>/streams.json       which output of which node is which stream, for readers of logs:
                                {"streams": {"averages": [["averages", 0]]}}, by shard; and
                                "ended": true when all of them have come to their end
    <folder>/nodes/<node>/      the log of a node

What always holds: one driver at a time owns a folder (an advisory lock); the state is durable
before an epoch is given out.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from signal import SIGKILL, Signals
from typing import Any

from rewake.connectors.streams.ended import STREAMS_FILE
from rewake.graph.plan.plan import Plan
from rewake.log.store import publish
from rewake.model.errors import StorageFault, StorageFull, UsageError
from rewake.net.clients.client import ENDPOINT_FILE, Endpoint
from rewake.net.kill_points import Fault, KillPoints
from rewake.net.nodes.calibration import CALIBRATION_FILE
from rewake.net.watcher import watcher
from rewake.net.wire.addresses import is_wildcard
from rewake.net.wire.authentication import TOKEN_BYTES, Token
from rewake.net.wire.connection import Connection
from rewake.net.wire.listener import Listener
from rewake.net.wire.loop import Loop
from rewake.net.wire.peer_process import signal_peer
from rewake.node.commands import (
    CoordinatorCommand,
    EndQuery,
    HangUp,
    KillServer,
    Persist,
    Tell,
)
from rewake.node.coordinator.coordinator import MISSING_AFTER_MS, Coordinator
from rewake.node.coordinator.failure_detector import SUSPECT_AFTER_MS, FailureDetector
from rewake.node.coordinator.state import STATE_FILE, check_folder, decode_state, encode_state
from rewake.node.late_watch import LateWatch
from rewake.node.messages import (
    Address,
    Failed,
    Find,
    Finished,
    Found,
    Heartbeat,
    InSync,
    KeepBookmark,
    Register,
)
from rewake.stores.local import LOCK_NAME, LocalStore
from rewake.stores.places import refuse_foreign

_TICK_SECONDS = 0.02
# What may be in the folder when the first state is not.
_BEFORE_STATE = frozenset({STREAMS_FILE, ENDPOINT_FILE, CALIBRATION_FILE, LOCK_NAME})
_ALARMING = frozenset({"lost", "silent", "failed"})
# Nodes die and come back, and a query that fails raises: that is told to who asks for it alone.
_log = logging.getLogger("rewake.nodes")
_log.addHandler(logging.NullHandler())
# What nobody would notice otherwise goes to stderr where nobody has configured logging.
_warnings = logging.getLogger("rewake")
# How long a state for which there is no room waits until it is written again.
_FULL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to a node, for reports: when (seconds, monotonic) and what."""

    at: float
    node: str
    what: str
    epoch: int


class CoordinatorHost:
    """Runs a coordinator in a thread of its own."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        allow_remote: bool = False,
        faults: Iterable[Fault] = (),
        suspect_after_ms: float = SUSPECT_AFTER_MS,
        missing_after_ms: float = MISSING_AFTER_MS,
    ) -> None:
        if is_wildcard(host):
            raise UsageError(
                f"nodes cannot connect to {host or 'no address'}; give the address under which "
                "their machines reach this one"
            )
        self._folder = folder
        self._name = plan.query
        self._store = LocalStore(folder, create=True)
        if not self._store.try_lock():
            self._store.close()
            raise UsageError(f"another driver runs a query in {folder}; stop it, or use a new one")
        self.token = Token(token_bytes(TOKEN_BYTES))
        try:
            state = _read_state(self._store)
            if state is None:
                refuse_foreign(folder, _BEFORE_STATE, "the folder of a query")
            else:
                check_folder(plan, state, str(folder))
            self._coordinator = Coordinator(
                plan, state, FailureDetector(suspect_after_ms),
                missing_after_ms=missing_after_ms,
            )  # fmt: skip
            _write_streams(self._store, plan)
            self._listener = Listener(self.token, host, allow_remote=allow_remote)
        except BaseException:
            self._store.close()  # and with it the lock: the right query may come next
            raise
        self._loop = Loop()
        self.address: Address = self._listener.address
        self._points = KillPoints("coordinator", faults, folder)
        self._late = LateWatch()
        self._numbers: dict[Connection, int] = {}
        self._connections: dict[int, Connection] = {}
        self._orders: list[Callable[[], list[CoordinatorCommand]]] = []
        self._wakeup = self._loop.wakeup(self._take_orders)
        self.history: list[Happening] = []
        self.ended = threading.Event()
        self.error: str | None = None
        # Whether that is because parts of the query are not of one history.
        self.misfit = False
        self._closing = False
        # What is to be kept as soon as there is room; the newest holds all before it.
        self._unkept: Persist | None = None
        self._awaits_room = False
        self._thread = watcher(self._run, "the coordinator", self._died, name="rewake-coordinator")

    # --- from the driver ---------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve."""
        try:
            self._announce()
        except StorageFault:
            self.close()
            raise
        self._loop.listen(self._listener, self)
        self._loop.call_after(_TICK_SECONDS, self._tick)
        self._thread.start()

    def _announce(self) -> None:
        """Say where clients connect; without room again and again: nodes do not need it."""
        try:
            # Whole or not at all: clients may be looking for it already.
            publish(self._store, ENDPOINT_FILE, self.endpoint.to_json().encode())
        except StorageFull as error:
            self._coordinator.stalled(str(error))
            self._loop.call_after(_FULL_SECONDS, self._announce)

    @property
    def endpoint(self) -> Endpoint:
        """Where clients connect, with a token that reads and produces and nothing else."""
        plan = self._coordinator.plan
        streams = {each: plan.columns_of(each) for each in plan.streams}
        return Endpoint(self.address, self.token.for_clients(), streams, plan.entries)

    def stop(self, reason: str) -> None:
        """Have all nodes stop."""
        self._order(lambda: self._coordinator.stop(reason))

    def fail(self, error: str) -> None:
        """The query cannot go on, for a reason outside of the nodes."""
        self._order(lambda: self._coordinator.fail(error))

    def _order(self, call: Callable[[], list[CoordinatorCommand]]) -> None:
        self._orders.append(call)
        self._wakeup.set()

    def status(self) -> dict[str, dict[str, Any]]:
        """What is known of each node."""
        peers = self._coordinator.peers()
        return {
            name: {
                "address": peers[name].address if name in peers else None,
                "epoch": each.epoch,
                "running": each.connection is not None,
                "replaced": dict(each.replaced),
                "pid": self._coordinator.pid_of(name),
                "server": self._coordinator.server_of(name),
                "standbys": self._coordinator.standbys_of(name),
                **each.progress,
            }
            for name, each in self._coordinator.nodes.items()
        }

    @property
    def running(self) -> list[str]:
        """Nodes that run now."""
        return self._coordinator.running

    def pid_of(self, node: str) -> int | None:
        """The process that runs a node, as it says itself; None when the node does not run."""
        return self._coordinator.pid_of(node)

    @property
    def over(self) -> bool:
        """Whether the query has ended: until then every node is wanted."""
        return self.ended.is_set()

    def reached(self, node: str) -> float | None:
        """How far a node has come, where that is known."""
        return self._coordinator.nodes[node].reached

    def signal(self, node: str, sign: Signals) -> bool:
        """Send a signal to the process of a node; False when it is none of this machine."""
        status, pid = self._coordinator.nodes.get(node), self._coordinator.pid_of(node)
        connection = None if status is None else self._connections.get(status.connection or 0)
        return bool(connection is not None and pid and signal_peer(connection, pid, sign))

    def close(self) -> None:
        """Stop serving and give the folder back."""
        self._closing = True
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._loop.forget_wakeup(self._wakeup)
        self._loop.close()
        self._listener.close()
        with suppress(FileNotFoundError):
            (self._folder / ENDPOINT_FILE).unlink()
        self._store.unlock()
        self._store.close()

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            self._loop.run_once(_TICK_SECONDS)

    def _died(self, error: str) -> None:
        """This thread ends: nobody may wait for it, and nodes shall notice at once."""
        self.error = error
        self._announce_end()
        for connection in list(self._connections.values()):
            connection.close()

    def _take_orders(self) -> None:
        while self._orders:
            self._perform(self._orders.pop(0)())

    def _tick(self) -> None:
        self._perform(self._coordinator.tick(time.monotonic() * 1e3))
        self._loop.call_after(_TICK_SECONDS, self._tick)

    def _note(self, node: str, what: str) -> None:
        status = self._coordinator.nodes.get(node)
        epoch = 0 if status is None else status.epoch
        self.history.append(Happening(time.monotonic(), node, what, epoch))
        alarming = what in _ALARMING and not self._coordinator.over
        level = logging.WARNING if alarming else logging.INFO
        _log.log(level, "query %s: node %s %s, epoch %d", self._name, node, what, epoch)

    # --- what nodes and clients say (Handler) ------------------------------------------------

    def authenticated(self, connection: Connection) -> None:
        """It speaks first."""
        number = len(self._numbers) + 1 if not self._numbers else max(self._numbers.values()) + 1
        self._numbers[connection] = number
        self._connections[number] = connection

    def received(self, connection: Connection, messages: list[Any]) -> None:
        """Registrations, heartbeats, ends."""
        for message in messages:
            number = self._numbers.get(connection)
            if number is not None:
                self._perform(self._take(connection, number, message))

    def _take(self, connection: Connection, number: int, message: Any) -> list[CoordinatorCommand]:
        now_ms = time.monotonic() * 1e3
        match message:
            case Register(node=node):
                self._points.hit("coordinator.registered")
                self._note(node, "registered")
                return self._coordinator.registered(number, message, now_ms)
            case Heartbeat(node=node):
                if message.progress.get("standby"):
                    return self._coordinator.heartbeat(number, message, now_ms)
                self._note_recovery(node, message.progress)
                if warning := self._late.heard(node, message.progress):
                    _warnings.warning("query %s: %s", self._name, warning)
                return self._coordinator.heartbeat(number, message, now_ms)
            case InSync(node=node):
                self._note(node, "in sync")
                return self._coordinator.in_sync(number, message)
            case KeepBookmark():
                return self._coordinator.keep_bookmark(number, message)
            case Finished(node=node):
                self._points.hit("coordinator.finished_node")
                self._note(node, "finished")
                return self._coordinator.finished(number, message)
            case Failed(node=node):
                self._note(node, "failed")
                return self._coordinator.failed(number, message)
            case Find(stream):
                connection.send(self._found(stream))
        return []

    def _note_recovery(self, node: str, progress: dict[str, Any]) -> None:
        """Remember when a node was first seen to have caught up, or stalled."""
        status = self._coordinator.nodes.get(node)
        stalled = bool(progress.get("stalled"))
        if status is not None and stalled != bool(status.progress.get("stalled")):
            said = progress.get("trouble") or "there is no room on its disk"
            how = f"waits: {said}" if stalled else "goes on"
            _log.warning("query %s: node %s %s", self._name, node, how)
        if status is not None and status.progress.get("recovering") and not progress["recovering"]:
            self._note(node, "replayed")

    def _found(self, stream: str) -> Found:
        places = self._coordinator.plan.places(stream)
        peers = self._coordinator.peers()
        found = [
            [node, output, *peers[node].address, peers[node].epoch, shard]
            for shard, (node, output) in enumerate(places)
            if node in peers
        ]
        over, error = self.ended.is_set(), self.error or ""
        return Found(stream, len(places), found, over, error, self.misfit)

    def closed(self, connection: Connection) -> None:
        """A server died, or a client left."""
        number = self._numbers.pop(connection, None)
        if number is None:
            return
        self._connections.pop(number, None)
        over = self._coordinator.over
        for node in self._coordinator.nodes_of(number):
            self._points.hit("coordinator.lost_node")
            self._note(node, "left" if over else "lost")
        for node in self._coordinator.standing_by(number):
            self._note(node, "left" if over else "lost standby")
        self._perform(self._coordinator.disconnected(number))

    # --- commands ----------------------------------------------------------------------------

    def _perform(self, commands: list[CoordinatorCommand]) -> None:
        for command in commands:
            match command:
                case Persist():
                    self._unkept = command
                    if not self._awaits_room:
                        self._persist()
                case Tell(number, message):
                    self._points.hit("coordinator.welcoming")
                    if number in self._connections:
                        self._connections[number].send(message)
                case HangUp(number):
                    self._hang_up(number)
                case KillServer(nodes, pid, number):
                    for node in nodes:
                        self._note(node, "silent")
                    if number in self._connections:
                        signal_peer(self._connections[number], pid, SIGKILL)
                case EndQuery(error, misfit):
                    self._points.hit("coordinator.stopping")
                    self.error, self.misfit = error, misfit
                    if self._coordinator.complete:
                        # Without room it is not said: who follows a log then waits on.
                        with suppress(StorageFault):
                            _write_streams(self._store, self._coordinator.plan, ended=True)
                    self._announce_end()

    def _persist(self) -> None:
        """Keep the state; without room again and again, and nobody is welcomed until then."""
        command, self._awaits_room = self._unkept, False
        if command is None:
            return
        self._points.hit("coordinator.before_persist")
        try:
            _write_state(self._store, command.state)
        except StorageFull as error:
            self._coordinator.stalled(str(error))
            self._awaits_room = True
            self._loop.call_after(_FULL_SECONDS, self._persist)
            return
        self._points.hit("coordinator.after_persist")
        self._unkept = None
        self._perform(self._coordinator.persisted(command.version))

    def _hang_up(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._numbers.pop(connection, None)
            connection.finish(self._loop.now())

    def _announce_end(self) -> None:
        if self.error is not None:
            _log.error("query %s failed: %s", self._name, self.error)
        self.ended.set()


def _read_state(store: LocalStore) -> dict[str, Any] | None:
    if STATE_FILE not in store.names():
        return None
    return decode_state(store.read(STATE_FILE, 0, store.size(STATE_FILE)))


def _write_state(store: LocalStore, state: dict[str, Any]) -> None:
    try:
        publish(store, STATE_FILE, encode_state(state))
    except FileNotFoundError as error:
        raise StorageFault(
            f"cannot keep {STATE_FILE}: the folder {store.path} was deleted while it was in use; "
            "restore it from a backup, or start anew in another one"
        ) from error


def _write_streams(store: LocalStore, plan: Plan, *, ended: bool = False) -> None:
    said = {"streams": plan.streams} | ({"ended": True} if ended else {})
    text = json.dumps(said, indent=1).encode()
    known = STREAMS_FILE in store.names()
    if not known or store.read(STREAMS_FILE, 0, store.size(STREAMS_FILE)) != text:
        publish(store, STREAMS_FILE, text)


__all__ = ["STATE_FILE", "CoordinatorHost", "Happening"]
