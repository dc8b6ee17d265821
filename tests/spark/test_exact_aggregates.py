"""Sums and averages of decimals, and the last status of a key: what Spark itself says they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from structured_vocabulary import died, dying, end_hosts

import rewake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

_SCHEMA = "account decimal(6,1), amount decimal(12,2), status string, seq long"
_ROWS, _FILES = 60, 4
_NAMES = ["sum_amount", "avg_amount", "min_amount", "last_amount", "last_status", "max_status"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose shard hosts are gone at the end."""
    yield tmp_path
    if (tmp_path / "state" / "hosts").exists():
        end_hosts(tmp_path)


def payments(session: "SparkSession", first: int, rows: int) -> "DataFrame":
    """Ten accounts in turns; amounts of both signs, some of them null, and a status each."""
    return session.range(first, first + rows, numPartitions=1).selectExpr(
        "cast(id % 10 - 4.5 as decimal(6,1)) as account",
        "if(id % 7 = 3, null, cast((id * 7919 % 2000003 - 1000001) / 100 as decimal(12,2)))"
        " as amount",
        "concat(element_at(array('sent', 'paid', 'zurück', ''), int(id * id % 4 + 1)), id % 3)"
        " as status",
        "id as seq",
    )


def by_spark(frame: "DataFrame") -> dict[Any, list[Any]]:
    """What Spark makes of all rows: a row for each account."""
    rows = frame.groupBy("account").agg(*map(_spark_function, _NAMES))
    return {row.account: [row[name] for name in _NAMES] for row in rows.collect()}


def _spark_function(name: str) -> Any:
    from pyspark.sql import functions

    kind, column = name.split("_")
    if kind == "last":
        known = functions.when(functions.col(column).isNotNull(), functions.col("seq"))
        return functions.max_by(column, known).alias(name)
    return getattr(functions, kind)(column).alias(name)


def test_running_decimals_and_the_last_status_are_what_spark_says(
    node_session: "SparkSession", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Structured Streaming, by a decimal key, with a host and a worker killed on the way."""
    deaths = {"1.during": "host", "2.before": "worker"}
    dying(monkeypatch, folder, deaths)
    for number in range(_FILES):
        frame = payments(node_session, number * _ROWS, _ROWS)
        frame.write.mode("append").parquet(str(folder / "input"))
    operator = rewake.aggregate(
        by="account",
        window=rewake.running_window(),
        at=folder / "state",
        sum="amount",
        avg="amount",
        min="amount",
        last=["amount", "status"],
        max="status",
        order_by="seq",
        shards=2,
    )
    latest: dict[Any, list[Any]] = {}
    kinds: dict[str, str] = {}

    def sink(batch: "DataFrame", _number: int) -> None:
        kinds.update(batch.dtypes)
        latest.update({row.account: [row[name] for name in _NAMES] for row in batch.collect()})

    source = node_session.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        source.parquet(str(folder / "input"))
        .transform(operator)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert died(folder) == deaths.keys()
    whole = payments(node_session, 0, _FILES * _ROWS)
    assert latest == by_spark(whole)
    assert len(latest) == 10
    by_type = dict(whole.groupBy("account").agg(*map(_spark_function, _NAMES)).dtypes)
    assert kinds == by_type


def test_a_query_over_a_dataframe_sums_decimals_and_keeps_the_last_status(
    node_session: "SparkSession", tmp_path: Path
) -> None:
    """A window for each account that holds all of its rows is what Spark's own groups are."""
    whole = payments(node_session, 0, 200)
    path = tmp_path / "payments"
    whole.write.format("rewake").mode("append").options(key="account", shards=1).save(str(path))
    query = rewake.Query("accounts")
    stream = query.source("payments", rewake.StreamSource(str(path), follow=False))
    accounts = stream.aggregate(
        by="account",
        window=rewake.count_window(20),
        sum="amount",
        avg="amount",
        min="amount",
        last=["amount", "status"],
        max="status",
    )
    accounts.to_stream("accounts")
    with rewake.start(query, tmp_path / "query", node_session) as running:
        assert running.await_end(60.0)
    found = node_session.read.format("rewake").option("stream", "accounts")
    rows = found.load(str(tmp_path / "query")).collect()
    assert {row.account: [row[name] for name in _NAMES] for row in rows} == by_spark(whole)
    assert len(rows) == 10
