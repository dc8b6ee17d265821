"""Streams of steps that have no time of their own are read by date, too."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import rewake
from rewake.graph.query import Query
from rewake.spark.datasource.batch_read import opened, stated_range
from rewake.spark.datasource.columns import Projection
from rewake.spark.datasource.filters import Predicate
from rewake.spark.datasource.options import read_options
from rewake.spark.datasource.streams import describe, find_shards, stored_schema, time_type
from rewake.spark.datasource.stretches import Stretch, read_stretch

MINUTE = 60_000_000
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def minutes(first: int, kind: str = "us") -> rewake.Batches:
    """Ten tuples, one for each minute from noon on, each a stream event."""
    start = int(NOON.timestamp()) * 1_000_000
    times = pa.array([start + (first + n) * MINUTE for n in range(10)], pa.timestamp("us"))
    table = pa.table({"k": range(first, first + 10), "at": times.cast(pa.timestamp(kind))})
    return rewake.Batches(table, event_tuples=1, time_column="at")


def build() -> Query:
    """A union, both sides of a split, and a join."""
    query = Query("dates")
    one, two = query.source("one", minutes(0)), query.source("two", minutes(0))
    both = one.union(two, name="both")
    both.to_stream("both")
    for name, stream in both.split({"low": "k < 5"}, rest="high", name="parts").items():
        stream.map({"k": "k", "then": "at"}, name=f"{name}-mapped").to_stream(name)
    one.join(two, on="k", within="1 minute", time="at", name="pairs").to_stream("pairs")
    return query


def test_every_step_knows_the_unit_of_its_time() -> None:
    """From its sources; of sources that differ, nobody knows."""
    plan = build().plan()
    assert {each.time for each in plan.nodes} == {pa.timestamp("us")}
    mixed = Query("mixed")
    second = mixed.source("seconds", minutes(0, "s")).map({"k": "k"})
    mixed.source("micros", minutes(0)).map({"k": "k"}).union(second, name="both").to_stream("both")
    assert mixed.plan().node("both").time is None
    plain = Query("plain")
    plain.entry("entry", pa.schema([("at", pa.timestamp("us"))])).to_stream("entry")
    assert plain.plan().node("entry").time is None, "producers may tell it in any unit"


def test_outputs_of_join_union_and_split_are_read_by_date(tmp_path: Path) -> None:
    """Half of the minutes are before five past twelve."""
    with rewake.start_processes(build(), tmp_path) as running:
        assert running.await_end(60.0)
    options = read_options({"path": str(tmp_path), "fromTime": "2026-03-01T12:05:00"})
    for name in ("both", "low", "high", "pairs"):
        (shard,) = find_shards(str(tmp_path), name)
        time = time_type(describe(shard), shard.output)
        assert time == pa.timestamp("us"), name
        with opened(shard) as reader:
            begin, end = stated_range(options, shard, reader, time)
            assert reader.view.first_position < begin <= end == reader.end_position, name


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_the_last_rows_are_counted_where_positions_are_sparse(tmp_path: Path, rows: int) -> None:
    """A split gives each output the positions of its input; some of them have no row."""
    with rewake.start_processes(build(), tmp_path) as running:
        assert running.await_end(60.0)
    options = read_options({"path": str(tmp_path), "lastRows": str(rows)})
    (shard,) = find_shards(str(tmp_path), "low")
    with opened(shard) as reader:
        begin, end = stated_range(options, shard, reader, None)
        log_id = reader.descriptor.log_id
    schema = stored_schema(describe(shard), shard.output)
    read = read_stretch(
        Stretch(shard, log_id, begin, end), schema, Projection(schema, schema, Predicate(()))
    )
    assert sum(batch.num_rows for batch in read) == min(rows, 10)
