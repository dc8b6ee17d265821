"""Where to begin: words, positions and times, read in one way and settled to positions."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewake import StreamSource
from rewake.connectors.streams.begin import Moment, place_in, place_of_shard
from rewake.connectors.streams.ended import has_ended
from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.model.errors import OutOfRange, UsageError
from rewake.stores import create_log, open_log_writer

SCHEMA = pa.schema([("at", pa.timestamp("s")), ("v", pa.int64())])
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (" Earliest", "earliest"),
        ("latest", "latest"),
        (17, 17),
        ("17", 17),
        ([3, 5], {0: 3, 1: 5}),
        ({0: 3, 1: 5}, {0: 3, 1: 5}),
        ('{"0": 3, "1": 5}', {0: 3, 1: 5}),
        (NOON, Moment(NOON)),
        (datetime(2026, 3, 1, 12), Moment(NOON)),
        ("2026-03-01T13:00:00+01:00", Moment(NOON)),
        ("2026-03-01", Moment(datetime(2026, 3, 1, tzinfo=UTC))),
        ("time 1700000000", Moment(1_700_000_000)),
        ("time -5", Moment(-5)),
    ],
)
def test_a_beginning_is_said_in_one_way(said: Any, meant: object) -> None:
    """As a value of Python or as text, which options are."""
    place = place_in("begin", said)
    assert place == meant
    if isinstance(place, Moment):
        assert place_in("begin", place.words) == place


NO_BEGINNINGS: list[Any] = [
    *("lates", "", "-1", "{", "time", "[1]"),
    *('{"0": -1}', '{"a": 1}', '{"0": true}', '{"0": 4611686018427387904}'),
    *(-1, 2**62 + 1, True, 1.5, None, [], [1, -1]),
    *(b"ab", bytearray(b"ab"), memoryview(b"ab")),
]


@pytest.mark.parametrize("said", NO_BEGINNINGS)
def test_what_is_no_beginning_is_refused_with_what_is(said: Any) -> None:
    """All that can be said is in the error."""
    with pytest.raises(UsageError, match=r"begin=.*give 'earliest', 'latest', a position.*a time"):
        place_in("begin", said)


def test_positions_are_those_of_each_shard() -> None:
    """One for all would mean something else in each."""
    assert place_of_shard("begin", {0: 3, 1: 5}, 1, 2) == 5
    assert place_of_shard("begin", 0, 1, 2) == 0
    assert place_of_shard("begin", "latest", 1, 2) == "latest"
    with pytest.raises(UsageError, match="positions count in each shard"):
        place_of_shard("begin", 7, 1, 2)
    with pytest.raises(UsageError, match="give one for each, from 0 to 2"):
        place_of_shard("begin", {0: 3}, 1, 3)


def log_of(folder: Path, minutes: int) -> Path:
    """One row a minute from noon on, each a frame."""
    create_log(folder, "log", {"schema": SCHEMA.serialize().to_pybytes(), "time": "at"})
    start = int(NOON.timestamp())
    with open_log_writer(folder) as writer:
        for minute in range(minutes):
            at = start + 60 * minute
            columns = [pa.array([at], pa.timestamp("s")), pa.array([minute])]
            rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            section = Section(SectionKind.RESULTS, rows.serialize())
            writer.append(TurnRecord(minute + 1, at, 0, 1, 1, (section,)))
    return folder


@pytest.mark.parametrize(
    ("begin", "first"),
    [
        ("earliest", 0),
        ("latest", 5),
        (3, 3),
        ("2026-03-01T12:02:00", 2),
        (datetime(2026, 3, 1, 12, 2, 1, tzinfo=UTC), 3),
        (f"time {int(NOON.timestamp()) + 240}", 4),
        ("2026-03-01T13:00:00", 5),
    ],
)
def test_a_source_begins_where_it_is_told(tmp_path: Path, begin: Any, first: int) -> None:
    """By a word, a position or a time; the value knows the position, and keeps it."""
    source = StreamSource(log_of(tmp_path / "log", 5), begin=begin, follow=False)
    assert source.shards[0].first_position == first
    reader = source.open(0, 1)
    found = []
    while (event := reader.read(0.0)) is not None:
        found += event.batch["v"].to_pylist()
    assert found == list(range(first, 5))
    assert reader.ended


def test_a_time_that_is_not_reached_is_refused_where_a_stream_is_followed(tmp_path: Path) -> None:
    """What comes next is from before it; a log that has ended has nothing from then on."""
    log = log_of(tmp_path / "log", 5)
    with pytest.raises(UsageError, match=r"has not come to that time yet.*begin at 'latest'"):
        StreamSource(log, begin="2026-03-01T13:00:00", follow=True)
    assert StreamSource(log, begin="2026-03-01T12:04:00", follow=True).shards[0].first_position == 4


def test_a_stream_without_time_begins_at_no_time(tmp_path: Path) -> None:
    """It says so when the source is made."""
    create_log(tmp_path / "log", "log", {"schema": SCHEMA.serialize().to_pybytes()})
    with open_log_writer(tmp_path / "log") as writer:
        rows = pa.RecordBatch.from_pylist([{"v": 1}], schema=SCHEMA)
        writer.append(TurnRecord(0, -(2**63), 0, 1, 1, (Section(0, rows.serialize()),)))
    with pytest.raises((UsageError, OutOfRange), match=r"no event time|no unit"):
        StreamSource(tmp_path / "log", begin="time 5")


def test_a_stream_that_is_followed_ends_when_its_query_has(tmp_path: Path) -> None:
    """Not before, and not before all of it was read, however late that came into sight."""
    folder = tmp_path / "query"
    log = log_of(folder / "nodes" / "averages", 3)
    (folder / "streams.json").write_text('{"streams": {}}')
    reader = StreamSource(log).open(0, 1)
    assert [reader.read(0.0) is not None for _ in range(4)] == [True, True, True, False]
    assert not reader.ended
    with open_log_writer(log) as writer:
        rows = pa.RecordBatch.from_pylist([{"v": 3}], schema=SCHEMA)
        section = Section(SectionKind.RESULTS, rows.serialize())
        writer.append(TurnRecord(4, int(NOON.timestamp()) + 999, 0, 1, 1, (section,)))
    (folder / "streams.json").write_text('{"streams": {}, "ended": true}')
    assert has_ended([str(log)])
    event = reader.read(1000.0)
    assert event is not None
    assert event.batch["v"].to_pylist() == [3]
    assert not reader.ended
    assert reader.read(2000.0) is None
    assert reader.ended
    reader.seek(0)
    assert not reader.ended
