"""DataFrames into a stream on two hosts: Spark begins a task twice, and every row is there once."""

from collections import Counter
from pathlib import Path

import pytest
from query_vocabulary import run_program
from spark_streams import numbers, source_files, staged
from standalone import standalone_cluster
from task_vocabulary import require_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

_WRITES = """
import os
import time
from pathlib import Path
from rewake.spark import local_session
from spark_streams import EAGER_COPIES

folder, master = Path(sys.argv[1]), sys.argv[2]
marks = str(folder / "attempts")
os.makedirs(marks)

def slow_once(batches):
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = context.getLocalProperty("streaming.sql.batchId")
    attempt = f"{batch}.{context.partitionId()}"
    os.close(os.open(f"{marks}/{attempt}.{context.taskAttemptId()}", os.O_CREAT))
    for each in batches:
        yield each
        if batch != "1":  # in the first, the other task has a worker to start
            continue
        try:
            os.close(os.open(f"{marks}/slept", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        time.sleep(10.0)

session = local_session(cores=2, conf={"spark.master": master, **EAGER_COPIES})
try:
    files = session.readStream.format("text").option("maxFilesPerTrigger", 1)
    rows = files.load(str(folder / "files")).selectExpr("cast(value as bigint) as value")
    rows = rows.repartition(2, "value").mapInArrow(slow_once, "value bigint")
    query = (
        rows.writeStream.format("rewake").options(key="value", shards="2")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start(str(folder / "stream"))
    )
    query.awaitTermination()
finally:
    session.stop()
"""


def test_a_task_that_spark_begins_twice_writes_its_rows_once(tmp_path: Path) -> None:
    """The first has staged rows when its copy is begun on the other host; one of them counts."""
    require_spark()
    source_files(tmp_path / "files", range(100), range(100, 200), range(200, 300))
    with standalone_cluster(tmp_path, cores=1) as master:
        code, _, err = run_program(_WRITES, tmp_path, str(tmp_path), master)
    assert code == 0, err
    begun = [path.name.split(".") for path in (tmp_path / "attempts").glob("*.*.*")]
    tasks = Counter((batch, task) for batch, task, _ in begun)
    assert sorted(tasks.values()) == [1, 1, 1, 1, 1, 2], "one task was begun twice"
    assert numbers(tmp_path / "stream") == Counter(range(300))
    assert staged(tmp_path / "stream") == []
