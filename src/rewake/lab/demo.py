"""The core demonstration: stream, SIGKILL, recover, finish, compare with the oracle.

The parent plays upstream, downstream and fate.  As upstream it decides how much input is there: a
worker that is to be killed gets no more than a few stream events beyond the point of the kill, so
it can never finish first, however slow the parent is.  As downstream it notes what the worker says
is durable and, after each kill, that the log still has it.  As fate it kills at a moment drawn from
the seed.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google_crc32c import value as crc32c

from rewake.connectors.item_stream import SCHEMA
from rewake.lab.demo_check import ItemResult, Verdict, compare, expected_results
from rewake.lab.demo_process import WorkerDied, WorkerProcess
from rewake.lab.demo_worker import EVENT_TUPLES, WorkerSettings
from rewake.log.frame import Frame, SectionKind
from rewake.log.verify import verify
from rewake.model.errors import LogExists, UsageError
from rewake.operators.aggregate import Aggregate
from rewake.operators.spec_json import spec_to_json
from rewake.recovery.continuous_eventual_checkpointing import result_batch
from rewake.stores import create_log, open_log_reader
from rewake.stores.edge import local_stores

__all__ = ["DemoReport", "DemoSettings", "Kill", "Observer", "Recovery", "run_demo"]

# Each life of a worker must be long enough for a kill in the middle of it.
_EVENTS_PER_LIFE = 10
_LONGEST_WAIT_SECONDS = 0.004
MOST_KILLS = 50


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the demo streams, and how often it kills."""

    folder: Path
    tuples: int
    items: int
    window: int
    kills: int
    seed: int

    def __post_init__(self) -> None:
        if min(self.tuples, self.items, self.window) < 1:
            raise UsageError("tuples, keys and window must be at least 1")
        if not 0 <= self.kills <= MOST_KILLS:
            raise UsageError(f"{self.kills} kills; choose 0 to {MOST_KILLS}")
        if self.kills and self.tuples < (
            needed := (self.kills + 1) * _EVENTS_PER_LIFE * EVENT_TUPLES
        ):
            raise UsageError(
                f"{self.tuples} tuples are over before {self.kills} kills can land; stream at "
                f"least {needed} (--tuples), or kill less often (--kills)"
            )

    @property
    def log(self) -> Path:
        """Where the log is."""
        return self.folder / "log"

    def worker(self, available: int) -> WorkerSettings:
        """The settings of a worker whose input ends, for now, at `available`."""
        return WorkerSettings(
            log=str(self.log),
            seed=self.seed,
            items=self.items,
            window=self.window,
            tuples=self.tuples,
            available=min(available, self.tuples),
        )


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL and what it left: frames the worker had called durable, and frames in the log.

    `waiting` tells that the kill came late: all the input there was had been processed.
    """

    pid: int
    position: int
    frames_durable: int
    frames_found: int
    torn_bytes: int
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a worker came back; `start_ms` is Python, imports and compiled kernels."""

    pid: int
    epoch: int
    start_ms: float
    open_ms: float
    load_ms: float
    replay_ms: float
    windows: int
    extent_records: int
    extent_frames: int
    extent_bytes: int
    from_position: int
    tuples_replayed: int

    @property
    def total_ms(self) -> float:
        """From opening the log to being where the crash was; the start is not in it."""
        return self.open_ms + self.load_ms + self.replay_ms


@dataclass(slots=True)
class DemoReport:
    """What happened, and whether the log is right."""

    settings: DemoSettings
    kills: list[Kill] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    frames: int = 0
    log_bytes: int = 0
    results: int = 0
    live_tuples: int = 0
    live_seconds: float = 0.0
    # Frames that were called durable and were gone, or not the same, after a kill.
    broken_promises: int = 0
    verdict: Verdict | None = None
    seconds: float = 0.0

    @property
    def tuples_per_s(self) -> float:
        """Speed while streaming, input generation and durable writes included."""
        return self.live_tuples / self.live_seconds if self.live_seconds else 0.0

    @property
    def right(self) -> bool:
        """Whether every check succeeded."""
        return self.broken_promises == 0 and self.verdict is not None and self.verdict.right


class Observer:
    """What a host of the demo may want to show; by default, nothing."""

    def stage(self, text: str, total: int) -> None:
        """Something with `total` tuples to go through begins."""

    def progress(self, done: int) -> None:
        """So many of them are done."""

    def started(self, pid: int, start_ms: float) -> None:
        """A worker is ready."""

    def killed(self, kill: Kill) -> None:
        """A worker has been killed."""

    def recovered(self, recovery: Recovery) -> None:
        """A worker has come back."""

    def finished(self, report: DemoReport) -> None:
        """The whole stream has been processed."""

    def checked(self, report: DemoReport) -> None:
        """Every result has been compared."""


def run_demo(settings: DemoSettings, observer: Observer) -> DemoReport:
    """Do all of it; the log stays in `settings.folder`."""
    began = time.perf_counter()
    _create_log(settings)
    demo = _Demo(settings, observer)
    chance = random.Random(settings.seed)
    for number in range(settings.kills):
        demo.run_and_kill(_kill_position(settings, number, chance), chance)
    demo.run_to_the_end()
    demo.check()
    demo.report.seconds = time.perf_counter() - began
    return demo.report


def _create_log(settings: DemoSettings) -> None:
    """Create the log, with what is needed to read it: its schema and what made it."""
    spec = settings.worker(0).spec()
    metadata: dict[str, str | bytes] = {
        "schema": Aggregate(spec, SCHEMA).output_schema.serialize().to_pybytes(),
        "operator": json.dumps(spec_to_json(spec)),
    }
    try:
        create_log(settings.log, "demo", metadata)
    except LogExists:
        raise LogExists(
            f"{settings.log} is there already; remove it, or choose another --folder"
        ) from None


def _kill_position(settings: DemoSettings, number: int, chance: random.Random) -> int:
    """Somewhere in the middle half of this worker's share of the stream."""
    share = settings.tuples / (settings.kills + 1)
    return int(share * (number + 0.25 + chance.random() / 2))


class _Demo:
    """The run so far."""

    def __init__(self, settings: DemoSettings, observer: Observer) -> None:
        self.report = DemoReport(settings)
        self._settings = settings
        self._observer = observer
        # What downstream knows: frames called durable, and the checksums of their results.
        self._durable = 0
        self._position = 0
        self._promised: dict[int, int] = {}
        self._lives = 0

    def run_and_kill(self, position: int, chance: random.Random) -> None:
        """One worker's life, ended once input up to `position` is durable, and a moment later."""
        share = self._settings.tuples // (self._settings.kills + 1)
        available = position + min(share // 2, 40 * EVENT_TUPLES)
        available -= available % EVENT_TUPLES
        with WorkerProcess(self._settings.worker(available)) as worker:
            messages = self._listen(worker)
            for _ in messages:
                if self._position >= position:
                    break
            else:
                worker.check_ended_well()
                raise WorkerDied(f"worker {worker.pid} ended before it could be killed")
            time.sleep(chance.random() * _LONGEST_WAIT_SECONDS)
            worker.kill()
            for _ in messages:  # what it had said before it died
                pass
        self._look_at_the_log(worker.pid, waiting=self._position >= available)

    def run_to_the_end(self) -> None:
        """The last worker's life."""
        with WorkerProcess(self._settings.worker(self._settings.tuples)) as worker:
            for _ in self._listen(worker):
                pass
            worker.check_ended_well()
        self._observer.finished(self.report)

    def check(self) -> None:
        """Compare the log with the oracle, and with what was seen of it before each kill."""
        settings, report = self._settings, self.report
        self._observer.stage("checking every result with the oracle", settings.tuples)
        expected = expected_results(
            settings.worker(0).stream(), settings.tuples, settings.window, self._observer.progress
        )
        with open_log_reader(settings.log) as reader:
            report.verdict = compare(self._emitted(reader.frames()), expected)
        report.broken_promises += len(self._promised)
        self._observer.checked(report)

    def _listen(self, worker: WorkerProcess) -> Iterator[dict[str, Any]]:
        """Pass on what a worker says, having taken note of it."""
        self._lives += 1
        self._observer.stage("starting a worker", 0)
        base, start_ms, last = self._position, 0.0, 0.0
        for message in worker.messages():
            event = message.pop("event")
            if event == "ready":
                start_ms = (time.perf_counter() - worker.started) * 1000
                self._observer.started(worker.pid, start_ms)
            elif event == "recovered":
                base = message["from_position"] + message["tuples_replayed"]
                self._note_recovery(Recovery(pid=worker.pid, start_ms=start_ms, **message))
                self._observer.stage("streaming", self._settings.tuples)
            elif event == "durable":
                self._durable, self._position = message["frames"], message["position"]
                last = message["seconds"]
                self._observer.progress(self._position)
            elif event == "waiting":
                self._position = message["position"]
            elif event == "done":
                last = message["seconds"]
                self._position = self._settings.tuples
            yield message
        self.report.live_tuples += max(0, self._position - base)
        self.report.live_seconds += last

    def _note_recovery(self, recovery: Recovery) -> None:
        if self._lives > 1:
            self.report.recoveries.append(recovery)
            self._observer.recovered(recovery)

    def _look_at_the_log(self, pid: int, *, waiting: bool) -> None:
        """What the kill left; everything that was called durable is read and noted."""
        with ExitStack() as stack:
            found = verify(local_stores(self._settings.log, stack=stack))
        kill = Kill(
            pid, self._position, self._durable, found.end_sequence, found.torn_bytes, waiting
        )
        self.report.kills.append(kill)
        self.report.broken_promises += max(0, self._durable - found.end_sequence)
        with open_log_reader(self._settings.log) as reader:
            for frame in reader.frames():
                if frame.sequence < self._durable:
                    self._promised.setdefault(frame.sequence, _checksum(frame))
        self._observer.killed(kill)

    def _emitted(self, frames: Iterator[Frame]) -> Iterator[ItemResult]:
        """The results in the log, in order; promises that are kept are crossed off."""
        schema = Aggregate(self._settings.worker(0).spec(), SCHEMA).output_schema
        for frame in frames:
            self.report.frames += 1
            self.report.log_bytes += frame.length
            if self._promised.get(frame.sequence) == _checksum(frame):
                del self._promised[frame.sequence]
            batch = result_batch(frame, schema)
            if batch is None:
                continue
            self.report.results += batch.num_rows
            closed_at = batch.column("closed_at").cast("int64").to_pylist()
            items = batch.column("item_id").to_pylist()
            yield from map(ItemResult, items, closed_at, batch.column("average").to_pylist())


def _checksum(frame: Frame) -> int:
    results = frame.section(SectionKind.RESULTS)
    return 0 if results is None else int(crc32c(bytes(results)))
