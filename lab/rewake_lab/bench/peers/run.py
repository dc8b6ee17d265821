"""All contenders, one after the other, workload by workload, and what is left out and why.

What always holds: every combination of workload and contender ends as figures or as a sentence;
an interrupted run keeps what it has; the run ends within its time, and says what it left out.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rewake.model.errors import RewakeError
from rewake_lab.bench.peers.contenders import Contender, folder_of
from rewake_lab.bench.peers.job import Workload
from rewake_lab.bench.peers.lives import QUICK, Scale, measure_paced, measure_speed
from rewake_lab.bench.rows import Progress, Row

# A whole run stays below 30 minutes, a quick one below 5.
_SECONDS: Final = 1_770.0
_QUICK_SECONDS: Final = 290.0
# What one contender may need, before there is experience.
_FIRST_GUESS_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a contender: `less` is better, or more.

    `behind` says why we are not the first where we are not.
    """

    key: str
    title: str
    unit: str
    less: bool
    behind: str


COLUMNS: Final = (
    Column(
        "speed", "throughput", "M tuples/s", less=False,
        behind="Rewake syncs what it logs before it passes a result on.",
    ),
    Column(
        "bytes", "bytes for fault tolerance", "bytes/tuple", less=True,
        behind="Rewake logs all that a crash could cost: a node every result, because its log is "
        "checkpoint and output in one; inside Structured Streaming the rows or the changed state "
        "of every batch. The others write what has changed since the last second or batch, and "
        "their results go to a sink that is not counted.",
    ),
    Column(
        "latency", "latency p99 at half rate", "ms", less=True,
        behind="A result of Rewake is synced to the disk before it is passed on, at half of a "
        "rate that is several times that of the others: where nearly every tuple has a "
        "result, the slowest syncs of the disk show.",
    ),
    Column(
        "recovery", "SIGKILL to next right result", "s", less=True,
        behind="Rewake has to start its processes and to replay what came after the oldest "
        "footprint.",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """A value in the table; `note` where something is to be said about it."""

    workload: Workload
    contender: str
    column: str
    value: float
    note: str = ""


@dataclass
class Outcome:
    """What was measured, with what settings, and what is missing."""

    contenders: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    interrupted: bool = False

    def value(self, workload: Workload, contender: str, column: str) -> float | None:
        """One figure, if there is one."""
        for each in self.figures:
            if (each.workload, each.contender, each.column) == (workload, contender, column):
                return each.value
        return None

    def workloads(self) -> list[Workload]:
        """Those of which there are figures."""
        found = {each.workload for each in self.figures}
        return [workload for workload in Workload if workload in found]

    def rows(self) -> list[Row]:
        """Every figure, and after those of a column how we stand beside the best of the others."""
        rows = []
        for workload in self.workloads():
            for column in COLUMNS:
                rows += self._column(workload, column)
        return rows

    def _column(self, workload: Workload, column: Column) -> list[Row]:
        found = [
            each for each in self.figures if each.workload is workload and each.column == column.key
        ]
        about = f"{workload.label}, {column.title}"
        rows = [
            Row(f"{about}: {each.contender}", each.value, column.unit, note=each.note)
            for each in found
        ]
        best = min if column.less else max
        ours = [each for each in found if self.contenders[each.contender]]
        others = [each for each in found if not self.contenders[each.contender]]
        if ours and others:
            mine, theirs = (best(side, key=lambda each: each.value) for side in (ours, others))
            if theirs.value:
                rows.append(_beside(about, mine, theirs, column))
        return rows

    def behind(self, workload: Workload) -> list[str]:
        """Where another is before us, and why."""
        return [
            f"Not the first: {column.title}, {row.value:.2g} times ({row.note}). {column.behind}"
            for column in COLUMNS
            for row in self._column(workload, column)
            if row.met is False
        ]

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {
            "rows": [row.as_json() for row in self.rows()],
            "settings": self.settings,
            "behind": {each.label: self.behind(each) for each in self.workloads()},
            "missing": self.missing,
            "interrupted": self.interrupted,
        }


def _beside(about: str, mine: Figure, theirs: Figure, column: Column) -> Row:
    target = "<= 1" if column.less else ">= 1"
    note = f"{mine.contender} / {theirs.contender}"
    return Row(f"{about}: ours / best other", mine.value / theirs.value, "ratio", target, note)


def run(
    folder: Path,
    progress: Progress,
    contenders: Sequence[Contender],
    workloads: Sequence[Workload],
    *,
    scale: Scale | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure all; never raises for what a contender does."""
    scale = scale or Scale()
    outcome = Outcome()
    for each in contenders:
        outcome.contenders[each.name] = each.ours
        outcome.settings[each.name] = each.settings
        if each.missing:
            outcome.missing.append(f"{each.name}: {each.missing}")
    todo = [(workload, each) for workload in workloads for each in contenders if not each.missing]
    end = clock() + (_QUICK_SECONDS if scale == QUICK else _SECONDS)
    longest: dict[str, float] = {}
    try:
        while todo:
            workload, each = todo[0]
            about = f"{workload.label}: {each.name}"
            start = clock()
            if workload in each.cannot:
                outcome.missing.append(f"{about}: {each.cannot[workload]}")
            elif start + longest.get(each.name, _FIRST_GUESS_SECONDS) > end:
                outcome.missing.append(f"{about}: left out, because the time of the run was up")
            else:
                _measure(outcome, workload, each, folder, progress, scale)
                longest[each.name] = max(longest.get(each.name, 0.0), clock() - start)
            todo.pop(0)
    except KeyboardInterrupt:
        outcome.interrupted = True
        why = "not finished, because the run was interrupted"
        outcome.missing += [f"{workload.label}: {each.name}: {why}" for workload, each in todo]
    return outcome


def _measure(
    outcome: Outcome,
    workload: Workload,
    contender: Contender,
    parent: Path,
    progress: Progress,
    scale: Scale,
) -> None:
    """The three lives; a failure in one of them costs the figures that follow."""
    about = f"{workload.label}: {contender.name}"
    place = Path(tempfile.mkdtemp(prefix="rewake-bench-", dir=parent))

    def found(column: str, value: float, note: str = "") -> None:
        outcome.figures.append(Figure(workload, contender.name, column, value, note))

    try:
        name = folder_of(contender.name)
        progress(f"{about}, as fast as it can")
        speed = measure_speed(contender, workload, place / f"{name}-fast", scale)
        found("speed", speed.tuples_per_s / 1e6)
        found("bytes", speed.bytes_per_tuple)
        progress(f"{about}, at half of {speed.tuples_per_s:,.0f} tuples/s, then kill -9")
        rate = speed.tuples_per_s / 2
        paced = measure_paced(contender, workload, place / f"{name}-paced", scale, rate)
        found("recovery", paced.recovery_s)
        if workload in contender.no_latency:
            outcome.missing.append(f"{about}, latency: {contender.no_latency[workload]}")
        elif paced.p99_ms is None:
            outcome.missing.append(f"{about}, latency: {paced.note}")
        else:
            found("latency", paced.p99_ms, paced.note)
    except RewakeError as error:
        outcome.missing.append(f"{about}: {error}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
