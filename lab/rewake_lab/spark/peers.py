"""The item stream as a source of Spark, and what Spark's own state makes of it.

For comparisons in which a source must be paced, replayable and cheap.  What always holds: an offset
is a position; a batch is all that is due, or `batch_rows` where nothing is paced; the same offsets
give the same rows.  Python only says which positions a batch has: the tuples are computed in the
JVM, by the formula of `rewake.connectors.item_stream`, so a query pays nothing for Python workers
that it does not use itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rewake.model.errors import OperatingFault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "POSITIONS",
    "RATE_SETTINGS",
    "count_windows_in_java",
    "item_rows",
    "native_average",
    "register_positions",
]

POSITIONS: Final = "rewake_bench_positions"
# The formula multiplies with overflow.
RATE_SETTINGS: Final = {"spark.sql.ansi.enabled": "false"}
# SplitMix64.
_ODD: Final = 0x9E3779B97F4A7C15
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
_SECOND_FACTOR: Final = 0x94D049BB133111EB
_CHUNK: Final = 8_192
_PARTITIONS: Final = 2
_WAIT_SECONDS: Final = 0.01


def register_positions(session: SparkSession) -> None:
    """Let the session know `POSITIONS`: options rate (0: none), gun (a file), batchRows."""
    # The classes are made here, because pyspark is optional.
    from pyspark.sql.datasource import (  # noqa: PLC0415
        DataSource,
        DataSourceStreamReader,
        InputPartition,
    )

    class Stretch(InputPartition):
        def __init__(self, start: int, stop: int) -> None:
            self.start, self.stop = start, stop

    class Reader(DataSourceStreamReader):
        def __init__(self, rate: float, gun: str, batch_rows: int) -> None:
            self._rate, self._gun, self._batch_rows = rate, gun, batch_rows

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
            return {"position": 0}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802, ARG002
            first = int(start["position"])
            if not self._rate:
                return {"position": first + self._batch_rows}
            return {"position": max(first, due(self._gun, self._rate))}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
            first, last = int(start["position"]), int(end["position"])
            middle = first + (last - first) // _PARTITIONS
            return [Stretch(first, middle), Stretch(middle, last)]

        def read(self, partition: Any) -> Iterator[tuple[int, int]]:
            for start in range(partition.start, partition.stop, _CHUNK):
                yield start, min(start + _CHUNK, partition.stop) - 1

    class Positions(DataSource):
        @classmethod
        def name(cls) -> str:
            return POSITIONS

        def schema(self) -> str:
            return "first bigint, last bigint"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802, ARG002 (Spark's name)
            options = self.options
            return Reader(float(options["rate"]), options["gun"], int(options["batchRows"]))

    session.dataSource.register(Positions)


def due(gun: str, rate: float) -> int:
    """How many tuples are due by now; none before the gun was fired."""
    # Asked without a pause otherwise.
    time.sleep(_WAIT_SECONDS)
    try:
        origin_ms = float(Path(gun).read_text())
    except FileNotFoundError:
        return 0
    return max(0, int((time.time() * 1e3 - origin_ms) * rate / 1e3))


def item_rows(
    session: SparkSession, *, seed: int, ids: int, interval_us: int, rate: float, gun: Path,
    batch_rows: int,
) -> DataFrame:  # fmt: skip
    """The stream of (item_id int, item_price int, item_time timestamp)."""
    chunks = (
        session.readStream.format(POSITIONS)
        .option("rate", repr(rate))
        .option("gun", str(gun))
        .option("batchRows", batch_rows)
        .load()
    )
    rows = chunks.selectExpr("explode(sequence(first, last)) AS position")
    for step in formula_of_items(seed, ids, interval_us):
        # One projection for each step: what is used several times is computed once.
        rows = rows.selectExpr(*step)
    return rows


def formula_of_items(seed: int, ids: int, interval_us: int) -> Iterator[list[str]]:
    """As SQL what `rewake.connectors.item_stream` computes, step by step."""
    key = _signed(_scrambled_number(seed % 2**64))
    start = f"position * {_signed(_ODD)}L + {key}L"
    yield ["position", f"{start} AS chance"]
    for name in ("chance", "more"):
        # The second is made of the first.
        kept = ["position"] if name == "chance" else ["position", "chance"]
        yield [*kept, f"{_mixed('chance', 30)} * {_signed(_FIRST_FACTOR)}L AS {name}"]
        yield [*kept, f"{_mixed(name, 27)} * {_signed(_SECOND_FACTOR)}L AS {name}"]
        yield [*kept, f"{_mixed(name, 31)} AS {name}"]
    item = f"shiftrightunsigned(shiftrightunsigned(more, 32) * {ids}L, 32)"
    price = "shiftrightunsigned(shiftrightunsigned(chance, 32) * 1000L, 32) + 1L"
    # The remainder of an unsigned number: of twice its half, and its last bit.
    within = "pmod(pmod(shiftrightunsigned(more, 1), 10L) * 2L + (more & 1L), 10L)"
    micros = f"position * {interval_us}L + {within} + 1700000000000000L"
    yield [
        f"CAST({item} AS INT) AS item_id",
        f"CAST({price} AS INT) AS item_price",
        f"timestamp_micros({micros}) AS item_time",
    ]


def _mixed(name: str, bits: int) -> str:
    return f"({name} ^ shiftrightunsigned({name}, {bits}))"


def _scrambled_number(value: int) -> int:
    value = (value ^ value >> 30) * _FIRST_FACTOR % 2**64
    value = (value ^ value >> 27) * _SECOND_FACTOR % 2**64
    return value ^ value >> 31


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def native_average(rows: DataFrame, *, windows: bool) -> DataFrame:
    """By Spark's own aggregation: the average per item so far, or per item and ten seconds."""
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    average = functions.avg("item_price").alias("average")
    if not windows:
        last = functions.unix_micros(functions.max("item_time")).alias("at_us")
        return rows.groupBy("item_id").agg(average, last).select("item_id", "average", "at_us")
    marked = rows.withWatermark("item_time", "0 seconds")
    grouped = marked.groupBy("item_id", functions.window("item_time", "10 seconds"))
    return grouped.agg(average).selectExpr(
        "item_id", "average", "unix_micros(window.start) AS at_us"
    )


def count_windows_in_java(session: SparkSession, rows: DataFrame, size: int) -> DataFrame:
    """The average of every `size` tuples of an item, by Spark's `flatMapGroupsWithState`.

    PySpark has no such function that would not call Python once for every item and batch.  The
    class must be on the driver's class path.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415 (optional, slow to import)

    java: Any = session
    try:
        windows = java._jvm.SparkCountWindows.of(rows._jdf, size)
    except TypeError as error:
        raise OperatingFault(
            "the class SparkCountWindows is not on Spark's class path; make it with "
            "`rewake bench peers --setup`"
        ) from error
    return DataFrame(windows, session)
