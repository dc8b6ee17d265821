"""Queries that are compared by `rewake bench structured`, and how a stretch of one is measured.

A contender keeps its checkpoint and its state from stretch to stretch: it is stopped so that the
next one has the machine for itself, and goes on later where it was, also with batches of another
size.  What always holds: the time of a batch is Spark's own (`triggerExecution` of its progress);
the first batches of a stretch, in which state is loaded and processes start, are not counted.

What Spark's state stores write is everything that appears in their folders while batches of a size
run: the changes of every batch, and the snapshots that are uploaded now and then.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rewake.log.frame import SectionKind
from rewake.model.errors import OperatingFault
from rewake.stores import open_log_reader
from rewake_lab.spark.state import (
    count_windows_by_apply,
    count_windows_by_transform,
    items,
    running_average,
    start_to_nowhere,
    use_state_store,
)

HEADLINE: Final = "RocksDB with changelog"
# Spark's own choice where nobody says: all state in the JVM's heap.
DEFAULT: Final = "default provider"
OURS: Final = "rewake"
SHARDS: Final = 2
PER_KEY: Final = {
    "applyInPandasWithState": count_windows_by_apply,
    "transformWithStateInPandas": count_windows_by_transform,
}
_POLL_SECONDS: Final = 0.2
_LONGEST_STRETCH_SECONDS: Final = 240.0
_CHANGES: Final = re.compile(r"(\d+)(?:_.+)?\.(?:changelog|delta)")
# A snapshot of RocksDB is a list of its files, and those of them that are not there yet.
_SNAPSHOT_SUFFIXES: Final = (".zip", ".sst", ".log", ".snapshot")


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A new folder under `parent`, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="rewake-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch, as Spark's progress told it."""

    number: int
    rows: int
    seconds: float

    @classmethod
    def of(cls, progress: Any) -> Batch:
        """Read Spark's progress."""
        milliseconds = float(progress["durationMs"].get("triggerExecution", 0))
        return cls(int(progress["batchId"]), int(progress["numInputRows"]), milliseconds / 1e3)


@dataclass
class Written:
    """What appeared in the folders of a state store while batches of one size ran."""

    batches: int = 0
    bytes: int = 0
    snapshot_files: int = 0


@dataclass
class Contender:
    """A streaming query from `items` to nowhere; `written` tells its bytes per batch number.

    `appeared` holds, by rows per batch, what its state store wrote in all; `files` are those that
    it has written so far, also if they are gone again.
    """

    name: str
    session: Any
    folder: Path
    ids: int
    build: Callable[[Any], Any]
    written: Callable[[Contender], Mapping[int, int]]
    store: str = HEADLINE
    measured: list[Batch] = field(default_factory=list)
    appeared: dict[int, Written] = field(default_factory=dict)
    files: dict[Path, int] = field(default_factory=dict)

    def run(self, rows: int, *, skip: int, count: int) -> float:
        """Go on with batches of `rows`; the median seconds of `count`, after `skip` others."""
        self.look()
        before = set(self.files)
        query = self.start(rows)
        try:
            batches = _await_batches(self.name, query, rows, skip + count, self.look)[skip:]
        finally:
            query.stop()
        self.look()
        new = {path: size for path, size in self.files.items() if path not in before}
        count_new(self.appeared.setdefault(rows, Written()), new)
        self.measured += batches
        return statistics.median(batch.seconds for batch in batches)

    def look(self) -> None:
        """Take note of the state store's files; one that is still being written may grow."""
        for path, size in state_files(self.folder).items():
            self.files[path] = max(size, self.files.get(path, 0))

    def start(self, rows: int) -> Any:
        """The running query."""
        use_state_store(self.session, self.store)
        frame = self.build(items(self.session, rows, self.ids))
        return start_to_nowhere(frame, self.folder / "checkpoint")

    def bytes_per_batch(self, rows: int) -> float:
        """What a measured batch of so many rows wrote for fault tolerance, on average."""
        written = self.written(self)
        numbers = [batch.number for batch in self.measured if batch.rows == rows]
        sizes = [written[number] for number in numbers if number in written]
        if not sizes:
            raise OperatingFault(f"{self.name} left no trace of batches {numbers} on disk")
        return statistics.fmean(sizes)

    def everything_per_batch(self, rows: int) -> float:
        """What the state store wrote for a batch of so many rows, with its share of snapshots."""
        found = self.appeared.get(rows, Written())
        if not found.batches:
            raise OperatingFault(f"{self.name} left no state of batches of {rows} rows on disk")
        return found.bytes / found.batches


def count_new(written: Written, new: Mapping[Path, int]) -> None:
    """Add files that have appeared to what was written: batches, bytes."""
    changes = [_CHANGES.fullmatch(path.name) for path in new]
    written.batches += len({int(named[1]) for named in changes if named is not None})
    written.bytes += sum(new.values())
    written.snapshot_files += sum(path.suffix in _SNAPSHOT_SUFFIXES for path in new)


def ours(session: Any, folder: Path, ids: int, window: Any) -> Contender:
    """The average price per item and window, by `rewake.aggregate`."""
    from rewake.spark.structured.aggregate import aggregate  # noqa: PLC0415 (heavy)

    transform = aggregate(
        by="item_id",
        window=window,
        avg="price",
        at=str(folder / "at"),
        shards=SHARDS,
        order_by=False,
    )
    return Contender(
        OURS,
        session,
        folder,
        ids,
        lambda rows: rows.transform(transform),
        lambda made: log_bytes_by_batch(made.folder),
    )


def native(session: Any, folder: Path, ids: int, store: str = HEADLINE) -> Contender:
    """The running average per item, by Spark's own aggregation on this state store."""
    return Contender(store, session, folder, ids, running_average, _changes, store)


def per_key(session: Any, folder: Path, ids: int, api: str, size: int) -> Contender:
    """Count windows per item by one of Spark's Python state APIs."""
    build = PER_KEY[api]
    return Contender(api, session, folder, ids, lambda rows: build(rows, size), _changes)


def _changes(made: Contender) -> Mapping[int, int]:
    # Not what is there now: a state store removes files of old versions from time to time.
    return state_bytes_by_batch(made.files)


def _await_batches(
    name: str, query: Any, rows: int, count: int, look: Callable[[], None]
) -> list[Batch]:
    """The first `count` batches of this size; one that was planned before may have another."""
    deadline = time.monotonic() + _LONGEST_STRETCH_SECONDS
    seen = -1
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        look()
        if (failure := query.exception()) is not None:
            raise OperatingFault(f"{name} failed: {failure}")
        last = query.lastProgress
        if last is None or int(last["batchId"]) == seen:
            continue
        seen = int(last["batchId"])
        batches = [Batch.of(progress) for progress in query.recentProgress]
        batches = [batch for batch in batches if batch.rows == rows]
        if len(batches) >= count:
            return batches[:count]
    raise OperatingFault(
        f"{name} did not get through {count} batches of {rows:,} rows in "
        f"{_LONGEST_STRETCH_SECONDS:g} s; measure on a machine that does nothing else"
    )


def state_files(folder: Path) -> dict[Path, int]:
    """The sizes of all files that Spark's state stores have for fault tolerance now.

    Hidden files are left out: checksums, and what is not yet under its name.
    """
    sizes: dict[Path, int] = {}
    for path in (folder / "checkpoint" / "state").rglob("*"):
        # A file may be gone before it is looked at.
        with suppress(FileNotFoundError):
            if not path.name.startswith(".") and path.is_file():
                sizes[path] = path.stat().st_size
    return sizes


def state_bytes_by_batch(files: Mapping[Path, int]) -> dict[int, int]:
    """Bytes of what state stores wrote for each batch as its changes: snapshots come on top."""
    sizes: dict[int, int] = {}
    for path, size in files.items():
        if (named := _CHANGES.fullmatch(path.name)) is not None:
            # Version 1 is what the first batch, number 0, left.
            batch = int(named[1]) - 1
            sizes[batch] = sizes.get(batch, 0) + size
    return sizes


def log_bytes_by_batch(folder: Path) -> dict[int, int]:
    """Bytes of the frames in all shard logs, for batches that all shards still have."""
    shards = [_frame_bytes(path) for path in sorted((folder / "at").glob("shard-*"))]
    if not shards:
        return {}
    complete = set.intersection(*(set(sizes) for sizes in shards))
    return {batch: sum(sizes[batch] for sizes in shards) for batch in complete}


def _frame_bytes(shard: Path) -> dict[int, int]:
    sizes: dict[int, int] = {}
    with open_log_reader(shard) as reader:
        for frame in reader.frames():
            identity = frame.section(SectionKind.BATCH)
            if identity is not None:
                batch = int.from_bytes(identity[16:24], "little")
                sizes[batch] = sizes.get(batch, 0) + frame.length
    return sizes


def medians(runs: Sequence[Sequence[float]]) -> list[float]:
    """The median of every contender's rounds."""
    return [statistics.median(run) for run in runs]
