"""Asking a running query for windows that are still open."""

import pyarrow as pa
import pytest

import rewake
from rewake.model.errors import UsageError

SCHEMA = pa.schema([("item", pa.int64()), ("price", pa.int64())])


def test_open_windows_of_all_shards_can_be_asked_for_while_the_query_runs(tmp_path):
    """After a crash, too; nothing is emitted by asking."""
    query = rewake.Query("early")
    items = query.entry("items", SCHEMA)
    items.aggregate(
        by="item", window=rewake.count_window(1000), sum="price", count=True, name="sums", shards=2
    ).to_stream("sums")
    rows = {"item": [1, 2, 3, 4, 1, 2], "price": [10, 20, 30, 40, 50, 60]}
    with rewake.start_processes(query, tmp_path / "state") as running:
        running.await_start()
        with running.produce("items") as producer:
            producer.send(pa.RecordBatch.from_pydict(rows, SCHEMA))
            producer.flush()
        expected = [(1, 60, 2), (2, 80, 2), (3, 30, 1), (4, 40, 1)]
        _await(running, expected)
        running.signal_node("sums-0")
        _await(running, expected)
        with pytest.raises(UsageError, match="windows"):
            running.early("items")
        with pytest.raises(UsageError, match="no stream 'prices'"):
            running.early("prices")


def _await(running, expected, tries=600):
    for _ in range(tries):
        try:
            found = sorted(tuple(row.values()) for row in running.early("sums").to_pylist())
        except (rewake.RewakeError, OSError):
            continue
        if found == expected:
            return
    assert found == expected
