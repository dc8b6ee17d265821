"""Three lives of a contender, and the figures that they give.

In the first it runs as fast as it can: throughput, and bytes written for fault tolerance.  In the
second, with a folder of its own, it is paced at half of that: latency.  Then it is killed, all of
it at once, and started again in the same place at the same pace: the third life, which ends with
its first result that is right and had not come out before.

Latency is from the moment when the tuple that lets a result come out was due.  A paced life begins
with some seconds of tuples that are due at once, so that there is state to lose.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from rewake.model.errors import OperatingFault
from rewake_lab.bench.peers.application import Application
from rewake_lab.bench.peers.contenders import Contender, environ
from rewake_lab.bench.peers.job import USUAL_INTERVAL_US, WINDOW_US, Job, Workload
from rewake_lab.bench.peers.lines import Line, Ready, Result, Results, Rows
from rewake_lab.bench.peers.marks import Mark, Marks
from rewake_lab.bench.peers.oracle import Oracle
from rewake_lab.bench.peers.written import FilesWritten, ProcessesWrote

_PATIENCE_SECONDS: Final = 90.0
_GUN_SECONDS: Final = 0.3
# A window of ten seconds closes at least so often in a paced life.
_CLOSING_SECONDS: Final = 3.0
# The kill comes so long before the next window closes.
_BEFORE_CLOSING_SECONDS: Final = 0.5
_MOST_JUDGED: Final = 5_000
# What takes a while may take so many times longer than usual.
_LONGER: Final = 3
_FRESH_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How long things are measured, in seconds, and over how many ids."""

    warm: float = 8.0
    speed: float = 8.0
    fill: float = 5.0
    settle: float = 7.0
    latency: float = 6.0
    tail: float = 2.0
    ids: int = 100_000
    watched: int = 1_000
    batch_rows: int = 1_000_000


QUICK: Final = Scale(warm=4.0, speed=4.0, fill=3.0, settle=4.5, latency=4.0, tail=1.5)


@dataclass(frozen=True, slots=True)
class Speed:
    """Of the first life."""

    tuples_per_s: float
    bytes_per_tuple: float


@dataclass(frozen=True, slots=True)
class Paced:
    """Of the second and third; p99 is None when no result came out in the time measured."""

    p99_ms: float | None
    recovery_s: float
    note: str = ""


class Judge:
    """Remembers which results came out, and finds out whether they are right."""

    def __init__(self, job: Job) -> None:
        self.oracle = Oracle(job)
        self.came: list[tuple[float, Result]] = []
        self.known: set[Result] = set()

    def hear(self, line: Line) -> None:
        """Take note of results."""
        if isinstance(line, Results):
            self.came += [(line.at_ms, result) for result in line.results]
            self.known.update(line.results)

    def check(self) -> None:
        """Raise if one of those that came is wrong; of many, some are looked at."""
        step = max(1, len(self.came) // _MOST_JUDGED)
        for _, result in self.came[::step]:
            if not self.oracle.right(result):
                raise OperatingFault(
                    f"it gave a wrong result: item {result.item} has no average "
                    f"{result.average!r} at {result.when_us}"
                )

    def first_new(self, line: Line) -> float | None:
        """When the first result came that is right and new, if there is one in this line."""
        if isinstance(line, Results):
            for result in line.results:
                if result not in self.known and self.oracle.right(result):
                    return line.at_ms
        return None


def measure_speed(contender: Contender, workload: Workload, folder: Path, scale: Scale) -> Speed:
    """Throughput and bytes of a life without failures."""
    job = _job(workload, folder, scale)
    if workload is Workload.TIME:
        job = replace(job, interval_us=contender.interval_us)
    judge = Judge(job)
    with _started(contender, job) as life:
        written = (
            FilesWritten(job.state) if contender.in_files else ProcessesWrote(lambda: life.pids)
        )
        with written:
            _await_rows(life, judge)
            for line in life.lines(time.monotonic() + scale.warm):
                judge.hear(line)
            begin, end = _stretch(life, judge, Marks(written), scale.speed)
    judge.check()
    rows = end.rows - begin.rows
    if rows <= 0:
        raise OperatingFault(f"it took nothing in within {scale.speed:g} s")
    return Speed(rows / (end.at_ms - begin.at_ms) * 1e3, (end.written - begin.written) / rows)


def measure_paced(
    contender: Contender, workload: Workload, folder: Path, scale: Scale, rate: float
) -> Paced:
    """Latency at that rate, and the time from SIGKILL to the next result."""
    job = replace(_job(workload, folder, scale), rate=rate)
    if workload is Workload.TIME and contender.any_interval:
        job = replace(job, interval_us=interval_us_of(rate))
    judge = Judge(job)
    with _started(contender, job) as life:
        origin_ms = _fired(life, job, judge, scale.fill)
        _settle(life, job, judge, origin_ms, scale)
        due_from = time.time() * 1e3
        due_to = due_from + scale.latency * 1e3
        kill_at = due_to + scale.tail * 1e3
        if workload is Workload.TIME:
            kill_at = before_a_closing(job, origin_ms, kill_at)
        for line in life.lines(time.monotonic() + kill_at / 1e3 - time.time()):
            judge.hear(line)
        killed_ms, rest = life.kill()
        with _started(contender, job) as next_life:
            for line in rest:
                judge.hear(line)
            recovery_s = (_next_result(next_life, judge) - killed_ms) / 1e3
    judge.check()
    p99, note = _latency(job, judge, origin_ms, (due_from, due_to), scale.tail)
    return Paced(p99, recovery_s, note)


def interval_us_of(rate: float) -> int:
    """The usual interval, or one with which windows close often enough; a part of a window."""
    enough = min(WINDOW_US, max(USUAL_INTERVAL_US, WINDOW_US / (rate * _CLOSING_SECONDS)))
    return next(each for each in range(math.ceil(enough), WINDOW_US + 1) if not WINDOW_US % each)


def _job(workload: Workload, folder: Path, scale: Scale) -> Job:
    return Job(workload, folder, ids=scale.ids, watched=scale.watched, batch_rows=scale.batch_rows)


def _started(contender: Contender, job: Job) -> Application:
    job.folder.mkdir(parents=True, exist_ok=True)
    return Application(contender.command(job), job.folder, environ())


def _await_rows(life: Application, judge: Judge) -> None:
    for line in life.lines(time.monotonic() + _PATIENCE_SECONDS):
        judge.hear(line)
        if isinstance(line, Rows) and line.rows > 0:
            return
    raise OperatingFault(f"it took nothing in for {_PATIENCE_SECONDS:g} s: {life.last_words()}")


def _stretch(life: Application, judge: Judge, marks: Marks, seconds: float) -> tuple[Mark, Mark]:
    """So long, or longer if it works in fits and starts."""
    start = time.monotonic()
    for line in life.lines(start + _PATIENCE_SECONDS):
        judge.hear(line)
        if isinstance(line, Rows):
            marks.hear(line)
        found = marks.stretch(fair=time.monotonic() < start + _LONGER * seconds)
        if found is not None and time.monotonic() > start + seconds:
            return found
    raise OperatingFault(f"it hardly took anything in for {_PATIENCE_SECONDS:g} s")


def _fired(life: Application, job: Job, judge: Judge, fill_seconds: float) -> float:
    """Wait until it is ready and fire the gun; when tuple 0 is, or rather was, due."""
    for line in life.lines(time.monotonic() + _PATIENCE_SECONDS):
        judge.hear(line)
        if isinstance(line, Ready):
            origin_ms = (time.time() + _GUN_SECONDS - fill_seconds) * 1e3
            draft = job.gun.with_suffix(".tmp")
            draft.write_text(repr(origin_ms))
            draft.rename(job.gun)
            return origin_ms
    raise OperatingFault(f"it was not ready in {_PATIENCE_SECONDS:g} s: {life.last_words()}")


def _settle(life: Application, job: Job, judge: Judge, origin_ms: float, scale: Scale) -> None:
    """Let it catch up with what was due at once; one that cannot is measured all the same."""
    start = time.monotonic()
    fresh = False
    for line in life.lines(start + _LONGER * scale.settle):
        judge.hear(line)
        if isinstance(line, Results):
            closed = max(map(judge.oracle.closing_position, line.results))
            fresh = line.at_ms - job.due_ms(closed, origin_ms) < _FRESH_MS
        if fresh and time.monotonic() > start + scale.settle:
            return


def before_a_closing(job: Job, origin_ms: float, earliest_ms: float) -> float:
    """The first moment from then on that is just before the end of a window is due."""
    every_ms = WINDOW_US / job.interval_us / job.rate * 1e3
    before_ms = _BEFORE_CLOSING_SECONDS * 1e3
    number = math.ceil((earliest_ms + before_ms - origin_ms) / every_ms)
    return origin_ms + number * every_ms - before_ms


def _next_result(life: Application, judge: Judge) -> float:
    for line in life.lines(time.monotonic() + _PATIENCE_SECONDS):
        at_ms = judge.first_new(line)
        if at_ms is not None:
            return at_ms
    raise OperatingFault(
        f"no new result was right within {_PATIENCE_SECONDS:g} s after the kill: "
        f"{life.last_words()}"
    )


def _latency(
    job: Job, judge: Judge, origin_ms: float, due: tuple[float, float], tail: float
) -> tuple[float | None, str]:
    """The 99th percentile of the results that were due in that time."""
    values = []
    for at_ms, result in judge.came:
        due_ms = job.due_ms(judge.oracle.closing_position(result), origin_ms)
        if due[0] <= due_ms < due[1]:
            values.append(at_ms - due_ms)
    if not values:
        return None, "no result of the time measured came out before the kill"
    p99 = float(np.percentile(values, 99))
    note = f"{job.rate:,.0f} tuples/s"
    if p99 > tail * 1e3:
        note += "; it did not keep up: later results were not waited for"
    return p99, note
