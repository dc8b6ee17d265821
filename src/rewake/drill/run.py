"""One drill: a query runs, is broken on purpose, and everything it says is watched from outside.

The watcher is a client of the query like any other: it subscribes to the results, notes when each
arrives, and at the end asks the oracle.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.drill.drill import Drill
from rewake.drill.node_history import NodeHistory
from rewake.drill.starting_gun import fire
from rewake.drill.when import Strike, in_words
from rewake.model.errors import OperatingFault
from rewake.net.kill_points import Fault
from rewake.net.queries.coordinator_host import Happening
from rewake.net.queries.processes import Launcher
from rewake.net.queries.running import RunningQuery
from rewake.oracle.verdict import Verdict

_SIGNS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}
_PATIENCE_SECONDS = 120.0


class Arrival(NamedTuple):
    """A stream event of results reached the watcher: when, and what it says."""

    at: float
    wall_ms: float
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Blow:
    """A signal that was sent, or that a node sent itself at a kill point.

    Of the latter the watcher only learns when the coordinator does: `at` is that moment, and no pid
    is known.
    """

    node: str
    action: str
    at: float
    pid: int | None = None
    point: str | None = None
    # What the node itself last said a crash would cost beyond a restart, and what was promised.
    predicted_ms: float | None = None
    target_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """How a node came back, in milliseconds; `total`: from the blow to the first new result."""

    node: str
    detect: float
    restart: float
    load: float
    replay: float
    total: float
    predicted: float | None = None
    target: float | None = None

    @property
    def beyond_restart(self) -> float:
        """What Rewake added to the time that it took to start a process again."""
        return self.total - self.restart


@dataclass(slots=True)
class DrillResult:
    """All that was seen of one run."""

    drill: Drill
    origin_ms: float | None = None
    # When the sources had read nothing yet, as far as was seen.
    begun_at: float = 0.0
    first_result_at: float = 0.0
    ended_at: float = 0.0
    arrivals: list[list[Arrival]] = field(default_factory=list)
    # (seconds, tuples read by the sources so far), sampled.
    samples: list[tuple[float, int]] = field(default_factory=list)
    # What nodes said a crash would cost, sampled.
    nodes: NodeHistory = field(default_factory=NodeHistory)
    blows: list[Blow] = field(default_factory=list)
    # What was asked for and did not happen: the query was over before.
    missed: list[str] = field(default_factory=list)
    # One for each of the drill's streams.
    tables: list[pa.Table] = field(default_factory=list)
    history: list[Happening] = field(default_factory=list)
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    # What each node said when it had resumed, life by life.
    lives: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    verdict: Verdict | None = None

    def note(self, now: float, status: dict[str, dict[str, Any]]) -> None:
        """Take down what nodes say of themselves."""
        self.status = status
        self.nodes.note(now, status)
        for node, said in status.items():
            lives = self.lives.setdefault(node, [])
            # A node that was started again resumes at another moment.
            if "resumed_at" in said and (not lives or lives[-1]["resumed_at"] < said["resumed_at"]):
                lives.append(said)

    def settled(self, node: str) -> bool:
        """Whether a node has come back from the last blow: it has said so, and results come."""
        last = max((blow.at for blow in self.blows if blow.node == node), default=0.0)
        resumed = float(self.status.get(node, {}).get("resumed_at", 0.0))
        fresh = any(shard and shard[-1].at > resumed for shard in self.arrivals)
        return resumed > last and fresh

    @property
    def read(self) -> int:
        """Input tuples that sources had read when they were last asked."""
        return max((read for _, read in self.samples), default=0)

    @property
    def results(self) -> int:
        """How many result tuples arrived."""
        return sum(each.batch.num_rows for shard in self.arrivals for each in shard)

    @property
    def seconds(self) -> float:
        """From the first tuple to the last result."""
        return max(self.ended_at - (self.begun_at or self.first_result_at), 1e-9)

    @property
    def tuples_per_s(self) -> float:
        """Input tuples per second, until all of their results were there."""
        return self.drill.tuples / self.seconds

    def recoveries(self) -> list[Recovered]:
        """How each node that died came back."""
        return [each for blow in self.blows if (each := self.recovery(blow)) is not None]

    def recovery(self, blow: Blow) -> Recovered | None:
        """How a node came back from a blow; None when it did not."""
        after = [each for each in self.history if each.node == blow.node and each.at >= blow.at]
        lost = next((each.at for each in after if each.what in ("lost", "silent")), None)
        back = next((each.at for each in after if each.what == "registered"), None)
        if lost is None or back is None:
            return None
        lives = [each for each in self.lives.get(blow.node, []) if each["resumed_at"] >= back]
        status = lives[0] if lives else self.status.get(blow.node, {})
        # What arrives earlier may be old: results that were durable when the node died.
        resumed = max(back, float(status.get("resumed_at", back)))
        fresh = [each.at for shard in self.arrivals for each in shard if each.at >= resumed]
        return Recovered(
            node=blow.node,
            detect=(lost - blow.at) * 1e3,
            restart=(back - lost) * 1e3,
            load=float(status.get("load_ms", 0.0)),
            replay=float(status.get("replay_ms", 0.0)),
            total=((min(fresh) if fresh else self.ended_at) - blow.at) * 1e3,
            predicted=blow.predicted_ms,
            target=blow.target_ms,
        )

    def outages(self) -> list[tuple[float, float]]:
        """From each blow until results were as fresh as before it."""
        return [
            (blow.at, blow.at + recovered.total / 1e3 + 1.0)
            for blow in self.blows
            if (recovered := self.recovery(blow)) is not None
        ]

    def due_ms(self, arrival: Arrival) -> Any:
        """When the last tuple of each of these results was due, of a run with a pace."""
        assert self.origin_ms is not None
        times = arrival.batch.column("max_item_time").to_numpy(zero_copy_only=False)
        return self.drill.due_ms(times.astype(np.int64), self.origin_ms)

    def latencies_ms(self, *, outages: bool = True) -> np.ndarray[Any, Any]:
        """From the moment a result's last tuple was due to its arrival; empty without a rate."""
        if self.drill.rate is None or self.origin_ms is None:
            return np.zeros(0)
        spans = [] if outages else self.outages()
        found = [
            each.wall_ms - self.due_ms(each)
            for shard in self.arrivals
            for each in shard
            if not any(start <= each.at <= end for start, end in spans)
        ]
        return np.concatenate(found) if found else np.zeros(0)


class Watcher:
    """Reads one shard of the results in a thread of its own."""

    def __init__(self, query: RunningQuery, stream: str, shard: int) -> None:
        name = f"watcher-{stream}-{shard}"
        self._subscription = query.subscribe(stream, shard=shard, name=name)
        node, output = query.plan.streams[stream][shard]
        self._schema = query.plan.node(node).outputs[output].schema
        self.arrivals: list[Arrival] = []
        self.error: BaseException | None = None
        self._leaving = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self._leaving and not self._subscription.ended:
                event = self._subscription.read(0.2)
                if event is not None and event.batch.num_rows:
                    now = time.monotonic()
                    self.arrivals.append(Arrival(now, time.time() * 1e3, event.batch))
        except BaseException as error:
            self.error = error

    def table(self) -> pa.Table:
        """All that has arrived, in that order."""
        batches = [each.batch for each in self.arrivals]
        return pa.Table.from_batches(batches, None if batches else self._schema)

    def leave(self) -> None:
        """Stop reading."""
        self._leaving = True
        self.thread.join(10.0)
        self._subscription.close()


def run_drill(
    drill: Drill,
    folder: Path,
    launcher: Launcher,
    *,
    strikes: Sequence[Strike] = (),
    faults: Sequence[Fault] = (),
    servers: int | None = None,
    on_progress: Callable[[DrillResult, int], None] | None = None,
    judged: bool = True,
) -> DrillResult:
    """Run a drill to its end and check what came out, unless it is only to be seen."""
    result = DrillResult(drill)
    waiting = list(strikes)
    plan = drill.build().plan()
    with RunningQuery(plan, folder, launcher, faults=faults, servers=servers) as query:
        query.await_start(_PATIENCE_SECONDS)
        watchers = [Watcher(query, stream, shard) for stream, shard in drill.streams()]
        result.arrivals = [watcher.arrivals for watcher in watchers]
        if drill.gun is not None:
            result.origin_ms = fire(Path(drill.gun))
        try:
            _watch(query, watchers, result, waiting, on_progress)
        finally:
            for watcher in watchers:
                watcher.leave()
        result.tables = [watcher.table() for watcher in watchers]
        result.status, result.history = query.status(), query.history
    result.ended_at = max(
        (each.at for shard in result.arrivals for each in shard), default=time.monotonic()
    )
    result.first_result_at = result.first_result_at or result.ended_at
    struck = _struck(faults, result.history, result.nodes)
    result.blows = sorted([*result.blows, *struck.values()], key=lambda blow: blow.at)
    asked: list[Strike | Fault] = [*waiting, *faults]
    result.missed = [in_words(each) for each in asked if each not in struck]
    if judged:
        result.verdict = drill.check(result.tables)
    return result


def _struck(
    faults: Sequence[Fault], history: Sequence[Happening], nodes: NodeHistory
) -> dict[Fault | Strike, Blow]:
    """The faults at kill points that fired: the life that they name ended, and another followed."""
    struck: dict[Fault | Strike, Blow] = {}
    for fault in faults:
        for number, each in enumerate(history):
            ended = each.node == fault.node and each.what in ("lost", "silent")
            later = any(
                after.node == fault.node and after.what == "registered"
                for after in history[number + 1 :]
            )
            if ended and later and fault.life in (0, each.epoch):
                said = nodes.said(fault.node, each.at)
                struck[fault] = _blow(fault, each.at, said, point=fault.point)
                break
    return struck


def _blow(wanted: Strike | Fault, at: float, said: Mapping[str, Any], **known: Any) -> Blow:
    """What fell on a node, beside what the node last said."""
    foretold = {name: said.get(name) for name in ("predicted_ms", "target_ms")}
    return Blow(wanted.node, wanted.action, at, **known, **foretold)


def _watch(
    query: RunningQuery,
    watchers: list[Watcher],
    result: DrillResult,
    strikes: list[Strike],
    on_progress: Callable[[DrillResult, int], None] | None,
) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS + _duration(result.drill)
    alive, begun, result.begun_at = True, False, time.monotonic()
    while alive:
        time.sleep(0.02)
        alive = any(watcher.thread.is_alive() for watcher in watchers)
        now = time.monotonic()
        if not result.first_result_at and any(watcher.arrivals for watcher in watchers):
            result.first_result_at = now
        result.note(now, query.status())
        read = tuples_read(query, result)
        result.samples.append((now, read))
        begun = begun or bool(read)
        if not begun:
            result.begun_at = now
        if result.drill.tuples:  # not known yet in a reference run
            _strike(query, result, strikes, now, read / result.drill.tuples)
        if on_progress is not None:
            on_progress(result, read)
        query.await_end(0.0)
        if now > deadline:
            raise OperatingFault(
                f"the query did not end in time; is its source finite?  Nodes say {query.status()}"
            )
    for watcher in watchers:
        if watcher.error is not None:
            raise watcher.error
    query.await_end(60.0)
    result.note(time.monotonic(), query.status())
    result.samples.append((time.monotonic(), tuples_read(query, result)))


def tuples_read(query: RunningQuery, result: DrillResult) -> int:
    """How far sources are; by position, which a source that starts again does not begin anew."""
    return sum(
        int(status.get("input_position", 0))
        for name, status in result.status.items()
        if query.plan.node(name).inputs[0].source is not None
    )


def _duration(drill: Drill) -> float:
    return 0.0 if drill.rate is None else drill.tuples / drill.rate


def _strike(
    query: RunningQuery, result: DrillResult, strikes: list[Strike], now: float, fraction: float
) -> None:
    for strike in list(strikes):
        due = (
            strike.at_seconds is not None
            and result.first_result_at
            and now >= result.first_result_at + strike.at_seconds
        ) or (strike.at_fraction is not None and fraction >= strike.at_fraction)
        if not due or strike.node not in query.running:
            continue
        if strike.settled and not result.settled(strike.node):
            continue
        strikes.remove(strike)
        at = time.monotonic()
        pid = query.signal_node(strike.node, _SIGNS[strike.action])
        said = result.status.get(strike.node, {})
        result.blows.append(_blow(strike, at, said, pid=pid))
