"""The item stream as a source: a pure function of positions, in a given pace."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.connectors.item_stream import ItemReader, ItemSource, ItemStream
from rewake.model.errors import OutOfRange, UsageError

STREAM = ItemStream(7, 100, 10)


def numpy_columns(stream: ItemStream, start: int, stop: int) -> list[np.ndarray]:
    """The formula of the stream, written without a loop and without a compiler."""

    def scrambled(values):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))

    def below(bits, limit):
        return (bits * np.uint64(limit)) >> np.uint64(32)

    positions = np.arange(start, stop, dtype=np.uint64)
    key = scrambled(np.array([stream.seed % 2**64], np.uint64))
    chance = scrambled(positions * np.uint64(0x9E3779B97F4A7C15) + key)
    more = scrambled(chance)
    fast = stream.items - stream.slow_items
    items = below(more >> np.uint64(32), fast)
    if stream.slow_items:
        slow = chance % np.uint64(256) == 0
        items[slow] = below(more[slow] >> np.uint64(32), stream.slow_items) + np.uint64(fast)
    prices = below(chance >> np.uint64(32), 1000) + np.uint64(1)
    times = positions * np.uint64(10) + more % np.uint64(10) + np.uint64(1_700_000_000_000_000)
    return [items.astype(np.int32), prices.astype(np.int32), times.astype(np.int64)]


@given(st.integers(0, 2**64), st.integers(1, 2**31 - 1), st.data())
def test_the_compiled_stream_is_the_formula_bit_by_bit(seed: int, items: int, data: Any) -> None:
    """Streams of earlier runs must not change with the way they are computed."""
    slow = data.draw(st.integers(0, items - 1))
    start = data.draw(st.integers(0, 2**40))
    stream = ItemStream(seed, items, slow)
    batch = stream.event(start, start + 700).batch
    for column, expected in zip(
        batch.columns, numpy_columns(stream, start, start + 700), strict=True
    ):
        storage = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        assert np.array_equal(storage.to_numpy(), expected)


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
@pytest.mark.parametrize("tuples", [0, 1, 7, 8, 9, 40, 45])
def test_any_position_leads_to_the_same_cut(replayed: Callable, tuples: int, shards: int) -> None:
    """Stream events end at multiples of their size and at the end, in every shard."""
    source = ItemSource(STREAM, tuples, event_tuples=8)
    tables = replayed(source, shards)
    rows = pa.concat_tables(tables).sort_by("item_time")
    assert rows.equals(pa.Table.from_batches([STREAM.batch(0, tuples)]))


def test_a_shard_has_every_so_many_th_stream_event() -> None:
    """Its own positions have no gaps."""
    reader = ItemSource(STREAM, None, event_tuples=10).open(1, 3)
    events = [reader.read(0.0) for _ in range(3)]
    assert [(event.start, event.end) for event in events] == [(0, 10), (10, 20), (20, 30)]
    for event, first in zip(events, (10, 40, 70), strict=True):
        assert event.batch.equals(STREAM.batch(first, first + 10))


def test_an_endless_stream_does_not_end() -> None:
    """And any position in it is at hand."""
    reader = ItemSource(STREAM, None, event_tuples=10).open(0, 1)
    reader.seek(10**15 + 3)
    assert reader.read(0.0).position == 10**15
    assert not reader.ended


def test_it_travels_and_describes_itself(valued: Callable) -> None:
    """The pace does not decide what is computed."""
    source = ItemSource(STREAM, 100, 8, rate=1e6)
    valued(source)
    assert source.describe() == ItemSource(STREAM, 100, 8).describe()
    assert source.describe() != ItemSource(STREAM, 100, 9).describe()


def given_by(reader: ItemReader, now_ms: float) -> int:
    """How many tuples come at this moment."""
    tuples = 0
    while (event := reader.read(now_ms)) is not None:
        tuples += event.batch.num_rows
    return tuples


def test_a_paced_stream_is_never_ahead_of_its_rate() -> None:
    """A stream event comes when the last of its tuples is due."""
    reader = ItemSource(STREAM, None, event_tuples=10, rate=1000).open(0, 1)
    came = [(now, given_by(reader, 5000 + now)) for now in range(0, 41, 5)]
    assert [now for now, tuples in came if tuples] == [10, 20, 30, 40]
    assert sum(tuples for _, tuples in came) == 40


def test_what_was_due_earlier_comes_at_once_after_a_seek() -> None:
    """A reader that goes back catches up with the present."""
    reader = ItemSource(STREAM, None, event_tuples=10, rate=1000).open(0, 1)
    given_by(reader, 0)
    assert given_by(reader, 100) == 100
    reader.seek(0)
    assert given_by(reader, 200) == 200
    assert given_by(reader, 209) == 0


def test_an_origin_says_when_each_tuple_is_due() -> None:
    """Whoever knows the origin can tell how late a tuple is."""
    source = ItemSource(STREAM, None, event_tuples=10, rate=1000, origin_ms=500.0)
    reader = source.open(0, 1)
    assert given_by(reader, 509.0) == 0
    assert given_by(reader, 520.0) == 20
    reader.seek(0)
    assert given_by(reader, 520.0) == 20


def test_a_stream_event_of_more_than_a_second_comes_in_time() -> None:
    """However long it takes."""
    reader = ItemSource(STREAM, None, event_tuples=1000, rate=10).open(0, 1)
    assert [given_by(reader, now) for now in (0, 99_999, 100_000, 200_000)] == [0, 0, 1000, 1000]


def test_shards_share_the_rate() -> None:
    """The rate is that of the source."""
    readers = [ItemSource(STREAM, None, 10, rate=1000).open(shard, 4) for shard in range(4)]
    assert sum(given_by(reader, 0) for reader in readers) == 0
    assert sum(given_by(reader, 400) for reader in readers) == 400


@pytest.mark.parametrize(
    "settings",
    [{"tuples": -1}, {"event_tuples": 0}, {"rate": 0}, {"rate": -1.0}, {"rate": float("nan")}],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError):
        ItemSource(STREAM, **settings)


def test_positions_and_shards_that_are_not_there_are_refused() -> None:
    """The end itself is there."""
    source = ItemSource(STREAM, 20, event_tuples=8)
    reader = source.open(1, 2)
    reader.seek(8)
    assert reader.ended
    for position, error in ((9, OutOfRange), (-1, UsageError)):
        with pytest.raises(error):
            reader.seek(position)
    for shard, shards in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(UsageError):
            source.open(shard, shards)
