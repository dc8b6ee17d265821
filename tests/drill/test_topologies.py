"""Kills in graphs of other shapes: shards, unions, files at both ends, approaches mixed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from drill_vocabulary import HIGHEST, TUPLES, WINDOW, Drill, averages, item_source, verdict
from gated_source import GatedSource

from rewake.connectors import FileSink, Files, ItemStream, read_parts
from rewake.graph.query import Query
from rewake.operators.windows import count_window


@pytest.mark.parametrize(
    "victims",
    [["averages-0"], ["averages-0", "averages-1"], ["cheap"], ["items", "averages-1"]],
    ids="+".join,
)
def test_kills_in_a_query_with_a_shuffle(tmp_path: Path, victims: list[str]) -> None:
    """A key stays on its shard, whoever dies."""
    with Drill(tmp_path, shards=2) as drill:
        drill.flow(0.3)
        drill.let(0.6)
        drill.kill(*victims)
        for victim in victims:
            drill.back(victim)
        drill.finish()
    drill.check()


@pytest.mark.parametrize("victims", [["averages-1"], ["items-0", "cheap-1"]], ids="+".join)
def test_kills_where_shards_of_a_source_meet(tmp_path: Path, victims: list[str]) -> None:
    """Windows over several channels: the order of the first life holds in the next."""
    with Drill(tmp_path, shards=2, source_shards=2) as drill:
        drill.flow(0.2)
        drill.let(0.4)
        drill.kill(*victims)
        for victim in victims:
            drill.back(victim)
        drill.finish()
    check_unordered(drill.results(), TUPLES)


def check_unordered(results: pa.Table, tuples: int) -> None:
    """Each item's tuples are spread over its windows, whichever these are, each tuple once."""
    batch = ItemStream(1, 2_000).batch(0, tuples)
    items, prices, _ = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
    kept = items[prices <= HIGHEST]
    windows = np.bincount(kept, minlength=2_000) // WINDOW
    found = np.bincount(results.column("item_id").to_numpy(), minlength=2_000)
    assert np.array_equal(windows, found)
    times = results.column("max_item_time").to_numpy().astype(np.int64)
    assert np.unique(times).size == times.size


def united(gates: list[Path], tuples: int) -> Query:
    """Two sources, of other items each, into one aggregate by way of a union."""
    query = Query("united")
    streams = [
        query.source(f"items-{number}", GatedSource(item_source(number + 1, tuples), str(gate)))
        for number, gate in enumerate(gates)
    ]
    shifted = streams[1].map(
        {"item_id": "item_id + 2000", "item_price": "item_price", "item_time": "item_time"},
        name="shifted",
    )
    shifted = shifted.map(shifted_back, name="same-types")
    union = streams[0].union(shifted, name="union")
    results = union.aggregate(
        by="item_id",
        window=count_window(WINDOW),
        sum="item_price",
        max="item_time",
        name="averages",
    )
    results.to_stream("averages")
    return query


def shifted_back(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns with the types that they had."""
    wanted = [pa.int32(), pa.int32(), pa.timestamp("us")]
    columns = [column.cast(kind) for column, kind in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


@pytest.mark.parametrize("victims", [["union"], ["averages", "union"]], ids="+".join)
def test_kills_of_a_union(tmp_path: Path, victims: list[str]) -> None:
    """The order in which two sources met is recorded, so that it can be followed again."""
    tuples = 60_000
    gates = [tmp_path / "gate", tmp_path / "gate"]
    with Drill(tmp_path, united(gates, tuples), tuples=tuples) as drill:
        drill.flow(0.5)
        drill.let(0.7)
        drill.kill(*victims)
        for victim in victims:
            drill.back(victim)
        drill.finish()
    found = np.bincount(drill.results().column("item_id").to_numpy(), minlength=4_000)
    for source in range(2):
        batch = ItemStream(source + 1, 2_000).batch(0, tuples)
        windows = np.bincount(batch.column(0).to_numpy(), minlength=2_000) // WINDOW
        assert np.array_equal(found[source * 2_000 : (source + 1) * 2_000], windows)


def files_to_files(folder: Path, tuples: int) -> Query:
    """Parquet in, Parquet out."""
    source = folder / "in"
    source.mkdir()
    for number in range(4):
        first = number * tuples // 4
        batch = ItemStream(1, 2_000).batch(first, first + tuples // 4)
        parquet.write_table(pa.Table.from_batches([batch]), source / f"part-{number}.parquet")
    query = Query("files")
    items = query.source("items", Files(source, event_tuples=1_024))
    cheap = items.filter(f"item_price <= {HIGHEST}", name="cheap")
    results = cheap.aggregate(
        by="item_id", window=count_window(WINDOW), avg="item_price", max="item_time",
        name="averages",
    )  # fmt: skip
    results.to(FileSink(folder / "out", rows_per_file=1_000), name="sink")
    return query


@pytest.mark.parametrize(
    "places",
    [
        [("sink", "node.before_commit", 3)],
        [("sink", "node.after_commit", 3)],
        [("sink", "channel.after_Deliver", 5), ("averages", "node.after_durable", 4)],
        [("averages", "node.after_work", 30), ("sink", "node.after_delivered", 2)],
    ],
    ids=lambda places: "+".join(point for _, point, _ in places),
)
def test_files_hold_every_result_once(tmp_path: Path, places: list[tuple[str, str, int]]) -> None:
    """From files to files, with kills on the way."""
    from rewake.net.kill_points import Fault

    tuples = 80_000
    faults = [Fault(node, point, hit) for node, point, hit in places]
    query = files_to_files(tmp_path, tuples)
    with Drill(tmp_path, query, tuples=tuples, faults=faults, reading=False) as drill:
        drill.finish()
        for node, _, _ in places:
            assert drill.epoch(node) == 2, "the kill did not happen"
    found = verdict(read_parts(tmp_path / "out"), tuples)
    assert found.right, found


@pytest.mark.parametrize("victims", [["cheap"], ["averages"], ["cheap", "averages"]], ids="+".join)
def test_approaches_can_be_mixed(tmp_path: Path, victims: list[str]) -> None:
    """A filter that logs under instant checkpoints feeds an aggregate under eventual ones."""
    query = averages(tmp_path / "gate", filter_approach="instant", kept=True)
    with Drill(tmp_path, query) as drill:
        drill.flow(0.3)
        drill.let(0.6)
        drill.kill(*victims)
        for victim in victims:
            drill.back(victim)
        drill.finish()
    drill.check()


def test_instant_checkpoints_survive_a_kill_as_well(tmp_path: Path) -> None:
    """The baseline keeps the same promise."""
    with Drill(tmp_path, approach="instant") as drill:
        drill.flow(0.5)
        drill.let(0.7)
        drill.kill("averages")
        drill.back("averages")
        drill.finish()
    drill.check()


def test_amnesia_leaves_a_gap_and_nothing_else(tmp_path: Path) -> None:
    """Results before and after are right; what was in windows is lost; nothing comes twice."""
    with Drill(tmp_path, approach="amnesia") as drill:
        drill.flow(0.4)
        drill.kill("averages")
        drill.back("averages")
        drill.flow(0.8)
        drill.finish()
    found = verdict(drill.results(), TUPLES)
    assert found.lost > 0
    assert found.duplicated == 0
    times = drill.results().column("max_item_time").to_numpy().astype(np.int64)
    assert (np.diff(times) > 0).all(), "windows closed twice, or out of order"
