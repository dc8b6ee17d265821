"""By what clock a step of a query goes, and which it is refused."""

import pyarrow as pa
import pytest

from rewake import Batches
from rewake.graph import Query, session_window, time_window
from rewake.graph.stream import Stream
from rewake.model.errors import UsageError

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.timestamp("ms"))])


def _source(query: Query, name: str = "rows", time: str | None = "t") -> Stream:
    return query.source(name, Batches(SCHEMA.empty_table(), time_column=time))


def _windows(stream: Stream, time: str = "t", **options) -> Stream:
    window = time_window("10s", every="5s")
    return stream.aggregate(by="k", window=window, time=time, max="t", count=True, **options)


def _slack(query: Query, stream: Stream) -> object:
    (step,) = [each for each in query.graph().steps if each.name == stream.name]
    return step.spec.slack


@pytest.mark.parametrize(
    ("said", "clock"),
    [
        (None, "watermarks"),
        (0, "watermarks"),
        ("5s", "watermarks+5s"),
        ("watermarks", "watermarks"),
    ],
)
def test_behind_watermarks_a_slack_holds_the_clock_back_further(said, clock) -> None:
    """What the source has declared in order stays so, whatever a step says."""
    query = Query("q")
    assert _slack(query, _windows(_source(query), slack=said)) == clock


@pytest.mark.parametrize(("said", "clock"), [(None, 0), ("5s", "5s"), ("watermarks", "watermarks")])
def test_without_watermarks_the_clock_is_the_latest_time_less_the_slack(said, clock) -> None:
    """As it was before there were any."""
    query = Query("q")
    assert _slack(query, _windows(_source(query, time=None), slack=said)) == clock


def test_a_step_behind_streams_with_and_without_watermarks_must_say_its_slack() -> None:
    """No watermark would ever come, and the latest time would drop what is declared in order."""
    query = Query("q")
    mixed = _source(query, "marked").union(_source(query, "unmarked", time=None))
    with pytest.raises(UsageError, match="step 'sums': some of what it reads carries watermarks"):
        _windows(mixed, name="sums")
    assert _slack(query, _windows(mixed, slack="1s")) == "1s"


def test_a_sort_that_is_not_flushed_passes_no_watermarks_on() -> None:
    """Whoever goes by event time behind it is told."""
    query = Query("q")
    stream = _source(query)
    assert _slack(query, _windows(stream.bsort(by="t", buffer=10, flush=True))) == "watermarks"
    with pytest.raises(UsageError, match="flush=True"):
        _windows(stream.bsort(by="t", buffer=10))


@pytest.mark.parametrize(
    ("column", "clock"),
    [("window_end", "watermarks"), ("window_start", "watermarks+10s"), ("max_t", "watermarks+10s")],
)
def test_a_clock_waits_for_columns_that_are_behind_the_ends_of_windows(column, clock) -> None:
    """Also through filters, maps that rename, and unions."""
    query = Query("q")
    first = _windows(_source(query)).filter("k > 0")
    again = first.map(k="k", t=column).union(first.map(k="k", t=column, name="other"))
    assert _slack(query, _windows(again)) == clock


def test_starts_of_sessions_are_no_event_time() -> None:
    """A session may have begun any time ago."""
    query = Query("q")
    visits = _source(query).aggregate(
        by="k", window=session_window("5s"), time="t", max="t", count=True
    )
    times = {"t": "window_start", "end": "window_end", "last": "max_t"}
    named = visits.map({"k": "k", **times})
    with pytest.raises(UsageError, match="'t' of 'map-1' may be further in the past"):
        _windows(named)
    window = time_window("10s")
    ends = named.aggregate(by="k", window=window, time="end", count=True)
    lasts = named.aggregate(by="k", window=window, time="last", count=True)
    assert (_slack(query, ends), _slack(query, lasts)) == ("watermarks", "watermarks+5s")


def test_late_tuples_are_a_stream_without_watermarks() -> None:
    """These have passed them all: a window over them goes by their own latest time."""
    query = Query("q")
    late = _windows(_source(query), route_late=True, name="sums").late
    assert _slack(query, _windows(late, name="again")) == 0
    query.graph()
    _windows(late, name="kept").to_stream()
    (channel,) = next(n for n in _complete(query).nodes if n.name == "kept").inputs
    assert channel.late


def _complete(query: Query):
    for step in query.graph().steps:
        if step.name in ("sums", "again"):
            Stream(query, step.ports[0]).to_stream(step.name)
    return query.plan()


def test_producers_say_how_far_time_has_come_if_the_entry_says_so() -> None:
    """Only then do steps rely on it."""
    query = Query("q")
    assert _slack(query, _windows(query.entry("one", SCHEMA))) == 0
    assert _slack(query, _windows(query.entry("two", SCHEMA, watermarks=True))) == "watermarks"
