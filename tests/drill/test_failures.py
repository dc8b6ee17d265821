"""Failures that no restart cures: the query ends, says what failed where, and keeps what it had."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from drill_queries import WINDOW, averages, failing, overflowing
from drill_vocabulary import Drill, alive, durable_results, expected

import rewake
from rewake.model.errors import QueryFailed, UsageError
from rewake.net.clients.client import ENDPOINT_FILE


def test_a_function_that_raises_ends_the_query_with_its_error(tmp_path: Path) -> None:
    """What was durable before stays, and is a right beginning of what should have come."""
    with Drill(tmp_path, failing(tmp_path / "gate"), reading=False) as drill:
        pids = drill.pids()
        drill.let(1.0)
        with pytest.raises(QueryFailed, match=r"node 'priced': step 'picky' failed .* at 120000"):
            drill.running.await_end(20.0)
        assert not drill.running.active
    assert not any(alive(pid) for pid in pids)
    assert not (tmp_path / "query" / ENDPOINT_FILE).exists()
    check_beginning(durable_results(drill))


def check_beginning(results: pa.Table) -> None:
    """The results are the first of those that all of the input has."""
    due = expected()
    count = results.num_rows
    times = results.column("max_item_time").to_numpy().astype(np.int64)
    assert np.array_equal(times, due.closed_at[:count])
    assert np.array_equal(results.column("item_id").to_numpy(), due.items[:count])
    assert np.array_equal(results.column("avg_item_price").to_numpy(), due.totals[:count] / WINDOW)


def test_a_sum_that_overflows_ends_the_query(tmp_path: Path) -> None:
    """The next attempt would meet the same tuples: it is not made again and again."""
    with Drill(tmp_path, overflowing(tmp_path / "gate"), reading=False) as drill:
        drill.let(1.0)
        with pytest.raises(QueryFailed, match="node 'sums': the sum of column 'huge' left"):
            drill.running.await_end(20.0)


def test_a_node_whose_code_cannot_be_loaded_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that the processes of nodes cannot import: its module is in no folder."""
    module = ModuleType("known_to_this_process_alone")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(unknown_there, "__module__", module.__name__)
    module.__dict__[unknown_there.__name__] = unknown_there
    with Drill(tmp_path, failing(tmp_path / "gate", unknown_there), reading=False) as drill:
        drill.let(1.0)
        with pytest.raises(QueryFailed, match="node 'priced' cannot be run: its process ended 3"):
            drill.running.await_end(20.0)


def unknown_there(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Nothing is done to it."""
    return batch


@pytest.mark.parametrize("whose", ["operator.json", "_rewake.json", "data.parquet", "stream.json"])
def test_a_query_does_not_begin_in_a_folder_of_something_else(tmp_path: Path, whose: str) -> None:
    """Its state would lie among a sink's parts, an operator's state or somebody's data."""
    (tmp_path / "query").mkdir()
    (tmp_path / "query" / whose).write_text("{}")
    with pytest.raises(UsageError, match=f"holds other files .{whose}. and is not the folder of"):
        rewake.start_processes(averages(tmp_path / "gate"), tmp_path / "query")
    assert {each.name for each in (tmp_path / "query").iterdir()} <= {whose, "lock"}
