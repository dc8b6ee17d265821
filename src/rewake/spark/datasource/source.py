"""The data source `rewake`, as Spark knows it.

`schema`, `reader` and the like are called in processes of their own on the driver's machine; what
they return travels to the tasks.  Nothing is open in a reader before it is used.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource

from rewake.model.errors import UsageError
from rewake.spark.daemon import leave_quietly
from rewake.spark.datasource.batch_read import (
    ControlReader,
    HistoryReader,
    PushingReader,
    Reader,
)
from rewake.spark.datasource.columns import (
    METADATA,
    arrow_schema,
    chosen,
    spark_schema,
)
from rewake.spark.datasource.options import CONTROL, STATE, Mode, ReadOptions, read_options
from rewake.spark.datasource.plainly import plainly
from rewake.spark.datasource.streams import Shard, describe, find_shards, stored_schema, time_type

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["RewakeDataSource"]

# The process in which Spark pushes filters down.
_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
# Spark plans in workers of this daemon, whatever its setting says of those that run tasks.
_OWN_DAEMON: Final = "pyspark.daemon"


class RewakeDataSource(DataSource):
    """Streams of Rewake: `spark.read.format("rewake").load(path)` and its siblings."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rewake"

    @plainly
    def schema(self) -> StructType:
        """The columns of the stream, or those that the options choose."""
        options = read_options(self.options)
        reader = _reader(options, find_shards(options.path, options.stream))
        return spark_schema(_default_columns(options, reader.source))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of history, control tuples or state."""
        options = read_options(self.options, Mode.BATCH)
        shards = find_shards(options.path, options.stream)
        reader = _reader(options, shards)
        reader.asked_for(arrow_schema(schema))
        # Spark refuses readers that take filters over unless it is set to push them down; only the
        # process that asks for it must see one.
        pushing = _PUSHING in sys.modules or _main_name() == _PUSHING
        return PushingReader(reader) if pushing else reader

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of micro-batches."""
        from rewake.spark.datasource.stream_read import StreamReader  # noqa: PLC0415

        options = read_options(self.options, Mode.STREAM)
        shards = find_shards(options.path, options.stream)
        stored, time = _stored(shards[0])
        return StreamReader(shards, options, stored, time, arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of batches."""
        from rewake.spark.datasource.batch_write import RewakeBatchWriter  # noqa: PLC0415

        return RewakeBatchWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        """A writer of micro-batches."""
        from rewake.spark.datasource.stream_write import RewakeStreamWriter  # noqa: PLC0415

        return RewakeStreamWriter(dict(self.options), schema)


def _main_name() -> str:
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(specification, "name", "")


if _main_name() == _OWN_DAEMON:
    leave_quietly(sys.modules["__main__"])


def _stored(shard: Shard) -> tuple[pa.Schema, pa.DataType | None]:
    if (Path(shard.path).parent / "operator.json").is_file():
        raise UsageError(
            f"{shard.path} is the state of an operator inside Structured Streaming, whose results "
            "go to its query's sink; read kind=state or kind=control here, or let the query write "
            "its results into a stream and read that"
        )
    descriptor = describe(shard)
    return stored_schema(descriptor, shard.output), time_type(descriptor, shard.output)


def _default_columns(options: ReadOptions, columns: pa.Schema) -> pa.Schema:
    """The columns of a read for which no schema is given, of all that there are."""
    hidden = () if options.metadata or options.kind != "results" else METADATA
    names = options.columns or [name for name in columns.names if name not in hidden]
    if options.metadata and options.columns:
        names = [*names, *(name for name in METADATA if name not in names)]
    return chosen(columns, names)


def _reader(options: ReadOptions, shards: tuple[Shard, ...]) -> Reader:
    if options.kind == STATE:
        from rewake.spark.datasource.state.read import StateReader  # noqa: PLC0415 (slow)

        return StateReader(shards, options, describe(shards[0]))
    if options.kind == CONTROL:
        descriptor = describe(shards[0])
        return ControlReader(shards, options, time_type(descriptor, shards[0].output))
    stored, time = _stored(shards[0])
    return HistoryReader(shards, options, stored, time)
