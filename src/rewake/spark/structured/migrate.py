"""Another number of shards for an operator inside Structured Streaming, without losing anything.

The state in `at` is read and left as it is; a new folder gets it, divided as Spark's own hash will
divide the rows.  The query goes on with the new folder, the new number of shards and its old
checkpointLocation: exactly once, since each new shard begins with the record of the last batch and
what of its results is now its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.graph.checks import MAX_SHARDS
from rewake.log.contents import place_metadata
from rewake.log.files.descriptor import Descriptor, Metadata
from rewake.model.errors import LogExists, LogInUse, NotALog, UsageError
from rewake.net.shards.folder import ShardFolder, new_identity
from rewake.net.shards.histories import check_pasts
from rewake.net.shards.state import Description, check_place
from rewake.node.micro_batches.shard_batches import BatchRecord
from rewake.operators.columns.arrays import Array
from rewake.recovery.approach import RESULTS_OUTPUT
from rewake.recovery.self_contained.engine import SelfContained, repeat
from rewake.recovery.self_contained.migration import ShardParts, first_record, parts_of
from rewake.stores import LogWriter, create_log, open_log_reader, open_log_writer
from rewake.stores.places import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Migrated", "migrate"]


class Migrated(NamedTuple):
    """What was moved: so many windows, after which batch of which query."""

    windows: int
    old_shards: int
    shards: int
    batch: int
    query: str


class _OldShard(NamedTuple):
    descriptor: Descriptor
    description: Description
    parts: ShardParts
    identity: bytes
    results: list[pa.RecordBatch]
    columns: int


def migrate(session: SparkSession, at: str | Path, to: str | Path, shards: int) -> Migrated:
    """Copy the state in `at` to the new folder `to`, divided among `shards`.

    The query must have been stopped, after a batch that all shards have taken.
    """
    at, to = local_path(at), local_path(to)
    if not 1 <= shards <= MAX_SHARDS:
        raise UsageError(f"shards is a number from 1 to {MAX_SHARDS}, not {shards}")
    source, target = ShardFolder(str(at)), ShardFolder(str(to))
    stored = source.operator()
    if stored is None:
        raise NotALog(f"{at} holds no state of an operator inside Structured Streaming")
    if target.path.exists() and any(target.path.iterdir()):
        raise LogExists(f"{to} is not empty; give a new folder for the divided state")
    with ExitStack() as stack:
        for number in range(stored["shards"]):
            # As long as we hold the logs nobody else can go on with them.
            stack.enter_context(_claimed(source.shard(number)))
        old = [_read(source, number, stored["shards"]) for number in range(stored["shards"])]
    identity = _common_identity(old, source)
    last = BatchRecord.decode(identity).identity
    keys = list(old[0].description.spec.by)
    placed = [_placed(session, keys, each.parts, shards) for each in old]
    old = [each._replace(parts=parts) for each, parts in zip(old, placed, strict=True)]
    results = _divided_results(session, keys, old, shards)
    target_id = new_identity()
    for shard in range(shards):
        place = place_metadata(target_id, shard, shards)
        _write(target.shard(shard), old, shard, place, identity, results[shard])
    # Last: a folder that says what it holds is complete.
    same = {name: stored[name] for name in ("operator", "columns")}
    target.publish_operator({**same, "shards": shards}, target_id)
    windows = sum(each.parts.ids.size for each in old)
    return Migrated(windows, len(old), shards, last.batch, last.query_text)


def _claimed(shard: Path) -> LogWriter:
    """A shard's log, which nobody writes meanwhile."""
    try:
        return open_log_writer(shard)
    except LogInUse as error:
        raise LogInUse(
            f"a host still has the state in {shard.parent}: it outlives the query by ten minutes, "
            f"or ends with the application. End that, or wait, then migrate ({error})"
        ) from None


def _read(source: ShardFolder, number: int, shards: int) -> _OldShard:
    path = source.shard(number)
    with open_log_reader(path) as reader:
        descriptor = reader.descriptor
        check_place(descriptor, source, number, shards)
        description = Description.of_log(descriptor, path)
        state = SelfContained.recover(description.build, reader.frames_backwards())
        if state.identity is None:
            raise UsageError(f"{path} has no batch yet: there is no state to divide")
        again = repeat(description.build, reader.frames_backwards())
    results = [batch for output, batch in again if output == RESULTS_OUTPUT]
    return _OldShard(
        descriptor, description, parts_of(state), state.identity, results, state.columns
    )


def _common_identity(old: list[_OldShard], source: ShardFolder) -> bytes:
    """The batch that all shards have recorded last, with the same rows and the same past."""
    records = [BatchRecord.decode(each.identity) for each in old]
    if len({(each.identity, each.rows) for each in records}) > 1:
        batches = sorted(each.batch for each in records)
        raise UsageError(
            f"the shards in {source.path} have come to different batches ({batches[0]} to "
            f"{batches[-1]}), or to different plans of one: the query ended within a batch; start "
            "it once more until that batch is done, stop it with query.stop(), then migrate"
        )
    batch = records[0].batch
    pasts = {shard: record.past_of(batch) for shard, record in enumerate(records)}
    check_pasts(source, pasts, batch)
    return old[0].identity


def _placed(session: SparkSession, names: list[str], parts: ShardParts, shards: int) -> ShardParts:
    return parts._replace(shards=_shards_of(session, names, parts.keys, shards))


def _shards_of(session: SparkSession, names: list[str], keys: list[pa.Array], shards: int) -> Array:
    """The shard of each row, by the hash that divides a streaming DataFrame's rows."""
    from pyspark.sql import functions  # noqa: PLC0415 (only who migrates needs it)

    if not keys or not len(keys[0]):
        return np.zeros(0, np.int64)
    frame = session.createDataFrame(pa.Table.from_arrays(keys, names=names))
    number = functions.pmod(functions.hash(*names), functions.lit(shards)).alias("shard")
    found: Any = frame.select(number).toArrow().column("shard").to_numpy()
    return np.asarray(found, np.int64)


def _divided_results(
    session: SparkSession, keys: list[str], old: list[_OldShard], shards: int
) -> list[list[pa.RecordBatch]]:
    """The results of the newest batch by new shard, in case the batch is asked for again."""
    divided: list[list[pa.RecordBatch]] = [[] for _ in range(shards)]
    for batch in (batch for each in old for batch in each.results):
        missing = [name for name in keys if name not in batch.schema.names]
        if missing:
            raise UsageError(
                f"the last batch had results that do not say {missing[0]!r}, so nobody could tell "
                "which shard would give them again: add the key columns to the output, or stop the "
                "query after a batch without results"
            )
        numbers = _shards_of(session, keys, [batch.column(name) for name in keys], shards)
        for shard in np.unique(numbers):
            rows = pa.array(np.flatnonzero(numbers == shard))
            divided[shard].append(batch.take(rows))
    return divided


def _write(
    path: Path,
    old: list[_OldShard],
    shard: int,
    place: Metadata,
    identity: bytes,
    results: list[pa.RecordBatch],
) -> None:
    one = pa.concat_batches(results) if results else None
    record = first_record(
        old[0].description.build,
        [each.parts for each in old],
        shard,
        identity,
        [] if one is None else [(RESULTS_OUTPUT, one)],
        old[0].columns,
    )
    create_log(path, path.name, {**old[0].descriptor.metadata, **place})
    with open_log_writer(path) as writer:
        writer.append(record)
        writer.flush()
