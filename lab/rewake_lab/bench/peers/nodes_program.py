"""The contender "Rewake nodes": a query whose source, aggregate and filter are nodes.

    python -m rewake_lab.bench.peers.nodes_program HOST workload=count folder=... ...

HOST is `spark` (tasks of a local Spark) or `processes`.  Results of watched items are read by a
client, as a user's program would read them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.connectors.item_stream import SCHEMA as ITEM_SCHEMA
from rewake.connectors.item_stream import ItemSource, ItemStream
from rewake.drill.starting_gun import WaitingSource
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.net.queries.running import RunningQuery, start_processes
from rewake.operators.keyed.vocabulary import KeyedResult, KeyedTuples
from rewake.operators.windows.specs import count_window, time_window
from rewake_lab.bench.peers.job import USUAL_INTERVAL_US, Job, Workload
from rewake_lab.bench.peers.lines import Result, results_line, rows_line

_EVENT_TUPLES = 131_072
# For latency: a stream event holds what comes in this time.  A running average has a result for
# each item of a stream event: in shorter ones nearly every tuple would have one.
_EVENT_SECONDS = 0.005
_RUNNING_EVENT_SECONDS = 0.02
_TELL_SECONDS = 0.2
# What a user would say: how long a crash may cost, once its process is there again.
PROMISE = "1s"
_SUMS = {"total": (pa.int64(), 0), "count": (pa.int64(), 0)}
_AVERAGES = pa.schema(
    [ITEM_SCHEMA.field("item_id"), ("avg_item_price", pa.float64()),
     ("max_item_time", ITEM_SCHEMA.field("item_time").type)]
)  # fmt: skip


def built(job: Job) -> Query:
    """The query."""
    if job.interval_us != USUAL_INTERVAL_US:
        raise UsageError(f"nodes cannot do {job.workload} with a tuple every {job.interval_us} us")
    query = Query("peers", recover_within=PROMISE)
    running = job.workload is Workload.RUNNING
    seconds = _RUNNING_EVENT_SECONDS if running else _EVENT_SECONDS
    size = max(1024, int(job.rate * seconds)) if job.rate else _EVENT_TUPLES
    items = ItemSource(
        ItemStream(job.seed, job.ids), event_tuples=size, rate=job.rate if job.rate else None
    )
    source = WaitingSource(items, str(job.gun)) if job.rate else items
    stream = query.source("items", source)
    if running:
        averages = stream.process(
            _running_average, by="item_id", state=_SUMS, output=_AVERAGES, name="averages"
        )
    elif job.workload is Workload.COUNT:
        averages = stream.aggregate(
            by="item_id", window=count_window(10), avg="item_price", max="item_time",
            name="averages",
        )  # fmt: skip
    else:
        averages = stream.aggregate(
            by="item_id", window=time_window("10s"), avg="item_price", time="item_time",
            name="averages",
        )  # fmt: skip
    averages.filter(f"item_id < {job.watched}", name="watched").to_stream("watched")
    return query


def _running_average(given: KeyedTuples) -> KeyedResult:
    """The average price of every item of a stream event so far, as of the item's last tuple."""
    starts, ends = given.offsets[:-1], given.offsets[1:]
    prices = given.batch.column("item_price").to_numpy().astype(np.int64)
    total = given.state.column("total").to_numpy() + np.add.reduceat(prices, starts)
    count = given.state.column("count").to_numpy() + (ends - starts)
    state = pa.RecordBatch.from_arrays(
        [pa.array(total), pa.array(count)], schema=given.state.schema
    )
    last = given.batch.column("item_time").take(pa.array(ends - 1))
    columns = [given.keys.column("item_id"), pa.array(total / count), last]
    return KeyedResult(pa.RecordBatch.from_arrays(columns, schema=_AVERAGES), state)


def main(host: str, job: Job) -> None:
    """Run until killed."""
    query = built(job)
    if host == "spark":
        from rewake.spark.start import start  # noqa: PLC0415 (processes do without)

        running = start(query, job.state)
    else:
        running = start_processes(query, job.state)
    with running:
        running.await_start()
        _say("@ready")
        _tell(running, job)


def _tell(running: RunningQuery, job: Job) -> None:
    start, told = _taken_in(running), 0.0
    with running.subscribe("watched", begin=_kept(job.folder)) as results:
        while True:
            event = results.read(timeout=_TELL_SECONDS)
            if event is not None and event.batch.num_rows:
                _say(results_line(_results(event.batch, job), time.time() * 1e3))
                _keep(job.folder, event.end)
            if time.time() - told > _TELL_SECONDS:
                told = time.time()
                _say(rows_line(_taken_in(running) - start, told * 1e3))
                running.await_end(0)


def _taken_in(running: RunningQuery) -> int:
    return int(running.status().get("averages", {}).get("input_position", 0))


def _kept(folder: Path) -> int:
    """From where to read: what a client had before it was killed, it has still."""
    try:
        return int((folder / "read").read_text())
    except (OSError, ValueError):
        return 0


def _keep(folder: Path, position: int) -> None:
    draft = folder / "read.tmp"
    draft.write_text(str(position))
    draft.rename(folder / "read")


def _results(batch: Any, job: Job) -> list[Result]:
    column = "window_start" if job.workload is Workload.TIME else "max_item_time"
    when = batch.column(column).to_numpy(zero_copy_only=False).astype(np.int64)
    items, averages = batch.column("item_id").to_pylist(), batch.column("avg_item_price")
    return [Result(*each) for each in zip(items, when.tolist(), averages.to_pylist(), strict=True)]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Job.of(sys.argv[2:]))
