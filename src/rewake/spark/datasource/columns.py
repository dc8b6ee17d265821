"""Stored columns as Spark's columns.

Spark takes Arrow batches of exactly the types that it would have chosen itself.  Most columns
already are; the others are cast, a batch at a time: unsigned integers to the next wider type,
dictionaries to their values, nanoseconds to microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import SchemaMismatch
from rewake.model.near import did_you_mean
from rewake.spark.datasource.filters import Predicate

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["METADATA", "Projection", "arrow_schema", "chosen", "offered", "spark_schema"]

SHARD: Final = "_shard"
POSITION: Final = "_position"
TIME: Final = "_time"
METADATA: Final = (SHARD, POSITION, TIME)

_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}


# --- schemas ---------------------------------------------------------------------------------


def _readable(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Spark knows; what it does not know is left for it to refuse."""
    if pa.types.is_dictionary(kind):
        return _readable(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_readable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_readable(kind.key_type), _readable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_readable(each.type)) for each in kind])
    return _WIDER.get(kind, kind)


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's schema for these columns; any may be null, whatever the stream promises."""
    from pyspark.errors import PySparkTypeError  # noqa: PLC0415 (slow to import)
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    struct = StructType()
    for field in schema:
        try:
            struct.add(field.name, from_arrow_type(_readable(field.type)), nullable=True)
        except PySparkTypeError:
            raise SchemaMismatch(
                f"column {field.name!r} is of type {field.type}, which Spark does not have; "
                'choose the others with option("columns", "a,b")'
            ) from None
    return struct


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a reader."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 (slow to import)

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.1 has no such argument and means the same
        return to_arrow_schema(schema)


def offered(schema: pa.Schema, time: pa.DataType | None) -> pa.Schema:
    """All columns that can be asked for: the stream's, then those that tell of a row's place."""
    taken = [name for name in METADATA if name in schema.names]
    if taken:
        raise SchemaMismatch(
            f"the stream has a column named {taken[0]!r}, as the place of a row is called; rename "
            "it where the stream is written"
        )
    kinds = (pa.int32(), pa.int64(), time or pa.int64())
    return pa.schema(
        [*schema, *(pa.field(name, kind) for name, kind in zip(METADATA, kinds, strict=True))]
    )


def chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """These columns of a schema, in this order."""
    for name in names:
        found = len(schema.get_all_field_indices(name))
        if found != 1:
            problem = "more than one column" if found else "no column"
            hint = "" if found else did_you_mean(name, schema.names)
            have = ", ".join(schema.names)
            raise SchemaMismatch(f"there is {problem} {name!r}{hint or ';'} there are {have}")
    return pa.schema([schema.field(name) for name in names])


# --- batches ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Projection:
    """Makes batches of the `target` schema of columns of the `source` schema; both are checked."""

    source: pa.Schema
    target: pa.Schema
    predicate: Predicate

    def __post_init__(self) -> None:
        for field in chosen(self.source, self.target.names):
            cast_column(pa.array([], field.type), self.target.field(field.name))

    def batch(self, arrays: Mapping[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        """One batch of the wanted rows, or none when no row is wanted."""
        columns = [cast_column(arrays[field.name], field) for field in self.target]
        batch = self.predicate.keep(pa.RecordBatch.from_arrays(columns, schema=self.target))
        if batch.num_rows:
            yield batch


def cast_column(array: pa.Array, field: pa.Field) -> pa.Array:
    """The column as Spark wants it."""
    if array.type == field.type:
        return array
    try:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        # Spark has no nanoseconds: they are cut off.  Anything else must not lose a digit.
        return array.cast(options=pc.CastOptions(field.type, allow_time_truncate=True))
    except (pa.ArrowException, ValueError) as error:
        raise SchemaMismatch(
            f"column {field.name!r} of type {array.type} cannot be read as {field.type}: {error}"
        ) from error


def constant(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """A column that says the same in every row."""
    return pa.repeat(pa.scalar(value, kind), rows)
