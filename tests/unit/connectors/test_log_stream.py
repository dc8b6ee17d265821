"""A stream of Rewake as a source: every frame once, from past to live, from any position."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rewake.connectors.streams.source import StreamSource
from rewake.log.columns import pack_columns
from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.log.retention import Retention
from rewake.log.writing.pipeline import Limits
from rewake.model.errors import (
    DamagedFrame,
    DamagedLog,
    NotALog,
    OutOfRange,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import StreamEvent
from rewake.stores import create_log, open_log_writer

SCHEMA = pa.schema([("n", pa.int64())])
METADATA = {"schema": SCHEMA.serialize().to_pybytes(), "schema-1": SCHEMA.serialize().to_pybytes()}


def batch(numbers: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=SCHEMA)


def turn(first: Sequence[int], second: Sequence[int] = (), watermark: int | None = None):
    """A turn that sends numbers on two outputs."""
    sections = [
        Section(SectionKind.RESULTS, batch(numbers).serialize().to_pybytes(), output)
        for output, numbers in enumerate((first, second))
        if numbers
    ]
    if watermark is not None:
        payload = pack_columns([np.array([watermark], np.int64)])
        sections.append(Section(SectionKind.PUNCTUATIONS, payload))
    return TurnRecord(0, 0, 0, len(first) + len(second), 0, sections)


TURNS = [
    turn([0, 1, 2]),
    turn([3], [100, 101]),
    turn([]),  # a checkpoint, say: it sends nothing
    turn([], watermark=40),
    turn([], [102]),
    turn([4, 5], watermark=50),
    turn([], watermark=60),
]
# What they are on the two outputs: start, end, numbers, watermark.
FIRST = [
    (0, 3, [0, 1, 2], None),
    (3, 6, [3], None),
    (6, 6, [], 40),
    (6, 7, [], None),
    (7, 9, [4, 5], 50),
    (9, 9, [], 60),
]
SECOND = [
    (0, 3, [], None),
    (3, 6, [100, 101], None),
    (6, 6, [], 40),
    (6, 7, [102], None),
    (7, 9, [], 50),
    (9, 9, [], 60),
]


def facts(event: StreamEvent) -> tuple:
    return event.start, event.end, event.batch["n"].to_pylist(), event.watermark


def append(path: Path, turns: Sequence[TurnRecord], limits: Limits | None = None) -> None:
    with open_log_writer(path, limits=limits) as writer:
        for each in turns:
            writer.append(each)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    create_log(tmp_path / "log", "numbers", METADATA)
    append(tmp_path / "log", TURNS)
    return tmp_path / "log"


@pytest.mark.parametrize(("output", "expected"), [(0, FIRST), (1, SECOND)])
def test_a_stream_event_covers_what_went_to_other_outputs(
    log: Path, drained: Callable, output: int, expected: list
) -> None:
    """Positions are those of the log, and watermarks hold for every output."""
    reader = StreamSource(log, output=output, follow=False).open(0, 1)
    assert [facts(event) for event in drained(reader)] == expected
    reader.close()


def test_any_position_leads_to_the_same_stream_events(log: Path, drained: Callable) -> None:
    """Those that end after it, and the punctuations from there on."""
    reader = StreamSource(log, follow=False).open(0, 1)
    for position in range(10):
        reader.seek(position)
        expected = [each for each in FIRST if each[1] > position or each[0] == position]
        found = [facts(event) for event in drained(reader)]
        assert found[0][0] == 0 or position
        assert [each[1:] for each in found] == [each[1:] for each in expected]
        assert [each[0] for each in found[1:]] == [each[0] for each in expected[1:]]
    reader.close()


def test_a_followed_stream_goes_on_with_its_log(log: Path) -> None:
    """Across writers; it never ends."""
    reader = StreamSource(log).open(0, 1)
    seen = [facts(reader.read(0.0)) for _ in FIRST]
    assert seen == FIRST
    assert reader.read(0.0) is None
    for number in range(3):
        append(log, [turn([10 + number])])
        assert facts(reader.read(0.0)) == (9 + number, 10 + number, [10 + number], None)
        assert reader.read(0.0) is None
        assert not reader.ended
    reader.close()


def test_an_empty_log_can_be_followed_and_not_followed(tmp_path: Path) -> None:
    """Its first frame may be long in coming."""
    create_log(tmp_path / "log", "numbers", METADATA)
    over, live = (StreamSource(tmp_path / "log", follow=follow) for follow in (False, True))
    append(tmp_path / "log", [turn([1, 2])])
    assert over.open(0, 1).ended
    with_first = live.open(0, 1)
    assert facts(with_first.read(0.0)) == (0, 2, [1, 2], None)


def test_a_stream_that_is_not_followed_ends_where_its_log_ended(
    log: Path, drained: Callable
) -> None:
    """However often it is read, and whatever has come since."""
    source = StreamSource(log, follow=False)
    append(log, [turn([7, 8])])
    for _ in range(2):
        assert [facts(event) for event in drained(source.open(0, 1))] == FIRST


@pytest.mark.parametrize("begin", range(10))
def test_a_stream_from_a_position_covers_what_lies_before(
    log: Path, drained: Callable, begin: int
) -> None:
    """As if those tuples went elsewhere: its positions begin at 0 and have no gap."""
    reader = StreamSource(log, begin, follow=False).open(0, 1)
    events = drained(reader)
    end = 0
    for event in events:
        assert event.start == end
        end = event.end
    assert end == 9
    # The tuples of a stream event are at the last of its positions.
    places = {0: 0, 1: 1, 2: 2, 3: 5, 4: 7, 5: 8}
    numbers = [number for event in events for number in event.batch["n"].to_pylist()]
    assert numbers == [number for number, place in places.items() if place >= begin]
    for position in range(10):
        reader.seek(position)
        bare = (40, 60)  # the watermarks that came without tuples: they are at one position
        assert [event.end for event in drained(reader)] == [
            event.end
            for event in events
            if event.end > position or (event.end == position and event.watermark in bare)
        ]
    reader.close()


def test_the_latest_begins_with_what_comes_next(log: Path) -> None:
    """Settled when the source is made, not when it is opened."""
    source = StreamSource(log, "latest")
    append(log, [turn([7]), turn([8])])
    for _ in range(2):
        reader = source.open(0, 1)
        events = [reader.read(0.0) for _ in range(4)]
        found = [facts(event) for event in events if event is not None]
        assert [each[2] for each in found if each[2]] == [[7], [8]]
        assert found[0][0] == 0
        assert found[-1][1] == 11
        reader.close()


def test_what_was_trimmed_is_out_of_range(tmp_path: Path, drained: Callable) -> None:
    """The earliest is what is still there."""
    path = tmp_path / "log"
    create_log(path, "numbers", METADATA)
    old = StreamSource(path)
    with open_log_writer(path, limits=Limits(segment_bytes=300)) as writer:
        for number in range(40):
            writer.append(turn([number]))
        writer.flush()
        writer.trim(30, Retention(max_bytes=0))
    source = StreamSource(path, "earliest", follow=False)
    first = source.shards[0].first_position
    assert 0 < first <= 30
    events = drained(source.open(0, 1))
    assert [event.batch["n"].to_pylist() for event in events] == [[n] for n in range(first, 40)]
    assert (events[0].start, events[0].end) == (0, first + 1)
    with pytest.raises(OutOfRange, match=f"it has {first} to 40"):
        old.open(0, 1).read(0.0)
    with pytest.raises(OutOfRange):
        source.open(0, 1).seek(41)


def test_it_travels_and_describes_itself(log: Path, valued: Callable) -> None:
    """Another log in the same place is another source."""
    source = StreamSource(log, follow=False)
    valued(source)
    valued(StreamSource([log], 3, output=1))
    assert StreamSource(log, 3).describe() != StreamSource(log).describe()
    for file in log.iterdir():
        file.unlink()
    create_log(log, "numbers", METADATA)
    with pytest.raises(ReplayMismatch, match="another one"):
        source.open(0, 1)


def test_a_frame_that_is_not_of_the_stream_is_refused(tmp_path: Path) -> None:
    """And not passed over by reading again."""
    path = tmp_path / "log"
    create_log(path, "numbers", METADATA)
    append(path, [turn([1]), TurnRecord(0, 0, 0, 1, 0, [Section(SectionKind.RESULTS, b"bad")])])
    append(path, [turn([2])])
    reader = StreamSource(path).open(0, 1)
    assert facts(reader.read(0.0)) == (0, 1, [1], None)
    for _ in range(3):
        with pytest.raises(DamagedFrame, match="frame 1 in"):
            reader.read(0.0)


@pytest.mark.parametrize(
    "section",
    [
        Section(SectionKind.RESULTS, batch([1, 2]).serialize().to_pybytes()),
        Section(SectionKind.PUNCTUATIONS, pack_columns([])),
        Section(SectionKind.PUNCTUATIONS, b"?"),
    ],
)
def test_impossible_sections_are_refused(tmp_path: Path, section: Section) -> None:
    """More tuples than were counted, and punctuations of another form."""
    create_log(tmp_path / "log", "numbers", METADATA)
    append(tmp_path / "log", [TurnRecord(0, 0, 0, 1, 0, [section])])
    with pytest.raises(DamagedFrame):
        StreamSource(tmp_path / "log").open(0, 1).read(0.0)


def test_what_cannot_be_is_refused(log: Path, tmp_path: Path) -> None:
    """No log, no columns, more than one shard, no such beginning."""
    with pytest.raises(NotALog):
        StreamSource(tmp_path)
    with pytest.raises(UsageError, match="output 2"):
        StreamSource(log, output=2)
    assert StreamSource(log, output=2, schema=SCHEMA).schema == SCHEMA
    with pytest.raises(UsageError, match="one partition"):
        StreamSource(log).open(0, 2)
    for begin in (-1, "yesterday"):
        with pytest.raises(UsageError, match="begin="):
            StreamSource(log, begin)
    create_log(tmp_path / "other", "other", {"schema": b"?"})
    with pytest.raises((DamagedLog, SchemaMismatch)):
        StreamSource(tmp_path / "other")
