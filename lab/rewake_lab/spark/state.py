"""Spark's own state, to be measured beside ours: one source, one sink, several ways to keep state.

What always holds: every contender reads `items` (made by the JVM, replayable, the same rows for the
same batch) and writes to `noop`, so what differs between two of them is how state is kept.  What
a query is started with is in the session's settings when it starts, and stays with the query.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "STATE_STORES",
    "count_windows_by_apply",
    "count_windows_by_transform",
    "items",
    "running_average",
    "start_to_nowhere",
    "stateful_rows_per_s",
    "use_state_store",
]

_PROVIDERS: Final = "org.apache.spark.sql.execution.streaming.state."
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
# By what a row of a table calls them.
STATE_STORES: Final[Mapping[str, Mapping[str, str]]] = {
    "RocksDB with changelog": {
        _PROVIDER: _PROVIDERS + "RocksDBStateStoreProvider",
        _CHANGELOG: "true",
    },
    "RocksDB": {
        _PROVIDER: _PROVIDERS + "RocksDBStateStoreProvider",
        _CHANGELOG: "false",
    },
    "default provider": {
        _PROVIDER: _PROVIDERS + "HDFSBackedStateStoreProvider",
        _CHANGELOG: "false",
    },
}
_RESULT: Final = "item_id int, average double"
_STATE: Final = "tuples int, total double"
_ROWS_PER_BATCH = 1_000_000
_WARM_BATCHES = 3


def use_state_store(session: SparkSession, name: str) -> None:
    """Let queries that are started from now on keep their state in this one of `STATE_STORES`."""
    for key, value in STATE_STORES[name].items():
        session.conf.set(key, value)


def items(session: SparkSession, rows_per_batch: int, ids: int) -> DataFrame:
    """A stream of (item_id int, price int); ids are spread evenly and in no order."""
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    rows = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_per_batch)
        .option("numPartitions", 2)
        .load()
    )
    item = functions.pmod(functions.hash("value"), functions.lit(ids))
    price = functions.pmod(functions.hash("value", functions.lit(7)), functions.lit(1000))
    return rows.select(item.alias("item_id"), price.alias("price"))


def running_average(rows: DataFrame) -> DataFrame:
    """The average price per item so far, by Spark's own aggregation."""
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    return rows.groupBy("item_id").agg(functions.avg("price").alias("average"))


def count_windows_by_apply(rows: DataFrame, size: int) -> DataFrame:
    """The average price of every `size` tuples of an item, by `applyInPandasWithState`."""

    def windows(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        tuples, total = state.get if state.exists else (0, 0.0)
        tuples, total, averages = _windows_of(frames, size, tuples, total)
        state.update((tuples, total))
        yield _result(key[0], averages)

    grouped: Any = rows.groupBy("item_id")
    frame: DataFrame = grouped.applyInPandasWithState(
        windows, _RESULT, _STATE, "update", "NoTimeout"
    )
    return frame


def count_windows_by_transform(rows: DataFrame, size: int) -> DataFrame:
    """The same by `transformWithStateInPandas`, which keeps its state in RocksDB alone."""
    from pyspark.sql.streaming import StatefulProcessor  # noqa: PLC0415 (optional)

    class Windows(StatefulProcessor):
        """One open window per item."""

        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("window", _STATE)

        def handleInputRows(  # noqa: N802 (Spark's name)
            self,
            key: tuple[int],
            rows: Iterator[Any],
            timerValues: Any,  # noqa: ARG002, N803 (Spark's name)
        ) -> Iterator[Any]:
            tuples, total = self._state.get() or (0, 0.0)
            tuples, total, averages = _windows_of(rows, size, tuples, total)
            self._state.update((tuples, total))
            yield _result(key[0], averages)

        def close(self) -> None:
            """Nothing is held."""

    grouped: Any = rows.groupBy("item_id")
    frame: DataFrame = grouped.transformWithStateInPandas(
        statefulProcessor=Windows(),
        outputStructType=_RESULT,
        outputMode="Update",
        timeMode="None",
    )
    return frame


def _windows_of(
    frames: Iterator[Any], size: int, tuples: int, total: float
) -> tuple[int, float, list[float]]:
    """The open window after these rows, and the averages of those that they closed."""
    averages = []
    for frame in frames:
        for price in frame["price"].tolist():
            tuples, total = tuples + 1, total + price
            if tuples == size:
                averages.append(total / size)
                tuples, total = 0, 0.0
    return tuples, total, averages


def _result(item: int, averages: list[float]) -> Any:
    import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415 (optional, slow)

    return pd.DataFrame({"item_id": [item] * len(averages), "average": averages})


def start_to_nowhere(frame: DataFrame, checkpoint: Path) -> Any:
    """Start the query with a sink that does nothing; one batch follows the other at once."""
    return (
        frame.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


def stateful_rows_per_s(session: SparkSession, folder: Path, keys: int, batches: int) -> float:
    """Rows per second of `groupBy(item_id).agg(avg, count)` with RocksDB and its changelog.

    The first batches are left out: a cold JVM understates Spark by a third.
    """
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    use_state_store(session, "RocksDB with changelog")
    rows = items(session, _ROWS_PER_BATCH, keys)
    totals = rows.groupBy("item_id").agg(functions.avg("price"), functions.count("*"))
    query = start_to_nowhere(totals, folder / "checkpoint")
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
