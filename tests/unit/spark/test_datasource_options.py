"""What may be asked of a read, and how a mistake is answered."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from rewake.connectors.streams.begin import Moment, time_in
from rewake.model.errors import UsageError
from rewake.spark.datasource.options import Mode, read_options


def parsed(mode: Mode | None = None, **given: str):
    return read_options({"path": "stream", **given}, mode)


def test_a_read_needs_no_option_but_the_path() -> None:
    """And the path is absolute: tasks run elsewhere."""
    options = parsed()
    assert options.path.endswith("/stream")
    assert options.path.startswith("/")
    assert (options.kind, options.stream, options.metadata) == ("results", None, False)


def test_a_file_uri_is_a_path() -> None:
    """Spark users write both."""
    assert read_options({"path": "file:///a/b%20c"}).path == "/a/b c"
    assert read_options({"path": "file:/a"}).path == "/a"


def test_the_names_of_options_may_be_written_in_any_case() -> None:
    """Spark lowers them before they arrive."""
    assert parsed(BegiN="3").begin == 3
    assert parsed(METADATA="TRUE").metadata


def test_positions_are_for_every_shard_or_for_each() -> None:
    """Shards have positions of their own."""
    assert parsed(begin=" 12 ").begin == 12
    assert parsed(end='{"0": 5, "1": 7}').end == {0: 5, 1: 7}
    assert parsed(asOfPosition=" 12 ").as_of_position == 12
    assert parsed(asOfPosition='{"0": 5, "1": 7}').as_of_position == {0: 5, 1: 7}


def test_times_are_moments_or_numbers() -> None:
    """A moment without a zone is in UTC."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert parsed(begin="2026-03-01T12:00:00").begin == Moment(noon)
    assert parsed(begin="2026-03-01T13:00:00+01:00").begin == Moment(noon)
    assert parsed(begin="time -17").begin == Moment(-17)
    assert parsed(asOf="-17").as_of == parsed(asOf="time -17").as_of == -17
    assert parsed(asOf=" 2026-03-01T12:00:00").as_of == noon


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("EARLIEST", "earliest"),
        ("latest", "latest"),
        ("42", 42),
        ('{"0": 1}', {0: 1}),
        ("2026-03-01", Moment(datetime(2026, 3, 1, tzinfo=UTC))),
        ("time 1700000000", Moment(1_700_000_000)),
    ],
)
def test_a_read_begins_anywhere(value: str, expected: object) -> None:
    """By a word, a position or a time; said in the same way of history and of what comes."""
    assert parsed(Mode.STREAM, begin=value).begin == expected
    assert parsed(Mode.BATCH, begin=value, end=value).end == expected


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        (None, {"begins": "1"}, "no option 'begins'; did you mean 'begin'?"),
        (None, {"fromPosition": "1"}, "no option 'fromPosition'; did you mean 'begin'?"),
        (None, {"startingOffsets": "earliest"}, "did you mean 'begin'?"),
        (None, {"zzz": "1"}, "no option 'zzz'. Options: path, stream"),
        (None, {"paths": "[]"}, "one stream at a time"),
        (None, {"path": "s3://bucket/x"}, "is on s3:, .*: mount it"),
        (None, {"path": " "}, "option path is empty"),
        (None, {"kind": "windows"}, "kind='windows'; give results, control or state"),
        (None, {"metadata": "yes"}, "metadata='yes'; give true or false"),
        (None, {"columns": "a,,b"}, "give each column once"),
        (None, {"columns": "a,a"}, "give each column once"),
        (None, {"begin": "-1"}, "a position"),
        (None, {"begin": '{"0": -1}'}, "one for each shard"),
        (None, {"begin": "[1]"}, "a position"),
        (None, {"end": "yesterday"}, "such as 2026-03-01T12:00:00Z"),
        (None, {"asOf": "latest"}, "asOf='latest'; give a time such as"),
        (None, {"asOf": "time soon"}, "asOf='time soon'; give a time such as"),
        (None, {"asOfPosition": "latest"}, "asOfPosition='latest'; give a position"),
        (None, {"asOfPosition": "2026-03-01"}, "asOfPosition='2026-03-01'; give a position"),
        (None, {"asOfPosition": '{"0": 4611686018427387904}'}, "give a position"),
        (None, {"asOfPosition": '{"0": true}'}, "give a position"),
        (None, {"minPartitions": "0"}, "a whole number of 1 or more"),
        (None, {"begin": "1", "lastRows": "1"}, "begin and lastRows contradict"),
        (None, {"end": "1", "asOf": "1"}, "end and asOf contradict"),
        (None, {"kind": "state", "metadata": "true"}, "metadata has no meaning for kind=state"),
        (None, {"kind": "state", "begin": "1"}, "begin has no meaning for kind=state"),
        (Mode.STREAM, {"end": "latest"}, "end is for batch reads"),
        (Mode.BATCH, {"maxRowsPerTrigger": "5"}, "for streaming reads; this is a batch one"),
        (Mode.STREAM, {"asOf": "5"}, "asOf is for batch reads; this is a streaming one"),
        (Mode.STREAM, {"kind": "state"}, "kind=state is read as a batch"),
        (Mode.STREAM, {"begin": "lates"}, r"did you mean 'latest'\?"),
        (Mode.STREAM, {"begin": "begin"}, "give 'earliest', 'latest', a position"),
        (Mode.STREAM, {"maxBytesPerTrigger": "1k"}, "a whole number of 1 or more"),
    ],
)
def test_a_mistake_says_what_it_is(mode: Mode | None, given: dict[str, str], message: str) -> None:
    """Nothing is ignored."""
    with pytest.raises(UsageError, match=message):
        parsed(mode, **given)


def test_a_read_without_a_path_is_refused() -> None:
    """There is nothing to read."""
    with pytest.raises(UsageError, match="no path is given"):
        read_options({})


def test_a_moment_is_told_in_the_unit_of_the_stream() -> None:
    """Between two units, the beginning of a range is the later one, and `asOf` the earlier."""
    half_past = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    units = {unit: pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")}
    assert time_in("begin", half_past, units["s"], up=True) == 2
    assert time_in("asOf", half_past, units["s"], up=False) == 1
    assert time_in("begin", half_past, units["ms"], up=True) == 1500
    assert time_in("begin", half_past, units["us"], up=True) == 1_500_000
    assert time_in("begin", half_past, units["ns"], up=True) == 1_500_000_000
    assert time_in("begin", 17, None, up=True) == 17


@pytest.mark.parametrize(
    ("kind", "message"), [(None, "says no unit"), (pa.int64(), "keeps time as plain numbers")]
)
def test_a_date_needs_a_stream_that_has_a_unit_of_time(
    kind: pa.DataType | None, message: str
) -> None:
    """Numbers work everywhere."""
    with pytest.raises(UsageError, match=message):
        time_in("asOf", datetime(2026, 1, 1, tzinfo=UTC), kind, up=False)
