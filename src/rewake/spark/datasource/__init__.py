"""`format("rewake")`: streams of Rewake as DataFrames.

    source         the class that Spark knows; makes readers and writers
    options        what a read or a write may be asked for, checked as a whole
    streams        where the logs of a stream are, and what they say of themselves
    stretches      a stretch of a log, from planning to Arrow batches
    columns        stored columns as Spark's columns; `filters` are those left to the reader
    batch_read     history and control tuples; `state` has the eventual checkpoint
    stream_read    micro-batches
    write_target   the stream that a write leads to; tasks stage (`staging`), the driver commits
                   (`batch_write`, `stream_write`)

What always holds: reading changes nothing and locks nothing, so a stream may be read while it is
written; every row is given once; what has been trimmed is an error, never a gap.

Importing this package needs no pyspark.  Its modules do: Spark imports them, and so does whoever
asks for `RewakeDataSource`.
"""

from typing import Any

__all__ = ["RewakeDataSource"]


def __getattr__(name: str) -> Any:
    if name != "RewakeDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rewake.spark.datasource.source import RewakeDataSource  # noqa: PLC0415 (needs pyspark)

    return RewakeDataSource
