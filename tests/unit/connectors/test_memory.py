"""Rows at hand as a source."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewake.connectors.memory import Batches
from rewake.model.errors import OutOfRange, SchemaMismatch, UsageError


def numbers(count: int) -> pa.Table:
    return pa.table(
        {"n": pa.array(range(count), pa.int64()), "text": [str(n) for n in range(count)]}
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 8), st.integers(1, 3))
def test_any_position_leads_to_the_same_cut(
    replayed: Callable, sizes: list[int], event_tuples: int, shards: int
) -> None:
    """However the rows came, and in every shard."""
    table = numbers(sum(sizes))
    batches, start = [], 0
    for size in sizes:
        batches.append(table.slice(start, size).combine_chunks().to_batches() or [])
        start += size
    given_batches = [batch for some in batches for batch in some]
    source = Batches(given_batches or table, event_tuples)
    rows = pa.concat_tables(replayed(source, shards)).sort_by("n")
    assert rows.equals(table)


def test_it_travels_and_describes_itself(valued: Callable) -> None:
    """Other rows are another source."""
    valued(Batches(numbers(10), 4))
    assert Batches(numbers(10)) == Batches(numbers(10).to_batches())
    assert Batches(numbers(10)).describe() != Batches(numbers(11)).describe()


def test_with_a_time_column_stream_events_carry_watermarks(drained: Callable) -> None:
    """The time of the last tuple; rows in another order are refused."""
    events = drained(Batches(numbers(10), 4, time_column="n").open(0, 1))
    assert [event.watermark for event in events] == [3, 7, 9]
    with pytest.raises(UsageError, match="order of 'n'"):
        Batches(numbers(10).take([1, 0]), time_column="n")
    for name in ("text", "missing"):
        with pytest.raises(SchemaMismatch, match=name):
            Batches(numbers(10), time_column=name)


def test_dictionaries_and_metadata_are_left_behind(drained: Callable) -> None:
    """A stream event travels as one message, which has no room for them."""
    table = pa.table({"word": pa.array(["a", "b", "a"]).dictionary_encode()})
    source = Batches(table.replace_schema_metadata({"made": "by hand"}), 2)
    assert source.schema.equals(pa.schema([("word", pa.string())]), check_metadata=True)
    assert [event.batch.to_pylist() for event in drained(source.open(0, 1))] == [
        [{"word": "a"}, {"word": "b"}],
        [{"word": "a"}],
    ]


def test_what_cannot_be_is_refused() -> None:
    """No columns, two kinds of rows, a position beyond the end."""
    with pytest.raises(UsageError):
        Batches([])
    with pytest.raises(SchemaMismatch, match="record batch 1"):
        Batches([*numbers(1).to_batches(), pa.RecordBatch.from_pydict({"other": [1]})])
    reader = Batches(numbers(10), 4).open(0, 1)
    for position in (11, 12, 13, 40):
        reader.seek(position)
        for _ in range(2):
            with pytest.raises(OutOfRange):
                reader.read(0.0)


def test_with_slack_rows_may_be_out_of_order_and_watermarks_are_behind():
    """The same ones wherever reading begins; what is further behind is late, not refused."""
    times = [5, 3, 9, 1, 12, 11]
    source = Batches(pa.table({"t": times}), event_tuples=2, time_column="t", slack=4)
    reader = source.open(0, 1)
    marks = [reader.read(0.0).watermark for _ in range(3)]
    assert marks == [5 - 4, 9 - 4, 12 - 4]
    reader.seek(2)
    assert reader.read(0.0).watermark == 5
    assert source.describe()["slack"] == 4
    assert "slack" not in Batches(pa.table({"t": [1]}), time_column="t").describe()


def test_a_slack_that_makes_no_sense_is_refused():
    """It is about the order of times."""
    table = pa.table({"t": [1, 2]})
    with pytest.raises(UsageError, match="give time_column too"):
        Batches(table, slack=4)
    with pytest.raises(UsageError, match="how far times may go back"):
        Batches(table, time_column="t", slack=-1)
