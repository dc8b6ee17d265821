"""Streams of steps that have no time of their own are read by date, too."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import rewake
from rewake.cli.app import app
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.spark.datasource.batch_read import opened, stated_range
from rewake.spark.datasource.columns import Projection
from rewake.spark.datasource.filters import Predicate
from rewake.spark.datasource.options import read_options
from rewake.spark.datasource.source import RewakeDataSource
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


def counting(row: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """How many tuples of its key there were."""
    kept["n"] = (kept["n"] or 0) + 1
    return {"k": row["k"], "n": kept["n"]}


NUMBERS = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def test_steps_that_only_hear_the_time_have_that_of_their_sources() -> None:
    """Windows that count, sorts, and functions without a time pass on what they are told."""
    query = Query("heard")
    stream = query.source("minutes", minutes(0, "ms"))
    stream.aggregate(by="k", window=rewake.count_window(2), count=True, name="counts").to_stream()
    stream.bsort(by="at", buffer=3, name="sorted").to_stream()
    stream.bsort(by="at", buffer=3, flush=True, name="flushed").to_stream()
    keyed = {"by": "k", "state": {"n": pa.int64()}, "output": NUMBERS}
    stream.process(counting, each_key=True, name="numbered", **keyed).to_stream()
    stream.process(
        counting, each_key=True, name="ticking", timers="processing", **keyed
    ).to_stream()
    plan = query.plan()
    for name in ("counts", "sorted", "flushed", "numbered"):
        assert plan.node(name).time == pa.timestamp("ms"), name
    assert plan.node("ticking").time == pa.timestamp("ms", "UTC"), "the machine's, whatever comes"


def test_windows_that_count_keep_history_for_a_time() -> None:
    """In the unit of their source, or of the column that they are given."""
    query = Query("counts")
    stream = query.source("minutes", minutes(0, "ms"))
    untimed = query.source("untimed", rewake.Batches(pa.table({"k": [1], "at": [NOON]})))
    window = rewake.count_window(2)
    stream.aggregate(by="k", window=window, count=True, name="heard").to_stream(keep_for="2 hours")
    told = untimed.aggregate(by="k", window=window, time="at", count=True, name="told")
    told.to_stream(keep_for="2 hours")
    assert query.plan().node("heard").retention.max_age == 7_200_000
    assert query.plan().node("told").retention.max_age == 7_200_000_000
    untimed.aggregate(by="k", window=window, count=True, name="no").to_stream(keep_for="2 hours")
    with pytest.raises(UsageError, match=r"'no'.*source a time_column, or the step time='column'"):
        query.plan()


def test_windows_that_count_are_read_by_date(tmp_path: Path) -> None:
    """A result has the time of the tuple that filled its window; one that is open has none."""
    query = Query("counts")
    rows = query.source("minutes", minutes(0)).map({"k": "k * 0", "at": "at"}, name="one-key")
    rows.aggregate(
        by="k", window=rewake.count_window(2), count=True, last="at", name="pairs"
    ).to_stream("pairs")
    with rewake.start_processes(query, tmp_path) as running:
        assert running.await_end(60.0)
    times = read(tmp_path, "pairs", metadata="true").to_pydict()
    assert times["_time"] == times["last_at"]
    found = read(tmp_path, "pairs", begin="2026-03-01T12:04:00", end="2026-03-01T12:08:00")
    assert [each.minute for each in found["last_at"].to_pylist()] == [5, 7]


def test_a_query_of_a_stream_goes_on_with_its_time(tmp_path: Path) -> None:
    """The log says the unit, whatever columns are left."""
    first = Query("first")
    kept = first.source("minutes", minutes(0)).union(first.source("more", minutes(0)), name="both")
    kept.map({"k": "k"}, name="kept").to_stream("kept")
    with rewake.start_processes(first, tmp_path / "first") as running:
        assert running.await_end(60.0)
    second = Query("second")
    source = rewake.StreamSource(tmp_path / "first" / "nodes" / "kept", follow=False)
    window = rewake.count_window(2)
    again = second.source("again", source).aggregate(by="k", window=window, count=True, name="two")
    again.to_stream("two", keep_for="2 hours")
    assert second.plan().node("two").retention.max_age == 120 * MINUTE
    with rewake.start_processes(second, tmp_path / "second") as running:
        assert running.await_end(60.0)
    found = read(tmp_path / "second", "two", metadata="true", end="2026-03-01T12:05:00")
    assert found["k"].to_pylist() == list(range(5))
    assert all(each.minute < 5 for each in found["_time"].to_pylist())


def test_what_left_at_the_end_of_a_query_left_at_no_time(tmp_path: Path) -> None:
    """The last window has not come to its end when the stream does; a later date has it."""
    query = Query("windows")
    query.source("minutes", minutes(0)).map({"k": "k * 0", "at": "at"}, name="one-key").aggregate(
        by="k", window=rewake.time_window("4 minutes"), time="at", count=True, name="fours"
    ).to_stream("fours")
    with rewake.start_processes(query, tmp_path) as running:
        assert running.await_end(60.0)
    found = read(tmp_path, "fours", metadata="true").to_pydict()
    assert [None if each is None else each.minute for each in found["_time"]] == [4, 8, None]
    assert found["count"] == [4, 4, 2]
    assert read(tmp_path, "fours", asOf="2026-03-01T12:08:30").num_rows == 2
    for later in ("2026-03-01T12:09:00", "2026-03-01T12:12:00", "2030-01-01"):
        assert read(tmp_path, "fours", asOf=later).num_rows == 3
    frames = read(tmp_path, "fours", kind="control")["timestamp"].to_pylist()
    assert max(each for each in frames if each is not None) < 2**61
    assert read(tmp_path, "fours", kind="state", asOf="2026-03-01T12:08:00").num_rows == 1
    assert read(tmp_path, "fours", kind="state", asOf="2030-01-01").num_rows == 0
    ended = CliRunner().invoke(app, ["inspect", "log", str(tmp_path / "nodes" / "fours"), "--json"])
    assert json.loads(ended.stdout)["frames"][-1]["timestamp"] == "ended"


def read(folder: Path, stream: str, **options: str) -> pa.Table:
    """All rows that the data source gives."""
    made = RewakeDataSource({"path": str(folder), "stream": stream, **options})
    reader = made.reader(made.schema())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return pa.Table.from_batches(batches, reader.target)


def test_outputs_of_join_union_and_split_are_read_by_date(tmp_path: Path) -> None:
    """Half of the minutes are before five past twelve."""
    with rewake.start_processes(build(), tmp_path) as running:
        assert running.await_end(60.0)
    options = read_options({"path": str(tmp_path), "begin": "2026-03-01T12:05:00"})
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
