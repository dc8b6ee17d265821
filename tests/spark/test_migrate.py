"""Another number of shards for a query that goes on with its checkpoint."""

import shutil
from pathlib import Path

import pytest
from structured_vocabulary import (
    averages,
    end_hosts,
    expected,
    forget_commit,
    forget_plan,
    results,
    run_query,
    write_input,
)

from rewake.model.errors import LogExists, LogInUse, NotALog, UsageError
from rewake.spark.structured.migrate import migrate

pytestmark = pytest.mark.spark


def test_a_query_goes_on_with_other_shards_exactly_once(spark, tmp_path: Path) -> None:
    """Windows that were open close with all their rows, and a repeated batch is the same again."""
    write_input(tmp_path, 3)
    run_query(spark, tmp_path)
    end_hosts(tmp_path)
    divided = tmp_path / "divided"
    moved = migrate(spark, tmp_path / "state", divided, 3)
    assert (moved.old_shards, moved.shards, moved.batch) == (2, 3, 2)
    # Spark is not sure of the last batch before the move: the new shards must know its results.
    forget_commit(tmp_path, 2)
    write_input(tmp_path, 3, start=3)
    run_query(spark, tmp_path, averages(tmp_path, at=divided, shards=3))
    assert results(tmp_path) == expected(6)


def test_shards_are_compared_after_the_move(spark, tmp_path: Path) -> None:
    """One from before a batch was planned anew is refused; the right one goes on."""
    write_input(tmp_path, 2)
    run_query(spark, tmp_path)
    end_hosts(tmp_path)
    divided = tmp_path / "divided"
    migrate(spark, tmp_path / "state", divided, 3)
    operator = averages(tmp_path, at=divided, shards=3)
    write_input(tmp_path, 1, start=2)
    run_query(spark, tmp_path, operator)
    shutil.copytree(divided / "shard-0001", tmp_path / "old")
    write_input(tmp_path, 1, start=3)
    forget_plan(tmp_path, 2)
    run_query(spark, tmp_path, operator, files=2)
    shutil.move(divided / "shard-0001", tmp_path / "right")
    shutil.move(tmp_path / "old", divided / "shard-0001")
    write_input(tmp_path, 1, start=4)
    with pytest.raises(Exception, match=r"HistoryMismatch.*shard-0001 had"):
        run_query(spark, tmp_path, operator)
    shutil.rmtree(divided / "shard-0001")
    shutil.move(tmp_path / "right", divided / "shard-0001")
    run_query(spark, tmp_path, operator)
    whole = expected(5)
    joined = {2: sorted(whole[2] + whole[3]), 3: whole[4]}
    assert results(tmp_path) == {0: whole[0], 1: whole[1]} | joined


def test_what_cannot_be_divided_is_refused(spark, tmp_path: Path) -> None:
    """And nothing is written."""
    with pytest.raises(NotALog, match="holds no state"):
        migrate(spark, tmp_path / "nothing", tmp_path / "new", 3)
    with pytest.raises(UsageError, match="number from 1"):
        migrate(spark, tmp_path, tmp_path / "new", 0)
    write_input(tmp_path, 1)
    run_query(spark, tmp_path)
    with pytest.raises(LogInUse):
        migrate(spark, tmp_path / "state", tmp_path / "new", 3)
    end_hosts(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(LogExists, match="not empty"):
        migrate(spark, tmp_path / "state", tmp_path / "full", 3)
    assert not (tmp_path / "new").exists()


def test_an_aggregate_is_added_by_reading_the_stream_again(spark, tmp_path: Path) -> None:
    """The old query's columns come out the same, row by row; nothing of it was touched."""
    write_input(tmp_path, 3)
    stream = str(tmp_path / "stream")
    items = spark.read.schema("item long, price long, seq long").json(str(tmp_path / "input"))
    items.coalesce(1).sortWithinPartitions("seq").write.format("rewake").mode("append").save(stream)

    def computed(place: str, **functions: str) -> list[tuple]:
        rows = spark.readStream.format("rewake").option("begin", "earliest").load(stream)
        name = place.replace("-", "_")
        frame = rows.transform(averages(tmp_path, at=tmp_path / place, **functions))
        query = (
            frame.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / f"{place}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(tuple(row) for row in spark.table(name).collect())

    before = computed("before")
    after = computed("after", max="price")
    assert before
    assert [row[:2] for row in after] == before
    assert all(len(row) == 3 for row in after)
