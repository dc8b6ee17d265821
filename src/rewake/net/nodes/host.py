"""The real host of a node: one process, one thread for everything but the log's writes.

    coordinator <-> control connection      epoch, peers, heartbeats, stop
    others      <-> `Links`                 packets and acks; what they mean: `Channels`
    log         <-> `NodeLog`               frames

What always holds: the node's commands are performed in the order given, by this thread; an attempt
that learns that it has been superseded writes and sends nothing more.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from rewake.model.connectors import SourceReader
from rewake.model.errors import (
    ArithmeticOverflow,
    Fenced,
    GaveUp,
    HistoryMismatch,
    OperatingFault,
    RewakeError,
    StorageFull,
    Unavailable,
)
from rewake.net.kill_points import KillPoints
from rewake.net.nodes.links import Links
from rewake.net.nodes.log import NodeLog
from rewake.net.nodes.origins_file import read_origins, write_origins
from rewake.net.nodes.own_recovery import OwnRecovery
from rewake.net.nodes.pressure import resident_mib
from rewake.net.nodes.read_back import ReadBack
from rewake.net.nodes.sink import NodeSink
from rewake.net.nodes.task import NodeTask
from rewake.net.nodes.warm import warm_up
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection, Unanswered
from rewake.net.wire.listener import Listener, address_towards
from rewake.net.wire.loop import Loop
from rewake.node.channels.channels import Channels
from rewake.node.channels.origins import SILENT, SinkOrigins
from rewake.node.commands import (
    Acknowledge,
    Answer,
    Append,
    Confirm,
    Connect,
    Deliver,
    Dial,
    Disconnect,
    Finish,
    HangUp,
    HostCommand,
    ReadLog,
    Remember,
    Rest,
    Send,
    Tell,
    Trim,
)
from rewake.node.coordinator.failure_detector import HEARTBEAT_MS
from rewake.node.load import Load
from rewake.node.messages import (
    Ack,
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
from rewake.node.node import Node
from rewake.stores.small_files import has_room

# For the first word with the coordinator.
_REACH_SECONDS = 5.0
_TURNS_PER_ROUND = 4
_IDLE_SECONDS = 0.05
_SOURCE_POLL_SECONDS = 0.002
_COMMIT_SECONDS = 0.05
# How long a sink without room rests before it tries again.
_FULL_SECONDS = 0.25
# How long a turn rests for which a system outside has no answer yet.
_REST_SECONDS = 0.02
_LINGER_SECONDS = 10.0


class CoordinatorLost(OperatingFault):
    """The coordinator cannot be reached, or its connection broke."""


class NodeHost:
    """Runs one attempt of a node until it is stopped, superseded or broken."""

    def __init__(self, task: NodeTask) -> None:
        self._task = task
        self._plan = task.plan
        self._token = Token.from_text(task.token)
        self._points = KillPoints(task.plan.name, task.faults, Path(task.folder))
        self._loop = Loop()
        listen = address_towards(task.coordinator)
        self._listener = Listener(self._token, listen, allow_remote=task.allow_remote)
        self._control: Connection | None = None
        self._reached = False
        self._welcome: Welcome | None = None
        self._stop: str | None = None
        # Its log is closed: what still arrives changes nothing.
        self._left = False
        self._log: NodeLog | None = None
        self._sources: dict[int, SourceReader] = {}
        self._sink: NodeSink | None = None
        self._sink_full = False
        # What a turn or a commit waits for, outside of Rewake; mostly nothing.
        self._trouble = ""
        self._resting = False
        self._load = Load()
        self._node: Node
        self._read_back: ReadBack
        self._channels: Channels | None = None
        self._links: Links
        self._origins: dict[str, Any] | None = None
        self._recovery = OwnRecovery(Path(task.folder), task.plan.name)

    # --- the life of an attempt --------------------------------------------------------------

    def run(self) -> str:
        """Run until stopped; why it was.  Raises Fenced when superseded, and what broke it."""
        self._points.hit("node.start")
        self._register()
        if self._welcome is None:
            assert self._stop is not None
            return self._stop  # it came when the query was over
        try:
            self._recover()
        except StorageFull as error:
            return self._await_room(error)
        if not self._open_ends():
            assert self._stop is not None
            return self._stop  # while it waited for its sink
        return self._serve()

    def close(self) -> None:
        """Close every socket; what is not durable is lost, as it may be."""
        self._loop.close()
        self._listener.close()

    def _register(self) -> None:
        started = self._loop.now()
        unanswered = Unanswered(started)
        while self._welcome is None and self._stop is None:
            if self._control is not None and unanswered.is_late(self._control, self._loop.now()):
                self._control.close()
            if self._control is None or self._control.closed:
                self._call_coordinator()
            self._loop.run_once(0.05)
            # Once reached it may take its time: an epoch is given when there is room to keep it.
            if not self._reached and self._loop.now() > started + _REACH_SECONDS:
                host, port = self._task.coordinator
                raise CoordinatorLost(
                    f"node {self._plan.name!r} cannot reach the coordinator at {host}:{port}; the "
                    "driver must be reachable from the workers under that address"
                )

    def _call_coordinator(self) -> None:
        connection = Connection.connect(self._task.coordinator, self._token, self._loop.now())
        me = socket.gethostname()
        connection.send(Register(self._plan.name, self._listener.address, os.getpid(), me))
        self._control = connection
        self._recovery.registered()
        self._loop.add(connection, self)
        self._points.hit("node.registered")

    def _recover(self) -> None:
        assert self._welcome is not None
        epoch, plan, task = self._welcome.epoch, self._plan, self._task
        self._points.life = epoch
        self._points.hit("node.welcomed")
        frames: Any = ()
        following: dict[str, Any] = {}
        if plan.logs:
            wakeup = self._loop.wakeup(self._on_durable)

            def on_durable(_sequence: int) -> None:
                self._points.hit("writer.durable")
                wakeup.set()

            self._points.hit("recovery.before_fencing")
            folder = Path(task.folder) / "nodes" / plan.name
            known = self._welcome.log
            self._log = NodeLog(
                folder, plan, task.fingerprint, epoch, on_durable, known, task.former_fingerprint
            )
            self._points.hit("recovery.after_fencing")
            frames = self._log.frames_backwards()
            following = {
                "next_sequence": self._log.next_sequence,
                "next_position": self._log.next_position,
                "lineage": self._log.lineage,
            }
        if plan.inputs and plan.sink is None:
            warm_up(plan.program, *plan.input_schemas)
        started = time.perf_counter()
        self._points.hit("recovery.before_loading")
        origins = self._origins = read_origins(Path(task.folder), plan.name)
        self._node = Node.recover(
            plan, epoch, frames, limits=task.limits, origins=origins, **following
        )
        self._points.hit("recovery.after_loading")
        load_ms = (time.perf_counter() - started) * 1e3
        anew = not following.get("next_sequence")
        self._recovery.loaded(self._node, task.costs, load_ms, anew=anew)

    def _await_room(self, error: StorageFull) -> str:
        """Without room to begin in, wait for some; then let another attempt begin, with its epoch.

        This one may have claimed its log, and a claim is good for one opening.
        """
        log = Path(self._task.folder) / "nodes" / self._plan.name
        room = False
        while self._stop is None and not room:
            self._wait_for(error)
            room = has_room(log)
        if self._stop is None:
            raise error
        return self._stop

    def _wait_for(self, error: OperatingFault) -> None:
        """Say what there is to wait for, and wait for a while."""
        assert self._control is not None
        assert self._welcome is not None
        told = {"starting": True, "recovering": True, "stalled": True, "trouble": str(error)}
        self._control.send(Heartbeat(self._plan.name, self._welcome.epoch, told))
        until = self._loop.now() + _FULL_SECONDS
        while self._loop.now() < until and self._stop is None:
            self._loop.run_once(_IDLE_SECONDS)

    def _find_sink(self) -> tuple[Sequence[int], SinkOrigins] | None:
        """How far the sink is and whose, as soon as that can be seen; None when stopped before."""
        plan = self._plan
        if plan.sink is None:
            return (), SILENT
        self._sink = NodeSink(plan, self._task.folder, self._origins)
        while self._stop is None:
            try:
                return self._sink.find()
            except (StorageFull, Unavailable) as error:
                self._wait_for(error)
        return None

    def _open_ends(self) -> bool:
        """Open sources, sink and channels; False when it was stopped before it could."""
        plan, node = self._plan, self._node
        for channel, each in enumerate(plan.inputs):
            if each.source is not None:
                self._sources[channel] = each.source.open(plan.shard, plan.shards)
        found = self._find_sink()
        if found is None:
            return False
        assert self._welcome is not None
        self._channels = Channels(node, self._welcome.peers, count(1))
        self._read_back = ReadBack(node, self._log, self._perform)
        self._links = Links(
            self._channels, self._loop, self._token, self._perform, self._read_back.forget
        )
        self._loop.listen(self._listener, self._links)
        self._perform("start", node.start(*found))
        self._heartbeat()
        if self._sink is not None:
            self._commit_later()
        return True

    # --- serving -----------------------------------------------------------------------------

    def _serve(self) -> str:
        while self._stop is None:
            busy = self._read_sources()
            busy = self._take_turns() or busy
            if not busy:
                self._load.rested(time.monotonic() * 1e3)
                self._hurry()
            self._loop.run_once(0.0 if busy else self._patience())
        self._points.hit("node.stopping")
        return self._leave()

    def _patience(self) -> float:
        if self._read_back.waiting:
            return 0.001
        return _SOURCE_POLL_SECONDS if self._sources else _IDLE_SECONDS

    def _read_sources(self) -> bool:
        busy = False
        for channel, source in self._sources.items():
            if not self._node.wants(channel):
                continue
            event = source.read(time.time() * 1e3)
            if event is not None:
                self._perform("arrived", self._node.arrived(channel, event))
                busy = True
            elif source.ended and not self._node.merge.announced_end(channel):
                self._perform("source_ended", self._node.source_ended(channel))
                busy = True
        return busy

    def _take_turns(self) -> bool:
        node, now_ms = self._node, time.monotonic() * 1e3
        busy = False
        if self._sink_full:
            return busy  # what waits for room is in memory: take no more
        for _ in range(0 if self._resting else _TURNS_PER_ROUND):
            self._points.hit("node.before_work")
            before = node.turns
            if self._recovery.replaying:
                self._points.hit("recovery.replaying")
            # What it worked, not what it waited for a processor: the budget is one of work.
            started = time.thread_time()
            try:
                commands = node.work(now_ms, time.time() * 1e3)
            except Unavailable as error:
                self._rest(error)
                break
            self._trouble = ""
            if self._recovery.rates is not None and not self._recovery.replaying:
                node.took(self._recovery.rates, (time.thread_time() - started) * 1e6)
            if commands:
                self._perform("work", commands)
                self._hurry()
            if node.turns == before:
                break
            busy = True
            self._recovery.took_a_turn()
        if self._recovery.replaying and not node.recovering:
            self._points.hit("recovery.replayed")
            self._recovery.replayed(node)
        self._read_back.read()
        return busy

    def _hurry(self) -> None:
        """Results of a node that keeps up do not wait for company on their way to the disk."""
        if self._log is not None and self._load.keeps_up(time.monotonic() * 1e3):
            self._log.hurry()

    def _rest(self, error: Unavailable) -> None:
        """Take the same turn again after a while; input waits, and upstreams with it."""
        self._trouble = str(error)
        self._resting = True
        self._loop.call_after(_REST_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._resting = False

    def _on_durable(self) -> None:
        assert self._log is not None
        self._points.hit("node.before_durable")
        self._perform("durable", self._node.durable(self._log.durable()))
        if "resumed_at" not in self._recovery.timings and not self._node.recovering:
            # The machine's own clock, so that whoever watches from outside can compare.
            self._recovery.timings["resumed_at"] = time.monotonic()

    def _heartbeat(self) -> None:
        self._tell_progress()
        self._perform("tick", self._node.tick(time.monotonic() * 1e3))
        self._recovery.look_around()
        self._recovery.keep_rates_at(self._loop.now(), self._node)
        self._loop.call_after(HEARTBEAT_MS / 1e3, self._heartbeat)

    def _tell_progress(self) -> None:
        assert self._control is not None
        progress: dict[str, Any] = self._node.progress() | self._recovery.timings
        progress["recovering"] = self._node.recovering
        foretelling = self._node.foretelling
        if foretelling is not None and foretelling.advice:
            progress["advice"] = foretelling.advice
        if self._trouble:
            progress["trouble"] = self._trouble
        progress["rss_mib"] = resident_mib()
        if self._sink is not None:
            progress["stalled"] = self._sink_full
        if self._log is not None:
            progress["stalled"] = self._log.stalled or bool(self._trouble)
            self._log.durable()  # raises when the writer has stopped
        record = None if self._log is None else self._log.record
        self._control.send(Heartbeat(self._plan.name, self._node.epoch, progress, record))

    # --- commands ----------------------------------------------------------------------------

    def _perform(self, event: str, commands: Sequence[HostCommand]) -> None:
        """Do what an event of the node asks for; of one that has left, nothing more."""
        if self._left:
            return
        self._points.hit(f"node.after_{event}")
        for command in commands:
            name = type(command).__name__
            self._points.hit(f"channel.before_{name}")
            self._perform_one(command)
            self._points.hit(f"channel.after_{name}")

    def _perform_one(self, command: HostCommand) -> None:
        match command:
            case Append(record):
                assert self._log is not None
                self._log.append(record)
            case Send(link, message) | Confirm(link, message):
                self._links.tell(link, message)
            case Acknowledge(channel, ack):
                self._acknowledge(channel, ack)
            case Connect(channel, position) if channel in self._sources:
                self._sources[channel].seek(max(position, 0))
            case Connect() | Answer() | Disconnect():
                assert self._channels is not None
                for each in self._channels.carry(command):
                    self._links.carry_out(each)
            case Dial() | Tell() | HangUp() | Rest():
                self._links.carry_out(command)
            case ReadLog(subscriber, position, sequence):
                self._read_back.wanted(subscriber, position, sequence)
            case Deliver(channel, event):
                assert self._sink is not None
                self._sink.write(channel, event)
            case Trim(before):
                assert self._log is not None
                self._log.trim(before)
            case Remember(origins):
                if origins != self._origins:
                    write_origins(Path(self._task.folder), self._plan.name, origins)
                    self._origins = origins
                if self._sink is not None:
                    self._sink.bind(origins)
                    if not self._node.origins.awaited:
                        self._sink.open()
            case Finish():
                assert self._control is not None
                self._tell_progress()  # its last figures are those of all its work
                self._control.send(Finished(self._plan.name, self._node.epoch))

    def _acknowledge(self, channel: int, ack: Ack) -> None:
        assert self._channels is not None
        link = self._channels.link_of(channel)
        if link is not None:
            self._links.tell(link, ack)

    def _commit_later(self) -> None:
        self._loop.call_after(_COMMIT_SECONDS, self._commit)

    def _commit(self) -> None:
        assert self._sink is not None
        self._points.hit("node.before_commit")
        try:
            positions = self._sink.commit()
        except (StorageFull, Unavailable) as error:
            self._trouble = str(error)
            self._sink_full = True
            self._loop.call_after(_FULL_SECONDS, self._commit)
            return
        self._sink_full = False
        self._trouble = ""
        self._points.hit("node.after_commit")
        for channel, position in enumerate(positions or ()):
            self._perform("delivered", self._node.delivered(channel, position))
        self._commit_later()

    # --- what the coordinator says (Handler) -------------------------------------------------

    def authenticated(self, connection: Connection) -> None:  # noqa: ARG002
        """The registration is under way."""
        self._reached = True

    def received(self, connection: Connection, messages: list[Any]) -> None:  # noqa: ARG002
        """Epoch, peers, orders."""
        for message in messages:
            match message:
                case Welcome():
                    self._welcome = message
                case PeerMoved(name, peer):
                    self._peer_moved(name, peer)
                case Stop(reason):
                    self._stop = reason
                case Superseded(epoch):
                    raise Fenced(f"node {self._plan.name!r} runs elsewhere with epoch {epoch}")
                case Refused(reason):
                    raise OperatingFault(f"the coordinator refused {self._plan.name!r}: {reason}")

    def _peer_moved(self, name: str, peer: Peer | None) -> None:
        if self._channels is not None:
            commands = self._channels.moved(name, peer)
            if commands:
                self._perform("lost", commands)
        elif self._welcome is not None and peer is not None:
            self._welcome.peers[name] = peer

    def closed(self, connection: Connection) -> None:
        """Without its coordinator a node does not know whether it may go on: it ends."""
        if connection is self._control and self._reached:
            raise CoordinatorLost(
                f"node {self._plan.name!r} lost its coordinator: {connection.ended}"
            )

    # --- the end -----------------------------------------------------------------------------

    def _leave(self) -> str:
        """Let subscribers have what is durable, then close."""
        assert self._stop is not None
        if self._sink is not None:
            # Without room: the next run delivers it again, from the upstream's log.
            with suppress(StorageFull, Unavailable):
                self._sink.commit()
            self._sink.close()
        self._serve_clients()
        if self._log is not None:
            self._log.close()
            self._tell_end()
        for source in self._sources.values():
            source.close()
        return self._stop

    def _tell_end(self) -> None:
        """Let the coordinator remember where the log ends, so that an older copy is told apart."""
        self._left = True
        if self._control is not None and not self._control.closed:
            self._tell_progress()
            self._hang_up()

    def _hang_up(self) -> None:
        assert self._control is not None
        self._control.finish(self._loop.now())
        deadline = self._loop.now() + 2.0
        while not self._control.closed and self._loop.now() < deadline:
            self._loop.run_once(0.02)

    def _serve_clients(self) -> None:
        """Of a stream that is over, clients shall have the end; of one that is cut off, no more."""
        deadline = self._loop.now() + (_LINGER_SECONDS if self._node.finished else 0.0)
        while self._loop.now() < deadline:
            if self._node.outputs.served and not self._links.unsent_bytes:
                return
            self._loop.run_once(0.01)
            self._read_back.read()

    def fail(self, error: Exception) -> None:
        """Tell the coordinator that a restart would not help, and wait for its stop."""
        if self._control is None or self._control.closed:
            return
        epoch = 0 if self._welcome is None else self._welcome.epoch
        text = str(error) if isinstance(error, RewakeError) else f"{type(error).__name__}: {error}"
        misfit = isinstance(error, HistoryMismatch)
        self._control.send(Failed(self._plan.name, epoch, text, misfit=misfit))
        self._hang_up()

    def say(self, text: str) -> None:
        """Tell the coordinator why this attempt ends, and wait for nothing: another is to begin."""
        if self._welcome is not None and self._control is not None and not self._control.closed:
            self._control.send(Failed(self._plan.name, self._welcome.epoch, text, fatal=False))
            self._control.finish(self._loop.now())


def run_node(task: NodeTask) -> str:
    """Run one attempt of a node in this process; see `NodeHost.run`."""
    host = NodeHost(task)
    try:
        return host.run()
    except (ArithmeticOverflow, GaveUp) as error:
        host.fail(error)  # the next attempt would meet the same tuples, or wait as long
        raise
    except OperatingFault as error:
        host.say(str(error))  # another attempt may fare better
        raise
    except Exception as error:
        host.fail(error)
        raise
    except BaseException as error:  # sys.exit in a function of the query: nobody told it to leave
        host.say(f"a function of the query raised {type(error).__name__}({error})")
        raise
    finally:
        host.close()
