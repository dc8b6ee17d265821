"""Reading streams as batches, by the readers that Spark would run, in this process."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from stream_vocabulary import MINUTE, SCHEMA, append, rows, small_stream, trim, turn

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan
from pyspark.sql.types import LongType, StringType, StructType

from rewake.connectors.streams.folder import create_stream
from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.model.errors import NotALog, OutOfRange, RewakeError, SchemaMismatch, UsageError
from rewake.spark.datasource import stretches
from rewake.spark.datasource.batch_read import PushingReader
from rewake.spark.datasource.source import RewakeDataSource
from rewake.stores import create_log, open_log_writer


def source(path: Path, **options: str) -> RewakeDataSource:
    return RewakeDataSource({"path": str(path), **options})


def read(
    path: Path,
    schema: StructType | None = None,
    filters: list[Filter] | None = None,
    **options: str,
) -> pa.Table:
    """All rows, in the order of partitions; every object travels as it would to a task."""
    made = source(path, **options)
    reader = made.reader(schema or made.schema())
    if filters is not None:
        reader = PushingReader(reader)
        assert list(reader.pushFilters(filters)) == []
    partitions = reader.partitions()
    travelled = cloudpickle.loads(cloudpickle.dumps((reader, partitions)))
    reader, partitions = travelled
    batches = [batch for each in partitions for batch in reader.read(each)]
    return pa.Table.from_batches(batches) if batches else pa.table({"id": pa.array([], pa.int64())})


def ids(table: pa.Table) -> list[int]:
    return table.column("id").to_pylist()


# --- history ---------------------------------------------------------------------------------


def test_history_is_what_was_written_shard_by_shard(tmp_path: Path) -> None:
    """Every row, every column, in order."""
    table = read(small_stream(tmp_path))
    expected = pa.Table.from_batches([rows(0, 60), rows(1000, 60)])
    assert table.equals(expected)


def test_a_single_log_is_a_stream(tmp_path: Path) -> None:
    """A shard of a stream by itself, for example."""
    small_stream(tmp_path)
    assert ids(read(tmp_path / "shard-0001")) == list(range(1000, 1060))


def test_an_empty_stream_has_a_schema_and_no_rows(tmp_path: Path) -> None:
    """Whether it was ever opened for writing or not."""
    create_stream(tmp_path, SCHEMA)
    assert source(tmp_path).schema().names == ["id", "name", "at"]
    assert read(tmp_path).num_rows == 0
    append(tmp_path / "shard-0000", [])
    assert read(tmp_path).num_rows == 0


def test_a_plan_is_a_snapshot(tmp_path: Path) -> None:
    """Rows that are appended between planning and reading are not in it."""
    small_stream(tmp_path, shards=1)
    made = source(tmp_path)
    reader = made.reader(made.schema())
    partitions = reader.partitions()
    append(tmp_path / "shard-0000", [rows(60, 10)])
    table = pa.Table.from_batches([b for each in partitions for b in reader.read(each)])
    assert ids(table) == list(range(60))
    assert ids(read(tmp_path)) == list(range(70))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fromPosition": "25"}, range(25, 60)),
        ({"toPosition": "25"}, range(25)),
        ({"fromPosition": "5", "toPosition": "7"}, range(5, 7)),
        ({"fromPosition": '{"0": 59}'}, [59]),
        ({"fromPosition": "60"}, []),
        ({"fromPosition": "999"}, []),
        ({"toPosition": "999"}, range(60)),
        ({"asOfPosition": "30"}, range(30)),
        ({"fromPosition": "9", "toPosition": "3"}, []),
        ({"fromTime": str(29 * MINUTE)}, range(10, 60)),
        ({"fromTime": str(29 * MINUTE + 1)}, range(30, 60)),
        ({"toTime": str(29 * MINUTE)}, range(10)),
        ({"asOf": str(29 * MINUTE)}, range(30)),
        ({"asOf": "1970-01-01T00:29:00Z"}, range(30)),
        ({"asOf": "1970-01-01T00:28:59Z"}, range(10)),
        ({"fromTime": "1970-01-01T00:10:00", "toTime": "1970-01-01T00:59:00"}, range(10, 30)),
        ({"fromTime": "2026-01-01"}, []),
        ({"asOf": "1969-01-01"}, []),
    ],
)
def test_a_range_is_exact(tmp_path: Path, options: dict[str, str], expected: list[int]) -> None:
    """Positions cut inside of frames; times are those of whole frames (here 9, 29 and 59)."""
    assert ids(read(small_stream(tmp_path, shards=1), **options)) == list(expected)


@pytest.mark.parametrize("name", ["fromPosition", "toPosition", "asOfPosition"])
def test_what_was_trimmed_is_an_error_that_says_what_is_there(tmp_path: Path, name: str) -> None:
    """Never a gap; without a beginning, what is there is read."""
    log = _trimmed(tmp_path)
    with pytest.raises(OutOfRange, match=r"shard 0, .*: position 3 is no longer .* has 10 to 60"):
        read(log, **{name: "3"})
    assert ids(read(log)) == list(range(10, 60))
    assert ids(read(log, fromPosition="10")) == list(range(10, 60))


@pytest.mark.parametrize("name", ["fromTime", "toTime", "asOf"])
def test_a_time_before_what_is_kept_is_an_error(tmp_path: Path, name: str) -> None:
    """Rows of that time may have been there."""
    with pytest.raises(OutOfRange, match="the first retained frame is 1, after timestamp"):
        read(_trimmed(tmp_path), **{name: str(MINUTE)})


def _trimmed(folder: Path) -> Path:
    create_stream(folder, SCHEMA, time="at")
    log = folder / "shard-0000"
    for first, count in ((0, 10), (10, 20), (30, 30)):
        append(log, [rows(first, count)])
    trim(log, 1)
    return folder


def test_a_stream_without_time_cannot_be_read_by_time(tmp_path: Path) -> None:
    """By position it can."""
    create_stream(tmp_path, SCHEMA)
    append(tmp_path / "shard-0000", [rows(0, 5)], timed=False)
    for name in ("fromTime", "toTime", "asOf"):
        with pytest.raises(UsageError, match=f"{name}: the stream has no event time"):
            read(tmp_path, **{name: "5"})
    assert read(tmp_path, metadata="true").column("_time").null_count == 5


def test_the_place_of_each_row_can_be_asked_for(tmp_path: Path) -> None:
    """Shard, position, and the time of its frame."""
    table = read(small_stream(tmp_path), metadata="true")
    assert table.schema.names == ["id", "name", "at", "_shard", "_position", "_time"]
    assert table.column("_shard").to_pylist() == [0] * 60 + [1] * 60
    assert table.column("_position").to_pylist() == list(range(60)) * 2
    assert table.column("_position").to_pylist()[:60] == ids(table)[:60]
    seen = table.column("_time").cast(pa.int64()).to_pylist()
    assert seen[:60] == [9 * MINUTE] * 10 + [29 * MINUTE] * 20 + [59 * MINUTE] * 30


def test_a_time_that_spark_cannot_hold_is_an_error(tmp_path: Path) -> None:
    """Spark counts microseconds; a time that overflows them would come out as another."""
    schema = pa.schema([("at", pa.timestamp("s"))])
    create_stream(tmp_path, schema)
    batch = pa.RecordBatch.from_pydict({"at": pa.array([2**60], pa.timestamp("s"))}, schema)
    with open_log_writer(tmp_path / "shard-0000") as writer:
        writer.append(turn(batch, 0))
    with pytest.raises(SchemaMismatch, match=r"column 'at' of type timestamp\[s\] cannot be read"):
        read(tmp_path)


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    """By option, or by giving a schema; also the places of rows."""
    small_stream(tmp_path, shards=1)
    assert read(tmp_path, columns="name, id").schema.names == ["name", "id"]
    chosen = StructType().add("_position", LongType()).add("id", StringType())
    table = read(tmp_path, chosen, fromPosition="58")
    assert table.to_pydict() == {"_position": [58, 59], "id": ["58", "59"]}
    assert read(tmp_path, StructType().add("_position", LongType())).num_rows == 60
    names = read(tmp_path, columns="id", metadata="true").schema.names
    assert names == ["id", "_shard", "_position", "_time"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StructType().add("nowhere", LongType()), "no column 'nowhere'; there are id, name, at"),
        (
            StructType().add("at", StructType().add("x", LongType())),
            "'at' of type .* cannot be read",
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_anything_runs(
    tmp_path: Path, schema: StructType, message: str
) -> None:
    """With the name of the column."""
    with pytest.raises(SchemaMismatch, match=message):
        source(small_stream(tmp_path)).reader(schema)


def test_values_that_do_not_fit_the_wanted_type_are_an_error(tmp_path: Path) -> None:
    """No digit is lost silently."""
    small_stream(tmp_path, shards=1)
    with pytest.raises(SchemaMismatch, match="'name' of type string cannot be read as int64"):
        read(tmp_path, StructType().add("name", LongType()))


def test_types_that_spark_lacks_become_the_nearest(tmp_path: Path) -> None:
    """Wider integers, plain values, microseconds."""
    schema = pa.schema(
        [
            ("small", pa.uint8()),
            ("large", pa.uint64()),
            ("word", pa.large_string()),
            ("half", pa.float16()),
            ("nanos", pa.timestamp("ns")),
            ("list", pa.large_list(pa.uint16())),
            ("record", pa.struct([("inner", pa.uint32())])),
        ]
    )
    create_log(tmp_path / "log", "log", {"schema": schema.serialize().to_pybytes()})
    values = {
        "small": [255, None],
        "large": [2**64 - 1, 0],
        "word": ["a", None],
        "half": pa.array([1.5, None]).cast(pa.float16()),
        "nanos": [1_500, -1],
        "list": [[1, 2], None],
        "record": [{"inner": 2**32 - 1}, None],
    }
    batch = pa.RecordBatch.from_pydict(values, schema)
    with open_log_writer(tmp_path / "log") as writer:
        writer.append(turn(batch, 1))
    table = read(tmp_path / "log")
    kinds = [str(each) for each in source(tmp_path / "log").schema()]
    assert "DecimalType(20,0)" in kinds[1]
    assert table.column("small").to_pylist() == [255, None]
    assert [int(each) for each in table.column("large").to_pylist()] == [2**64 - 1, 0]
    assert table.column("nanos").cast(pa.int64()).to_pylist() == [1, 0]
    assert table.column("list").to_pylist() == [[1, 2], None]
    assert table.column("record").to_pylist() == [{"inner": 2**32 - 1}, None]


def test_outputs_of_one_log_share_its_positions(tmp_path: Path) -> None:
    """The rows of an output are at the last positions of their frame, cut or not."""
    _query_folder(tmp_path)
    evens = read(tmp_path, stream="evens", metadata="true")
    odds = read(tmp_path, stream="odds", metadata="true")
    assert ids(evens) == [0, 2, 10, 12]
    assert ids(odds) == [1, 3, 5]
    assert evens.column("_position").to_pylist() == [3, 4, 5, 6]
    assert odds.column("_position").to_pylist() == [2, 3, 4]
    assert ids(read(tmp_path, stream="evens", fromPosition="4", toPosition="6")) == [2, 10]


def _query_folder(folder: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    metadata = {name: schema.serialize().to_pybytes() for name in ("schema", "schema-1")}
    create_log(folder / "nodes" / "split", "split", metadata)

    def section(output: int, *numbers: int) -> Section:
        batch = pa.record_batch([pa.array(numbers)], schema=schema)
        return Section(SectionKind.RESULTS, batch.serialize().to_pybytes(), output)

    with open_log_writer(folder / "nodes" / "split") as writer:
        writer.append(TurnRecord(4, 0, 0, 5, 0, (section(0, 0, 2), section(1, 1, 3, 5))))
        writer.append(TurnRecord(6, 0, 0, 2, 0, (section(0, 10, 12),)))
    streams = {"evens": [["split", 0]], "odds": [["split", 1]], "gone": [["elsewhere", 0]]}
    (folder / "streams.json").write_text(json.dumps({"streams": streams}))


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        ({}, UsageError, "say which of its streams to read .*: evens, gone, odds"),
        ({"stream": "even"}, UsageError, r"no stream 'even'; did you mean 'evens'\?"),
        ({"stream": "gone"}, NotALog, "'gone' has no log .* node 'elsewhere'"),
    ],
)
def test_a_querys_folder_needs_the_name_of_a_stream(
    tmp_path: Path, stream: dict[str, str], error: type[RewakeError], message: str
) -> None:
    """One that it has, and that is kept."""
    _query_folder(tmp_path)
    with pytest.raises(error, match=message):
        source(tmp_path, **stream).schema()


@pytest.mark.parametrize("kind", ["results", "control", "state"])
def test_a_path_without_a_stream_is_refused(tmp_path: Path, kind: str) -> None:
    """With the path, and a better one where there is one."""
    with pytest.raises(NotALog, match=f"no stream at {tmp_path}/nothing; check the path"):
        source(tmp_path / "nothing", kind=kind).schema()
    small_stream(tmp_path / "streams" / "items")
    with pytest.raises(NotALog, match="no stream at"):
        source(tmp_path / "streams", kind=kind).schema()
    with pytest.raises(UsageError, match="is not the folder of a query"):
        source(tmp_path / "streams" / "items", kind=kind, stream="items").schema()


# --- partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [60, 60]),
        ({"rowsPerPartition": "25"}, [25, 25, 10, 25, 25, 10]),
        ({"minPartitions": "1"}, [60, 60]),
    ],
)
def test_partitions_are_disjoint_and_complete(
    tmp_path: Path, options: dict[str, str], sizes: list[int]
) -> None:
    """However they are cut."""
    made = source(small_stream(tmp_path), **options)
    reader = made.reader(made.schema())
    found = [sum(b.num_rows for b in reader.read(each)) for each in reader.partitions()]
    assert found == sizes
    assert read(tmp_path, **options).equals(read(tmp_path))


def test_as_many_partitions_as_asked_for(tmp_path: Path) -> None:
    """At least, and as long as there are rows; also inside of a single frame."""
    made = source(small_stream(tmp_path, frames=[500]), minPartitions="8")
    reader = made.reader(made.schema())
    partitions = reader.partitions()
    assert len(partitions) >= 8
    assert ids(read(tmp_path, minPartitions="8")) == ids(read(tmp_path))
    assert sum(b.num_rows for each in partitions for b in reader.read(each)) == 1000


def test_a_long_log_is_cut_where_frames_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its index: no frame is read twice, and all tasks have about as much to do."""
    monkeypatch.setattr(stretches, "PARTITION_BYTES", 8 << 20)
    schema = pa.schema([("id", pa.int64()), ("blob", pa.binary())])
    create_stream(tmp_path, schema)
    blob = bytes(1 << 20)
    with open_log_writer(tmp_path / "shard-0000") as writer:
        for number in range(40):
            batch = pa.record_batch([pa.array([number]), pa.array([blob])], schema=schema)
            writer.wait(writer.append(turn(batch, number)))  # by itself, so that it is indexed
    made = source(tmp_path)
    reader = made.reader(made.schema())
    found = [[i for b in reader.read(p) for i in b["id"].to_pylist()] for p in reader.partitions()]
    assert [each for piece in found for each in piece] == list(range(40))
    assert 4 <= len(found) <= 6
    assert max(map(len, found)) - min(map(len, found)) <= 2


def test_a_shard_that_no_row_may_come_from_is_not_opened(tmp_path: Path) -> None:
    """Filters narrow shards and positions before anything is read."""
    small_stream(tmp_path)
    wanted = [EqualTo(("_shard",), 1), GreaterThanOrEqual(("_position",), 58)]
    assert ids(read(tmp_path, filters=wanted, metadata="true")) == [1058, 1059]
    made = source(tmp_path, metadata="true")
    reader = PushingReader(made.reader(made.schema()))
    reader.pushFilters(wanted)
    (stretch,) = reader.partitions()
    assert (stretch.shard.number, stretch.first, stretch.end) == (1, 58, 60)


def test_filters_on_time_narrow_frames_and_are_exact(tmp_path: Path) -> None:
    """Also below what is kept: a filter is no request for what is gone."""
    from datetime import UTC, datetime

    _trimmed(tmp_path)
    half_past = datetime(1970, 1, 1, 0, 30, tzinfo=UTC)
    before, after = LessThan(("_time",), half_past), GreaterThanOrEqual(("_time",), half_past)
    assert ids(read(tmp_path, filters=[before], metadata="true")) == list(range(10, 30))
    assert ids(read(tmp_path, filters=[after], metadata="true")) == list(range(30, 60))
    ages_ago = datetime(1960, 1, 1, tzinfo=UTC)
    assert read(tmp_path, filters=[LessThan(("_time",), ages_ago)], metadata="true").num_rows == 0
    assert (
        read(tmp_path, filters=[GreaterThanOrEqual(("_time",), ages_ago)], metadata="true").num_rows
        == 50
    )


def test_filters_that_are_not_handled_go_back_by_identity(tmp_path: Path) -> None:
    """Spark evaluates those and only those."""
    made = source(small_stream(tmp_path))
    reader = PushingReader(made.reader(made.schema()))
    good, bad, twin = EqualTo(("id",), 3), EqualTo(("id",), 1.5), EqualTo(("id",), 1.5)
    back = list(reader.pushFilters([good, bad, twin]))
    assert back[0] is bad
    assert back[1] is twin
    assert ids(pa.Table.from_batches([b for p in reader.partitions() for b in reader.read(p)])) == [
        3
    ]


# --- control tuples --------------------------------------------------------------------------


def test_control_tuples_are_one_row_per_frame(tmp_path: Path) -> None:
    """What the frame's header says, and how many footprints it holds."""
    table = read(small_stream(tmp_path), kind="control")
    assert table.schema.names == [
        "shard", "sequence", "position", "t_end", "timestamp", "open_windows", "tuples", "opens",
        "checks", "closed", "bytes", "epoch",
    ]  # fmt: skip
    assert table.column("shard").to_pylist() == [0, 0, 0, 1, 1, 1]
    assert table.column("position").to_pylist() == [0, 10, 30] * 2
    assert table.column("t_end").to_pylist() == [9, 29, 59] * 2
    assert table.column("tuples").to_pylist() == [10, 20, 30] * 2
    assert table.column("opens").to_pylist() == [0] * 6
    assert table.column("timestamp").to_pylist()[:3] == [9 * MINUTE, 29 * MINUTE, 59 * MINUTE]


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        ({"fromPosition": "12"}, [10, 30]),
        ({"toPosition": "12"}, [0, 10]),
        ({"toPosition": "10"}, [0]),
        ({"asOf": str(29 * MINUTE)}, [0, 10]),
        ({"fromTime": str(30 * MINUTE)}, [30]),
        ({"minPartitions": "2"}, [0, 10, 30]),
    ],
)
def test_control_tuples_of_a_range(
    tmp_path: Path, options: dict[str, str], positions: list[int]
) -> None:
    """The frames that hold rows of it."""
    table = read(small_stream(tmp_path, shards=1), kind="control", **options)
    assert table.column("position").to_pylist() == positions


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """Positions for shards that the stream does not have are a mistake."""
    with pytest.raises(OutOfRange, match="there is no shard 7; the stream has 2"):
        read(small_stream(tmp_path), fromPosition='{"7": 1}')


def test_the_state_of_an_operator_is_not_taken_for_its_results(tmp_path: Path) -> None:
    """A batch whose rows were logged has no results there: reading them would leave some out."""
    small_stream(tmp_path)
    (tmp_path / "operator.json").write_text("{}")
    with pytest.raises(RewakeError, match="kind=state"):
        read(tmp_path)
    assert read(tmp_path, kind="control").num_rows > 0
