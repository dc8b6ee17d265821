"""`rewake bench recover-within`: whether promised recovery times are kept, and at what price.

Over 200 drills: SIGKILL of the node that holds the windows of a running query.  Targets of 0.2, 1
and 5 seconds beyond the restart of a process; uniform, Zipf and bursty keys; 1,000, 30,000 and
1,000,000 windows; most with nodes as processes, some on Spark.  0.2 seconds are too short to load a
million windows: there the figure is whether the node says so before it is killed, and nothing else.

CHECKs are compared with the fewest that could have kept the same limits, by an oracle that knows
when windows close and crashes come (`recover_within_oracle` has the definition).  What they cost is
measured at full speed: with a target of a second and 100,000 windows, and without CHECKs, in turns.

What always holds: a wrong result ends the benchmark with an error; an interrupted one keeps the
runs that are complete and says which are missing.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rewake.connectors.files.sink import FileSink
from rewake.connectors.item_stream import ItemSource, ItemStream
from rewake.graph.plan.plan import Plan
from rewake.graph.query import Query
from rewake.net.queries.processes import Launcher, Processes
from rewake.net.queries.running import RunningQuery
from rewake.operators.windows.specs import count_window
from rewake_lab.bench.recover_within.runs import Case, Drilled, Ran, run_case
from rewake_lab.bench.rows import Progress, Row

__all__ = ["FULL", "QUICK", "Evidence", "Scale", "run"]

_TARGETS = (0.2, 1.0, 5.0)
_WINDOWS = (1_000, 30_000, 1_000_000)
_NODES = 4
_FULL_SPEED_KEYS = 100_000
_FULL_SPEED_EVENT = 65_536
_WARM_SECONDS = 2.0
_START_SECONDS = 60.0


def _grid(kills: int) -> tuple[Case, ...]:
    """Every configuration in which the target is possible."""
    return tuple(
        Case(target, keys, windows, kills)
        for windows in _WINDOWS
        for keys in ("uniform", "zipf", "bursty")
        for target in _TARGETS
        if not (target == min(_TARGETS) and windows == max(_WINDOWS))
    )


_TOO_SHORT = Case(0.2, "uniform", 1_000_000, 2, possible=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Which configurations are run, and for how long full speed is measured, how often."""

    cases: tuple[Case, ...]
    seconds: float
    rounds: int


FULL = Scale(
    (*_grid(9), _TOO_SHORT, Case(1.0, "uniform", 30_000, 6, on="Spark")), seconds=5.0, rounds=11
)
QUICK = Scale(
    (
        Case(0.2, "uniform", 1_000, 5),
        Case(0.2, "zipf", 30_000, 5),
        Case(1.0, "bursty", 30_000, 5),
        Case(1.0, "uniform", 1_000_000, 3),
        Case(1.0, "uniform", 30_000, 3, on="Spark"),
    ),
    seconds=3.0,
    rounds=2,
)


@dataclass(slots=True)
class Evidence:
    """What has been measured so far, and what has not."""

    runs: list[Ran] = field(default_factory=list)
    # Full speed with a promise against full speed without CHECKs, round by round.
    speeds: list[tuple[float, float]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def drills(self) -> list[Drilled]:
        """Of targets that can be met."""
        return [each for ran in self.runs for each in ran.drills if ran.case.possible]

    def rows(self) -> list[Row]:
        """The figures, of what there is."""
        return [*_promises(self.drills), *_warnings(self.runs), *_checks(self.runs),
                *_speed(self.speeds)]  # fmt: skip


def run(
    folder: Path,
    progress: Progress,
    *,
    scale: Scale = FULL,
    on_run: Callable[[Evidence], None] | None = None,
) -> Evidence:
    """Measure; `on_run` is told after every run.  Ctrl-C ends it early, with what there is."""
    evidence = Evidence()
    todo = [f"drills: {case.name}" for case in scale.cases] + ["throughput"]
    try:
        with ExitStack() as places:
            launchers = _Launchers(places)
            for case in scale.cases:
                done = len(evidence.drills)
                progress(f"{done} drills done; {case.name}")
                with _folder(folder) as place:
                    evidence.runs.append(run_case(case, place, launchers.of(case.on)))
                todo.pop(0)
                if on_run is not None:
                    on_run(evidence)
        for number in range(scale.rounds):
            progress(f"throughput, round {number + 1} of {scale.rounds}")
            evidence.speeds.append(_round(folder, scale.seconds, number))
        todo.clear()
    except KeyboardInterrupt:
        evidence.missing = todo
    return evidence


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rewake-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class _Launchers:
    """Where nodes run; Spark is started when it is first needed, and stopped at the end."""

    def __init__(self, places: ExitStack) -> None:
        self._places = places
        self._session: Any = None

    def of(self, on: str) -> Launcher:
        if on != "Spark":
            return Processes()
        from rewake.spark.job import SparkNodes  # noqa: PLC0415 (slow to import)
        from rewake.spark.session import local_session  # noqa: PLC0415

        if self._session is None:
            self._session = local_session(nodes=_NODES)
            self._places.callback(self._session.stop)
        return SparkNodes(self._session)


# --- full speed ----------------------------------------------------------------------------------


def _round(folder: Path, seconds: float, number: int) -> tuple[float, float]:
    """Both once, one after the other; who goes first changes from round to round."""
    contenders: list[str | None] = ["1s", None]
    found = {}
    for promise in contenders if number % 2 == 0 else reversed(contenders):
        with _folder(folder) as place:
            found[promise] = _full_speed(place, promise, seconds)
    return found["1s"], found[None]


def _full_speed(place: Path, promise: str | None, seconds: float) -> float:
    """Tuples per second that get through, while all nodes run."""
    with RunningQuery(_plan(place, promise), place / "query", Processes()) as query:
        query.await_start(_START_SECONDS)
        deadline = time.monotonic() + _START_SECONDS
        while _consumed(query) < 10 * _FULL_SPEED_EVENT and time.monotonic() < deadline:
            query.await_end(0.05)
        query.await_end(_WARM_SECONDS)
        before, start = _consumed(query), time.monotonic()
        query.await_end(seconds)
        return (_consumed(query) - before) / (time.monotonic() - start)


def _plan(place: Path, promise: str | None) -> Plan:
    """Without an end: it runs until it has been measured."""
    query = Query("full-speed", recover_within=promise)
    stream = ItemStream(1, _FULL_SPEED_KEYS)
    items = query.source("items", ItemSource(stream, event_tuples=_FULL_SPEED_EVENT))
    averages = items.filter("item_price <= 900", name="cheap").aggregate(
        by="item_id", window=count_window(10), avg="item_price", name="averages"
    )
    averages.to(FileSink(str(place / "files")), name="files")
    return query.plan()


def _consumed(query: RunningQuery) -> int:
    return int(query.status()["averages"].get("input_position", 0))


# --- figures -------------------------------------------------------------------------------------


def _promises(drills: Sequence[Drilled]) -> Iterator[Row]:
    if not drills:
        return
    late = [each for each in drills if not each.within]
    worst = max(drills, key=lambda each: each.achieved_ms / each.target_ms)
    note = (
        f"{len(drills)} drills, {len(late)} too late; the nearest to its target, or beyond: "
        f"{worst.achieved_ms:.0f} of {worst.target_ms:.0f} ms ({worst.keys}, {worst.windows:,} "
        f"windows, on {worst.on})"
    )
    yield Row("recoveries within their target", _share(drills), "share", ">= 0.99", note)
    for target in sorted({each.target_s for each in drills}):
        some = [each for each in drills if each.target_s == target]
        p50, p99 = np.percentile([each.achieved_ms for each in some], [50, 99])
        note = f"{len(some)} drills; p50 {p50:.0f}, p99 {p99:.0f} ms"
        yield Row(f"of those with {target:g} s", _share(some), "share", note=note)
    off = statistics.median(each.error for each in drills)
    ratio = statistics.median(each.predicted_ms / each.achieved_ms for each in drills)
    yield Row("|predicted - achieved| / achieved, median", off, "share",
              note=f"predicted / achieved, median: {ratio:.2f}")  # fmt: skip


def _share(drills: Sequence[Drilled]) -> float:
    return sum(each.within for each in drills) / len(drills)


def _warnings(runs: Sequence[Ran]) -> Iterator[Row]:
    drills = [each for ran in runs for each in ran.drills if not ran.case.possible]
    if drills:
        told = sum(each.told for each in drills) / len(drills)
        yield Row("told beforehand that it cannot be met", told, "share", ">= 1",
                  "0.2 s with 1,000,000 windows; not counted above")  # fmt: skip


def _checks(runs: Sequence[Ran]) -> Iterator[Row]:
    possible = sum(ran.case.possible for ran in runs)
    runs = [ran for ran in runs if ran.comparable]
    left, fewest = sum(ran.checks for ran in runs), sum(ran.fewest for ran in runs)
    if not fewest:
        return
    many = [ran for ran in runs if ran.fewest >= ran.case.windows / 10]
    worst = max(many, key=lambda ran: ran.checks / ran.fewest, default=None)
    said = "" if worst is None else (
        f"; the worst of runs with many: {worst.checks / worst.fewest:.2f} ({worst.case.name})"
    )  # fmt: skip
    note = (
        f"{left:,.0f} CHECKs; knowing the future, {fewest:,}; {len(runs)} of {possible} runs, in "
        f"which the limit was kept all the time{said}"
    )
    yield Row("CHECKs / fewest possible", left / fewest, "ratio", "<= 1.5", note)


def _speed(speeds: Sequence[tuple[float, float]]) -> Iterator[Row]:
    if speeds:
        with_promise = statistics.median(promised for promised, _ in speeds)
        without = statistics.median(free for _, free in speeds)
        ratio = statistics.median(promised / free for promised, free in speeds)
        note = f"{_FULL_SPEED_KEYS:,} windows; median of {len(speeds)} rounds, in turns"
        yield Row("throughput, 1 s promised / without CHECKs", ratio, "ratio", ">= 0.95", note)
        yield Row("throughput, 1 s promised", with_promise / 1e6, "M tuples/s")
        yield Row("throughput, without CHECKs", without / 1e6, "M tuples/s")
