"""A resample: what it answers when, what it refuses, and what a restart does to it."""

import re

import numpy as np
import pyarrow as pa
import pytest

from rewake import Batches
from rewake.graph import Query
from rewake.graph.resamples import resample
from rewake.model.errors import (
    DamagedFrame,
    InvalidWindow,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import END_OF_TIME, NO_TIME, StreamEvent
from rewake.operators.classes import OperatorClass
from rewake.operators.columns import keys as key_columns
from rewake.operators.resampling.operator import ResampleSpec
from rewake.operators.stateful import StoredParts

VALUES = pa.schema([("time", pa.int64()), ("key", pa.int32()), ("x", pa.int32())])
REQUESTS = pa.schema([("at", pa.int64()), ("key", pa.int32()), ("who", pa.string())])
NOTHING = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])


def spec(window=10, **options):
    """Column x at the times of requests."""
    options = {"columns": (("x", "x"),), "time": "time", "at_time": "at"} | options
    return ResampleSpec(window=window, **options)


def operator(window=10, **options):
    """A resample of x."""
    return spec(window, **options).operator(VALUES, REQUESTS)


def values(position, *rows, mark=None, key=0):
    """Values given as (time, x)."""
    rows = [{"time": time, "key": key, "x": x} for time, x in rows]
    return StreamEvent(position, pa.RecordBatch.from_pylist(rows, schema=VALUES), mark)


def requests(position, *times, mark=None, key=0):
    """Requests at these times."""
    rows = [{"at": time, "key": key, "who": f"r{time}"} for time in times]
    batch = pa.RecordBatch.from_pylist(rows, schema=REQUESTS)
    return StreamEvent(position, batch, mark, port=1)


def answers(outcome):
    """What was answered: (time, x)."""
    if outcome.results is None:
        return []
    return [(row["at"], row["x"]) for row in outcome.results.to_pylist()]


# --- answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("linear", [(0, 0.0), (4, 2.0), (10, 5.0), (13, 8.0), (25, None)]),
        ("previous", [(0, 0), (4, 0), (10, 5), (13, 5), (25, 7)]),
        ("nearest", [(0, 0), (4, 0), (10, 5), (13, 10), (25, 7)]),
    ],
)
def test_a_request_is_answered_from_its_neighbours(how, expected):
    """Between two values, at one, beyond the last; of two at one time the last to come counts."""
    one = operator(how=how)
    one.process(values(0, (0, 0), (10, 1), (10, 5), (15, 10), (18, 7)))
    one.process(requests(5, 25, 13, 0, 4, 10))
    assert answers(one.punctuate(10, 36)) == expected


def test_a_request_waits_until_its_neighbours_are_known():
    """Until the clock has passed its time by the window, unless only the past is asked for."""
    one = operator()
    one.process(values(0, (0, 0), (8, 4)))
    assert answers(one.process(requests(2, 6, mark=16))) == []
    one.process(values(3, (7, 100)))
    assert answers(one.punctuate(4, 17)) == [(6, 600 / 7)]
    other = operator(how="previous")
    other.process(values(0, (0, 3)))
    assert answers(other.process(requests(1, 6, mark=7))) == [(6, 3)]


def test_values_beyond_the_window_are_not_seen():
    """Nulls instead, or nothing at all."""
    for missing, expected in (("null", [(20, None)]), ("drop", [])):
        one = operator(5, missing=missing)
        one.process(values(0, (14, 1), (26, 2)))
        one.process(requests(2, 20))
        assert answers(one.punctuate(3, END_OF_TIME)) == expected


def test_a_null_is_no_value():
    """The neighbours are those that say something."""
    one = operator()
    one.process(values(0, (0, 0), (4, None), (8, 8)))
    one.process(requests(3, 4))
    assert answers(one.punctuate(4, END_OF_TIME)) == [(4, 4.0)]


def test_keys_see_their_own_values():
    """Of others they know nothing."""
    one = operator(on=("key",))
    one.process(values(0, (0, 0), (10, 10), key=1))
    one.process(values(2, (0, 100), (10, 100), key=2))
    one.process(requests(4, 5, key=2))
    one.process(requests(5, 5, key=1))
    one.process(requests(6, 5, key=3))
    assert answers(one.punctuate(7, END_OF_TIME)) == [(5, 100.0), (5, 5.0), (5, None)]


def test_a_function_of_the_user_is_given_all_windows_at_once():
    """One call for all requests of a turn, with arrays."""
    calls = []

    def largest(windows):
        calls.append(len(windows.at))
        return [
            max(windows.values[first:last].tolist(), default=None)
            for first, last in zip(windows.first, windows.last, strict=True)
        ]

    one = operator(2, how=largest, result=pa.int16())
    one.process(values(0, (1, 5), (2, 9), (6, 1)))
    one.process(requests(3, 3, 5, 20))
    outcome = one.punctuate(6, END_OF_TIME)
    assert answers(outcome) == [(3, 9), (5, 1), (20, None)]
    assert outcome.results.schema.field("x").type == pa.int16()
    assert calls == [3]


def test_a_function_that_fails_is_named():
    """With the column and the first request it fails for; so is one that gives too little."""

    def broken(windows):
        return windows.nothing

    def short(windows):
        return windows.at[1:]

    def picky(windows):
        if 2 in windows.at:
            raise ValueError("two")
        return [1.0] * len(windows.at)

    def crowded(windows):
        return [1.0] if len(windows.at) == 1 else windows.nothing

    for function, words in (
        (broken, "for the request at position 5, {'at': 1.*}: AttributeError"),
        (short, "for the request at position 5, {'at': 1.*}: UsageError: it gave 0 values for 1"),
        (picky, "for the request at position 6, {'at': 2.*}: ValueError: two"),
        (crowded, "for 2 requests together, none of them alone: AttributeError"),
    ):
        one = operator(how=function)
        one.process(requests(5, 1, 2))
        with pytest.raises(UsageError, match=f"{function.__name__} of column 'x', {words}"):
            one.punctuate(7, END_OF_TIME)


def test_late_tuples_are_counted_and_routed():
    """A value that no open request could see; a request whose time is over."""
    one = operator(10, route_late=True)
    one.punctuate(0, 30)
    outcome = one.process(values(0, (9, 1), (10, 2)))
    assert outcome.late.column("time").to_pylist() == [9]
    outcome = one.process(requests(2, 19, 20))
    ((port, late),) = outcome.others
    assert (port, late.column("at").to_pylist()) == (2, [19])
    assert one.late_tuples == 2
    assert answers(one.punctuate(4, END_OF_TIME)) == [(20, None)]


def test_panes_end_with_the_requests_that_could_see_them():
    """Values stay for as long as an open request may need them, and no longer."""
    one = operator(10)
    one.process(values(0, *((time, time) for time in range(100))))
    one.process(requests(100, *range(100)))
    opened = one.open_parts
    outcome = one.punctuate(200, 60)
    assert [at for at, _ in answers(outcome)] == list(range(50))
    assert one.open_parts == opened - outcome.ended_ids.size < opened
    one.punctuate(200, END_OF_TIME)
    assert one.open_parts == 0


def test_requests_that_a_function_fails_for_may_be_diverted():
    """The others are answered; a failure of several together takes all of them."""

    def picky(windows):
        if 2 in windows.at:
            raise ValueError("two")
        return [1.0] * len(windows.at)

    def crowded(windows):
        return [1.0] if len(windows.at) == 1 else windows.nothing

    for function, answered, words in (
        (picky, [1, 3], ["picky of column 'x': ValueError: two"]),
        (crowded, [1], ["for 2 requests together, none of them alone: AttributeError"] * 2),
    ):
        one = operator(how=function, on_error="divert", route_late=True)
        one.process(requests(5, 1, 2, 3))
        outcome = one.punctuate(8, END_OF_TIME)
        assert outcome.results["at"].to_pylist() == answered
        ((port, dead),) = outcome.others
        assert (port, dead.schema) == (3, one.spec.further_schema("dead", VALUES, REQUESTS))
        for text, expected in zip(dead["error"].to_pylist(), words, strict=True):
            assert re.search(expected, text)


# --- what it refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"columns": ()}, UsageError, "at least one column"),
        ({"columns": (("y", "X"),)}, SchemaMismatch, "did you mean 'x'"),
        ({"columns": (("who", "x"),)}, SchemaMismatch, "two result columns are named 'who'"),
        ({"time": "tmie"}, SchemaMismatch, "values: no column 'tmie'; did you mean 'time'"),
        ({"at_time": None}, SchemaMismatch, "requests: no column 'time'"),
        ({"at_time": "key"}, SchemaMismatch, "'key' is of type int32"),
        ({"window": 0}, InvalidWindow, "longer than nothing"),
        ({"window": "tomorrow"}, InvalidWindow, "not a duration"),
        ({"window": 2**62}, InvalidWindow, "beyond"),
        ({"how": "cubic"}, UsageError, "'cubic'"),
        ({"missing": "zero"}, UsageError, "'zero'"),
        ({"on_error": "skip"}, UsageError, "'stop' or 'divert', not 'skip'"),
        ({"on": ("who",)}, SchemaMismatch, "values, on: no column 'who'"),
    ],
)
def test_a_resample_that_makes_no_sense_is_refused(options, error, words):
    """With the column's name, and a near one."""
    with pytest.raises(error, match=words):
        operator(**options)


def test_inputs_that_do_not_fit_are_refused():
    """Keys and times of one type on both sides; a line only between numbers."""
    other = REQUESTS.set(1, pa.field("key", pa.string()))
    with pytest.raises(SchemaMismatch, match="'key' is int32 in the values, but string"):
        spec(on=("key",)).operator(VALUES, other)
    other = REQUESTS.set(0, pa.field("at", pa.timestamp("ms")))
    with pytest.raises(SchemaMismatch, match="must be of one type"):
        spec().operator(VALUES, other)
    other = VALUES.set(2, pa.field("x", pa.string()))
    with pytest.raises(SchemaMismatch, match="use how='previous'"):
        spec().operator(other, REQUESTS)
    with pytest.raises(UsageError, match="two inputs"):
        spec().operator(VALUES)


def test_a_tuple_without_a_time_is_refused():
    """The error names the position."""
    with pytest.raises(SchemaMismatch, match="position 4"):
        operator().process(values(3, (1, 1), (None, 2)))


# --- what it says of itself ------------------------------------------------------------------


def test_a_resample_describes_itself():
    """To logs and to people; defaults are left out."""
    assert spec().describe() == {
        "columns": [["x", "x"]],
        "time": "time",
        "window": 10,
        "at_time": "at",
    }
    assert list(spec(on=("key",)).words()) == ["linear x on key", "values within 10 of time"]
    named = spec(how=sum, route_late=True)
    assert named.describe()["how"] == "sum"
    assert spec(how=sum, result=pa.int64()).describe()["result"] == "int64"
    assert (named.code(), spec().code(), named.keys(1)) == ([sum], [], ())
    assert named.further_schema("late_requests", VALUES, REQUESTS) == REQUESTS
    with pytest.raises(UsageError, match="no output 'late_requests'"):
        spec().further_schema("late_requests", VALUES, REQUESTS)


def test_a_resample_is_a_step_of_a_query():
    """It has two inputs, and its errors name the step."""
    query = Query("resampled")
    prices = query.source("prices", Batches(pa.Table.from_batches([values(0, (1, 1)).batch])))
    asked = query.source("asked", Batches(pa.Table.from_batches([requests(0, 1).batch])))
    then = resample(
        prices,
        asked,
        time="time",
        at_time="at",
        window=10,
        columns={"x_then": "x"},
        on="key",
        name="then",
        shards=2,
    )
    then.to_stream("then")
    assert then.schema.names == ["at", "key", "who", "x_then"]
    assert "values within 10 of time" in query.explain()
    with pytest.raises(SchemaMismatch, match="step 'wrong': resample: no column 'y'"):
        resample(prices, asked, time="time", window=1, columns="y", name="wrong")


# --- its class -------------------------------------------------------------------------------


def stream():
    """Values and requests in turn, with watermarks."""
    random = np.random.default_rng(5)
    events, position = [], 0
    for turn in range(40):
        times = (turn * 4 + random.integers(-6, 7, 4)).tolist()
        events.append(values(position, *((time, int(random.integers(99))) for time in times)))
        events.append(requests(position + 4, *times[:2], mark=turn * 4 - 8))
        position += 6
    return events


def test_a_resample_is_convergent_capable_and_no_more():
    """Once the clock has passed what it missed by two windows, its output is the same again."""
    assert spec().operator_class is OperatorClass.CONVERGENT_CAPABLE
    events = stream()
    one = operator()
    expected = [answers(one.process(event)) for event in events]
    differed = 0
    for start in range(1, 50):
        one = operator()
        found = [answers(one.process(event)) for event in events[start:]]
        missed = max(event.batch.column(0).to_numpy().max() for event in events[:start])
        clocks = [event.watermark or -99 for event in events]
        over = next(number for number in range(80) if clocks[number] > missed + 20)
        assert found[over + 1 - start :] == expected[over + 1 :]
        differed += found != expected[start:]
    assert differed > 0, "it would be repeatable"


# --- recovery --------------------------------------------------------------------------------


def filled():
    """An operator with values and requests that wait."""
    one = operator(on=("key",))
    one.process(values(0, (0, 1), (4, 3), (40, 3)))
    one.process(requests(3, 2, 30))
    return one


def stored(one):
    """A snapshot of all parts, as a log gives it back."""
    slots = np.flatnonzero(one.opened_at >= 0)
    columns = one.snapshot_columns(slots)
    applied = np.full(slots.size, 4, np.int64)
    return StoredParts(one.ids_of(slots), applied, [columns], [np.arange(slots.size)], [slots.size])


def test_a_snapshot_holds_all_of_a_part():
    """What is restored from it goes on as the original does."""
    original, copy = filled(), operator(on=("key",))
    copy.restore(NOTHING, stored(original), clock=NO_TIME, late_tuples=0)
    copy.end_replay()
    rest = values(5, (33, 9), mark=END_OF_TIME)
    expected = answers(original.process(rest))
    assert answers(copy.process(rest)) == expected == [(2, 2.0), (30, None)]


def test_what_has_been_answered_is_not_answered_again():
    """Neither after a replay, in which watermarks do not come again, nor from an older snapshot."""
    original = operator(on=("key",))
    events = [values(0, (0, 1), (4, 3)), requests(2, 2, 3)]
    for event in events:
        original.process(event)
    marks = original.snapshot_columns(np.flatnonzero(original.opened_at >= 0))[0]
    opening = StoredParts(
        np.array([0, 2]), np.array([-1, 1]), [[np.sort(marks)]], [np.arange(2)], [2]
    )
    for openings, snapshots in ((opening, NOTHING), (NOTHING, stored(original))):
        copy = operator(on=("key",))
        copy.restore(openings, snapshots, clock=13, late_tuples=0)
        for event in events:
            copy.replay(event)
        copy.end_replay()
        assert answers(copy.punctuate(4, END_OF_TIME)) == [(3, 2.5)]


def test_a_replay_of_other_input_is_noticed():
    """A pane that opened must get something."""
    opening = StoredParts(np.array([3]), np.array([2]), [[np.array([8])]], [np.array([0])], [1])
    one = operator()
    one.restore(opening, NOTHING, clock=NO_TIME, late_tuples=0)
    one.replay(values(3, (0, 1)))
    with pytest.raises(ReplayMismatch, match="position 3"):
        one.end_replay()


@pytest.mark.parametrize(
    ("place", "change"),
    [
        pytest.param(0, lambda marks: marks[1:], id="too few panes"),
        pytest.param(0, lambda marks: marks * 0, id="one pane twice"),
        pytest.param(0, lambda marks: marks + 2, id="other panes"),
        pytest.param(0, lambda marks: marks + 2**62, id="panes beyond all times"),
        pytest.param(0, lambda marks: marks.astype(np.int32), id="another type"),
        pytest.param(1, lambda lengths: lengths + 1, id="other lengths"),
        pytest.param(1, lambda lengths: -lengths, id="negative lengths"),
        pytest.param(2, lambda positions: positions[1:], id="too few positions"),
        pytest.param(2, lambda positions: positions + 100, id="positions of the future"),
        pytest.param(4, lambda positions: positions - 100, id="positions before all"),
        pytest.param(3, lambda data: data[: data.size // 2], id="half of the bytes"),
        pytest.param(5, lambda data: data[:0], id="no bytes"),
        pytest.param(5, np.zeros_like, id="zeros"),
    ],
)
def test_a_damaged_snapshot_is_refused(place, change):
    """With `DamagedFrame`, and nothing else."""
    whole = stored(filled())
    columns = list(whole.columns[0])
    columns[place] = change(columns[place])
    broken = whole._replace(columns=[columns])
    with pytest.raises(DamagedFrame):
        operator(on=("key",)).restore(NOTHING, broken, clock=NO_TIME, late_tuples=0)


def test_keys_that_wait_are_not_forgotten(monkeypatch):
    """Only those are of which nothing is kept."""
    monkeypatch.setattr(key_columns, "SPARE_KEYS", -1000)
    one = operator(on=("key",))
    for key in range(5):
        one.process(values(key, (40, key), mark=key, key=key))
    one.process(requests(5, 45, key=3, mark=10))
    one.process(values(6, (50, 13), key=3))
    assert answers(one.punctuate(7, END_OF_TIME)) == [(45, 8.0)]
