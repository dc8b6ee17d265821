"""Spark's own stateful aggregation, to be measured beside ours on the same session."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["stateful_rows_per_s"]

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_ROWS_PER_BATCH = 1_000_000
_WARM_BATCHES = 3


def stateful_rows_per_s(session: SparkSession, folder: Path, keys: int, batches: int) -> float:
    """Rows per second of `groupBy(item_id).agg(avg, count)` with RocksDB and its changelog.

    The first batches are left out: a cold JVM understates Spark by a third.
    """
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    session.conf.set("spark.sql.streaming.stateStore.providerClass", _STATE_STORE)
    changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    session.conf.set(changelog, "true")
    rows = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", _ROWS_PER_BATCH)
        .option("numPartitions", 2)
        .load()
    )
    mixed = functions.pmod(functions.hash("value"), functions.lit(keys))
    items = rows.select(
        mixed.alias("item_id"),
        functions.pmod(functions.hash("value", functions.lit(7)), functions.lit(1000)).alias(
            "price"
        ),
    )
    totals = items.groupBy("item_id").agg(functions.avg("price"), functions.count("*"))
    query = (
        totals.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        return _measured(query, batches)
    finally:
        query.stop()


def _measured(query: Any, batches: int) -> float:
    seen: dict[int, tuple[float, float]] = {}
    deadline = time.monotonic() + 120.0
    while len(seen) < _WARM_BATCHES + batches and time.monotonic() < deadline:
        time.sleep(0.2)
        for progress in query.recentProgress:
            rows = float(progress["numInputRows"])
            milliseconds = float(progress["durationMs"].get("triggerExecution", 0))
            if rows and milliseconds:
                seen[int(progress["batchId"])] = (rows, milliseconds / 1e3)
    counted = [seen[number] for number in sorted(seen)[_WARM_BATCHES:]]
    return sum(rows for rows, _ in counted) / sum(seconds for _, seconds in counted)
