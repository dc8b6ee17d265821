"""An empty Python data source and sink: what Spark's Python data source API itself allows.

What always holds: `EMPTY` yields one constant Arrow batch again and again, of the columns that
`item_rows` has, and as a sink takes Arrow batches and drops them.  So a source or sink beside it
differs in nothing but what it does with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["EMPTY", "consume", "item_rows", "register_empty", "register_ours"]

EMPTY: Final = "rewake_bench_empty"
_BATCH_ROWS: Final = 100_000


def item_rows(session: SparkSession, rows: int, ids: int) -> DataFrame:
    """So many rows of (item_id int, price int), made by the JVM in two partitions."""
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    item = functions.pmod(functions.hash("id"), functions.lit(ids))
    price = functions.pmod(functions.hash("id", functions.lit(7)), functions.lit(1000))
    return session.range(0, rows, 1, 2).select(item.alias("item_id"), price.alias("price"))


def consume(frame: DataFrame) -> None:
    """Have every row computed, and drop it."""
    frame.write.format("noop").mode("overwrite").save()


def register_ours(session: SparkSession) -> None:
    """Let the session know `format("rewake")`, also when it is not installed as a plug-in."""
    from rewake.spark.datasource.source import RewakeDataSource  # noqa: PLC0415 (needs pyspark)

    session.dataSource.register(RewakeDataSource)


def register_empty(session: SparkSession) -> None:
    """Let the session know `EMPTY`: options `rows` and `partitions`."""
    # The classes are made here, because pyspark is optional.
    from pyspark.sql.datasource import (  # noqa: PLC0415
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        InputPartition,
        WriterCommitMessage,
    )

    class Reader(DataSourceReader):
        def __init__(self, rows: int, partitions: int) -> None:
            self._rows, self._partitions = rows, partitions

        def partitions(self) -> list[Any]:
            return [InputPartition(number) for number in range(self._partitions)]

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 (all alike)
            return _constant_batches(self._rows // self._partitions)

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Empty(DataSource):
        @classmethod
        def name(cls) -> str:
            return EMPTY

        def schema(self) -> str:
            return "item_id int, price int"

        def reader(self, schema: Any) -> Any:  # noqa: ARG002 (Spark's signature)
            return Reader(int(self.options["rows"]), int(self.options["partitions"]))

        def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: ARG002 (Spark's signature)
            return Writer()

    session.dataSource.register(Empty)


def _constant_batches(rows: int) -> Iterator[pa.RecordBatch]:
    import numpy as np  # noqa: PLC0415 (in the worker)
    import pyarrow as pa  # noqa: PLC0415

    numbers = pa.array(np.arange(_BATCH_ROWS, dtype=np.int32))
    batch = pa.RecordBatch.from_arrays([numbers, numbers], names=["item_id", "price"])
    for first in range(0, rows, _BATCH_ROWS):
        yield batch.slice(0, min(_BATCH_ROWS, rows - first))
