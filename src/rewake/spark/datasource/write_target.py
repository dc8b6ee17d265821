"""Where a DataFrame is written: the stream that the options of a write lead to.

The stream is made by the first write, with the columns of the DataFrame; later ones must fit it.
Columns are matched by name.  Whatever does not fit is refused on the driver, before a task runs.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pyarrow as pa

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import (
    StreamFolder,
    create_stream,
    open_stream,
    stream_columns,
)
from rewake.log.files.layout import DESCRIPTOR
from rewake.model.errors import LogExists, LogInUse, NotALog, SchemaMismatch, UsageError
from rewake.spark.datasource.columns import METADATA, arrow_schema
from rewake.spark.datasource.options import WriteOptions
from rewake.spark.datasource.staging import Layout

__all__ = ["committer", "prepared_layout"]

_OPEN_STREAMS: Final = 4


# --- the stream ----------------------------------------------------------------------------------


def prepared_layout(options: WriteOptions, spark_schema: Any) -> Layout:
    """The stream as tasks must know it; it is made if it is not there."""
    schema = _stream_schema(spark_schema)
    try:
        folder = _opened(options.path)
    except NotALog:
        folder = _created(options, schema)
    stored, time = stream_columns(folder)
    _check_columns(options.path, stored, schema)
    _check_same("key", options.key, folder.key, options.path)
    _check_same("shards", options.shards, len(folder.shards), options.path)
    _check_same("time", options.time, time, options.path)
    columns = stored.serialize().to_pybytes()
    return Layout(options.path, len(folder.shards), folder.key, time, columns)


def _opened(path: str) -> StreamFolder:
    folder = open_stream(path)
    if folder.shards == (folder.path,):
        if os.path.exists(os.path.join(path, DESCRIPTOR)):
            raise UsageError(
                f"{path} is a single log, which the node or shard that made it writes; write to "
                "the folder of a stream, or to a new path"
            )
        raise NotALog(f"there is no stream at {path}")
    return folder


def _created(options: WriteOptions, schema: pa.Schema) -> StreamFolder:
    if options.key is not None:
        _check_key(schema, options.key)
    shards = options.shards or 1
    try:
        return create_stream(
            options.path, schema, shards=shards, key=options.key, time=options.time
        )
    except (LogExists, LogInUse):
        # Another query may have made it at this moment.
        try:
            return _opened(options.path)
        except NotALog:
            pass
        raise


def _check_key(schema: pa.Schema, key: tuple[str, ...]) -> None:
    """Refuse columns that cannot be keys before any task meets them."""
    from rewake.operators.shuffle import Shuffle  # noqa: PLC0415 (slow to import)

    Shuffle(schema, key, 2)


def _stream_schema(spark_schema: Any) -> pa.Schema:
    """The columns of a DataFrame as those of a stream."""
    names = [field.name for field in spark_schema]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or not names:
        what = f"two columns {doubled[0]!r}" if doubled else "no columns"
        raise SchemaMismatch(f"the DataFrame has {what}; a stream needs columns of different names")
    schema = arrow_schema(spark_schema)
    for field in schema:
        if pa.types.is_null(field.type):
            raise SchemaMismatch(
                f"column {field.name!r} has no type (it is a NULL literal); cast it to one"
            )
        if field.name in METADATA:
            raise SchemaMismatch(
                f"column {field.name!r} has a name that tells of a row's place when a stream is "
                "read; rename it"
            )
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema])


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The same where any value may be null: whether one may is no part of a stream's columns."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _nullable(each.type)) for each in kind])
    return kind


def _check_columns(path: str, stored: pa.Schema, given: pa.Schema) -> None:
    """Refuse other columns than the stream has, by name; their order does not matter."""
    for field in stored:
        if field.name not in given.names:
            raise SchemaMismatch(
                f"the stream at {path} has a column {field.name!r} ({field.type}), the DataFrame "
                f"has none; its columns: {', '.join(given.names)}"
            )
        kind = given.field(field.name).type
        if not _fits(kind, field.type):
            raise SchemaMismatch(
                f"column {field.name!r} is {field.type} in the stream at {path} and {kind} in the "
                "DataFrame; cast it, or write to a new path"
            )
    for name in given.names:
        if name not in stored.names:
            raise SchemaMismatch(
                f"the DataFrame has a column {name!r}, the stream at {path} has none: "
                f"{', '.join(stored.names)}; drop it, or write to a new path"
            )


def _fits(given: pa.DataType, stored: pa.DataType) -> bool:
    """Whether values are the same under both types; zones of times are only for display."""
    if given.equals(stored):
        return True
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(stored):
        return bool(given.unit == stored.unit and bool(given.tz) == bool(stored.tz))
    pairs = ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary()))
    return any({given, stored} == set(pair) for pair in pairs)


def _check_same(name: str, asked: object, found: object, path: str) -> None:
    if asked is not None and asked != found:
        shown = ",".join(found) if isinstance(found, tuple) else found
        raise UsageError(
            f"the stream at {path} was made with {name}={shown}, and that stays; leave option "
            f"{name} out, or write to a new path"
        )


# --- committing ----------------------------------------------------------------------------------

# Spark uses a driver's Python worker again: the next batch goes on with logs that are open.
_committers: dict[str, StreamCommit] = {}


def committer(path: str) -> StreamCommit:
    """The committer of a stream, one for each process."""
    found = _committers.pop(path, None)
    folder = open_stream(path)
    if found is not None and found.folder != folder:
        found.close()
        found = None
    _committers[path] = found = found or StreamCommit(folder)
    while len(_committers) > _OPEN_STREAMS:
        _committers.pop(next(iter(_committers))).close()
    return found
