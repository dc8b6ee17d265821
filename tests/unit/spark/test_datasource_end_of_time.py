"""Rows that left at no time: before the stream's clock told any, or at the end of the stream.

`_time` of theirs is null, whatever the unit; filters on it answer the same wherever they are
evaluated; and a stream that has ended has everything by any date after its last time.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from stream_vocabulary import SCHEMA, rows, trim, turn

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import LongType, StructType

from rewake.connectors.streams.folder import create_stream
from rewake.model.errors import OutOfRange, UsageError
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.windows.specs import BY_WATERMARKS, slack_in_unit
from rewake.spark.datasource.batch_read import PushingReader
from rewake.spark.datasource.source import RewakeDataSource
from rewake.stores import open_log_writer

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
KINDS = [*(pa.timestamp(unit, zone) for unit, zone in product(UNITS, ("UTC", None))), pa.int64()]
FINE = [kind for kind in KINDS if pa.types.is_timestamp(kind) and kind.unit == "ns"]
# The clock of an operator that goes by watermarks and has seen a tuple, but no watermark yet.
UNHEARD = 90 - slack_in_unit(BY_WATERMARKS, 1).tuples
# What the clock shows in between, in seconds; each frame has three rows.
SHOWN = (-90, 60, 120, 120)
BEFORE, ALL, AT_THE_END = list(range(6)), list(range(24)), list(range(18, 24))


def scale_of(kind: pa.DataType) -> int:
    """How many of a kind's units make a second."""
    return UNITS[kind.unit] if pa.types.is_timestamp(kind) else 1


def ended_stream(folder: Path, kind: pa.DataType, *, ends: bool = True, more: int = 0) -> Path:
    """Rows before any time, then with times (and so much `more`), then at the stream's end."""
    create_stream(folder, SCHEMA.set(2, pa.field("at", kind)), time="at")
    # In nanoseconds it would be a time like others.
    clocks = [NO_TIME, NO_TIME if kind in FINE else UNHEARD]
    clocks += [each * scale_of(kind) + more for each in SHOWN]
    clocks += [TIME_LIMIT, TIME_LIMIT] if ends else []
    with open_log_writer(folder / "shard-0000") as writer:
        for number, clock in enumerate(clocks):
            batch = rows(3 * number, 3)
            batch = batch.set_column(2, "at", batch.column(2).cast(pa.int64()).cast(kind))
            writer.append(turn(batch, writer.next_position + 2, clock))
    return folder


def read(
    path: Path, *filters: Filter, schema: StructType | None = None, **options: str
) -> pa.Table:
    """All rows that pass; every object travels as it would to a task."""
    made = RewakeDataSource({"path": str(path), **options})
    reader = PushingReader(made.reader(schema or made.schema()))
    assert list(reader.pushFilters(list(filters))) == []
    reader, parts = cloudpickle.loads(cloudpickle.dumps((reader, reader.partitions())))
    batches = [batch for each in parts for batch in reader.read(each)]
    return pa.Table.from_batches(batches) if batches else pa.table({"id": pa.array([], pa.int64())})


def ids(table: pa.Table) -> list[int]:
    """Which rows they are."""
    found: list[int] = table.column("id").to_pylist()
    return found


# --- what is shown ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_left_at_no_time_shows_none(tmp_path: Path, kind: pa.DataType) -> None:
    """Neither 1970 nor a number that no date is; frames say the same as rows."""
    times = read(ended_stream(tmp_path, kind), metadata="true")["_time"].to_pylist()
    assert [n for n, each in enumerate(times) if each is None] == BEFORE + AT_THE_END
    frames = read(tmp_path, kind="control")["timestamp"].to_pylist()
    assert [n for n, each in enumerate(frames) if each is None] == [0, 1, 6, 7]
    assert frames[4] == 120 * scale_of(kind)


def test_a_streaming_read_shows_the_same_times(tmp_path: Path) -> None:
    """Column for column."""
    made = RewakeDataSource(
        {"path": str(ended_stream(tmp_path, pa.timestamp("ms"))), "metadata": "true"}
    )
    reader = made.streamReader(made.schema())
    parts = reader.partitions({"0": 0}, {"0": len(ALL)})
    batches = [batch for each in parts for batch in reader.read(each)]
    assert pa.Table.from_batches(batches).equals(read(tmp_path, metadata="true"))


# --- filters ---------------------------------------------------------------------------------

Condition = tuple[Filter, str]
_TIME = ("_time",)
_COMPARED: dict[Callable[..., Filter], str] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    EqualNullSafe: "IS NOT DISTINCT FROM",
}


def moments(kind: pa.DataType) -> list[Any]:
    """At, beside and far from every time of the stream, and where sentinels might show."""
    apart = timedelta(microseconds=1)
    seconds = [0, *SHOWN[:3]]
    if not pa.types.is_timestamp(kind):
        beside = [each + step for each in seconds for step in (-1, 0, 1)]
        return [*beside, UNHEARD, -(2**62), 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1]
    epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None)
    beside = [epoch + timedelta(seconds=each) + n * apart for each in seconds for n in (-1, 0, 1)]
    return [*beside, epoch.replace(year=1), epoch.replace(year=2026), epoch.replace(year=9999)]


def conditions(kind: pa.DataType) -> list[list[Condition]]:
    """Every comparison with every moment, ranges, sets, nulls, and what is not so."""
    cast = "TIMESTAMPTZ" if pa.types.is_timestamp(kind) and kind.tz else "TIMESTAMP"

    def text(value: Any) -> str:
        return str(value) if isinstance(value, int) else f"{cast} '{value.isoformat(' ')}'"

    whens = moments(kind)
    one = [
        (make(_TIME, when), f"_time {sign} {text(when)}")
        for (make, sign), when in product(_COMPARED.items(), whens)
    ]
    some = [(first, last) for first, last in product(whens[::2], whens[1::3]) if first <= last]
    sets = [(In(_TIME, pair), f"_time IN ({', '.join(map(text, pair))})") for pair in some]
    nulls = [(IsNull(_TIME), "_time IS NULL"), (IsNotNull(_TIME), "_time IS NOT NULL")]
    single = one + sets + nulls
    negated = [(Not(each), f"NOT ({words})") for each, words in single]
    between = [
        [
            (GreaterThanOrEqual(_TIME, first), f"_time >= {text(first)}"),
            (LessThanOrEqual(_TIME, last), f"_time <= {text(last)}"),
        ]
        for first, last in some
    ]
    return [[each] for each in single + negated] + between


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("ends", [True, False], ids=["ended", "going on"])
def test_a_filter_on_time_pushed_down_is_that_over_all_rows(
    tmp_path: Path, kind: pa.DataType, ends: bool
) -> None:
    """DuckDB, which gets everything, answers the same."""
    more = -500 if kind in FINE else 0  # what Spark cuts off
    everything = read(ended_stream(tmp_path, kind, ends=ends, more=more), metadata="true")
    with duckdb.connect() as database:
        database.execute("SET timezone = 'UTC'")
        database.register("everything", everything)
        for each in conditions(kind):
            where = " AND ".join(words for _, words in each)
            asked = f"SELECT id FROM everything WHERE {where} ORDER BY id"
            expected = [row for (row,) in database.execute(asked).fetchall()]
            found = read(tmp_path, *(wanted for wanted, _ in each), metadata="true")
            assert ids(found) == expected, where


def test_a_filter_on_time_read_as_a_number_is_in_the_streams_unit(tmp_path: Path) -> None:
    """A schema may ask for numbers; then these are compared."""
    ended_stream(tmp_path, pa.timestamp("ms"))
    schema = StructType().add("id", LongType()).add("_time", LongType())
    wanted = LessThan(_TIME, 120_000)
    assert ids(read(tmp_path, wanted, schema=schema)) == list(range(6, 12))


# --- reading by date -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"asOf": 119}, range(12)),
        ({"asOf": 120}, range(24)),
        ({"asOf": 10**9}, range(24)),
        ({"end": 120}, range(12)),
        ({"end": 121}, range(24)),
        ({"end": 10**9}, range(24)),
        ({"begin": 120}, range(12, 24)),
        ({"begin": 121}, []),
        ({"begin": 10**9}, []),
    ],
    ids=str,
)
def test_a_stream_that_has_ended_had_everything_after_its_last_time(
    tmp_path: Path, kind: pa.DataType, options: dict[str, int], expected: range
) -> None:
    """What left at the end came right behind; until a time and from it on is everything, once."""
    ended_stream(tmp_path, kind)
    ((name, seconds),) = options.items()
    moment = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()
    when = moment if pa.types.is_timestamp(kind) else f"time {seconds}"
    assert ids(read(tmp_path, **{name: when})) == list(expected)


def test_a_stream_of_which_only_the_end_is_kept_cannot_be_read_by_date(tmp_path: Path) -> None:
    """When its last time was, nobody knows any more; a filter is no request for what is gone."""
    ended_stream(tmp_path, SCHEMA.field("at").type)
    with open_log_writer(tmp_path / "shard-0000") as writer:  # a segment of its own
        writer.append(turn(rows(24, 3), 26, TIME_LIMIT))
    trim(tmp_path / "shard-0000", 8)
    assert ids(read(tmp_path)) == [24, 25, 26]
    for name in ("asOf", "end", "begin"):
        with pytest.raises(OutOfRange, match=r"left at its end.* read it by position"):
            read(tmp_path, **{name: "2026-01-01"})
    for wanted in (LessThan, GreaterThan):
        assert (
            ids(read(tmp_path, wanted(_TIME, datetime(2026, 1, 1, tzinfo=UTC)), metadata="true"))
            == []
        )
    assert ids(read(tmp_path, IsNull(_TIME), metadata="true")) == [24, 25, 26]


def test_a_stream_that_only_ended_has_no_time_unless_it_says_so(tmp_path: Path) -> None:
    """Rows of a source without times leave before the end, which says nothing of when."""
    for name, time in (("timed", "at"), ("untimed", None)):
        create_stream(tmp_path / name, SCHEMA, time=time)
        with open_log_writer(tmp_path / name / "shard-0000") as writer:
            writer.append(turn(rows(0, 3), 2, NO_TIME))
            writer.append(turn(rows(3, 3), 5, TIME_LIMIT))
    assert ids(read(tmp_path / "timed", asOf="1970-01-01")) == list(range(6))
    assert ids(read(tmp_path / "timed", begin="1970-01-01")) == []
    with pytest.raises(UsageError, match="the stream has no event time"):
        read(tmp_path / "untimed", asOf="17")
