"""A node that is open: its sources, its turns, its commands, its sink.

What always holds: the node's commands are performed in the order given, by the server's one thread;
of a node that has left, nothing more is performed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from rewake.model.errors import StorageFull, Unavailable
from rewake.net.kill_points import KillPoints
from rewake.net.nodes.links import Links
from rewake.net.nodes.opening import FULL_SECONDS, Opened
from rewake.net.nodes.origins_file import write_origins
from rewake.net.nodes.own_recovery import OwnRecovery
from rewake.net.nodes.pressure import resident_mib
from rewake.net.nodes.read_back import ReadBack
from rewake.net.nodes.share import Share
from rewake.net.nodes.task import NodeTask
from rewake.node.channels.channels import Channels
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
    ReadLog,
    Remember,
    Rest,
    Send,
    Tell,
    Trim,
)
from rewake.node.coordinator.failure_detector import HEARTBEAT_MS
from rewake.node.load import Load
from rewake.node.messages import Ack, Finished, Heartbeat, Peer
from rewake.node.whereabouts import Whereabouts
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.driven import Say, Vouch, Wake

__all__ = ["Serving"]

_TURNS_PER_ROUND = 4
_IDLE_SECONDS = 0.05
_SOURCE_POLL_SECONDS = 0.002
_READ_BACK_SECONDS = 0.001
_COMMIT_SECONDS = 0.05
# How long a turn rests for which a system outside has no answer yet.
_REST_SECONDS = 0.02


class Serving:
    """An open node, until its server leaves."""

    def __init__(
        self,
        task: NodeTask,
        opened: Opened,
        others: Whereabouts,
        share: Share,
        points: KillPoints,
        recovery: OwnRecovery,
    ) -> None:
        self._plan = task.plan
        self._folder = Path(task.folder)
        self._share = share
        self._points = points
        self._recovery = recovery
        self._node = node = opened.node
        self._log = opened.log
        self._sources = opened.sources
        self._sink = opened.sink
        self._found = opened.found
        self._origins = opened.origins
        self._sink_full = False
        # What a turn or a commit waits for, outside of Rewake; mostly nothing.
        self._trouble = ""
        self._resting = False
        # What still arrives changes nothing.
        self._left = False
        self._load = Load()
        self._channels = Channels(node, others, count(1))
        self._read_back = ReadBack(node, self._log, self._perform)
        self.links = Links(self._channels, share, self._perform, self._read_back.forget)

    def start(self) -> None:
        """Begin, and from now on say how it goes."""
        self._perform("start", self._node.start(*self._found))
        self._heartbeat()
        if self._sink is not None:
            self._commit_later()

    def moved(self, name: str, peer: Peer | None) -> None:
        """Another node runs elsewhere, or nowhere."""
        commands = self._channels.moved(name, peer)
        if commands:
            self._perform("lost", commands)

    def place_lost(self, place: int, epoch: int) -> None:
        """An attempt of this node that stood by is gone for good."""
        self._perform("left", self._channels.place_lost(place, epoch))

    def bookmark_kept(self, bookmark: Bookmark) -> None:
        """The coordinator has made it durable."""
        self._perform("bookmark_kept", self._node.bookmark_kept(bookmark))

    # --- rounds ------------------------------------------------------------------------------

    def step(self) -> bool:
        """Read sources and take some turns; whether there may be more at once."""
        busy = self._read_sources()
        busy = self._take_turns() or busy
        if not busy:
            self._load.rested(time.monotonic() * 1e3)
            self._hurry()
        return busy

    @property
    def patience(self) -> float:
        """For how long there is nothing to do but wait for others."""
        if self._read_back.waiting:
            return _READ_BACK_SECONDS
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
        self._share.call_after(_REST_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._resting = False

    def on_durable(self) -> None:
        """More of the log is durable, or its writer has stopped."""
        assert self._log is not None
        self._points.hit("node.before_durable")
        self._perform("durable", self._node.durable(self._log.durable()))
        if "resumed_at" not in self._recovery.timings and not self._node.recovering:
            # The machine's own clock, so that whoever watches from outside can compare.
            self._recovery.timings["resumed_at"] = time.monotonic()

    def _heartbeat(self) -> None:
        if self._left:
            return
        self._tell_progress()
        self._perform("tick", self._node.tick(time.monotonic() * 1e3))
        self._recovery.look_around()
        self._recovery.keep_rates_at(self._share.now(), self._node)
        self._share.call_after(HEARTBEAT_MS / 1e3, self._heartbeat)

    def _tell_progress(self) -> None:
        progress: dict[str, Any] = self._node.progress() | self._recovery.timings
        progress["recovering"] = self._node.recovering
        recovery = self._node.recovery
        if recovery is not None and recovery.advice:
            progress["advice"] = recovery.advice
        if self._trouble:
            progress["trouble"] = self._trouble
        progress["rss_mib"] = resident_mib()
        if self._sink is not None:
            progress["stalled"] = self._sink_full
        if self._log is not None:
            progress["stalled"] = self._log.stalled or bool(self._trouble)
            self._log.durable()  # raises when the writer has stopped
        record = None if self._log is None else self._log.record
        self._share.tell(Heartbeat(self._plan.name, self._node.epoch, progress, record))

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
                self.links.tell(link, message)
            case Acknowledge(channel, ack):
                self._acknowledge(channel, ack)
            case Connect(channel, position) if channel in self._sources:
                self._sources[channel].seek(max(position, 0))
            case Connect() | Answer() | Disconnect():
                for each in self._channels.carry(command):
                    self.links.carry_out(each)
            case Dial() | Tell() | HangUp() | Rest():
                self.links.carry_out(command)
            case Say() | Vouch():
                for each in self._channels.carry(command):
                    self._perform_one(each)
            case Announce(message):
                self._share.tell(message)
            case Wake(ms):
                self._share.call_after(ms / 1e3, self._woke)
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
                    write_origins(self._folder, self._plan.name, origins)
                    self._origins = origins
                if self._sink is not None:
                    self._sink.bind(origins)
                    if not self._node.origins.awaited:
                        self._sink.open()
            case Finish():
                self._tell_progress()  # its last figures are those of all its work
                self._share.tell(Finished(self._plan.name, self._node.epoch))

    def _acknowledge(self, channel: int, ack: Ack) -> None:
        link = self._channels.link_of(channel)
        if link is not None:
            self.links.tell(link, ack)

    def _woke(self) -> None:
        if not self._left:
            self._perform("woke", self._node.woke(time.monotonic() * 1e3))

    def _commit_later(self) -> None:
        self._share.call_after(_COMMIT_SECONDS, self._commit)

    def _commit(self) -> None:
        assert self._sink is not None
        if self._left:
            return
        self._points.hit("node.before_commit")
        try:
            positions = self._sink.commit()
        except (StorageFull, Unavailable) as error:
            self._trouble = str(error)
            self._sink_full = True
            self._share.call_after(FULL_SECONDS, self._commit)
            return
        self._sink_full = False
        self._trouble = ""
        self._points.hit("node.after_commit")
        for channel, position in enumerate(positions or ()):
            self._perform("delivered", self._node.delivered(channel, position))
        self._commit_later()

    # --- the end -----------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more turns; what is durable is still served."""
        self._points.hit("node.stopping")
        if self._sink is not None:
            self._left = True
            # Without room: the next run delivers it again, from the upstream's log.
            with suppress(StorageFull, Unavailable):
                self._sink.commit()
            self._sink.close()

    def linger(self) -> bool:
        """Of a stream that is over, clients are to have the end; of one that is cut off, no more.

        Serves them, and says whether some have not.
        """
        if not self._node.finished or (self._node.outputs.served and not self.links.unsent_bytes):
            return False
        self._read_back.read()
        return True

    def leave(self) -> None:
        """Close, and let the coordinator remember where the log ends.

        So an older copy of it is told apart.
        """
        self._left = True
        if self._log is not None:
            self._log.close()
            self._tell_progress()
        for source in self._sources.values():
            source.close()
