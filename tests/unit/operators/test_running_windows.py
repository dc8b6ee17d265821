"""Running windows: a window per key that never closes, put out by every turn that touches it."""

import numpy as np
import pyarrow as pa
import pytest

from rewake.graph import Query
from rewake.model.errors import ArithmeticOverflow, DamagedFrame, InvalidWindow
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import (
    Avg,
    Count,
    First,
    Last,
    Max,
    Min,
    Stddev,
    Sum,
    UserDefined,
)
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.aggregate.spec_json import spec_from_json
from rewake.operators.fragment import FilterStep, FragmentProgram
from rewake.operators.stateful import StoredParts
from rewake.operators.windows.specs import RunningWindow, count_window, running_window

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.int64())])


KEEP = FilterStep(lambda batch: pa.array([True] * batch.num_rows, pa.bool_()))


def operator(*functions, **more):
    """Sums, unless a test says otherwise."""
    return Aggregate(
        AggregateSpec(["k"], running_window(), functions or (Sum("v"),), **more), SCHEMA
    )


def event(position, keys, values=None):
    values = list(range(len(keys))) if values is None else values
    times = list(range(len(keys)))
    columns = [pa.array(list(keys), pa.string()), pa.array(values, pa.int64()), pa.array(times)]
    return StreamEvent(position, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def rows(outcome):
    return [tuple(row.values()) for row in outcome.results.to_pylist()]


def test_every_turn_emits_the_keys_it_touched_in_the_order_of_first_touch():
    """With their values over all tuples so far."""
    sums = operator()
    assert rows(sums.process(event(0, "bab"))) == [("b", 2), ("a", 1)]
    assert rows(sums.process(event(3, "ca"))) == [("c", 0), ("a", 2)]
    assert sums.process(event(5, "")).results is None


def test_windows_open_once_and_never_end():
    """So N is the number of keys, and nothing is ever closed."""
    sums = operator()
    first, second = sums.process(event(0, "aba")), sums.process(event(3, "abc"))
    assert first.opened_ids.tolist() == [0, 1]
    assert second.opened_ids.tolist() == [5]
    assert not first.ended_ids.size
    assert not second.ended_ids.size
    assert sums.open_parts == 3


def test_all_functions_can_be_finished_again_and_again():
    """Their state goes on when a result has been taken from it, a user's too."""

    def update(state, value):
        return (state[0] * 0.5 + value,)

    def merge(older, newer):
        return (older[0] + newer[0],)

    def result(state):
        return state[0]

    decay = UserDefined("v", "decay", (0.0,), update, merge, result)
    functions = [kind("v") for kind in (Count, Sum, Avg, Min, Max, First, Last, Stddev)]
    every = operator(Count(), *functions, decay)
    every.process(event(0, "aa", [4, None]))
    found = every.process(event(2, "ba", [7, 1])).results.to_pylist()
    assert list(found[0].values()) == ["b", 1, 1, 7, 7.0, 7, 7, 7, 7, None, 7.0]
    assert list(found[1].values())[:9] == ["a", 3, 2, 5, 2.5, 1, 4, 4, 1]
    assert found[1]["stddev_v"] == pytest.approx(np.std([4, 1], ddof=1))
    assert found[1]["decay"] == 3.0


def test_a_key_without_values_has_none_until_one_comes():
    """As in any window: null, and a count of 0."""
    sums = operator(Sum("v"), Count("v"))
    assert rows(sums.process(event(0, "a", [None]))) == [("a", None, 0)]
    assert rows(sums.process(event(1, "a", [2]))) == [("a", 2, 1)]


def test_a_sum_that_leaves_its_range_is_refused():
    """Also between turns."""
    sums = operator()
    sums.process(event(0, "a", [2**63 - 1]))
    with pytest.raises(ArithmeticOverflow, match="'v'"):
        sums.process(event(1, "a", [1]))


def test_timeouts_and_slack_are_refused():
    """There is nothing to close, and nothing can be late."""
    with pytest.raises(InvalidWindow, match="no timeout"):
        operator(timeout=5, time="t")
    with pytest.raises(InvalidWindow, match="slack"):
        operator(slack=5, time="t")


def test_event_time_only_moves_the_clock():
    """Which others may want to know."""
    sums = operator(time="t")
    sums.process(event(0, "abc"))
    assert sums.clock == 2


def test_a_million_keys_in_one_turn_are_counted_as_numpy_counts_them():
    """At the size that matters, where tables grow in mid-turn."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    aggregate = Aggregate(AggregateSpec(["k"], running_window(), [Count(), Sum("v")]), schema)
    random = np.random.default_rng(7)
    history = []
    for turn in range(2):
        keys, values = random.integers(0, 1_000_000, 1_000_000), random.integers(0, 99, 1_000_000)
        history.append((keys, values))
        batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=schema)
        results = aggregate.process(StreamEvent(turn * 1_000_000, batch)).results
        found, counts, sums = (column.to_numpy() for column in results.columns)
        first = np.sort(np.unique(keys, return_index=True)[1])
        assert np.array_equal(found, keys[first])
        everything = [np.concatenate(each) for each in zip(*history, strict=True)]
        assert np.array_equal(counts, np.bincount(everything[0], minlength=1_000_000)[found])
        assert np.array_equal(sums, np.bincount(*everything, minlength=1_000_000)[found])


# --- footprints ------------------------------------------------------------------------------


def stored(source, slots, time):
    """A snapshot of some windows, as it would come from a log."""
    slots = np.array(slots, np.int32)
    columns = source.snapshot_columns(slots)
    times = np.full(slots.size, time, np.int64)
    return StoredParts(
        source.ids_of(slots), times, [columns], [np.arange(slots.size)], [slots.size]
    )


NO_PARTS = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])


def test_restored_windows_go_on_where_they_were_and_show_their_values():
    """In any order, and without closing them."""
    source, copy = operator(Sum("v"), Count()), operator(Sum("v"), Count())
    source.process(event(0, "aab"))
    slots = copy.restore(NO_PARTS, stored(source, [1, 0], 2), clock=0, late_tuples=0)
    assert [tuple(row.values()) for row in copy.current(slots).to_pylist()] == [
        ("b", 2, 1),
        ("a", 1, 2),
    ]
    copy.end_replay()
    assert rows(copy.process(event(3, "bc"))) == rows(source.process(event(3, "bc")))


def test_footprints_that_no_operator_leaves_are_refused():
    """Two windows of one key, or one without tuples."""
    source = operator()
    source.process(event(0, "aab"))
    twice = stored(source, [0, 0], 2)
    with pytest.raises(DamagedFrame, match="one key"):
        operator().restore(NO_PARTS, twice, clock=0, late_tuples=0)
    empty = stored(source, [0], 2)
    empty.columns[0][2] = np.zeros(1, np.int64)
    with pytest.raises(DamagedFrame, match="without tuples"):
        operator().restore(NO_PARTS, empty, clock=0, late_tuples=0)


# --- around it -------------------------------------------------------------------------------


def test_a_running_window_can_be_described():
    """So that a log can say what made it."""
    spec = operator().spec
    described = spec.describe()
    assert described["window"] == {"kind": "running"}
    assert spec_from_json(described).window == RunningWindow()


def test_a_stream_event_may_not_be_cut():
    """For what is emitted depends on it; other windows do not mind."""
    spec = AggregateSpec(["k"], running_window(), [Count()])
    assert not operator().divisible
    assert not FragmentProgram((KEEP,), spec).operator(SCHEMA).divisible
    assert Aggregate(AggregateSpec(["k"], count_window(2), [Count()]), SCHEMA).divisible


def test_a_query_refuses_running_windows():
    """Its stream events are not the same every time."""
    items = Query("q").source("items", _Source())
    with pytest.raises(InvalidWindow, match=r"'totals'.*Structured Streaming"):
        items.aggregate(by="k", window=running_window(), sum="v", name="totals")


class _Source:
    """A source of which only the schema is asked."""

    schema = SCHEMA
    shards = 1

    def open(self, shard, shards):
        """Nobody runs it."""


def test_an_aggregate_tells_which_columns_it_reads():
    """All of them when late tuples go on as they came."""
    plain = AggregateSpec(["k"], count_window(2), [Count()])
    assert Aggregate(plain, SCHEMA).columns_read == ["k"]
    assert operator(Sum("v"), time="t").columns_read == ["k", "v", "t"]
    assert operator(Count(), route_late=True).columns_read == ["k", "v", "t"]
