"""One simulated attempt to run a node: performs the node's commands in virtual time.

Its life: be told an epoch, open the log as that epoch, rebuild the node, then feed it and do what
it says for as long as its server lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from rewake.graph.plan.plan import NodePlan
from rewake.log.files.lineage import LogRecord
from rewake.log.files.sealed import sealed, unsealed
from rewake.log.store import publish
from rewake.model.connectors import SinkWriter, SourceReader
from rewake.model.errors import Fenced, OutOfRange, StorageFault, WriterFailed
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.channels import Channels
from rewake.node.channels.lane import Hearer, Lane
from rewake.node.commands import (
    Acknowledge,
    Announce,
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
    LinkCommand,
    NodeCommand,
    ReadLog,
    Remember,
    Rest,
    Send,
    Tell,
    Trim,
)
from rewake.node.coordinator.failure_detector import HEARTBEAT_MS
from rewake.node.messages import (
    Finished,
    Heartbeat,
    KeepBookmark,
    Packet,
    Peer,
    Refused,
    Welcome,
)
from rewake.node.node import Node
from rewake.node.standing_by import StandingBy
from rewake.node.whereabouts import Whereabouts
from rewake.recovery.approach import Kept
from rewake.recovery.driven import LogSoFar, Say, Vouch, Wake
from rewake.sim.disk import TimedLog
from rewake.sim.lives.notes import begin_promise, check_promise
from rewake.sim.memory import PowerLost
from rewake.sim.network import Connection, Endpoint

if TYPE_CHECKING:
    from rewake.sim.cluster import Cluster
    from rewake.sim.server import Server

_ORIGINS = "origins.json"
_TICK_MS = 50.0


class Call:
    """A connection as a node has it: one end, and who hears what comes."""

    def __init__(self, server: Endpoint, connection: Connection, hearer: Hearer) -> None:
        self._server = server
        self._connection = connection
        self.hearer = hearer

    def send(self, message: object) -> None:
        """Say something."""
        self._connection.send(self._server, message)

    def finish(self) -> None:
        """End it behind what was said."""
        self._connection.close(self._server)


class NodeHost:
    """One attempt of a node, on one life of a server."""

    def __init__(self, cluster: Cluster, server: Server, plan: NodePlan) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.server = server
        self.plan = plan
        self.epoch = 0
        self.node: Node | None = None
        self.log: TimedLog | None = None
        self._known: LogRecord | None = None
        self._origins: dict[str, Any] | None = None
        self._others = Whereabouts()
        self._channels: Channels | None = None
        # While it stands by; then what it held.
        self._standing: StandingBy | None = None
        self._past = LogSoFar()
        # Links by their number here, which is not that of the network.
        self._links: dict[int, Call | Lane] = {}
        self._link_of: dict[Call | Lane, int] = {}
        self._sources: dict[int, SourceReader] = {}
        self._reading: set[int] = set()
        self._ended: set[int] = set()
        self._sink: SinkWriter | None = None
        self._committing = False
        self._working = False
        self._told = 0
        self.after = server.after
        self.die = server.die

    @property
    def alive(self) -> bool:
        """Whether its server is."""
        return self.server.alive

    def say(self, what: str) -> None:
        """Add a line to the story."""
        several = len(self.cluster.machines[self.server.machine]) > 1
        self.server.say(f"{self.plan.name}: {what}" if several else what)

    def died(self) -> None:
        """Its server has died."""
        if self.log is not None:
            self.log.cut_short()

    # --- beginning ---------------------------------------------------------------------------

    def welcomed(self, message: Welcome) -> None:
        """Here is its epoch."""
        first = not self.epoch
        self.epoch = message.epoch
        self._known = message.log
        self.cluster.archive.welcomed(self.plan.name, message.epoch)
        self._others.welcomed(message.peers)
        self.say(f"has epoch {message.epoch}{', to stand by' if message.standby else ''}")
        if first:
            self._heartbeat()
        if message.standby:
            place = self.cluster.places[self.server.machine][self.plan.name]
            self._standing = StandingBy(self.plan, place, self.epoch, message.peers, count(1))
            self._stand(self._standing.start())
            return
        if self._standing is not None:
            commands, self._past = self._standing.promoted()
            self._stand(commands)
            self._standing = None
        self._past = replace(self._past, bookmark=message.bookmark)
        self.after(self.world.between(0.5, 20), self._guarded(self._open))

    def _open(self) -> None:
        past = self._past
        if self.plan.kept is Kept.IN_LOG:
            disk = self.cluster.disks[self.plan.name]
            self.log = TimedLog(
                self.server, disk, self.epoch, writer=self.cluster.kinds.writer, known=self._known
            )
            self.log.on_durable = self._durable
            self.log.on_failure = self._log_failed
            self._told = self.log.next_sequence
            self.cluster.archive.opened(self.plan.name, self.log)
            past = LogSoFar(
                self.log.frames_backwards(),
                self.log.next_sequence,
                self.log.next_position,
                self.log.lineage,
            )
        origins = self._origins = self._read_origins()
        node = self.cluster.kinds.node(
            self.plan, self.epoch, past, limits=self.cluster.limits, origins=origins
        )
        at = f"frame {past.next_sequence}, position {past.next_position}"
        self.say(f"recovers: {at}, recovering {node.recovering}")
        begin_promise(node)
        self.after(self.world.between(0.1, 10), self._guarded(lambda: self._begin(node)))

    def _read_origins(self) -> dict[str, Any] | None:
        store = self.cluster.disks[self.plan.name].store
        if _ORIGINS not in store.names():
            return None
        return unsealed(store.read(_ORIGINS, 0, store.size(_ORIGINS)), _ORIGINS, "")

    def _remember(self, origins: dict[str, Any]) -> None:
        if origins != self._origins:
            publish(self.cluster.disks[self.plan.name].store, _ORIGINS, sealed(origins))
            self._origins = origins

    def _begin(self, node: Node) -> None:
        self.node = node
        self._channels = self.cluster.kinds.channels(node, self._others, count(1))
        for number, each in enumerate(self.plan.inputs):
            if each.source is not None:
                self._sources[number] = each.source.open(self.plan.shard, self.plan.shards)
        committed: list[int] = []
        if self.plan.sink is not None:
            self._sink = self.plan.sink.open(
                self.plan.shard, self.plan.shards, node.plan.inputs[0].schema
            )
            committed = [self._sink.position(number) for number in range(len(self.plan.inputs))]
        self._do("start", lambda: node.start(committed))
        self.server.reception.opened(self.plan.name)
        self._tick()

    def _guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """Turn what the surroundings may do to a process into its end."""

        def guarded() -> None:
            try:
                action()
            except (Fenced, WriterFailed, StorageFault) as error:
                self.die(f"{type(error).__name__}: {error}")
            except PowerLost:
                self.cluster.lose_power(self.server.machine)

        return guarded

    # --- the node ----------------------------------------------------------------------------

    def _do(self, what: str, event: Callable[[], Sequence[HostCommand]]) -> None:
        """Feed the node one event and perform what it answers."""
        assert self.node is not None
        commands = event()
        if self._channels is not None:
            self._channels.check_invariants()
        if commands:
            self.say(f"{what} -> {' '.join(map(_brief, commands))}")

        def perform() -> None:
            for command in commands:
                self._count_down()
                if not self.alive:
                    return
                self._perform(command)

        self._guarded(perform)()
        self._poke()

    def _count_down(self) -> None:
        server = self.server
        if server.commands_to_live is None:
            return
        server.commands_to_live -= 1
        if server.commands_to_live < 0:
            self.die("killed between two commands")

    def _poke(self) -> None:
        """Take turns, and read sources, as long as there is something to do."""
        if not self.alive or self.node is None:
            return
        if not self._working and self.node.ready:
            self._working = True
            self.after(self.world.between(0.02, 1.0), self._work)
        for channel in self._sources:
            if channel not in self._reading and channel not in self._ended:
                self._reading.add(channel)
                self.after(self.world.between(0.1, self.cluster.pace_ms), self._reader_of(channel))

    def _work(self) -> None:
        node = self.node
        assert node is not None
        self._working = False
        before, channels = node.turns, range(len(self.plan.inputs))
        consumed = [node.merge.consumed(channel) for channel in channels]
        commands = node.work(self.world.now_ms, self.world.now_ms)
        check_promise(node, self.world, worked=node.turns > before)
        if self.plan.kept is Kept.NOWHERE:
            self.cluster.lives.note(node, consumed)
        if node.turns > before or commands:
            self._do("turn", lambda: commands)

    def _reader_of(self, channel: int) -> Callable[[], None]:
        def read() -> None:
            node = self.node
            assert node is not None
            self._reading.discard(channel)
            if channel in self._ended or not node.wants(channel):
                return
            event = self._sources[channel].read(self.world.now_ms)
            if event is not None:
                self._do(
                    f"source {channel} [{event.start}, {event.end})", self._arrived(channel, event)
                )
            elif self._sources[channel].ended:
                self._ended.add(channel)
                self._do(f"source {channel} ended", lambda: node.source_ended(channel))

        return read

    def _arrived(self, channel: int, item: Packet | StreamEvent) -> Callable[[], list[NodeCommand]]:
        assert self.node is not None
        node = self.node
        return lambda: node.arrived(channel, item)

    def _tick(self) -> None:
        node = self.node
        assert node is not None
        self._do("tick", lambda: node.tick(self.world.now_ms))
        self.after(_TICK_MS, self._tick)

    def _heartbeat(self) -> None:
        progress = {} if self.node is None else self.node.progress()
        if self.node is not None:
            progress["recovering"] = self.node.recovering
        record = None if self.log is None else self.log.record
        self.server.tell(Heartbeat(self.plan.name, self.epoch, progress, record))
        self.after(HEARTBEAT_MS, self._heartbeat)

    def _durable(self, frames: int) -> None:
        assert self.node is not None
        assert self.log is not None
        told = range(self._told, frames)
        self._told = frames
        self.cluster.archive.durable(self.plan.name, self.log, told, self.epoch)
        node = self.node
        self._do(f"durable {frames}", lambda: node.durable(frames))

    def _log_failed(self, error: Exception) -> None:
        if isinstance(error, PowerLost):
            self.cluster.lose_power(self.server.machine)
            return
        self.die(f"{type(error).__name__}: {error}")

    # --- commands ----------------------------------------------------------------------------

    def _perform(self, command: HostCommand) -> None:
        match command:
            case Append(record):
                assert self.log is not None
                self.log.append(record)
                if self.server.on_append is not None:
                    self.world.schedule(self.world.between(0, 2), self.server.on_append)
                    self.server.on_append = None
            case Connect(channel, position) if channel in self._sources:
                self._sources[channel].seek(max(position, 0))
                self._ended.discard(channel)
            case Connect() | Answer() | Disconnect():
                assert self._channels is not None
                for each in self._channels.carry(command):
                    self._carry_out(each)
            case Dial() | Tell() | HangUp() | Rest():
                self._carry_out(command)
            case Acknowledge(channel, ack):
                assert self._channels is not None
                link = self._channels.link_of(channel)
                if link is not None:
                    self._tell(link, ack)
            case Send(link, packet):
                self.cluster.archive.sent(self.plan.name, packet.end)
                self._tell(link, packet)
            case Say() | Vouch():
                assert self._channels is not None
                for each in self._channels.carry(command):
                    self._perform(each)
            case Announce(message):
                self.server.tell(message)
            case Wake(ms):
                self.after(ms, self._woke)
            case ReadLog():
                self._read_later(command)
            case Confirm(link, ack):
                self._tell(link, ack)
            case Deliver(channel, event):
                assert self._sink is not None
                self._sink.write(channel, event)
                self._commit_later()
            case Trim(before):
                if self.log is not None and not self.plan.keeps_history:
                    self.log.trim(before)
            case Remember(origins):
                self._remember(origins)
            case Finish():
                self.server.tell(Finished(self.plan.name, self.epoch))

    def _woke(self) -> None:
        node = self.node
        assert node is not None
        self._do("woke", lambda: node.woke(self.world.now_ms))

    def bookmark_kept(self, message: KeepBookmark) -> None:
        """The coordinator has kept it, for this attempt."""
        node = self.node
        if node is not None and message.epoch == self.epoch:
            self._do("bookmark kept", lambda: node.bookmark_kept(message.bookmark))

    def place_lost(self, place: int, epoch: int) -> None:
        """An attempt that stood by is gone for good."""
        channels = self._channels
        if channels is not None:
            self._do(f"place {place} is lost", lambda: channels.place_lost(place, epoch))
        else:
            self._others.place_lost(place, epoch)

    # --- standing by -------------------------------------------------------------------------

    def _stand(self, commands: Sequence[LinkCommand]) -> None:
        for command in commands:
            self._carry_out(command)

    def _read_later(self, command: ReadLog) -> None:
        subscriber = command.subscriber

        def read() -> None:
            assert self.log is not None
            assert self.node is not None
            if subscriber not in self._links:
                return
            node, at_most = self.node, self.world.random.randrange(1, 9)
            try:
                frames = self.log.read_back(command.position, command.sequence, at_most)
            except OutOfRange as error:
                self._do(
                    f"trimmed for {subscriber}", partial(node.outputs.trimmed, subscriber, error)
                )
                return
            if not frames:
                self._read_later(command)
                return
            self._do(
                f"read back {frames[0].sequence}..{frames[-1].sequence} for {subscriber}",
                lambda: node.read_back(subscriber, frames),
            )

        self.after(self.world.between(0.1, 3), self._guarded(read))

    def _commit_later(self) -> None:
        if not self._committing:
            self._committing = True
            self.after(self.world.between(1, 60), self._guarded(self._commit))

    def _commit(self) -> None:
        assert self._sink is not None
        assert self.node is not None
        self._committing = False
        self._sink.commit()
        node = self.node
        for channel in range(len(self.plan.inputs)):
            position = self._sink.position(channel)
            self._do(f"delivered {channel} {position}", partial(node.delivered, channel, position))

    # --- links -------------------------------------------------------------------------------

    def _tell(self, link: int, message: object) -> None:
        line = self._links.get(link)
        if line is not None:
            line.send(message)

    def _carry_out(self, command: LinkCommand) -> None:
        match command:
            case Tell(link, message):
                self._tell(link, message)
            case Dial(link, address, message):
                self.say(f"dials {message}")
                line = self.server.dial(address, self)
                if line is None:
                    # Nobody there: it hears of that a moment later, as of every end.
                    self.after(0.0, self._as_now(lambda: self._link_ended(link)))
                    return
                self._keep(link, line)
                line.send(message)
            case HangUp(link):
                gone = self._links.pop(link, None)
                if gone is not None:
                    del self._link_of[gone]
                    gone.finish()
            case Rest(channel, ms):
                self.after(ms, self._as_now(lambda: self._rested(channel)))

    def _keep(self, link: int, line: Call | Lane) -> None:
        self._links[link] = line
        self._link_of[line] = link

    def _as_now(self, action: Callable[[], None]) -> Callable[[], None]:
        """Act later, unless the place is promoted meanwhile: then its links were others."""
        standing = self._standing

        def act() -> None:
            if self._standing is standing:
                action()

        return act

    def _rested(self, channel: int) -> None:
        if self._standing is not None:
            self._stand(self._standing.rested())
            return
        channels = self._channels
        assert channels is not None
        self._do(f"channel {channel} has rested", lambda: channels.rested(channel))

    def _link_ended(self, link: int) -> None:
        if self._standing is not None:
            self._stand(self._standing.closed(link))
            return
        channels = self._channels
        assert channels is not None
        self._do(f"link {link} has ended", lambda: channels.closed(link))

    # --- messages ----------------------------------------------------------------------------

    def admit(self, line: Call | Lane, messages: list[object]) -> None:
        """Somebody has come to this node, which is open, and has said this so far."""
        assert self._channels is not None
        line.hearer = self
        self._keep(self._channels.accept(), line)
        self.received(line, messages)

    def received(self, line: Call | Lane, messages: list[object]) -> None:
        """On a link, as long as there is one."""
        for message in messages:
            if self.alive and line in self._link_of:
                self._heard(self._link_of[line], message)

    def closed(self, line: Call | Lane) -> None:
        """A link has ended."""
        link = self._link_of.pop(line, None)
        if link is not None:
            del self._links[link]
            self._link_ended(link)

    def _heard(self, link: int, message: object) -> None:
        standing, channels = self._standing, self._channels
        if standing is not None:
            self._guarded(lambda: self._stand(standing.received(link, message)))()
            return
        assert channels is not None
        if isinstance(message, Refused):
            self.say(f"is refused: {message.reason}")
            if not message.fenced:
                self.cluster.refused(self.plan.name, message)
        what = f"{link} says {_brief(message)}"
        self._guarded(lambda: self._do(what, lambda: channels.received(link, message)))()

    def moved(self, name: str, peer: Peer | None) -> None:
        """Another node runs elsewhere, or nowhere."""
        channels = self._channels
        if self._standing is not None:
            self._stand(self._standing.moved(name, peer))
        elif channels is not None:
            self._do(f"{name} is {peer}", lambda: channels.moved(name, peer))
        else:
            self._others.moved(name, peer)


def _brief(value: object) -> str:
    """A command or packet as a few words."""
    match value:
        case Packet(start, end, rows, watermark, _, final):
            mark = "" if watermark is None else f" w{watermark}"
            return f"[{start}, {end}) {rows}{mark}{' final' if final else ''}"
        case Append(record):
            return f"Append(t_end={record.t_end} N={record.open_windows} tuples={record.tuples})"
        case Send(subscriber, packet):
            return f"Send({subscriber}: {_brief(packet)})"
        case Deliver(channel, event):
            return f"Deliver({channel}: [{event.start}, {event.end}))"
    return repr(value)
