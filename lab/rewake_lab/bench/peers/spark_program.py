"""The contenders on Structured Streaming: `rewake.aggregate`, and Spark's own state.

    python -m rewake_lab.bench.peers.spark_program WAY JAR workload=count folder=... ...

WAY is `ours` or `own` (RocksDB with changelog).  Both have one source, one sink and one Spark.  JAR
holds the class that Spark's own state needs for count windows; "-" for none.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import datetime
from typing import Any

from rewake.spark.session import local_session
from rewake_lab.bench.peers.job import WINDOW_TUPLES, Job, Workload
from rewake_lab.bench.peers.lines import Result, results_line, rows_line
from rewake_lab.spark.peers import (
    RATE_SETTINGS,
    count_windows_in_java,
    item_rows,
    native_average,
    register_positions,
)
from rewake_lab.spark.state import use_state_store

_CORES = 2
_SHARDS = 2
_MEMORY = "4g"
_POLL_SECONDS = 0.05
_STATE_STORE = "RocksDB with changelog"
SETTINGS = {
    "spark.driver.memory": _MEMORY,
    "spark.sql.shuffle.partitions": str(_SHARDS),
    "spark.sql.session.timeZone": "UTC",
    **RATE_SETTINGS,
}


def main(way: str, jar: str, job: Job) -> None:
    """Run until killed."""
    conf = SETTINGS | ({"spark.driver.extraClassPath": jar} if jar != "-" else {})
    session = local_session(cores=_CORES, conf=conf)
    use_state_store(session, _STATE_STORE)
    register_positions(session)
    rows = item_rows(
        session, seed=job.seed, ids=job.ids, interval_us=job.interval_us, rate=job.rate,
        gun=job.gun, batch_rows=job.batch_rows,
    )  # fmt: skip
    results = ours(rows, job) if way == "ours" else own(session, rows, job)
    _run(results, job)


def ours(rows: Any, job: Job) -> Any:
    """By `rewake.aggregate`: item_id, average, when."""
    from rewake.operators.windows.specs import count_window, running_window, time_window  # noqa: PLC0415
    from rewake.spark.structured.aggregate import aggregate  # noqa: PLC0415 (heavy)

    at = str(job.state / "at")
    if job.workload is Workload.TIME:
        windows = aggregate(
            by="item_id", window=time_window("10s"), avg="item_price", time="item_time", at=at,
            shards=_SHARDS,
        )  # fmt: skip
        when = "window_start"
    else:
        counted = job.workload is Workload.COUNT
        windows = aggregate(
            by="item_id", window=count_window(WINDOW_TUPLES) if counted else running_window(),
            avg="item_price", max="item_time", order_by="item_time" if counted else False, at=at,
            shards=_SHARDS,
        )  # fmt: skip
        when = "max_item_time"
    return rows.transform(windows).selectExpr(
        "item_id", "avg_item_price AS average", f"unix_micros({when}) AS at_us"
    )


def own(session: Any, rows: Any, job: Job) -> Any:
    """By Spark's own operators: item_id, average, when."""
    if job.workload is Workload.COUNT:
        windows = count_windows_in_java(session, rows, WINDOW_TUPLES)
        return windows.selectExpr("item_id", "average", "unix_micros(last) AS at_us")
    return native_average(rows, windows=job.workload is Workload.TIME)


def _run(results: Any, job: Job) -> None:
    appended = job.workload is not Workload.RUNNING
    writer = results.writeStream.outputMode("append" if appended else "update")
    writer = writer.option("checkpointLocation", str(job.state / "checkpoint"))
    watched = f"item_id < {job.watched}"

    def tell(frame: Any, number: int) -> None:  # noqa: ARG001 (Spark's signature)
        # The plan below ends here: every result is computed, few are brought to the driver.
        found = [Result(row[0], row[2], row[1]) for row in frame.where(watched).collect()]
        if found:
            _say(results_line(found, time.time() * 1e3))

    query = writer.foreachBatch(tell).start()
    _say("@ready")
    rows, seen = 0, -1
    while query.exception() is None:
        for progress in query.recentProgress:
            if int(progress["batchId"]) > seen and int(progress["numInputRows"]):
                seen, rows = int(progress["batchId"]), rows + _positions(progress)
                _say(rows_line(rows, _ended_ms(progress)))
        time.sleep(_POLL_SECONDS)
    raise SystemExit(str(query.exception()))


def _positions(progress: Any) -> int:
    """How many tuples a batch had: its rows, for Spark, are the stretches that Python named."""
    source = progress["sources"][0]
    return _position(source["endOffset"]) - _position(source["startOffset"])


def _position(offset: Any) -> int:
    """Spark gives an offset as text or as what the text says, and None before the first."""
    said = json.loads(offset) if isinstance(offset, str) else offset
    return int(said["position"]) if said else 0


def _ended_ms(progress: Any) -> float:
    started = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1e3
    return started + float(progress["durationMs"].get("triggerExecution", 0))


_LOCK = threading.Lock()


def _say(line: str) -> None:
    # Batches are told from another thread.
    with _LOCK:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Job.of(sys.argv[3:]))
