"""A query through Spark Connect: there is no SparkContext, only a session far away."""

from pathlib import Path

import pytest
from query_vocabulary import run_program
from standalone import connect_server, require_connect

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

_CONNECT = """
from pathlib import Path
from pyspark.sql import SparkSession
from query_vocabulary import assert_right, kills, run_on, small

folder, server = Path(sys.argv[1]), sys.argv[2]
session = SparkSession.builder.remote(server).getOrCreate()
print(type(session).__module__)
assert_right(run_on(session, small(folder), folder, kills("averages")))
session.stop()
print("right")
"""


def test_a_query_runs_through_connect_and_survives_a_kill(tmp_path: Path) -> None:
    """The same launcher: nothing in it needs a SparkContext."""
    require_connect()
    with connect_server(tmp_path) as server:
        code, out, err = run_program(_CONNECT, tmp_path, str(tmp_path), server)
    assert (code, out, err) == (0, "pyspark.sql.connect.session\nright\n", "")


_STRUCTURED = """
from pathlib import Path
from pyspark.sql import SparkSession
import rewake
from structured_vocabulary import averages, expected, rows_of

folder, server = Path(sys.argv[1]), sys.argv[2]
session = SparkSession.builder.remote(server).getOrCreate()
stream, results = str(folder / "stream"), str(folder / "results")

def batch_in(number):
    made = [tuple(row.values()) for row in rows_of(number)]
    rows = session.createDataFrame(made, "item long, price long, seq long")
    rows.write.format("rewake").mode("append").save(stream)

def run():
    frame = session.readStream.format("rewake").load(stream).transform(averages(folder))
    place = str(folder / "checkpoint")
    writer = frame.writeStream.format("rewake").option("checkpointLocation", place)
    query = writer.trigger(availableNow=True).start(results)
    query.awaitTermination()
    return rewake.progress(query)

for number in range(3):
    batch_in(number)
    figures = run()
print(sorted(figures))
found = sorted(tuple(row) for row in session.read.format("rewake").load(results).collect())
print(found == sorted(row for rows in expected(3).values() for row in rows))
session.stop()
"""


def test_windows_run_and_streams_are_written_through_connect(tmp_path: Path) -> None:
    """In and out with `format("rewake")`, windows between, the progress of its shards."""
    require_connect()
    with connect_server(tmp_path) as server:
        code, out, err = run_program(_STRUCTURED, tmp_path, str(tmp_path), server)
    assert (code, out) == (0, "['state']\nTrue\n"), err
