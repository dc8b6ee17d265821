"""`format("nats")`: batches of a streaming query are ranges of a stream's sequences."""

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broker_vocabulary import create, delete_stream, numbers, publish, remove_before

pytest.importorskip("pyspark")

from rewake.model.errors import OutOfRange, UsageError
from rewake.spark.sources.nats import NatsDataSource, NatsStreamReader, parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reading:
    """A query that copies what there is into files, run by run, with one checkpoint."""

    def __init__(self, spark: "SparkSession", address: str, folder: Path) -> None:
        self.address, self.stream, self.folder = address, f"s{uuid.uuid4().hex}", folder
        self._spark = spark
        spark.dataSource.register(NatsDataSource)
        create(address, self.stream)

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Read what there is; return the progress of each batch that had rows."""
        source = self._spark.readStream.format("nats").options(
            servers=self.address, stream=self.stream, **options
        )
        query = (
            source.load()
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start(str(self.folder / "rows"), "parquet")
        )
        query.awaitTermination()
        reports = [json.loads(report.json) for report in query.recentProgress]
        return [report for report in reports if report["numInputRows"]]

    def rows(self) -> list[tuple[int, str]]:
        """What has been read, in the order of sequences."""
        found = self._spark.read.parquet(str(self.folder / "rows")).orderBy("sequence").collect()
        return [(row.sequence, bytes(row.data).decode()) for row in found]

    def publish(self, first: int, last: int) -> None:
        publish(self.address, self.stream, numbers(first, last))


@pytest.fixture
def reading(spark: "SparkSession", nats_address: str, tmp_path: Path) -> Reading:
    return Reading(spark, nats_address, tmp_path)


@pytest.mark.spark
def test_every_message_is_read_once_over_batches_and_restarts(reading: Reading) -> None:
    """In batches as large as asked, by several tasks; a restart goes on where the last ended."""
    reading.publish(0, 25)
    reports = reading.run(maxRowsPerTrigger=20, partitions=2)
    assert [report["numInputRows"] for report in reports] == [20, 5]
    assert reports[0]["sources"][0]["endOffset"]["sequence"] == 21
    reading.publish(25, 40)
    assert [report["numInputRows"] for report in reading.run()] == [15]
    assert reading.rows() == [(number + 1, str(number)) for number in range(40)]


@pytest.fixture
def stream(nats_address: str) -> str:
    name = f"s{uuid.uuid4().hex}"
    create(nats_address, name)
    publish(nats_address, name, numbers(0, 5))
    return name


def reader(address: str, stream: str, **options: str) -> NatsStreamReader:
    """What Spark makes of the options."""
    return NatsStreamReader(parse_options({"servers": address, "stream": stream, **options}))


def read(source: NatsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """What the tasks of a batch read, one after the other."""
    batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
    return [value.decode() for batch in batches for value in batch["data"].to_pylist()]


@pytest.mark.parametrize(
    ("starting", "first"), [("earliest", 0), ("latest", 5), ("4", 3), ("99", 5)]
)
def test_a_query_starts_where_it_is_told(
    nats_address: str, stream: str, starting: str, first: int
) -> None:
    """From the first, from what comes later, or from a sequence."""
    source = reader(nats_address, stream, begin=starting, partitions="2")
    start = source.initialOffset()
    publish(nats_address, stream, numbers(5, 8))
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert read(source, start, end) == numbers(first, 8)
    assert end == source.reportLatestOffset()
    assert source.partitions(end, end) == []


def test_what_arrives_after_available_now_has_begun_is_for_the_next_run(
    nats_address: str, stream: str
) -> None:
    """Else a run would not end while messages arrive."""
    source = reader(nats_address, stream, maxRowsPerTrigger="3")
    source.prepareForTriggerAvailableNow()
    publish(nats_address, stream, numbers(5, 20))
    offsets = [source.initialOffset()]
    for _ in range(3):
        offsets.append(source.latestOffset(offsets[-1], source.getDefaultReadLimit()))
    assert [offset["sequence"] for offset in offsets] == [1, 4, 6, 6]


def test_a_stream_that_lost_what_was_not_read_is_refused(nats_address: str, stream: str) -> None:
    """Also one that was made again, whose sequences mean other messages."""
    source = reader(nats_address, stream)
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    remove_before(nats_address, stream, 3)
    with pytest.raises(OutOfRange, match="messages 1 to 2 of the NATS stream"):
        source.partitions(start, end)
    delete_stream(nats_address, stream)
    create(nats_address, stream)
    with pytest.raises(OutOfRange, match="start it with a new checkpointLocation"):
        source.latestOffset(end, source.getDefaultReadLimit())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stream": "a"}, "needs the option 'servers'"),
        ({"servers": "a"}, "needs the option 'stream'"),
        ({"servers": "a", "stream": "b", "subjcet": "c"}, "did you mean 'subject'?"),
        ({"servers": "a", "stream": "b", "maxRowsPerTrigger": "0"}, "a whole number from 1"),
        ({"servers": "a", "stream": "b", "begin": "then"}, "earliest, latest or a whole"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], words: str) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        parse_options(options)
