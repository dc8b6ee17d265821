"""Late rows inside Structured Streaming: by what `withWatermark` declares, and told."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from structured_vocabulary import end_hosts

import rewake
from rewake.spark.structured.metrics import export_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

# Seconds after midnight, a batch each: the second goes back by 5 s, the third by more than 20.
_BATCHES = ([1, 12, 21], [16, 17, 22], [2, 3, 40], [60])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose shard hosts are gone at the end."""
    yield tmp_path
    if (tmp_path / "state" / "hosts").exists():
        end_hosts(tmp_path)


def _write_input(folder: Path) -> None:
    (folder / "input").mkdir()
    for number, seconds in enumerate(_BATCHES):
        path = folder / "input" / f"{number}.json"
        rows = [{"k": 1, "at": f"2026-01-01T00:00:{each:02d}Z"} for each in seconds if each < 60]
        rows += [{"k": 1, "at": "2026-01-01T00:02:00Z"}] if 60 in seconds else []
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def _counts(session: "SparkSession", folder: Path, **options: Any) -> tuple[list[int], Any]:
    """Rows by windows of 10 s, in their order; and the query, ended."""
    found: dict[int, int] = {}

    def sink(batch: Any, _number: int) -> None:
        found.update((row["window_start"].second, row["count"]) for row in batch.collect())

    source = session.readStream.schema("k long, at timestamp").option("maxFilesPerTrigger", 1)
    rows = source.json(str(folder / "input")).withWatermark("at", "5 seconds")
    windows = {"by": "k", "window": rewake.time_window("10s"), "time": "at", "count": True}
    query = (
        rows.transform(rewake.aggregate(at=folder / "state", shards=1, **windows, **options))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [found[each] for each in sorted(found)], query


def test_a_declared_watermark_is_the_slack_and_what_is_later_still_is_told(
    node_session: "SparkSession", folder: Path
) -> None:
    """Rows 5 s behind are in their window; two that are further are counted, and in the metrics."""
    _write_input(folder)
    pytest.importorskip("prometheus_client")
    exporter = export_metrics(node_session)
    try:
        counts, query = _counts(node_session, folder)
        assert counts == [1, 3, 2, 1]
        assert rewake.progress(query)["state"][0]["late_tuples"] == 2
        assert "late_tuples" in {
            family.name.removeprefix("rewake_shard_") for family in exporter.registry.collect()
        }
    finally:
        exporter.close()


def test_a_slack_that_is_said_is_used_instead(node_session: "SparkSession", folder: Path) -> None:
    """Without any, the rows that go back by 5 s are late, too."""
    _write_input(folder)
    counts, query = _counts(node_session, folder, slack=0)
    assert counts == [1, 1, 2, 1]
    assert rewake.progress(query)["state"][0]["late_tuples"] == 4
