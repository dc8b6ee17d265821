"""`format("rewake")` in a real Spark: history, filters, state, micro-batches, errors."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import rewake
from rewake.connectors.streams.folder import create_stream
from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.stores import open_log_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("shop", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
SHARDS = 2
PUSHING = "spark.sql.python.filterPushdown.enabled"


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns = {
        "id": numbers,
        "shop": [None if n % 11 == 0 else f"shop {n % 5}" for n in numbers],
        "price": [float("nan") if n % 13 == 0 else n / 4 for n in numbers],
        "at": [n * 1_000_000 for n in numbers],
    }
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def append(folder: Path, first: int, count: int, frame: int = 50) -> None:
    """Add rows to a stream, frame by frame to its shards in turn."""
    for shard in range(SHARDS):
        with open_log_writer(folder / f"shard-{shard:04d}") as writer:
            for begin in range(first + shard * frame, first + count, SHARDS * frame):
                batch = rows(begin, min(frame, first + count - begin))
                section = Section(SectionKind.RESULTS, batch.serialize().to_pybytes())
                time = (begin + batch.num_rows - 1) * 1_000_000
                end = writer.next_position + batch.num_rows - 1
                writer.append(TurnRecord(end, time, 0, batch.num_rows, 0, (section,)))


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """Return a stream of two shards with the rows 0 to 999."""
    folder = tmp_path / "stream"
    create_stream(folder, SCHEMA, shards=SHARDS, time="at")
    append(folder, 0, 1000)
    return folder


def load(spark: "SparkSession", path: Path, **options: Any) -> "DataFrame":
    return spark.read.format("rewake").options(**options).load(str(path))


@contextmanager
def pushing(spark: "SparkSession") -> Iterator[None]:
    spark.conf.set(PUSHING, "true")
    try:
        yield
    finally:
        spark.conf.unset(PUSHING)


# --- batches ---------------------------------------------------------------------------------


def test_history_in_sql_is_what_was_written(spark: "SparkSession", stream: Path) -> None:
    """Spark knows the format by itself; DuckDB, given the same rows, agrees."""
    load(spark, stream).createOrReplaceTempView("history")
    question = """
        SELECT shop, count(*) AS n, min(id) AS first, max(id) AS last, sum(id) AS total
        FROM {} GROUP BY shop ORDER BY shop NULLS FIRST
    """
    found = [tuple(row) for row in spark.sql(question.format("history")).collect()]
    written = pa.Table.from_batches([rows(0, 1000)])  # noqa: F841 (DuckDB finds it by its name)
    assert found == duckdb.sql(question.format("written")).fetchall()


CONDITIONS = [
    "id > 990 AND id % 2 = 0",
    "shop = 'shop 3' AND id < 30",
    "shop IS NULL AND id <= 22",
    "NOT price <= 240",
    "id IN (5, 500, 5000)",
    "shop LIKE 'shop%' AND NOT shop LIKE '%2' AND at < timestamp'1970-01-01 00:00:20Z'",
    "_position >= 480 AND _shard = 1",
    "_time < timestamp'1970-01-01 00:01:00Z'",
]


def test_filters_give_the_same_rows_pushed_down_or_not(spark: "SparkSession", stream: Path) -> None:
    """The reader's answer is Spark's."""

    def found() -> list[Any]:
        each = [load(spark, stream, metadata="true").where(one) for one in CONDITIONS]
        numbered = [df.selectExpr(f"{n} AS n", "id") for n, df in enumerate(each)]
        joined = numbered[0]
        for one in numbered[1:]:
            joined = joined.unionAll(one)
        return joined.orderBy("n", "id").collect()

    expected = found()
    with pushing(spark):
        assert found() == expected
    assert {row.n for row in expected} == set(range(len(CONDITIONS)))


ON_TIME = [
    "_time IS NULL",
    "_time IS NOT NULL",
    "_time = timestamp'1970-01-01 00:00:20Z'",
    "_time <=> NULL",
    "_time < timestamp'1970-01-01 00:00:20Z'",
    "_time <= timestamp'1970-01-01 00:00:20Z'",
    "_time > timestamp'1970-01-01 00:00:10Z'",
    "_time >= timestamp'1970-01-01 00:00:20Z' OR _time IS NULL",
    "_time BETWEEN timestamp'1970-01-01 00:00:00Z' AND timestamp'9999-01-01 00:00:00Z'",
    "_time IN (timestamp'1970-01-01 00:00:00Z', timestamp'1970-01-01 00:00:10Z')",
    "NOT _time < timestamp'1970-01-01 00:00:20Z'",
]


def test_rows_that_left_at_the_end_have_no_time_for_spark_either(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """In milliseconds the end of time would overflow; batches, streams and filters agree."""
    folder = tmp_path / "ended"
    schema = SCHEMA.set(3, pa.field("at", pa.timestamp("ms", "UTC")))
    create_stream(folder, schema, time="at")
    with open_log_writer(folder / "shard-0000") as writer:
        for first, clock in ((0, NO_TIME), (10, 10_000), (20, 20_000), (30, TIME_LIMIT)):
            batch = pa.Table.from_batches([rows(first, 10)]).cast(schema).to_batches()[0]
            section = Section(SectionKind.RESULTS, batch.serialize().to_pybytes())
            writer.append(TurnRecord(first + 9, clock, 0, 10, 0, (section,)))
    history = load(spark, folder, metadata="true")
    shown = {row.id: row._time and row._time.timestamp() for row in history.collect()}
    assert [shown[n] for n in (0, 10, 20, 30)] == [None, 10.0, 20.0, None]

    def found() -> list[Any]:
        loaded = [load(spark, folder, metadata="true").where(one) for one in ON_TIME]
        each = [one.selectExpr(f"{n} AS n", "id") for n, one in enumerate(loaded)]
        return reduce(lambda one, other: one.unionAll(other), each).orderBy("n", "id").collect()

    expected = found()
    with pushing(spark):
        assert found() == expected
    assert [sum(row.n == n for row in expected) for n in range(len(ON_TIME))] == [
        20, 20, 10, 20, 10, 20, 10, 30, 20, 10, 10
    ]  # fmt: skip
    assert load(spark, folder, asOf="2026-01-01").count() == 40
    assert load(spark, folder, begin="2026-01-01").count() == 0


def test_a_filter_that_is_taken_over_is_not_evaluated_again(
    spark: "SparkSession", stream: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark says in its plan which ones the reader has."""
    with pushing(spark):
        load(spark, stream).where("id > 990 AND id % 2 = 0").explain("formatted")
    plan = capsys.readouterr().out
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,990)]" in plan


def test_time_travel_and_places(spark: "SparkSession", stream: Path) -> None:
    """As of a time, a position range, and which rows are where."""
    past = load(spark, stream, asOf="1970-01-01T00:01:39Z")
    assert sorted(row.id for row in past.collect()) == list(range(100))
    some = load(spark, stream, begin=10, end=12, metadata="true")
    found = [(row.id, row._shard, row._position) for row in some.collect()]
    assert sorted(found) == [(10, 0, 10), (11, 0, 11), (60, 1, 10), (61, 1, 11)]
    chosen = spark.read.format("rewake").schema("at timestamp, _position long").load(str(stream))
    assert chosen.columns == ["at", "_position"]
    assert chosen.count() == 1000


def test_a_query_is_asked_about_its_past_and_its_state_while_it_runs(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """By the folder in which it runs and the name of the stream."""
    query = rewake.Query("averages")
    source = rewake.ItemSource(rewake.ItemStream(1, 50), tuples=20_000, event_tuples=500)
    items = query.source("items", source)
    averages = items.aggregate(by="item_id", window=rewake.count_window(10), avg="item_price")
    averages.to_stream("means")
    with rewake.start_processes(query, tmp_path / "query") as running:
        with running.subscribe("means") as means:
            results = pa.Table.from_batches([event.batch for event in means])
        history = load(spark, tmp_path / "query", stream="means")
        assert history.count() == results.num_rows
        assert [tuple(row) for row in history.limit(5).collect()] == [
            tuple(row.values()) for row in results.slice(0, 5).to_pylist()
        ]
        assert running.await_end(60.0)
    state = load(spark, tmp_path / "query", stream="means", kind="state")
    assert {"item_id", "window", "footprint", "footprint_time", "shard"} < set(state.columns)
    assert state.count() == state.select("item_id").distinct().count() <= 50
    control = load(spark, tmp_path / "query", stream="means", kind="control")
    assert control.selectExpr("sum(tuples)").first()[0] == results.num_rows
    last = control.orderBy("sequence", ascending=False).first()
    assert last.open_windows == state.count()


# --- micro-batches ---------------------------------------------------------------------------


def start(
    spark: "SparkSession", stream: Path, out: Path, trigger: dict[str, Any], **options: Any
) -> "StreamingQuery":
    reading = spark.readStream.format("rewake").options(**options).load(str(stream))
    writing = reading.select("id").writeStream.format("parquet").trigger(**trigger)
    return writing.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "rows"))


def run(spark: "SparkSession", stream: Path, out: Path, **options: Any) -> list[dict[str, Any]]:
    """Read what is available now; the progress of all batches."""
    query = start(spark, stream, out, {"availableNow": True}, **options)
    assert query.awaitTermination(60)
    return [json.loads(each.json) for each in query.recentProgress]  # the same through Connect


def ids(spark: "SparkSession", out: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(out / "rows")).collect())


def test_several_triggers_and_a_restart_give_every_row_once(
    spark: "SparkSession", stream: Path, tmp_path: Path
) -> None:
    """No batch is larger than it may be, and progress tells how far behind it is."""
    progress = run(spark, stream, tmp_path, maxRowsPerTrigger=300)
    batches = [each for each in progress if each["numInputRows"]]
    assert [each["numInputRows"] for each in batches] == [300, 300, 300, 100]
    (source,) = batches[1]["sources"]
    assert source["startOffset"]["0"] + source["startOffset"]["1"] == 300
    assert source["endOffset"] == {"0": 300, "1": 300}
    assert source["latestOffset"] == {"0": 500, "1": 500}
    assert ids(spark, tmp_path) == list(range(1000))
    append(stream, 1000, 500)
    progress = run(spark, stream, tmp_path, maxRowsPerTrigger=300)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [300, 200]
    assert ids(spark, tmp_path) == list(range(1500))


def test_a_first_batch_that_was_not_done_is_done_again_with_the_same_rows(
    spark: "SparkSession", stream: Path, tmp_path: Path
) -> None:
    """Spark forgets where the query began; the end of the batch knows."""
    query = start(spark, stream, tmp_path, {"processingTime": "0 seconds"}, begin="latest")
    try:
        until_batch(query, 0)
        append(stream, 1000, 100)
        query.processAllAvailable()
    finally:
        query.stop()
    assert ids(spark, tmp_path) == list(range(1000, 1100))
    # As if the driver had died in the first batch: its end is stored, and nothing else.
    shutil.rmtree(tmp_path / "rows")
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    for path in (tmp_path / "checkpoint" / "offsets").iterdir():
        if path.name.strip(".").removesuffix(".crc") != "0":
            path.unlink()
    append(stream, 1100, 100)
    run(spark, stream, tmp_path, begin="latest")
    assert ids(spark, tmp_path) == list(range(1000, 1200))


def until_batch(query: "StreamingQuery", batch: int) -> None:
    from task_vocabulary import until

    until(lambda: (query.lastProgress or {"batchId": -1})["batchId"] >= batch, 30.0)


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"begins": 1}, "UsageError: there is no option 'begins'; did you mean"),
        ({"kind": "windows"}, "UsageError: kind='windows'; give results, control or state"),
        ({"columns": "nowhere"}, "SchemaMismatch: there is no column 'nowhere'; there are id"),
        ({"begin": "noon"}, "UsageError: begin='noon'; give 'earliest'"),
        ({"maxRowsPerTrigger": "1"}, "UsageError: option maxRowsPerTrigger is for streaming reads"),
        ({"stream": "items"}, "UsageError: .* is not the folder of a query"),
    ],
)
def test_a_mistake_is_told_in_words(
    spark: "SparkSession", stream: Path, options: dict[str, Any], message: str
) -> None:
    """In the error that Spark raises, whatever it puts around it."""
    from pyspark.errors import PySparkException

    message = message.replace("'fromposition'", "'frompositon'")
    with pytest.raises(PySparkException, match=message):
        load(spark, stream, **options).collect()


def test_a_path_that_holds_nothing_is_an_error(spark: "SparkSession", tmp_path: Path) -> None:
    """The path is in it."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=f"there is no stream at {tmp_path}/nowhere"):
        load(spark, tmp_path / "nowhere")


# --- Spark Connect ---------------------------------------------------------------------------

_CONNECT = """
from pathlib import Path
from pyspark.sql import SparkSession
from test_datasource_read import SCHEMA, append, ids, load, run
from rewake.connectors.streams.folder import create_stream

folder, server = Path(sys.argv[1]), sys.argv[2]
session = SparkSession.builder.remote(server).getOrCreate()
create_stream(folder / "stream", SCHEMA, shards=2, time="at")
append(folder / "stream", 0, 1000)
print(type(session).__module__)
print(load(session, folder / "stream").where("id >= 990").count())
print(load(session, folder / "stream", kind="control").count())
try:
    load(session, folder / "stream", begins="1").collect()
except Exception as error:
    print("did you mean 'begin'?" in str(error))
run(session, folder / "stream", folder, maxRowsPerTrigger=300)
append(folder / "stream", 1000, 100)
run(session, folder / "stream", folder, maxRowsPerTrigger=300)
print(ids(session, folder) == list(range(1100)))
session.stop()
"""


@pytest.mark.soak
def test_streams_are_read_through_connect(tmp_path: Path) -> None:
    """Batches, errors and micro-batches; the server knows the format by itself."""
    from query_vocabulary import run_program
    from standalone import connect_server, require_connect

    require_connect()
    with connect_server(tmp_path) as server:
        code, out, err = run_program(_CONNECT, tmp_path, str(tmp_path), server)
    expected = "pyspark.sql.connect.session\n10\n20\nTrue\nTrue\n"
    assert (code, out, err) == (0, expected, "")
