"""NEXMark as sources: the same cut from any position, in any shard; together one whole."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rewake.model.errors import OutOfRange, SchemaMismatch, UsageError
from rewake.model.stream_event import StreamEvent
from rewake_lab.nexmark.events import NexmarkReader, NexmarkSource, NexmarkStream

KINDS = ["persons", "auctions", "bids", "events"]
STREAM = NexmarkStream(7, events_per_second=1000, out_of_order=7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("events", [0, 1, 49, 203])
def test_any_position_leads_to_the_same_cut(
    replayed: Callable, kind: str, shards: int, events: int
) -> None:
    """Tuples and watermarks too; the shards have all tuples, and each tuple once."""
    source = NexmarkSource(STREAM, kind, events, event_tuples=8)
    tables = replayed(source, shards, range(0, 210, 3))
    rows = pa.concat_tables(tables).to_pylist()
    whole = STREAM.table(kind, events).to_pylist()
    assert sorted(map(repr, rows)) == sorted(map(repr, whole))


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_has_every_so_many_th_stream_event(kind: str) -> None:
    """Its own positions have no gaps."""
    reader = NexmarkSource(STREAM, kind, None, event_tuples=10).open(1, 3)
    events = [reader.read(0.0) for _ in range(3)]
    assert [(event.start, event.end) for event in events] == [(0, 10), (10, 20), (20, 30)]
    for event, first in zip(events, (10, 40, 70), strict=True):
        assert event.batch.equals(STREAM.batch(kind, first, first + 10))


def times_ms(event: StreamEvent) -> np.ndarray:
    return event.batch.column("time").cast(pa.int64()).to_numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shards", [1, 3])
def test_no_tuple_of_a_shard_is_late(drained: Callable, kind: str, shards: int) -> None:
    """After a stream event, nothing below its watermark comes in that shard."""
    source = NexmarkSource(STREAM, kind, 3000, event_tuples=5, columns=("time",))
    for shard in range(shards):
        events = drained(source.open(shard, shards))
        marks = [event.watermark for event in events]
        assert marks == sorted(marks)
        for mark, event in zip(marks, events[1:], strict=False):
            assert times_ms(event).min() >= mark


def test_without_disorder_the_watermark_is_the_time_of_the_next_tuple() -> None:
    """Nothing is held back for longer than it must be."""
    reader = NexmarkSource(NexmarkStream(1, 1000), "auctions", event_tuples=5).open(0, 1)
    event, after = reader.read(0.0), reader.read(0.0)
    assert event.watermark == times_ms(after)[0]


def test_an_endless_stream_does_not_end() -> None:
    """And any position in it is at hand."""
    for kind in KINDS:
        reader = NexmarkSource(STREAM, kind, None, event_tuples=10).open(0, 1)
        reader.seek(10**12 + 3)
        assert reader.read(0.0).position == 10**12
        assert not reader.ended


def test_it_travels_and_describes_itself(valued: Callable) -> None:
    """The pace does not decide what is computed; all else does."""
    source = NexmarkSource(STREAM, "bids", 100, 8, ["auction", "time"], rate=1e6)
    valued(source)
    assert source.schema.names == ["auction", "time"]
    same = NexmarkSource(STREAM, "bids", 100, 8, ("auction", "time"))
    assert source.describe() == same.describe()
    others = [
        NexmarkSource(STREAM, "events", 100, 8, ("auction", "time")),
        NexmarkSource(STREAM, "bids", 101, 8, ("auction", "time")),
        NexmarkSource(STREAM, "bids", 100, 9, ("auction", "time")),
        NexmarkSource(STREAM, "bids", 100, 8, ("time", "auction")),
        NexmarkSource(NexmarkStream(7), "bids", 100, 8, ("auction", "time")),
    ]
    assert all(other.describe() != source.describe() for other in others)


# --- pace ----------------------------------------------------------------------------------------


def given_by(reader: NexmarkReader, now_ms: float) -> int:
    """How many tuples come at this moment."""
    tuples = 0
    while (event := reader.read(now_ms)) is not None:
        tuples += event.batch.num_rows
    return tuples


def test_kinds_keep_pace_with_each_other() -> None:
    """The rate is that of all events: a second of 1,000 has 20 persons, 60 auctions, 920 bids."""
    readers = {kind: NexmarkSource(STREAM, kind, rate=1000, event_tuples=4) for kind in KINDS}
    opened = {kind: source.open(0, 1) for kind, source in readers.items()}
    assert [given_by(reader, 500.0) for reader in opened.values()] == [0, 0, 0, 0]
    assert [given_by(reader, 1500.0) for reader in opened.values()] == [20, 60, 920, 1000]


def test_shards_share_the_rate() -> None:
    """Each has its part of what is due."""
    readers = [NexmarkSource(STREAM, "bids", None, 23, rate=1000).open(k, 4) for k in range(4)]
    assert sum(given_by(reader, 0) for reader in readers) == 0
    assert sum(given_by(reader, 1000) for reader in readers) == 920


def test_what_was_due_earlier_comes_at_once_after_a_seek() -> None:
    """A reader that goes back catches up with the present; an origin says when that is."""
    reader = NexmarkSource(STREAM, "events", None, 10, rate=1000, origin_ms=500.0).open(0, 1)
    assert given_by(reader, 509.0) == 0
    assert given_by(reader, 600.0) == 100
    reader.seek(0)
    assert given_by(reader, 700.0) == 200


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"events": -1}, UsageError),
        ({"event_tuples": 0}, UsageError),
        ({"event_tuples": 2**21}, UsageError),
        ({"rate": 0}, UsageError),
        ({"rate": float("nan")}, UsageError),
        ({"kind": "sellers"}, UsageError),
        ({"columns": ("auction",), "kind": "persons"}, SchemaMismatch),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], error: type) -> None:
    """Before anything is read."""
    with pytest.raises(error):
        NexmarkSource(STREAM, **settings)


def test_positions_and_shards_that_are_not_there_are_refused() -> None:
    """The end itself is there."""
    source = NexmarkSource(STREAM, "events", 20, event_tuples=8)
    reader = source.open(1, 2)
    reader.seek(8)
    assert reader.ended
    for position, error in ((9, OutOfRange), (-1, UsageError)):
        with pytest.raises(error):
            reader.seek(position)
    for shard, shards in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(UsageError):
            source.open(shard, shards)
