"""Kills in graphs of other shapes: shards, unions, files at both ends, approaches mixed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from drill_queries import HIGHEST, ITEMS, TUPLES, WINDOW, averages, chained, files_to_files, united
from drill_vocabulary import Drill, expected, until, verdict

from rewake import ItemStream, read_parts
from rewake.net.kill_points import Fault


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
    batch = ItemStream(1, ITEMS).batch(0, tuples)
    items, prices, _ = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
    kept = items[prices <= HIGHEST]
    windows = np.bincount(kept, minlength=ITEMS) // WINDOW
    found = np.bincount(results.column("item_id").to_numpy(), minlength=ITEMS)
    assert np.array_equal(windows, found)
    times = results.column("max_item_time").to_numpy().astype(np.int64)
    assert np.unique(times).size == times.size


@pytest.mark.parametrize("victims", [["union"], ["averages", "union"]], ids="+".join)
def test_kills_of_a_union(tmp_path: Path, victims: list[str]) -> None:
    """The order in which two sources met is recorded, so that it can be followed again."""
    tuples = 60_000
    with Drill(tmp_path, united(tmp_path / "gate", tuples), tuples=tuples) as drill:
        drill.flow(0.5)
        drill.let(0.7)
        drill.kill(*victims)
        for victim in victims:
            drill.back(victim)
        drill.finish()
    found = np.bincount(drill.results().column("item_id").to_numpy(), minlength=2 * ITEMS)
    for source in range(2):
        batch = ItemStream(source + 1, ITEMS).batch(0, tuples)
        windows = np.bincount(batch.column(0).to_numpy(), minlength=ITEMS) // WINDOW
        assert np.array_equal(found[source * ITEMS : (source + 1) * ITEMS], windows)


@pytest.mark.parametrize(
    "places",
    [
        [("sink", "node.before_commit", 3)],
        [("sink", "node.after_commit", 3)],
        [("sink", "channel.after_Deliver", 5), ("averages", "node.after_durable", 1)],
        [("averages", "node.after_work", 30), ("sink", "node.after_delivered", 2)],
    ],
    ids=lambda places: "+".join(point for _, point, _ in places),
)
def test_files_hold_every_result_once(tmp_path: Path, places: list[tuple[str, str, int]]) -> None:
    """From files to files, with kills on the way."""
    tuples = 80_000
    faults = [Fault(node, point, hit) for node, point, hit in places]
    query = files_to_files(tmp_path, tuples)
    with Drill(tmp_path, query, tuples=tuples, faults=faults, reading=False) as drill:
        drill.let(0.7)
        for node, _, _ in places:
            drill.back(node)
        drill.finish()
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


@pytest.mark.parametrize("victims", [["averages"], ["highest"], ["averages", "highest"]])
def test_windows_over_windows_survive_as_well(tmp_path: Path, victims: list[str]) -> None:
    """Eventual checkpoints feed instant ones: what the second consumes the first may make again."""
    with Drill(tmp_path, chained(tmp_path / "gate"), stream="highest") as drill:
        drill.flow(0.5)
        drill.let(0.8)
        drill.kill(*victims)
        for victim in victims:
            drill.back(victim)
        drill.finish()
    first = expected()
    order = np.argsort(first.items, kind="stable")
    items, totals = first.items[order], first.totals[order]
    starts = np.flatnonzero(np.r_[True, items[1:] != items[:-1]])
    rank = np.arange(items.size) - np.repeat(starts, np.diff(np.r_[starts, items.size]))
    ends = np.flatnonzero(rank % 3 == 2)
    due = sorted(zip(items[ends].tolist(), (totals[ends] / WINDOW).tolist(), strict=True))
    found = drill.results()
    columns = [found.column(name).to_pylist() for name in ("item_id", "last_avg_item_price")]
    assert sorted(zip(*columns, strict=True)) == due


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
        # In its second life, once it knows where the stream is: what comes next is not lost.
        until(lambda: drill.running.status()["averages"]["output_position"] >= 2 << 40)
        until(lambda: drill.running.status()["averages"]["input_position"] > 0)
        drill.flow(0.8)
        drill.finish()
    found = verdict(drill.results(), TUPLES)
    assert found.lost > 0
    assert found.duplicated == 0
    times = drill.results().column("max_item_time").to_numpy().astype(np.int64)
    assert (np.diff(times) > 0).all(), "windows closed twice, or out of order"
