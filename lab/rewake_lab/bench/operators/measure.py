"""`rewake bench operators`: every operator alone, on one core and one disk.

Each runs as the planner would run it: what has state, or unites streams, is logged and synced under
continuous eventual checkpointing; filters, maps and splits make their output again on demand and
keep no log, unless a map makes several tuples of one.  Databases are files of SQLite.  Of operators
with state also: what one part takes in a snapshot, and how many parts a second can be snapshotted
and restored.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rewake.log.columns import pack_columns
from rewake.model.errors import Unavailable, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.stateful import StoredParts
from rewake.recovery.approach import Turn, approach_named
from rewake.stores import create_log, open_log_writer
from rewake_lab.bench.core import bench_folder
from rewake_lab.bench.operators.cases import Case
from rewake_lab.bench.operators.cases import cases as other_cases
from rewake_lab.bench.operators.databases import (
    LookupCase,
    SinkWriting,
    WritingCase,
    database_cases,
)
from rewake_lab.bench.rows import Measured, Part, Progress, Row, measure

__all__ = ["cases", "run"]


def cases() -> Iterator[Case]:
    """All of them: those that need nothing, then those with a database."""
    yield from other_cases()
    yield from database_cases()


class _Transparent:
    """Steps without a log: apply, encode for forwarding."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def run(self, events: Iterable[StreamEvent]) -> float:
        start = time.perf_counter()
        for event in events:
            for _, batch in self._case.program.apply(event.batch):
                batch.serialize()
        return time.perf_counter() - start

    def close(self) -> None:
        """Nothing is open."""


class _Logged:
    """A program under CEC with a stable log; a run ends when all of it is durable."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.operator = case.program.operator(*case.schemas)
        self._recovery = approach_named("cec").build(self.operator, case.program.emit, ())
        create_log(folder, "bench")
        self._writer = open_log_writer(folder)

    def run(self, events: Iterable[StreamEvent]) -> float:
        start = time.perf_counter()
        for event in events:
            record = self._turn(event).record
            if record is not None:
                self._writer.append(record)
        self._writer.flush()
        return time.perf_counter() - start

    def _turn(self, event: StreamEvent) -> Turn:
        while True:
            try:
                return self._recovery.turn(event)
            except Unavailable:
                continue  # a database that has not answered yet was waited for

    @property
    def position(self) -> int:
        """The next input position."""
        return self._recovery.position

    def close(self) -> None:
        self._writer.close()


def measure_case(case: Case, folder: Path, rounds: int) -> list[Row]:
    with bench_folder(folder) as path:
        contender = _contender(case, path)
        turns = case.turns()
        contender.run(next(turns) for _ in range(case.warm))
        seconds = [
            contender.run([next(turns) for _ in range(case.measured)]) for _ in range(rounds)
        ]
        state = _state(case, contender) if isinstance(contender, _Logged) else []
        contender.close()
    tuples = case.measured * case.event_tuples
    rate = tuples / 1e6 / statistics.median(seconds)
    return [Row(case.name, rate, "M tuples/s", case.target, case.note), *state]


def _contender(case: Case, folder: Path) -> _Logged | _Transparent | SinkWriting:
    if isinstance(case, WritingCase):
        return SinkWriting(folder)
    if isinstance(case, LookupCase):
        return _Logged(case.at(folder), folder / "log")
    return _Logged(case, folder) if case.logged else _Transparent(case)


def _state(case: Case, contender: _Logged) -> list[Row]:
    """What the open parts take, and how fast they are snapshotted and restored."""
    operator = contender.operator
    slots = np.flatnonzero(operator.opened_at >= 0).astype(np.int32)
    if not slots.size:
        return []
    start = time.perf_counter()
    columns = operator.snapshot_columns(slots)
    size = len(pack_columns(columns))
    taken = time.perf_counter() - start
    ids = operator.ids_of(slots)
    applied = np.full(slots.size, contender.position - 1)
    stored = StoredParts(ids, applied, [columns], [np.arange(slots.size)], [slots.size])
    nothing = StoredParts(ids[:0], ids[:0], [], [], [])
    fresh = case.program.operator(*case.schemas)
    start = time.perf_counter()
    fresh.restore(nothing, stored, clock=operator.clock, late_tuples=0)
    restored = time.perf_counter() - start
    note = f"{slots.size:,} open parts"
    return [
        Row(f"{case.name}: state", size / slots.size, "bytes per part", note=note),
        Row(f"{case.name}: snapshot", slots.size / 1e6 / taken, "M parts/s"),
        Row(f"{case.name}: restore", slots.size / 1e6 / restored, "M parts/s"),
    ]


def run(
    folder: Path, progress: Progress, *, quick: bool = False, only: Sequence[str] = ()
) -> Measured:
    """All figures, or those of cases whose names start with one of `only`."""
    chosen = [case for case in cases() if not only or case.name.startswith(tuple(only))]
    if not chosen:
        known = ", ".join(case.name for case in cases())
        raise UsageError(f"no operator is called {only[0]!r}; there are: {known}")
    rounds = 3 if quick else 9
    parts: list[Part] = [
        (case.name, partial(measure_case, case, folder, rounds)) for case in chosen
    ]
    return measure(parts, progress)
