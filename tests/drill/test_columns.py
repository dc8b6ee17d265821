"""Columns that are not those of an entry or a stream are refused: bytes are read by them."""

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rewake
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.net.clients.client import Subscription

COLUMNS = pa.schema(
    [("order", pa.string()), ("amount", pa.decimal128(10, 2)), ("at", pa.timestamp("ms"))]
)
ROW = {"order": "o1", "amount": Decimal("12.50"), "at": datetime(2026, 11, 18, 12)}


def orders() -> rewake.Query:
    query = rewake.Query("orders")
    query.entry("orders", COLUMNS).to_stream("kept")
    return query


def batches() -> dict[str, Any]:
    """What people send by mistake."""
    right = pa.RecordBatch.from_pylist([ROW], schema=COLUMNS)
    return {
        "types that were guessed": pa.RecordBatch.from_pylist([ROW]),
        "another order": right.select(["amount", "order", "at"]),
        "other names": right.rename_columns(["order_id", "amount", "at"]),
        "another unit of time": right.set_column(2, "at", right["at"].cast(pa.timestamp("us"))),
        "bytes for a text": right.set_column(0, "order", right["order"].cast(pa.binary())),
        "a column more": right.append_column("more", pa.array([1])),
        "a column less": right.select(["order", "amount"]),
        "a table": pa.Table.from_batches([right]),
        "rows": [ROW],
    }


def test_what_does_not_have_the_entrys_columns_is_refused_and_nothing_is_sent(
    tmp_path: Path,
) -> None:
    """By a producer of this process, and by one that knows the folder alone."""
    with rewake.start_processes(orders(), tmp_path) as running:
        running.await_start()
        for producer in (
            running.produce("orders", name="here"),
            rewake.produce(tmp_path, "orders", name="elsewhere"),
        ):
            with producer:
                for mistake, batch in batches().items():
                    with pytest.raises((SchemaMismatch, UsageError), match="producer"):
                        producer.send(batch)
                    assert producer.position == 0, mistake
                producer.send(pa.RecordBatch.from_pylist([ROW], schema=COLUMNS))
                producer.flush()
        with running.subscribe("kept") as kept:
            found = [row for _ in range(2) for row in _next(kept).to_pylist()]
    assert found == [ROW, ROW]


def _next(subscription: Any) -> pa.RecordBatch:
    while True:
        event = subscription.read(60)
        assert event is not None
        if event.batch.num_rows:
            return event.batch


def test_who_reads_with_other_columns_is_refused(tmp_path: Path) -> None:
    """Live, and from the log."""
    other = COLUMNS.set(1, pa.field("amount", pa.decimal128(10, 4)))
    with rewake.start_processes(orders(), tmp_path) as running:
        running.await_start()
        with pytest.raises(SchemaMismatch, match=r"'amount' is decimal128\(10, 4\)"):
            Subscription(running.endpoint, "kept", other)
        with rewake.subscribe(tmp_path, "kept") as kept:
            assert kept.schema == COLUMNS
    with pytest.raises(SchemaMismatch, match="leave schema= out"):
        rewake.StreamSource(tmp_path / "nodes" / "orders", schema=other)


def test_a_stream_of_several_shards_is_read_shard_by_shard(tmp_path: Path) -> None:
    """Whoever names none would get a part and take it for the whole."""
    query = rewake.Query("sharded")
    items = query.source("items", rewake.ItemSource(rewake.ItemStream(1, 100), tuples=10_000))
    averages = items.aggregate(
        by="item_id", window=rewake.count_window(10), avg="item_price", shards=2, name="averages"
    )
    averages.to_stream("averages")
    with rewake.start_processes(query, tmp_path) as running:
        with pytest.raises(UsageError, match=r"has 2 shards.*shard=0 to shard=1"):
            running.subscribe("averages")
        for wrong in (2, -1):
            with pytest.raises(UsageError, match=f"not shard {wrong}"):
                running.subscribe("averages", shard=wrong)
        rows = 0
        for shard in range(2):
            with running.subscribe("averages", shard=shard) as part:
                rows += sum(event.batch.num_rows for event in part)
    assert rows > 900
