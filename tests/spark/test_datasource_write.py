"""DataFrames into a stream through real Spark: retries, replays, kills; every row exactly once."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from query_vocabulary import end_offspring, start_program
from spark_streams import numbers, source_files, staged, table
from task_vocabulary import require_spark

import rewake
from rewake.connectors.files.parts import read_parts
from rewake.connectors.streams.folder import open_stream, stream_columns
from rewake.connectors.streams.source import StreamSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TESTS = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def session(node_session: "SparkSession") -> "SparkSession":
    from rewake.spark.datasource import RewakeDataSource

    node_session.dataSource.register(RewakeDataSource)
    return node_session


def numbers_of(session: "SparkSession", folder: Path) -> "DataFrame":
    files = session.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))
    return files.selectExpr("cast(value as bigint) as value")


def run(frame: "DataFrame", path: Path, checkpoint: Path, **options: str) -> "StreamingQuery":
    """Write all that is there; the query has ended."""
    writer = frame.writeStream.format("rewake").options(**options)
    query = (
        writer.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(path))
    )
    with suppress(Exception):  # its error is looked at afterwards
        query.awaitTermination(60)
    query.stop()
    return query


def failure(query: "StreamingQuery") -> str:
    error = query.exception()
    return "" if error is None else str(error)


def test_a_batch_write_makes_the_stream_and_the_next_appends(
    session: "SparkSession", tmp_path: Path
) -> None:
    """Columns of many types, by key; columns are matched by name."""
    frame = session.range(0, 20_000, numPartitions=3).selectExpr(
        "id % 97 as item_id",
        "concat('name ', id) as name",
        "timestamp_seconds(id) as at",
        "id / 8 as price",
        "cast(id as decimal(12,2)) as exact",
        "array(id, id + 1) as pair",
        "if(id % 3 = 0, null, id) as value",
    )
    path = tmp_path / "stream"
    writer = frame.write.format("rewake").mode("append")
    writer.options(key="item_id", shards=3, time="at").save(str(path))
    frame.select(*reversed(frame.columns)).write.format("rewake").mode("append").save(str(path))
    stream = open_stream(path)
    assert (len(stream.shards), stream.key) == (3, ("item_id",))
    assert stream_columns(stream)[1] == "at"
    found = table(path)
    assert found.num_rows == 40_000
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")
    keys = ["name", "value"]
    expected = pa.concat_tables([frame.toArrow().select(found.column_names)] * 2)
    assert (
        found.sort_by([(key, "ascending") for key in keys]).to_pydict()
        == expected.sort_by([(key, "ascending") for key in keys]).to_pydict()
    )
    again = session.read.format("rewake").load(str(path))
    assert again.groupBy("name").count().where("count != 2").count() == 0
    assert staged(path) == []


def test_what_does_not_fit_is_refused_before_a_task_runs(
    session: "SparkSession", tmp_path: Path
) -> None:
    """With words that say what to do."""
    path = str(tmp_path / "stream")
    frame = session.range(10)

    def refused(frame: "DataFrame", words: str, mode: str = "append", **options: Any) -> None:
        with pytest.raises(Exception, match=words):
            frame.write.format("rewake").mode(mode).options(**options).save(path)

    refused(frame, "did you mean 'shards'", shard=2)
    refused(frame, "no column 'nowhere'", key="nowhere")
    refused(frame.selectExpr("array(id) as many"), "'many'", key="many", shards=2)
    refused(frame.selectExpr("id", "null as nothing"), "'nothing' has no type")
    frame.write.format("rewake").mode("append").options(shards=2).save(path)
    refused(frame, "only be appended to", mode="overwrite")
    refused(frame, "was made with shards=2", shards=3)
    refused(frame.selectExpr("cast(id as string) as id"), "column 'id' is int64 .* and string")
    refused(frame.selectExpr("id", "id as more"), "column 'more'")
    refused(frame.selectExpr("id as other"), "has a column 'id'")
    assert sorted(table(Path(path))["id"].to_pylist()) == list(range(10))


def test_a_batch_write_with_an_identity_can_be_repeated(
    session: "SparkSession", tmp_path: Path
) -> None:
    """Whoever is not sure whether it went well writes again."""
    for _ in range(2):
        writer = session.range(100).selectExpr("id as value").write.format("rewake")
        writer.mode("append").option("queryId", "load of Monday").save(str(tmp_path / "stream"))
    assert numbers(tmp_path / "stream") == Counter(range(100))


def test_tasks_that_fail_and_batches_that_are_replayed_leave_every_row_once(
    session: "SparkSession", tmp_path: Path
) -> None:
    """A task that has staged some of its rows fails; later Spark forgets that a batch was done."""
    path, checkpoint, marks = tmp_path / "stream", tmp_path / "checkpoint", str(tmp_path)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            mark = f"{marks}/failed-{batch.column(0)[0].as_py()}"
            if not os.path.exists(mark):
                with open(mark, "w"):
                    raise ValueError("the first attempt fails")

    source_files(tmp_path / "files", range(100), range(100, 200), range(200, 300))
    frame = numbers_of(session, tmp_path / "files").mapInArrow(failing, "value bigint")
    assert failure(run(frame, path, checkpoint, key="value", shards="2")) == ""
    assert numbers(path) == Counter(range(300))
    assert len(list(tmp_path.glob("failed-*"))) == 3
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink()
    source_files(tmp_path / "files", range(300, 400))
    assert failure(run(frame, path, checkpoint)) == ""
    assert numbers(path) == Counter(range(400))
    assert staged(path) == []


def test_a_lost_checkpoint_is_refused_until_the_new_query_takes_over(
    session: "SparkSession", tmp_path: Path
) -> None:
    """Spark would write everything again."""
    path, checkpoint = tmp_path / "stream", tmp_path / "checkpoint"
    source_files(tmp_path / "files", range(10), range(10, 20))
    frame = numbers_of(session, tmp_path / "files")
    assert failure(run(frame, path, checkpoint)) == ""
    shutil.rmtree(checkpoint)
    assert "Was Spark's checkpoint lost or changed?" in failure(run(frame, path, checkpoint))
    assert numbers(path) == Counter(range(20))
    assert staged(path) == []
    assert failure(run(frame, path, checkpoint, takeover="true")) == ""
    assert set(numbers(path).values()) == {2}
    moved = run(frame, tmp_path / "elsewhere", checkpoint)
    source_files(tmp_path / "files", range(20, 30))
    moved = run(frame, tmp_path / "elsewhere", checkpoint)
    assert "is empty: what came before is not there" in failure(moved)


@pytest.mark.parametrize("source", ["copy", "branch"])
def test_a_shard_that_is_put_back_alone_is_refused(
    session: "SparkSession", tmp_path: Path, source: str
) -> None:
    """From an older copy, or from one that another query has continued; else rows are lost."""
    path, copy = tmp_path / "stream", tmp_path / "copy"
    files, frame = tmp_path / "files", numbers_of
    source_files(files, range(40))
    options = {"key": "value", "shards": "2"}
    assert failure(run(frame(session, files), path, tmp_path / "checkpoint", **options)) == ""
    shutil.copytree(path, copy)
    if source == "branch":
        source_files(tmp_path / "others", range(1000, 1040))
        others = frame(session, tmp_path / "others")
        assert failure(run(others, copy, tmp_path / "beside", takeover="true")) == ""
    source_files(files, range(40, 80))
    assert failure(run(frame(session, files), path, tmp_path / "checkpoint")) == ""
    shutil.move(path / "shard-0001", tmp_path / "right")
    shutil.copytree(copy / "shard-0001", path / "shard-0001")
    source_files(files, range(80, 120))
    refused = failure(run(frame(session, files), path, tmp_path / "checkpoint"))
    assert "HistoryMismatch" in refused
    assert f"{path}/shard-0001" in refused
    shutil.rmtree(path / "shard-0001")
    shutil.move(tmp_path / "right", path / "shard-0001")
    assert failure(run(frame(session, files), path, tmp_path / "checkpoint")) == ""
    assert numbers(path) == Counter(range(120))


def test_a_query_of_rewake_reads_what_a_dataframe_wrote(
    session: "SparkSession", tmp_path: Path
) -> None:
    """As many shards as the stream has; every tuple arrives, and keys are where they belong."""
    path = tmp_path / "stream"
    frame = session.range(0, 30_000, numPartitions=3).selectExpr("id % 100 as item_id", "id")
    frame.write.format("rewake").mode("append").options(key="item_id", shards=2).save(str(path))
    query = rewake.Query("totals")
    items = query.source("items", StreamSource(path, follow=False), shards=2)
    items.filter("id >= 0", name="kept").to(rewake.FileSink(tmp_path / "out"), shards=2)
    counts = items.aggregate(
        by="item_id", window=rewake.count_window(300), sum="id", name="sums", shards=2
    )
    counts.to(rewake.FileSink(tmp_path / "sums"))
    with rewake.start_processes(query, tmp_path / "query") as running:
        assert running.await_end(60.0)
    kept = read_parts(tmp_path / "out")
    assert sorted(kept["id"].to_pylist()) == list(range(30_000))
    sums = read_parts(tmp_path / "sums")
    assert sums.num_rows == 100
    assert sum(sums[sums.column_names[-1]].to_pylist()) == sum(range(30_000))


# --- a driver that is killed ---------------------------------------------------------------------

_PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path

folder, point, at_batch = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
from rewake.spark import local_session
from rewake.spark.datasource import RewakeDataSource

def killing(driver):
    from rewake.connectors.streams.commit import StreamCommit
    from rewake.connectors.streams.folder import open_stream
    from rewake.spark.datasource import write_target
    from rewake.spark.datasource.stream_write import RewakeStreamWriter

    class KillingWriter(RewakeStreamWriter):
        def commit(self, messages, batchId):
            def die(passed):
                if passed == point and batchId == at_batch:
                    for pid in driver:
                        os.kill(pid, signal.SIGKILL)
                    os.kill(os.getpid(), signal.SIGKILL)
            path = str(folder / "stream")
            write_target._committers.pop(path, None)
            write_target._committers[path] = StreamCommit(open_stream(path), crash_after=die)
            super().commit(messages, batchId)

    class Killing(RewakeDataSource):
        def streamWriter(self, schema, overwrite):
            return KillingWriter(dict(self.options), schema)

    return Killing

session = local_session(cores=2)
java = session.sparkContext._gateway.proc.pid
session.dataSource.register(killing((java, os.getpid())) if point != "none" else RewakeDataSource)
rows = session.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "files"))
query = (
    rows.selectExpr("cast(value as bigint) as value").writeStream.format("rewake")
    .options(key="value", shards=2).option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(availableNow=True).start(str(folder / "stream"))
)
query.awaitTermination(120)
session.stop()
"""


def run_driver(folder: Path, point: str, batch: int) -> int:
    """Write all files in an application of its own, which is killed at a point of a commit."""
    script = folder / "driver.py"
    script.write_text(_PROGRAM)
    with start_program([str(script), str(folder), point, str(batch)], folder) as process:
        try:
            process.communicate(timeout=200.0)
        finally:
            end_offspring(process.pid)
    return process.returncode


@pytest.mark.soak
def test_a_whole_application_that_is_killed_leaves_every_row_once(tmp_path: Path) -> None:
    """Driver and JVM, in four windows of four commits, then a restart on the same checkpoint."""
    require_spark()
    source_files(tmp_path / "files", *(range(100 * n, 100 * n + 100) for n in range(5)))
    for batch, point in enumerate(("verified", "published", "durable", "concluded")):
        assert run_driver(tmp_path, point, batch) == -9
        assert set(numbers(tmp_path / "stream").values()) <= {1}
        time.sleep(0.2)
    assert run_driver(tmp_path, "none", 0) == 0
    assert numbers(tmp_path / "stream") == Counter(range(500))
    assert staged(tmp_path / "stream") == []
