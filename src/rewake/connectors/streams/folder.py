"""A stream on disk that several may write and read: one log per shard, and what they share.

    stream.json       {"format": 1, "shards": 3, "key": ["item_id"]}; without a key, it is null
    shard-0000/       the log of the first shard, and so on
    staging/          what is being written (`stream_commit`)

What always holds: `stream.json` appears last and whole, so a folder that has one is complete.
Every shard's log carries the stream's schema in its metadata, and as `time` the name of the column
that gives its frames their time, if there is one.  With a key, all tuples of a key are in one
shard: that of the engine's own shuffle, so a query with as many shards reads what is its.

A folder that is itself a log is a stream of one shard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from rewake.log.contents import Contents, metadata_of
from rewake.log.files.descriptor import Descriptor, Metadata, read_descriptor
from rewake.log.files.layout import DESCRIPTOR
from rewake.log.store import publish
from rewake.model.errors import (
    DamagedLog,
    LogExists,
    LogInUse,
    NotALog,
    UnsupportedVersion,
    UsageError,
)
from rewake.operators.columns.values import TimeColumn, field_of
from rewake.stores import create_log, open_log_reader
from rewake.stores.local import LOCK_NAME, LocalStore
from rewake.stores.places import local_path, refuse_foreign

__all__ = ["StreamFolder", "create_stream", "open_stream", "stream_columns"]

_MANIFEST: Final = "stream.json"
_FORMAT: Final = 1
_MOST_SHARDS: Final = 4096


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """Where the shards of a stream are; `key` is None when rows are not partitioned by one."""

    path: Path
    shards: tuple[Path, ...]
    key: tuple[str, ...] | None


def create_stream(
    path: str | os.PathLike[str],
    schema: pa.Schema,
    *,
    shards: int = 1,
    key: Sequence[str] | None = None,
    time: str | None = None,
) -> StreamFolder:
    """Make a new, empty stream; one that was left half made by a crash is completed.

    Raises LogInUse when another process is making it at this moment.
    """
    if not 1 <= shards <= _MOST_SHARDS:
        raise UsageError(f"a stream has 1 to {_MOST_SHARDS} shards, not {shards}")
    for name in key or ():
        field_of(schema, name, "partition by")
    column = None if time is None else TimeColumn(schema, time).name
    metadata = metadata_of([schema], time=column)
    path = local_path(path)
    store = LocalStore(path, create=True)
    try:
        _check_free(store)
        for number in range(shards):
            _create_shard(path / _shard_name(number), metadata)
        manifest = {"format": _FORMAT, "shards": shards, "key": list(key) if key else None}
        publish(store, _MANIFEST, json.dumps(manifest).encode())
    finally:
        store.close()
    return open_stream(path)


def _check_free(store: LocalStore) -> None:
    """Refuse a folder that is something else; the lock is held until the store is closed."""
    if DESCRIPTOR in store.names():
        raise LogExists(f"{store.path} is a log by itself; choose another folder for the stream")
    if not store.try_lock():
        raise LogInUse(f"another process is making a stream at {store.path}; wait for it")
    if _MANIFEST in store.names():
        raise LogExists(f"{store.path} is a stream already; open it, or choose another folder")
    refuse_foreign(store.path, frozenset({LOCK_NAME}), "a stream")
    _refuse_without_manifest(store.path)


def _create_shard(path: Path, metadata: Metadata) -> None:
    with suppress(LogExists):
        create_log(path, path.name, metadata)
        return
    # An earlier attempt came this far; it may have been one for other columns.
    if _descriptor(path).metadata != metadata:
        raise LogExists(
            f"{path} was left by an attempt to make a stream of other columns; remove {path.parent}"
        )


def _descriptor(path: Path) -> Descriptor:
    store = LocalStore(path)
    try:
        return read_descriptor([store])
    finally:
        store.close()


def stream_columns(folder: StreamFolder) -> tuple[pa.Schema, str | None]:
    """The stream's columns, and which of them gives its frames their time, if one does."""
    contents = Contents(_descriptor(folder.shards[0]))
    schema = contents.schema()
    if schema is None:
        raise UsageError(f"the log {folder.shards[0]} does not say which columns it has")
    return schema, contents.time


def open_stream(path: str | os.PathLike[str]) -> StreamFolder:
    """The stream at `path`, which is a stream's folder or a single log."""
    folder = local_path(path)
    manifest = folder / _MANIFEST
    try:
        stored = json.loads(manifest.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return _single_log(folder)
    except ValueError as error:
        raise DamagedLog(f"{manifest} is not readable: {error}; restore it") from error
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise UnsupportedVersion(f"{manifest} is of another version; use the one that made it")
    count, key = stored.get("shards"), stored.get("key")
    if not isinstance(count, int) or not 1 <= count <= _MOST_SHARDS:
        raise DamagedLog(f"{manifest} names {count!r} shards; restore it")
    paths = tuple(folder / _shard_name(number) for number in range(count))
    return StreamFolder(folder, paths, tuple(key) if key else None)


def _refuse_without_manifest(folder: Path) -> None:
    """Raise when shards have rows, and nothing says how many shards there are.

    An attempt to make the stream that was cut off left empty ones: these are completed.
    """
    for shard in sorted(folder.glob("shard-*")):
        if not (shard / DESCRIPTOR).is_file():
            continue
        with open_log_reader(shard) as reader:
            if reader.end_sequence > 0:
                raise DamagedLog(
                    f"{folder} has the shards of a stream, and no {_MANIFEST}, which says how many "
                    "there are and how rows are divided among them. Nothing was changed: restore "
                    "it from a copy"
                )


def _single_log(folder: Path) -> StreamFolder:
    if not (folder / DESCRIPTOR).is_file():
        _refuse_without_manifest(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise NotALog(f"there is no stream at {folder}; check the path, or write one first")
    return StreamFolder(folder, (folder,), None)


def _shard_name(number: int) -> str:
    return f"shard-{number:04d}"
