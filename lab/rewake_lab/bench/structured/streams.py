"""How fast DataFrames go into a stream and come out of it, beside a data source that does nothing.

Both sides are Python data sources, run in turns on the same session, over rows of the same shape.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rewake_lab.bench.rows import Row, alternate, median_ratio
from rewake_lab.bench.structured.contenders import SHARDS, medians, scratch
from rewake_lab.spark.source import EMPTY, consume, item_rows, register_empty, register_ours

_IDS: Final = 100_000


def stream_rows(session: Any, parent: Path, rows: int, rounds: int) -> list[Row]:
    """Batch reads and writes of so many rows."""
    register_ours(session)
    register_empty(session)
    with scratch(parent) as folder:
        stream = folder / "stream"
        frame = item_rows(session, rows, _IDS)

        def write() -> float:
            shutil.rmtree(stream, ignore_errors=True)
            writer = frame.write.format("rewake").mode("append").option("shards", SHARDS)
            return _timed(lambda: writer.save(str(stream)))

        def drop() -> float:
            return _timed(lambda: frame.write.format(EMPTY).mode("append").save())

        def read() -> float:
            return _timed(lambda: consume(session.read.format("rewake").load(str(stream))))

        def repeat() -> float:
            constant = session.read.format(EMPTY).option("rows", rows).option("partitions", SHARDS)
            return _timed(lambda: consume(constant.load()))

        return [
            *_compared("write", "sink", write, drop, rows, rounds),
            *_compared("read", "source", read, repeat, rows, rounds),
        ]


def _compared(
    verb: str,
    thing: str,
    ours: Callable[[], float],
    empty: Callable[[], float],
    rows: int,
    rounds: int,
) -> list[Row]:
    for contender in (ours, empty):
        contender()
    mine, theirs = alternate([ours, empty], rounds)
    fast, bare = (rows / 1e6 / seconds for seconds in medians([mine, theirs]))
    name = f'format("rewake") {verb}'
    return [
        Row(name, fast, "M rows/s", ">= 1", f"a batch {verb} of {rows:,} rows (int, int)"),
        Row(f"an empty Python data {thing}, {verb}", bare, "M rows/s"),
        Row(f"{name} / empty data {thing}", median_ratio(theirs, mine), "ratio", ">= 0.8"),
    ]


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
