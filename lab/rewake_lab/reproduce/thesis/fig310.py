"""Thesis Fig. 3.10: a stateless node dies, comes back and catches up, as the receiver sees it.

Two filters, A and B, each a node in a process of its own that persists its output.  B is killed and
kept down for a while; A goes on persisting.  Then B starts again, finds in its log how far it had
come, and asks A for the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.graph.query import Query
from rewake.model.errors import OperatingFault
from rewake.model.stream_event import StreamEvent
from rewake.net.queries.processes import Processes
from rewake.net.queries.running import RunningQuery
from rewake_lab.reproduce.driving import PAPER_EVENT
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, where
from rewake_lab.reproduce.thesis.persistence import tuples_of

_TUPLE_BYTES = 4096
# The thesis' rate before the crash.
RATE_MB = 26.0
_SLICE_S = 0.25
# Less than so much behind the source, the receiver has caught up.
_BEHIND_S = 0.3
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: until the crash, while B is down, and after it has caught up."""

    before: float
    down: float
    after: float


def times_of(setting: Setting) -> Times:
    """How long each part takes, in seconds."""
    return Times(15.0, 10.0, 10.0) if setting.full else Times(3.0, 3.0, 2.0)


# --- the source ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PacedBlocks:
    """The same block of tuples again and again, without end, at a pace."""

    tuple_bytes: int
    events_per_s: float
    seed: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        return tuples_of(self.tuple_bytes, 1, self.seed).schema

    def describe(self) -> dict[str, Any]:
        """All that decides which tuples come."""
        return {"kind": "blocks", "tuple_bytes": self.tuple_bytes, "seed": self.seed}

    def open(self, shard: int, shards: int) -> PacedReader:
        """Open the only shard."""
        assert shards == 1, f"shard {shard} of {shards}: blocks are not divided"
        return PacedReader(self)


class PacedReader:
    """The only shard; the first block that is asked for is due at once."""

    def __init__(self, source: PacedBlocks) -> None:
        self._batch = tuples_of(source.tuple_bytes, PAPER_EVENT, source.seed)
        self._interval_ms = 1e3 / source.events_per_s
        self._number = 0
        self._origin_ms: float | None = None

    def seek(self, position: int) -> None:
        """Go on with the block that holds `position`."""
        self._number = position // PAPER_EVENT

    def read(self, now_ms: float) -> StreamEvent | None:
        """The next block if it is due."""
        if self._origin_ms is None:
            self._origin_ms = now_ms - self._number * self._interval_ms
        if now_ms < self._origin_ms + self._number * self._interval_ms:
            return None
        event = StreamEvent(self._number * PAPER_EVENT, self._batch)
        self._number += 1
        return event

    @property
    def ended(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Nothing is held."""


# --- the run -------------------------------------------------------------------------------------


class _KeepsDown(Processes):
    """Starts processes again only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_start = threading.Event()
        self.may_start.set()

    def _launch(self, name: str) -> None:
        while not self.may_start.wait(0.01):
            if self._stopping.is_set():
                return
        super()._launch(name)


def _query(setting: Setting) -> Query:
    query = Query("recovery", recover_within=None)
    pace = RATE_MB * 1e6 / (_TUPLE_BYTES * PAPER_EVENT)
    blocks = query.source("source", PacedBlocks(_TUPLE_BYTES, pace, setting.seed))
    first = blocks.filter("number >= 0", name="a").to_stream("a")
    first.filter("number >= 0", name="b").to_stream("b")
    return query


class _Story:
    """What the receiver got by when, and what happened in between."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self.got: list[tuple[float, int]] = []
        self.tuples = 0
        self.began = 0.0
        self.crashed = self.started = self.first = self.caught_up = float("inf")

    def receive(self, now: float, event: StreamEvent | None) -> None:
        """Take what came, at `now`."""
        if event is None:
            return
        if not self.got:
            self.began = now
        self.tuples += event.batch.num_rows
        self.got.append((now - self.began, self.tuples))
        # What was on its way when B died may still arrive; B's own comes when it has started.
        if now > self.started and self.first == float("inf"):
            self.first = now
        due = (now - self.began - _BEHIND_S) * RATE_MB * 1e6 / _TUPLE_BYTES
        if self.first < now and self.tuples >= due and self.caught_up == float("inf"):
            self.caught_up = now

    def may_end(self, now: float) -> bool:
        """Whether all of it has been seen."""
        return now > self.caught_up + self._times.after

    def rows(self) -> Iterator[Row]:
        """The throughput of each slice of time, with the moments that matter in each row."""
        at, tuples = (np.array(each) for each in zip(*self.got, strict=True))
        edges = np.arange(0, at[-1] - _SLICE_S, _SLICE_S)
        rates = _counts(at, tuples, edges) * _TUPLE_BYTES / _SLICE_S / 1e6
        moments = ("crashed", "started", "first", "caught_up")
        known: Row = {f"{name}_s": getattr(self, name) - self.began for name in moments}
        for edge, rate in zip(edges, rates, strict=True):
            yield {"at_s": float(edge), "megabytes_per_s": float(rate), **known}


def _counts(at: Any, tuples: Any, edges: Any) -> Any:
    """How many tuples came in each slice."""
    ends = np.append(edges, edges[-1] + _SLICE_S)
    before = np.searchsorted(at, ends)
    return np.diff(np.concatenate([[0], tuples])[before])


def rows(setting: Setting) -> Iterator[Row]:
    """Run, kill B, let it come back, and watch."""
    times, launcher = times_of(setting), _KeepsDown()
    with RunningQuery(_query(setting).plan(), setting.folder / "query", launcher) as running:
        running.await_start()
        story = _watched(running, launcher, times)
    yield from story.rows()


def _watched(running: RunningQuery, launcher: _KeepsDown, times: Times) -> _Story:
    story = _Story(times)
    deadline = time.monotonic() + times.before + times.down + times.after + _PATIENCE_S
    with running.subscribe("b", name="receiver") as receiver:
        while not story.may_end(now := time.monotonic()):
            if now > deadline:
                raise OperatingFault(
                    f"the receiver has {story.tuples:,} tuples and has not caught up within "
                    f"{_PATIENCE_S:g} s: this machine is too slow for {RATE_MB:g} MB/s, or busy"
                )
            if story.crashed == float("inf") and story.got and now > story.began + times.before:
                launcher.may_start.clear()
                running.signal_node("b")
                story.crashed = now
            if now > story.crashed + times.down and not launcher.may_start.is_set():
                launcher.may_start.set()
                story.started = now
            event = receiver.read(0.02)
            story.receive(time.monotonic(), event)
    return story


def scaling(setting: Setting) -> str:
    """What differs from the thesis' set-up."""
    times = times_of(setting)
    return (
        f"crash after {times.before:g} s instead of 52, down for {times.down:g} s instead of 34; "
        f"the source sends {RATE_MB:g} MB/s of 4 KB tuples whatever happens, which was the "
        "thesis' rate before the crash; nodes are processes of one machine with logs on its disk; "
        f"throughput of {_SLICE_S:g} s at the receiver"
    )


# --- what is shown -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """The moments, and the throughput between them."""

    crashed: float
    started: float
    first: float
    caught_up: float
    before: float
    catching_up: float
    after: float


def seen_in(table: pa.Table) -> _Seen:
    """The story that the table tells."""
    crashed, started, first, caught_up = (
        float(where(table)[f"{name}_s"][0].as_py())
        for name in ("crashed", "started", "first", "caught_up")
    )
    end = table["at_s"].to_numpy()[-1] + _SLICE_S
    # The first second is the start of everything.
    return _Seen(
        crashed,
        started,
        first,
        caught_up,
        _between(table, min(1.0, crashed / 2), crashed),
        _between(table, first, caught_up),
        _between(table, caught_up, end),
    )


def _between(table: pa.Table, start: float, end: float) -> float:
    """MB per second of the slices between two moments; of the nearest one if none is."""
    at, rates = table["at_s"].to_numpy(), table["megabytes_per_s"].to_numpy()
    inside = (at >= start) & (at + _SLICE_S <= end)
    if not inside.any():
        return float(rates[np.argmin(abs(at + _SLICE_S / 2 - (start + end) / 2))])
    return float(rates[inside].mean())


def findings(table: pa.Table) -> list[Finding]:
    """Throughput before, while and after catching up, and how long each part took."""
    seen = seen_in(table)
    return [
        Finding("throughput before the crash", seen.before, "MB/s", "26"),
        Finding("B is down", seen.started - seen.crashed, "s", "34"),
        Finding("from B's start to the first tuple", seen.first - seen.started, "s", "4"),
        Finding("throughput while catching up", seen.catching_up, "MB/s", "20"),
        Finding("catching up", seen.caught_up - seen.first, "s", "75"),
        Finding("throughput after that", seen.after, "MB/s", "25"),
    ]


def plots(table: pa.Table) -> list[Plot]:
    """The timeline."""
    seen = seen_in(table)
    marks = (
        (seen.crashed, "B crashes"),
        (seen.started, "B starts"),
        (seen.caught_up, "caught up"),
    )
    return [
        Plot("Throughput at the receiver", table, x="at_s", y="megabytes_per_s", x_title="seconds",
             y_title="MB per second", marks=marks)
    ]  # fmt: skip


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    seen = seen_in(table)
    ratio = seen.catching_up / seen.before
    faster = (
        "more than before the crash, unlike in the thesis (0.77), where reading back slowed a node "
        "that had nothing to spare; here the source is slower than the nodes, so that they can "
        "catch up with it"
        if ratio > 1
        else "no more than before the crash, as in the thesis (0.77)"
    )
    down, caught = seen.started - seen.crashed, seen.caught_up - seen.first
    return (
        f"After {down:.1f} s of absence B has its first tuple through "
        f"{seen.first - seen.started:.2f} s after it was started (the thesis: 4 s after 34 s). "
        f"While it catches up the receiver gets {seen.catching_up:.0f} MB/s, {ratio:.2f} times as "
        f"much as before: {faster}. It has caught up after {caught:.1f} s, {caught / down:.2f} of "
        f"the time it was away (the thesis: 75 s, 2.2), and then gets {seen.after:.0f} MB/s "
        f"against {seen.before:.0f} MB/s before the crash (the thesis: 25 against 26)."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
