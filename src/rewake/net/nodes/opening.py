"""From an attempt's epoch to its node: the log, its past, the sink, the sources.

It is stepped, because its server has other nodes to look after; only reading the past takes its
time.  What always holds: where there is no room, or a sink does not answer, it says so and waits;
without room for a log it waits for some, and then lets another attempt begin, because this one may
have claimed the log, and a claim is good for one opening.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rewake.model.connectors import SourceReader
from rewake.model.errors import OperatingFault, StorageFull, Unavailable
from rewake.net.kill_points import KillPoints
from rewake.net.nodes.log import NodeLog
from rewake.net.nodes.origins_file import read_origins
from rewake.net.nodes.own_recovery import OwnRecovery
from rewake.net.nodes.share import Share
from rewake.net.nodes.sink import NodeSink
from rewake.net.nodes.task import NodeTask
from rewake.net.nodes.warm import warm_up
from rewake.node.channels.origins import SILENT, SinkOrigins
from rewake.node.messages import Heartbeat, Welcome
from rewake.node.node import Node
from rewake.recovery.approach import Kept
from rewake.recovery.driven import LogSoFar
from rewake.stores.small_files import has_room

__all__ = ["FULL_SECONDS", "Opened", "Opening"]

# How long what has no room rests before it tries again.
FULL_SECONDS: Final = 0.25


@dataclass(slots=True)
class Opened:
    """A node that is rebuilt, and what it works with."""

    node: Node
    log: NodeLog | None
    origins: dict[str, Any] | None
    sink: NodeSink | None = None
    # How far the sink is, and whose.
    found: tuple[Sequence[int], SinkOrigins] = ((), SILENT)
    sources: dict[int, SourceReader] = field(default_factory=dict)


class Opening:
    """One attempt's; `on_durable` is called in the loop whenever more of the log is durable."""

    def __init__(
        self,
        task: NodeTask,
        welcome: Welcome,
        share: Share,
        points: KillPoints,
        recovery: OwnRecovery,
        on_durable: Callable[[], None],
        past: LogSoFar | None = None,
    ) -> None:
        self._task = task
        # What the place held that stood by before.
        self._past = past
        self._plan = task.plan
        self._welcome = welcome
        self._share = share
        self._points = points
        self._recovery = recovery
        self._on_durable = on_durable
        self._opened: Opened | None = None
        # What is open, until it is handed over.
        self._open = ExitStack()
        # What it waits for since there was no room for its log.
        self._roomless: StorageFull | None = None
        self._waits_until = float("-inf")
        # Since when the sink is asked in vain: each look at it begins anew, its patience does not.
        self._away_since: float | None = None

    def step(self) -> Opened | None:
        """Go on, if it is time to; the node when all is there.

        Raises StorageFull when there is room again: let another attempt begin.
        """
        if self._share.now() < self._waits_until:
            return None
        if self._roomless is not None:
            self._await_room(self._roomless)
            return None
        if self._opened is None:
            try:
                self._opened = self._recover()
            except StorageFull as error:
                self._roomless = error
                self._wait_for(error)
                return None
            self._open_sources(self._opened)
        return self._opened if self._find_sink(self._opened) else None

    def _recover(self) -> Opened:
        epoch, plan, task = self._welcome.epoch, self._plan, self._task
        self._points.life = epoch
        self._points.hit("node.welcomed")
        log = self._open_log() if plan.kept is Kept.IN_LOG else None
        past = self._past or LogSoFar(bookmark=self._welcome.bookmark)
        if log is not None:
            past = LogSoFar(
                log.frames_backwards(), log.next_sequence, log.next_position, log.lineage
            )
        if plan.inputs and plan.sink is None:
            warm_up(plan.program, *plan.input_schemas)
        started = time.perf_counter()
        self._points.hit("recovery.before_loading")
        origins = read_origins(Path(task.folder), plan.name)
        node = Node(plan, epoch, past, limits=task.limits, origins=origins)
        self._points.hit("recovery.after_loading")
        load_ms = (time.perf_counter() - started) * 1e3
        self._recovery.loaded(node, task.costs, load_ms, anew=not past.next_sequence)
        return Opened(node, log, origins)

    def _open_log(self) -> NodeLog:
        plan, task = self._plan, self._task
        wakeup = self._share.wakeup(self._on_durable)

        def on_durable(_sequence: int) -> None:
            self._points.hit("writer.durable")
            wakeup.set()

        self._points.hit("recovery.before_fencing")
        known, former = self._welcome.log, task.former_fingerprint
        log = NodeLog(
            self._log_folder, plan, task.fingerprint, self._welcome.epoch, on_durable, known, former
        )
        self._open.callback(log.close)
        self._points.hit("recovery.after_fencing")
        return log

    @property
    def _log_folder(self) -> Path:
        return Path(self._task.folder) / "nodes" / self._plan.name

    def _open_sources(self, opened: Opened) -> None:
        for channel, each in enumerate(self._plan.inputs):
            if each.source is not None:
                source = each.source.open(self._plan.shard, self._plan.shards)
                opened.sources[channel] = source
                self._open.callback(source.close)

    def _find_sink(self, opened: Opened) -> bool:
        """Whether it can be seen how far the sink is, and whose; True without one."""
        if self._plan.sink is None:
            return True
        if opened.sink is None:
            task = self._task
            queries = (task.fingerprint, task.former_fingerprint)
            opened.sink = NodeSink(self._plan, task.folder, opened.origins, queries)
            self._open.callback(opened.sink.close)
        asked = self._share.now()
        try:
            opened.found = opened.sink.find()
        except StorageFull as error:
            self._away_since = None
            self._wait_for(error)
            return False
        except Unavailable as error:
            self._away_since = asked if self._away_since is None else self._away_since
            if error.gave_up and self._share.now() - self._away_since > error.patience_seconds:
                raise error.gave_up from None
            self._wait_for(error)
            return False
        return True

    def close(self) -> None:
        """Its server leaves before all is there: give back what was opened."""
        self._open.close()

    def _await_room(self, error: StorageFull) -> None:
        if has_room(self._log_folder):
            raise error
        self._wait_for(error)

    def _wait_for(self, error: OperatingFault) -> None:
        """Say what there is to wait for, and wait for a while."""
        told = {"starting": True, "recovering": True, "stalled": True, "trouble": str(error)}
        self._share.tell(Heartbeat(self._plan.name, self._welcome.epoch, told))
        self._waits_until = self._share.now() + FULL_SECONDS
