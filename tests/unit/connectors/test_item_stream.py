"""The item stream: a function of seed and position, whoever asks and however it is cut."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.connectors.item_stream import SCHEMA, ItemStream
from rewake.model.errors import UsageError

seeds = st.integers(0, 2**64)


@given(seeds, st.integers(1, 10**6), st.lists(st.integers(0, 3000), min_size=2, max_size=6))
def test_a_stream_is_the_same_however_it_is_cut(seed: int, items: int, cuts: list[int]) -> None:
    """Replay may begin at any position, and must see what was seen before."""
    stream = ItemStream(seed, items, items // 10)
    cuts = sorted(cuts)
    whole = stream.event(cuts[0], cuts[-1]).batch
    pieces = [stream.event(a, b).batch for a, b in pairwise(cuts)]
    assert (
        pa.Table.from_batches(pieces, SCHEMA)
        .combine_chunks()
        .equals(pa.Table.from_batches([whole], SCHEMA).combine_chunks())
    )


@given(seeds, st.integers(0, 2**40))
def test_plain_rows_are_the_same_tuples_as_the_stream_event(seed: int, start: int) -> None:
    """The oracle must be asked about the same stream."""
    stream = ItemStream(seed, 50, 5)
    batch = stream.event(start, start + 100).batch
    times = batch.column("item_time").cast(pa.int64())
    columns = [batch.column("item_id"), batch.column("item_price"), times]
    plain = pa.RecordBatch.from_arrays(columns, names=SCHEMA.names).to_pylist()
    assert list(stream.rows(start, start + 100)) == plain


def test_an_event_begins_at_its_position() -> None:
    """Positions are the time of the recovery protocols."""
    event = ItemStream(1, 10).event(70, 90)
    assert (event.position, event.end) == (70, 90)
    assert event.batch.schema.equals(SCHEMA)


def test_times_rise_strictly() -> None:
    """An item and a time identify a tuple."""
    times = ItemStream(3, 10).event(0, 20_000).batch.column("item_time").cast(pa.int64())
    assert np.all(np.diff(times.to_numpy()) > 0)


def test_items_are_drawn_evenly_and_all_of_them() -> None:
    """As in CEC IV.B: "tuples randomly distributed across 100,000 item ids"."""
    items = ItemStream(5, 100).event(0, 100_000).batch.column("item_id").to_numpy()
    counts = np.bincount(items, minlength=100)
    assert counts.size == 100
    assert 800 < counts.min() <= counts.max() < 1200


def test_slow_items_are_rare() -> None:
    """As in Thesis 4.3, the mixed regime: windows that stay open for long."""
    items = ItemStream(5, 110, slow_items=10).event(0, 110_000).batch.column("item_id").to_numpy()
    counts = np.bincount(items, minlength=110)
    assert 0 < counts[100:].max() < counts[:100].min() / 10


def test_another_seed_is_another_stream() -> None:
    """Runs with different seeds must differ."""
    first, second = (ItemStream(seed, 1000).event(0, 1000).batch for seed in (1, 2))
    assert not first.column("item_id").equals(second.column("item_id"))
    assert not first.column("item_price").equals(second.column("item_price"))


@pytest.mark.parametrize(("items", "slow"), [(0, 0), (2**31, 0), (5, 5), (5, -1)])
def test_an_impossible_number_of_items_is_refused(items: int, slow: int) -> None:
    """Before anything is made."""
    with pytest.raises(UsageError):
        ItemStream(1, items, slow)


def test_the_time_of_a_tuple_tells_its_position() -> None:
    """Times rise strictly, a purchase in every interval."""
    batch = ItemStream(3, 50).batch(100, 400)
    times = batch.column("item_time").to_numpy().astype(np.int64)
    assert ItemStream.positions_at(times).tolist() == list(range(100, 400))
