"""`rewake bench core`: the operator, its checkpoints and its log, on one core and one disk.

One operator runs on one thread; the log's I/O thread writes and syncs beside it.  Sources are made
before the clock starts, and results are encoded for forwarding in every run, so that the runs with
and without fault tolerance differ in nothing but fault tolerance.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.log.writing.pipeline import Limits
from rewake.model.errors import OperatingFault
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly
from rewake.stores import create_log, open_log_reader, open_log_writer
from rewake_lab.bench.rows import (
    Measured,
    Part,
    Progress,
    Row,
    alternate,
    measure,
    median_ratio,
)

_EVENT_TUPLES = 10_000
_INTEGERS = pa.schema([("item_id", pa.int32()), ("item_price", pa.int32())])
_STRINGS = pa.schema([("item_id", pa.string()), ("item_price", pa.int32())])
_TUMBLING = AggregateSpec(["item_id"], count_window(10), [Avg("item_price")])
_SLIDING = AggregateSpec(["item_id"], count_window(10, every=2), [Avg("item_price")])
_MEGABYTE = 1 << 20
# Nobody waits for a single result here: a batch may gather until it is worth a sync.
_FOR_THROUGHPUT = Limits(gather_ms=100.0, gather_bytes=4 << 20)


@contextmanager
def bench_folder(parent: Path) -> Iterator[Path]:
    """A folder that is gone afterwards, on the disk that is measured."""
    path = Path(tempfile.mkdtemp(prefix="rewake-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def item_batches(keys: int, count: int, *, strings: bool = False) -> list[pa.RecordBatch]:
    """Stream events of the item stream with uniformly distributed keys, seeded."""
    random = np.random.default_rng(keys)
    schema = _STRINGS if strings else _INTEGERS
    names = pa.array([f"item-{number:08d}" for number in range(keys)]) if strings else None
    batches = []
    for _ in range(count):
        ids = pa.array(random.integers(0, keys, _EVENT_TUPLES, np.int32))
        prices = pa.array(random.integers(1, 1000, _EVENT_TUPLES, np.int32))
        columns = [names.take(ids) if names is not None else ids, prices]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return batches


class _Native:
    """The operator without fault tolerance: process, encode results for forwarding."""

    def __init__(self, spec: AggregateSpec, batches: list[pa.RecordBatch]) -> None:
        self._operator = Aggregate(spec, batches[0].schema)
        self._batches = batches
        self._turns = 0

    def run(self, turns: int) -> float:
        start = time.perf_counter()
        for _ in range(turns):
            batch = self._batches[self._turns % len(self._batches)]
            event = StreamEvent(self._turns * _EVENT_TUPLES, batch)
            results = self._operator.process(event).results
            if results is not None:
                results.serialize()
            self._turns += 1
        return time.perf_counter() - start


class _Checkpointed:
    """The same operator under CEC with a stable log; a run ends when all of it is durable."""

    def __init__(self, spec: AggregateSpec, batches: list[pa.RecordBatch], folder: Path) -> None:
        operator = Aggregate(spec, batches[0].schema)
        self.approach = ContinuousEventualCheckpointing(operator, OpenOnly())
        self._batches = batches
        self._turns = 0
        create_log(folder, "bench")
        self.writer = open_log_writer(folder, limits=_FOR_THROUGHPUT)
        self._folder = folder

    def run(self, turns: int) -> float:
        start = time.perf_counter()
        for _ in range(turns):
            batch = self._batches[self._turns % len(self._batches)]
            turn = self.approach.turn(StreamEvent(self._turns * _EVENT_TUPLES, batch))
            if turn.record is not None:
                self.writer.append(turn.record)
            self._turns += 1
        self.writer.flush()
        return time.perf_counter() - start

    def bytes_per_tuple(self) -> float:
        """Bytes in the log per input tuple."""
        size = sum(each.stat().st_size for each in self._folder.iterdir())
        return size / (self._turns * _EVENT_TUPLES)


def _warm_turns(keys: int) -> int:
    """Enough turns for the windows of all keys to be open at all stages."""
    return max(50, keys * 15 // _EVENT_TUPLES)


def _throughput(folder: Path, rounds: int) -> list[Row]:
    """Aggregate with CEC and a stable log against the same operator without."""
    batches = item_batches(100_000, 400)
    with bench_folder(folder) as path:
        native, checkpointed = _Native(_TUMBLING, batches), _Checkpointed(_TUMBLING, batches, path)
        for contender in (native, checkpointed):
            contender.run(_warm_turns(100_000))
        turns = 1000
        without, with_log = alternate(
            [lambda: native.run(turns), lambda: checkpointed.run(turns)], rounds
        )
        per_tuple = checkpointed.bytes_per_tuple()
        checkpointed.writer.close()
    million = turns * _EVENT_TUPLES / 1e6
    note = "100,000 int32 keys, count windows of 10, stream events of 10,000"
    return [
        Row("aggregate", million / statistics.median(without), "M tuples/s", note=note),
        Row(
            "aggregate + CEC + stable log",
            million / statistics.median(with_log),
            "M tuples/s",
            ">= 15",
        ),
        Row("with / without fault tolerance", median_ratio(without, with_log), "ratio", ">= 0.95"),
        Row("log bytes per input tuple", per_tuple, "bytes"),
    ]


def _variant(
    folder: Path, name: str, spec: AggregateSpec, batches: list[pa.RecordBatch], target: str
) -> Row:
    """Throughput of another kind of key or window, with CEC and a stable log."""
    with bench_folder(folder) as path:
        checkpointed = _Checkpointed(spec, batches, path)
        checkpointed.run(_warm_turns(100_000))
        seconds = [checkpointed.run(100) for _ in range(5)]
        checkpointed.writer.close()
    rate = 100 * _EVENT_TUPLES / 1e6 / statistics.median(seconds)
    return Row(name, rate, "M tuples/s", target)


def _key_growth(folder: Path, rounds: int) -> Row:
    """Cost per tuple with a million keys against a thousand."""
    few, many = item_batches(1_000, 400), item_batches(1_000_000, 400)
    with bench_folder(folder) as first, bench_folder(folder) as second:
        small = _Checkpointed(_TUMBLING, few, first)
        large = _Checkpointed(_TUMBLING, many, second)
        small.run(_warm_turns(1_000))
        large.run(_warm_turns(1_000_000))
        less, more = alternate([lambda: small.run(300), lambda: large.run(300)], rounds)
        small.writer.close()
        large.writer.close()
    return Row("cost per tuple, 1,000,000 / 1,000 keys", median_ratio(more, less), "ratio", "< 2")


def open_many_windows(windows: int) -> float:
    """Open so many integer-keyed windows under CEC; the process's peak memory in MiB."""
    import resource  # noqa: PLC0415 (needed in the child process only)

    approach = ContinuousEventualCheckpointing(Aggregate(_TUMBLING, _INTEGERS), OpenOnly())
    step = 100_000
    for first in range(0, windows, step):
        ids = np.arange(first, first + step, dtype=np.int32)
        batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids)], schema=_INTEGERS)
        approach.turn(StreamEvent(first, batch))
    assert approach.operator.open_parts == windows
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _memory() -> Row:
    code = "from rewake_lab.bench.core import open_many_windows as o; print(o(10_000_000))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OperatingFault(f"the memory benchmark's child process failed: {done.stderr[-500:]}")
    return Row("peak memory, 10 million open windows", float(done.stdout), "MiB", "<= 2048")


def _checkpoint_load(folder: Path) -> Row:
    """Rebuild an operator from an eventual checkpoint of 500,000 records, files not cached."""
    batches = item_batches(250_000, 400)
    with bench_folder(folder) as path:
        checkpointed = _Checkpointed(_TUMBLING, batches, path)
        extent = 0
        while extent < 500_000:
            checkpointed.run(10)
            extent = checkpointed.approach.extent().records
        checkpointed.writer.close()
        seconds = [_load_cold(path) for _ in range(5)]
    name = f"eventual checkpoint of {extent:,} records, cold"
    return Row(name, statistics.median(seconds), "s", "< 0.25", "the paper: 27 s (Fig. 6)")


def _load_cold(path: Path) -> float:
    for each in path.iterdir():
        with each.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    with open_log_reader(path) as reader:
        ContinuousEventualCheckpointing.recover(
            Aggregate(_TUMBLING, _INTEGERS), OpenOnly(), reader.frames_backwards()
        )
    return time.perf_counter() - start


def _append_against_dd(folder: Path, rounds: int) -> list[Row]:
    """Megabytes per second of stable appends, and of `dd` writing the same and syncing as often."""
    payload = np.random.default_rng(1).bytes(_MEGABYTE - 256)
    record = TurnRecord(0, 0, 0, 0, 0, (Section(SectionKind.RESULTS, payload),))
    count = 128

    def append() -> float:
        with bench_folder(folder) as path:
            create_log(path, "bench")
            with open_log_writer(path, limits=Limits(batch_bytes=_MEGABYTE)) as writer:
                start = time.perf_counter()
                for _ in range(count):
                    writer.append(record)
                writer.flush()
                return time.perf_counter() - start

    def dd() -> float:
        with bench_folder(folder) as path:
            (path / "input").write_bytes(payload * count)
            command = [
                "dd",
                f"if={path / 'input'}",
                f"of={path / 'output'}",
                "bs=1M",
                f"count={count}",
                "oflag=dsync",
                "status=none",
            ]
            start = time.perf_counter()
            subprocess.run(command, check=True)
            return time.perf_counter() - start

    ours, theirs = alternate([append, dd], rounds)
    note = f"{count} writes of 1 MiB, each synced; dd copies the same bytes from a cached file"
    return [
        Row("append, 1 MiB per sync", count / statistics.median(ours), "MiB/s", note=note),
        Row("dd oflag=dsync bs=1M", count / statistics.median(theirs), "MiB/s"),
        Row("append / dd", median_ratio(theirs, ours), "ratio", ">= 0.7"),
    ]


def run(folder: Path, progress: Progress, *, quick: bool = False) -> Measured:
    """All figures; `quick` runs fewer rounds, for trying it out."""
    rounds = 3 if quick else 11
    parts: list[Part] = [
        ("throughput with and without fault tolerance", lambda: _throughput(folder, rounds)),
        (
            "string keys",
            lambda: [
                _variant(
                    folder,
                    "string keys + CEC + stable log",
                    _TUMBLING,
                    item_batches(100_000, 100, strings=True),
                    ">= 4",
                )
            ],
        ),
        (
            "sliding windows",
            lambda: [
                _variant(
                    folder,
                    "sliding windows (10 by 2) + CEC + stable log",
                    _SLIDING,
                    item_batches(100_000, 100),
                    ">= 4",
                )
            ],
        ),
        ("a thousand and a million keys", lambda: [_key_growth(folder, rounds)]),
        ("ten million open windows", lambda: [_memory()]),
        ("loading an eventual checkpoint", lambda: [_checkpoint_load(folder)]),
        ("appending against dd", lambda: _append_against_dd(folder, rounds)),
    ]
    return measure(parts, progress)
