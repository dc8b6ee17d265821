"""Where the logs of a stream are, and what they say of themselves.

A path is a stream's folder, a single log, the folder of a query (whose `streams.json` says which
node's log holds which stream), or a folder of shard logs.  For what a log says see `log.contents`.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from rewake.connectors.streams.commit_logs import check_for_reading
from rewake.connectors.streams.folder import open_stream
from rewake.log.contents import Contents
from rewake.log.files.descriptor import Descriptor, read_descriptor
from rewake.log.files.layout import DESCRIPTOR
from rewake.model.errors import DamagedLog, NotALog, SchemaMismatch, UsageError
from rewake.model.near import did_you_mean
from rewake.stores.edge import local_stores
from rewake.stores.places import local_path

__all__ = [
    "Shard",
    "describe",
    "find_shards",
    "stored_schema",
    "time_type",
]

STREAMS_FILE: Final = "streams.json"
_SHARD_LOGS: Final = "shard-*"


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of a stream: an output of a log."""

    number: int
    path: str
    output: int = 0


# --- finding the logs ------------------------------------------------------------------------


def find_shards(path: str, stream: str | None = None) -> tuple[Shard, ...]:
    """The shards of the stream at `path`, or of the stream of that name in a query's folder."""
    folder = local_path(path)
    if (folder / STREAMS_FILE).is_file():
        return _of_query(folder, stream)
    if stream is not None:
        raise UsageError(
            f"{path} is not the folder of a query, so it has no stream {stream!r}; leave the "
            "option stream out, or give the folder in which the query runs"
        )
    if not (folder / DESCRIPTOR).is_file() and not (folder / "stream.json").is_file():
        logs = sorted(each for each in folder.glob(_SHARD_LOGS) if (each / DESCRIPTOR).is_file())
        if logs:
            return tuple(Shard(number, str(log)) for number, log in enumerate(logs))
        raise _nothing_at(folder)
    found = open_stream(folder).shards
    check_for_reading(found)
    return tuple(Shard(number, str(shard)) for number, shard in enumerate(found))


def _nothing_at(folder: Path) -> NotALog:
    below = sorted(folder.glob("*/LOG")) if folder.is_dir() else []
    if below:
        return NotALog(f"{folder} is not a stream, but {below[0].parent} is one")
    return NotALog(f"there is no stream at {folder}; check the path, or write one first")


def _of_query(folder: Path, stream: str | None) -> tuple[Shard, ...]:
    places = _streams_of(folder)
    known = ", ".join(sorted(places)) or "none"
    if stream is None:
        if len(places) != 1:
            raise UsageError(
                f"{folder} is the folder of a query; say which of its streams to read with the "
                f"option stream: {known}"
            )
        (stream,) = places
    if stream not in places:
        hint = did_you_mean(stream, places) or ";"
        raise UsageError(f"the query in {folder} has no stream {stream!r}{hint} it has: {known}")
    shards = []
    for number, (node, output) in enumerate(places[stream]):
        log = folder / "nodes" / node
        if not (log / DESCRIPTOR).is_file():
            raise NotALog(
                f"stream {stream!r} has no log in {folder}: node {node!r} has not started yet, or "
                "makes its output again when it is asked for; keep the stream with .to_stream(...)"
            )
        shards.append(Shard(number, str(log), output))
    return tuple(shards)


def _streams_of(folder: Path) -> dict[str, list[tuple[str, int]]]:
    try:
        stored = json.loads((folder / STREAMS_FILE).read_bytes())["streams"]
        return {
            str(name): [(str(node), int(output)) for node, output in places]
            for name, places in stored.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedLog(
            f"{folder / STREAMS_FILE} is not readable ({error}); starting the query writes it anew"
        ) from error


# --- what a log says of itself ---------------------------------------------------------------


def describe(shard: Shard) -> Descriptor:
    """The descriptor of a shard's log."""
    with ExitStack() as stack:
        try:
            return read_descriptor(local_stores(shard.path, stack=stack))
        except NotALog as error:
            raise NotALog(f"{shard.path}: {error}") from None


def stored_schema(descriptor: Descriptor, output: int) -> pa.Schema:
    """The columns of an output."""
    schema = Contents(descriptor).schema(output)
    if schema is None:
        raise SchemaMismatch(
            f"log {descriptor.name!r} does not say which columns output {output} has; it holds no "
            "stream of rows (kind=control shows its frames)"
        )
    return schema


def time_type(descriptor: Descriptor, output: int) -> pa.DataType | None:
    """The type of the times of the log's frames; None when it does not say."""
    contents = Contents(descriptor)
    if contents.time is not None:
        schema = stored_schema(descriptor, output)
        place = schema.get_field_index(contents.time)
        return None if place < 0 else schema.field(place).type
    if (times := contents.times) is not None:
        return times
    if (operator := contents.operator) is None:
        return None
    from rewake.graph.times import described_time  # noqa: PLC0415 (slow to import)

    return described_time(operator, contents.rows, contents.schema())
