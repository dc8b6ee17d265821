"""Rows beside the results in Structured Streaming: late ones, and those that a function fails for.

Hosts and workers die in the batches that have them; plain Python says what is right.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keyed_functions
import pyarrow as pa
import pytest
from structured_vocabulary import (
    Row,
    averages,
    died,
    dying,
    end_hosts,
    rows_of,
    run_query,
    write_input,
)

import rewake
from rewake.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose shard hosts are gone at the end."""
    yield tmp_path
    if (tmp_path / "state" / "hosts").exists():
        end_hosts(tmp_path)


def write_batch(folder: Path, number: int, rows: list[Row]) -> None:
    """One more file, which Spark takes as a batch of its own."""
    path = folder / "input" / f"{number:04d}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_000_000 + number, 1_000_000 + number))


def written(session: "SparkSession", folder: Path, column: str) -> tuple[list[Row], list[Row]]:
    """The results, and what one column beside them holds; a row is one of the two."""
    found = session.read.parquet(str(folder / "output")).drop("batch")
    results = found.where(f"{column} IS NULL").drop(column)
    beside = found.where(f"{column} IS NOT NULL")
    assert all(
        value is None for row in beside.drop(column).collect() for value in row.asDict().values()
    )
    rows = beside.select(f"{column}.*").collect()
    return [row.asDict() for row in results.collect()], [row.asDict() for row in rows]


def by_seq(rows: list[Row]) -> list[Row]:
    """In a fixed order."""
    return sorted(rows, key=lambda row: row["seq"])


def test_late_rows_are_there_once_whatever_dies(
    node_session: "SparkSession", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of their columns, also those that no window reads; the windows are without them."""
    deaths = {"3.during": "host", "3.after": "host", "4.before": "worker"}
    dying(monkeypatch, folder, deaths)
    write_input(folder, 3)
    late = [row | {"seq": row["seq"] + 1} for row in rows_of(1)]
    write_batch(folder, 3, late)
    write_batch(folder, 4, rows_of(3))
    window = {"window": rewake.time_window(10), "time": "seq", "avg": (), "count": True}
    run_query(
        node_session,
        folder,
        averages(folder, shards=1, order_by=None, route_late=True, recover_within="1s", **window),
    )
    assert died(folder) == deaths.keys()
    results, beside = written(node_session, folder, "_late")
    assert by_seq(beside) == by_seq(late)
    in_time = [row for batch in (0, 1, 2, 3) for row in rows_of(batch)]
    clock = max(row["seq"] for row in in_time)
    counts = Counter((row["item"], row["seq"] // 10 * 10) for row in in_time)
    expected = {key: n for key, n in counts.items() if key[1] + 10 <= clock}
    assert {(row["item"], row["window_start"]): row["count"] for row in results} == expected
    assert len(results) == len(expected)


def test_rows_that_a_function_fails_for_are_there_once_whatever_dies(
    node_session: "SparkSession", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the error's text; the state of their keys is as if they had never come."""
    node_session.sparkContext.addPyFile(str(Path(keyed_functions.__file__)))
    deaths = {"1.during": "host", "2.after": "host", "3.before": "worker"}
    dying(monkeypatch, folder, deaths)
    write_input(folder, 4)
    counting = rewake.process(
        keyed_functions.counted,
        by="item",
        state={"n": (pa.int64(), 0)},
        output=keyed_functions.COUNTED,
        each_key=True,
        at=folder / "state",
        order_by="seq",
        on_error="divert",
        shards=1,
    )
    run_query(node_session, folder, counting)
    assert died(folder) == deaths.keys()
    results, beside = written(node_session, folder, "_dead")
    dead, good, seen = [], [], Counter[int]()
    for batch in range(4):
        for item in sorted({row["item"] for row in rows_of(batch)}):
            rows = [row for row in rows_of(batch) if row["item"] == item]
            if max(row["price"] for row in rows) >= keyed_functions.TOO_DEAR:
                dead += rows
            else:
                seen[item] += len(rows)
                good.append({"item": item, "n": seen[item]})
    assert dead
    assert good
    assert all("too dear" in row.pop("error") for row in beside)
    assert by_seq(beside) == by_seq(dead)

    def order(row: dict[str, Any]) -> tuple[int, int]:
        return row["item"], row["n"]

    assert sorted(results, key=order) == sorted(good, key=order)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"recover_within": "soon"}, r"recover_within .*such as .*'soon' is not a duration"),
        ({"recover_within": "0s"}, "recover_within must be longer than nothing"),
        ({"on_error": "divert"}, "functions of your own"),
        ({"on_error": "ignore"}, "on_error is 'stop' or 'divert'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_when_the_query_is_built(
    spark: "SparkSession", folder: Path, settings: dict[str, Any], words: str
) -> None:
    """As in queries, with the same words."""
    rows = spark.readStream.schema("item long, price long, seq long").json(str(folder))
    with pytest.raises(UsageError, match=words):
        rows.transform(averages(folder, **settings))
