"""Micro-batches: offsets, limits and restarts, asked for as Spark asks for them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from stream_vocabulary import MINUTE, SCHEMA, append, rows, small_stream, trim

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from rewake.connectors.streams.folder import create_stream
from rewake.model.errors import OutOfRange, ReplayMismatch, RewakeError, UsageError
from rewake.spark.datasource.source import RewakeDataSource
from rewake.spark.datasource.stream_read import StreamReader, shared_out

ALL = ReadAllAvailable()


class Query:
    """What Spark does with a reader: offsets travel as JSON, readers and partitions pickled."""

    def __init__(self, path: Path, **options: str) -> None:
        made = RewakeDataSource({"path": str(path), **options})
        self.reader: StreamReader = made.streamReader(made.schema())
        self._reading = cloudpickle.dumps(made.streamReader(made.schema()))

    def initial(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.reader.initialOffset()))

    def latest(self, start: dict[str, Any], limit: ReadLimit | None = None) -> dict[str, Any]:
        limit = limit or self.reader.getDefaultReadLimit()
        return json.loads(json.dumps(self.reader.latestOffset(start, limit)))

    def batch(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        """The ids of a batch's rows."""
        reader = cloudpickle.loads(self._reading)
        partitions = cloudpickle.loads(cloudpickle.dumps(self.reader.partitions(start, end)))
        batches = [batch for each in partitions for batch in reader.read(each)]
        return [number for batch in batches for number in batch["id"].to_pylist()]

    def run(self, start: dict[str, Any], limit: ReadLimit | None = None) -> list[list[int]]:
        """Batches until there is nothing more."""
        found = []
        while (end := self.latest(start, limit)) != start:
            found.append(self.batch(start, end))
            start = end
        return found


def everything(shards: int = 2) -> list[int]:
    return [1000 * shard + row for shard in range(shards) for row in range(60)]


def test_every_row_comes_once_from_earliest_to_the_end(tmp_path: Path) -> None:
    """And rows that are appended come in the next batch."""
    query = Query(small_stream(tmp_path))
    start = query.initial()
    end = query.latest(start)
    assert query.batch(start, end) == everything()
    assert query.latest(end) == end
    append(tmp_path / "shard-0001", [rows(1060, 3)])
    later = query.latest(end)
    assert later == {"0": 60, "1": 63}
    assert query.batch(end, later) == [1060, 1061, 1062]
    query.reader.stop()


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        ("earliest", 0),
        ("latest", 60),
        ("17", 17),
        ('{"0": 17, "1": 17}', 17),
        ("1970-01-01T00:20:00Z", 10),
    ],
)
def test_a_query_starts_where_it_is_told(tmp_path: Path, starting: str, first: int) -> None:
    """Times are those of frames, per shard; the second shard's rows are all of a later time."""
    query = Query(small_stream(tmp_path), begin=starting)
    initial = query.initial()
    assert initial["0"] == first
    assert initial["1"] == (0 if starting.startswith("1970") else first)


@pytest.mark.parametrize(
    ("starting", "error", "message"),
    [
        ("61", OutOfRange, "begin=61 is not in the log: it has 0 to 60"),
        ('{"0": 1}', UsageError, "begin gives positions of shards .0., and the stream has 2"),
    ],
)
def test_a_start_that_is_not_there_is_refused(
    tmp_path: Path, starting: str, error: type[RewakeError], message: str
) -> None:
    """At once, with what is there."""
    with pytest.raises(error, match=message):
        Query(small_stream(tmp_path), begin=starting).initial()


def test_rows_per_trigger_are_never_more_and_all_come(tmp_path: Path) -> None:
    """Shared among shards in proportion to what waits there."""
    query = Query(small_stream(tmp_path), maxRowsPerTrigger="7")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(7)
    batches = query.run(query.initial())
    assert [len(each) for each in batches] == [7] * 17 + [1]
    assert sorted(number for each in batches for number in each) == everything()


def test_a_limit_below_the_number_of_shards_still_makes_progress(tmp_path: Path) -> None:
    """One row at a time, from whichever shard is furthest behind."""
    query = Query(small_stream(tmp_path, shards=3, frames=[2]), maxRowsPerTrigger="1")
    batches = query.run(query.initial())
    assert [len(each) for each in batches] == [1] * 6


def test_bytes_per_trigger_bound_a_batch(tmp_path: Path) -> None:
    """As the log's index tells; at least one row comes."""
    small_stream(tmp_path, shards=1, frames=[100] * 20)
    (size,) = [len(path.read_bytes()) for path in (tmp_path / "shard-0000").glob("*.log")]
    query = Query(tmp_path, maxBytesPerTrigger=str(size // 4))
    batches = query.run(query.initial())
    assert [number for each in batches for number in each] == list(range(2000))
    assert 4 <= len(batches) <= 6
    tiny = Query(tmp_path, maxBytesPerTrigger="1").run({"0": 1990})
    assert [len(each) for each in tiny] == [1] * 10


def test_both_limits_hold_together(tmp_path: Path) -> None:
    """Spark passes the rows; the bytes are known from the options."""
    small_stream(tmp_path, shards=1, frames=[100])
    query = Query(tmp_path, maxBytesPerTrigger="1", maxRowsPerTrigger="50")
    assert query.run({"0": 98}) == [[98], [99]]


def test_all_available_ignores_the_options(tmp_path: Path) -> None:
    """A single trigger takes everything."""
    query = Query(small_stream(tmp_path), maxRowsPerTrigger="7")
    assert len(query.run(query.initial(), ALL)) == 1


def test_limits_that_spark_may_pass_are_kept(tmp_path: Path) -> None:
    """Whatever the options say."""
    query = Query(small_stream(tmp_path, shards=1))
    assert query.latest({"0": 0}, ReadMaxRows(5)) == {"0": 5}
    assert query.latest({"0": 0}, ReadMinRows(61)) == {"0": 0}
    assert query.latest({"0": 0}, ReadMinRows(60)) == {"0": 60}
    assert query.latest({"0": 59}, ReadMaxBytes(1)) == {"0": 60}


def test_what_is_available_now_ends_where_it_was_when_the_query_began(tmp_path: Path) -> None:
    """Also in several batches, and with rows that keep coming."""
    query = Query(small_stream(tmp_path, shards=1), maxRowsPerTrigger="25")
    query.reader.prepareForTriggerAvailableNow()
    start, found = query.initial(), []
    while (end := query.latest(start)) != start:
        append(tmp_path / "shard-0000", [rows(60 + 5 * len(found), 5)])
        found.append(query.batch(start, end))
        start = end
    assert [len(each) for each in found] == [25, 25, 10]
    assert query.reader.reportLatestOffset() == {"0": 75}
    assert Query(tmp_path).run(start) == [list(range(60, 75))]


def test_a_batch_is_the_same_however_often_it_is_planned(tmp_path: Path) -> None:
    """A restart plans it again from the offsets that Spark has stored."""
    small_stream(tmp_path)
    first = Query(tmp_path).batch({"0": 5, "1": 50}, {"0": 15, "1": 55})
    append(tmp_path / "shard-0000", [rows(60, 5)])
    assert Query(tmp_path).batch({"0": 5, "1": 50}, {"0": 15, "1": 55}) == first
    assert first == [*range(5, 15), *range(1050, 1055)]


def test_a_restart_in_the_first_batch_begins_where_the_query_began(tmp_path: Path) -> None:
    """Spark stores the end of the first batch, not its start; "latest" has moved on meanwhile."""
    small_stream(tmp_path, shards=1)
    query = Query(tmp_path, begin="latest")
    start = query.initial()
    append(tmp_path / "shard-0000", [rows(60, 10)])
    end = query.latest(start)
    append(tmp_path / "shard-0000", [rows(70, 10)])
    again = Query(tmp_path, begin="latest")
    assert again.initial()["0"] == 80
    assert again.batch(again.initial(), end) == query.batch(start, end) == list(range(60, 70))
    assert again.run(end) == [list(range(70, 80))]
    # Spark runs a first batch also when there is nothing in it.
    assert again.batch(again.initial(), start) == []
    assert again.batch(start, again.latest(start)) == list(range(60, 80))


def test_a_trimmed_start_is_an_error_that_says_what_is_there(tmp_path: Path) -> None:
    """The rows between are gone: nobody goes on without saying so."""
    create_stream(tmp_path, SCHEMA)
    log = tmp_path / "shard-0000"
    append(log, [rows(0, 10)])
    query = Query(tmp_path)
    start = query.latest(query.initial(), ReadMaxRows(4))
    append(log, [rows(10, 10)])
    trim(log, 1)
    with pytest.raises(OutOfRange, match=r"at position 4, which was trimmed: the log has 10 to 20"):
        query.batch(start, query.latest(start))
    assert Query(tmp_path).initial()["0"] == 10


def test_a_checkpoint_of_another_stream_is_refused(tmp_path: Path) -> None:
    """By the number of shards, or because it is ahead of the stream."""
    query = Query(small_stream(tmp_path))
    with pytest.raises(UsageError, match="has 2 shards; it was written for another stream"):
        query.latest({"0": 3})
    with pytest.raises(UsageError, match="checkpointLocation of its own"):
        query.latest({"0": 3, "1": "x"})
    with pytest.raises(ReplayMismatch, match=r"at position 99 of shard 1, .* ends at 60"):
        query.latest({"0": 3, "1": 99})
    with pytest.raises(ReplayMismatch, match="ends at 60"):
        query.batch({"0": 3, "1": 3}, {"0": 3, "1": 99})


def test_rows_tell_their_places_in_a_stream_too(tmp_path: Path) -> None:
    """As in a batch read."""
    query = Query(small_stream(tmp_path, shards=1), metadata="true")
    (partition,) = query.reader.partitions({"0": 58}, {"0": 60})
    (batch,) = query.reader.read(partition)
    assert batch["_position"].to_pylist() == [58, 59]
    assert batch["_time"].cast(pa.int64()).to_pylist() == [59 * MINUTE] * 2


@pytest.mark.parametrize(
    ("wanted", "most", "expected"),
    [
        ({0: 5, 1: 5}, 100, {0: 5, 1: 5}),
        ({0: 90, 1: 10}, 10, {0: 9, 1: 1}),
        ({0: 1, 1: 1, 2: 1}, 2, {0: 1, 1: 1, 2: 0}),
        ({0: 99, 1: 0}, 10, {0: 10, 1: 0}),
        ({0: 7, 1: 7, 2: 7}, 10, {0: 4, 1: 3, 2: 3}),
    ],
)
def test_shares_are_fair_and_use_all_there_is(
    wanted: dict[int, int], most: int, expected: dict[int, int]
) -> None:
    """In proportion; what is left goes where the remainder is largest."""
    assert shared_out(wanted, most) == expected
