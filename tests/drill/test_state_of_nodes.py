"""What a query's own nodes wrote, read as the state that they had."""

from pathlib import Path

import pyarrow as pa
import pytest
from node_functions import count_purchases

pytest.importorskip("pyspark")

from rewake.connectors.item_stream import ItemSource, ItemStream
from rewake.graph.query import Query
from rewake.net.queries.running import start_processes
from rewake.operators.windows.specs import session_window
from rewake.spark.datasource.source import RewakeDataSource


def state(folder: Path, **options: str) -> pa.Table:
    made = RewakeDataSource({"path": str(folder), "kind": "state", **options})
    reader = made.reader(made.schema())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return pa.Table.from_batches(batches, reader.target)


def test_a_query_of_both_shows_their_state(tmp_path: Path) -> None:
    """Written by real nodes, read from their folder when they are done."""
    query = Query("both")
    items = query.source("items", ItemSource(ItemStream(1, 50), tuples=20_000, event_tuples=500))
    items.process(
        count_purchases, by="item_id", state={"n": (pa.int64(), 0)}, each_key=True,
        output=pa.schema([("item_id", pa.int32()), ("n", pa.int64())]), name="counts",
        recover_within="10s",
    ).to_stream("counts")  # fmt: skip
    visits = {"window": session_window("1h"), "time": "item_time", "name": "visits"}
    items.aggregate(by="item_id", count=True, **visits).to_stream("visits")
    with start_processes(query, tmp_path) as running:
        assert running.await_end(60)
    for stream, column in (("counts", "n"), ("visits", "session_start")):
        table = state(tmp_path, stream=stream, asOfPosition="10000")
        assert set(table["item_id"].to_pylist()) == set(range(50))
        assert column in table.schema.names
