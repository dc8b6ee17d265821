"""A sort: what leaves when, what it refuses, and what a restart from nothing does to it."""

import heapq
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from rewake import Batches
from rewake.graph import Query
from rewake.graph.sorts import bsort
from rewake.model.errors import (
    DamagedFrame,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import END_OF_TIME, NO_TIME, StreamEvent
from rewake.operators.classes import OperatorClass
from rewake.operators.kit.tuples import HeldBatches
from rewake.operators.sorting.operator import Sort, SortSpec
from rewake.operators.stateful import StoredParts

SCHEMA = pa.schema([("time", pa.int64()), ("key", pa.string()), ("price", pa.float64())])
NOTHING = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])


def tuples(*times, key="a"):
    """Tuples at these times."""
    rows = [{"time": time, "key": key, "price": 0.5} for time in times]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def times_of(outcome):
    """The times of what left."""
    return [] if outcome.results is None else outcome.results.column("time").to_pylist()


def sort(buffer, **options):
    """An operator that sorts by time."""
    return SortSpec(("time",), buffer, **options).operator(SCHEMA)


# --- what leaves -----------------------------------------------------------------------------


def test_the_smallest_leaves_when_the_buffer_is_full():
    """A buffer of three holds two between tuples: two passes of bubble sort."""
    operator = sort(3)
    assert times_of(operator.process(StreamEvent(0, tuples(5, 3)))) == []
    assert times_of(operator.process(StreamEvent(2, tuples(4, 1, 9)))) == [3, 1, 4]
    assert operator.late_tuples == 1


def test_a_sort_is_as_many_passes_of_bubble_sort_as_its_buffer_less_one():
    """The definition of Aurora, on a stream that needs more passes than there are."""
    given = np.random.default_rng(7).permutation(60).tolist()
    for buffer in (1, 2, 5, 30):
        expected = list(given)
        for _ in range(buffer - 1):
            for place in range(len(expected) - 1):
                if expected[place] > expected[place + 1]:
                    expected[place : place + 2] = expected[place + 1], expected[place]
        operator = sort(buffer)
        left = times_of(operator.process(StreamEvent(0, tuples(*given))))
        left += times_of(operator.punctuate(60, END_OF_TIME))
        assert left == expected


def test_what_is_left_leaves_at_the_end_of_the_stream():
    """In order, and the parts end with it."""
    operator = sort(100)
    operator.process(StreamEvent(0, tuples(3, 1, 2)))
    outcome = operator.process(StreamEvent(3, tuples(0), END_OF_TIME))
    assert times_of(outcome) == [0, 1, 2, 3]
    assert (outcome.ended_ids.tolist(), operator.open_parts) == ([0], 0)


def test_a_watermark_sends_off_what_it_has_passed_only_with_flush():
    """And what it had passed before a tuple came leaves with it at once, counted."""
    assert times_of(sort(9).process(StreamEvent(0, tuples(3, 1), 2))) == []
    operator = sort(9, flush=True)
    assert times_of(operator.process(StreamEvent(0, tuples(3, 1), 3))) == [1]
    assert times_of(operator.process(StreamEvent(2, tuples(2, 4)))) == [2]
    assert operator.late_tuples == 1


def test_what_a_watermark_sends_off_is_in_order_across_keys():
    """Each key has a buffer of its own, but the output is one stream."""
    operator = sort(9, per=("key",), flush=True)
    operator.process(StreamEvent(0, tuples(4, 1, key="a")))
    operator.process(StreamEvent(2, tuples(3, 2, key="b")))
    assert times_of(operator.punctuate(4, 10)) == [1, 2, 3, 4]
    assert operator.open_parts == 0


def test_tuples_that_are_equal_leave_in_the_order_they_came():
    """Ties by arrival, with zeros of both signs equal and NaN the greatest."""
    prices = [float("nan"), 0.0, -0.0, -1.0]
    rows = [{"time": time, "price": price} for time, price in enumerate(prices)]
    operator = SortSpec(("price",), 9).operator(SCHEMA)
    operator.process(StreamEvent(0, pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))
    assert times_of(operator.punctuate(4, END_OF_TIME)) == [3, 1, 2, 0]


def test_a_buffer_of_one_lets_everything_pass_and_counts_what_is_out_of_order():
    """No pass of bubble sort at all."""
    operator = sort(1)
    assert times_of(operator.process(StreamEvent(0, tuples(5, 3, 4, 6)))) == [5, 3, 4, 6]
    assert operator.late_tuples == 2


def test_old_blocks_end_while_the_buffer_goes_on():
    """So that replay starts near the oldest tuple that waits, without any snapshot."""
    operator = sort(100)
    oldest = []
    for turn in range(50):
        first = turn * 40
        operator.process(StreamEvent(first, tuples(*range(first, first + 40))))
        oldest.append(int(operator.opened_at[operator.opened_at >= 0].min()))
    assert oldest[-1] >= 50 * 40 - 100 - 64
    assert operator.open_parts <= 4


# --- what it refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        (SortSpec(("tiem",), 3), SchemaMismatch, "did you mean 'time'"),
        (SortSpec((), 3), UsageError, "at least one ordering column"),
        (SortSpec(("key",), 3), SchemaMismatch, "'key' of type string has no order"),
        (SortSpec(("time",), 0), UsageError, "not 0"),
        (SortSpec(("time",), True), UsageError, "not True"),
        (SortSpec(("time",), 3, per=("kye",)), SchemaMismatch, "did you mean 'key'"),
        (SortSpec(("price",), 3, flush=True), SchemaMismatch, "'price' is of type double"),
        (SortSpec(("time",), 3, flush=True, descending=True), UsageError, "descending"),
    ],
)
def test_a_sort_that_makes_no_sense_is_refused(spec, error, words):
    """With the column's name, and a near one."""
    with pytest.raises(error, match=words):
        spec.operator(SCHEMA)


def test_a_null_has_no_place_in_an_order():
    """The error names the position; nothing has been applied."""
    operator = sort(3)
    batch = pa.RecordBatch.from_pylist([{"time": 1}, {"time": None}], schema=SCHEMA)
    with pytest.raises(SchemaMismatch, match="'time' is null in the tuple at position 8"):
        operator.process(StreamEvent(7, batch))
    assert operator.open_parts == 0


def test_another_schema_is_refused():
    """A stream event of other columns."""
    with pytest.raises(SchemaMismatch, match="position 3"):
        sort(3).process(StreamEvent(3, tuples(1).select(["time"])))


# --- what it says of itself ------------------------------------------------------------------


def test_a_sort_describes_itself():
    """To logs and to people; defaults are left out."""
    assert SortSpec(("time",), 3).describe() == {"by": ["time"], "buffer": 3}
    spec = SortSpec(("time", "price"), 3, ("key",), flush=True)
    assert spec.describe() == {
        "by": ["time", "price"],
        "buffer": 3,
        "per": ["key"],
        "flush": True,
    }
    assert list(spec.words()) == [
        "sort by time, price per key",
        "buffer of 3 tuples, flushed by watermarks",
    ]
    assert (list(spec.code()), spec.keys(0)) == ([], ("key",))
    with pytest.raises(UsageError, match="no output 'x'"):
        spec.further_schema("x", SCHEMA)


def test_a_sort_is_a_step_of_a_query():
    """Its errors name the step; keys divide it among shards."""
    query = Query("sorted")
    source = query.source("events", Batches(pa.Table.from_batches([tuples(1, 2)])))
    ordered = bsort(source, by="time", buffer=5, per="key", name="ordered", shards=2)
    ordered.to_stream("ordered")
    assert ordered.schema == SCHEMA
    assert "buffer of 5 tuples" in query.explain()
    with pytest.raises(SchemaMismatch, match="step 'wrong': sort by: no column 'tme'"):
        bsort(source, by="tme", buffer=5, name="wrong")


# --- its class -------------------------------------------------------------------------------


def outputs(operator, events):
    """What leaves at each stream event."""
    return [times_of(operator.process(event)) for event in events]


def stream(flush_every=4):
    """Disordered tuples; a watermark behind every few stream events."""
    random = np.random.default_rng(3)
    events = []
    for turn in range(40):
        times = turn * 5 + random.integers(-8, 9, 5)
        mark = turn * 5 - 3 if turn % flush_every == 0 else None
        events.append(StreamEvent(turn * 5, tuples(*times.tolist()), mark))
    return events


def test_a_sort_that_watermarks_flush_is_convergent_capable():
    """Once a watermark has passed all it missed, its output is the same again; not before."""
    spec = SortSpec(("time",), 12, flush=True)
    assert spec.operator_class is OperatorClass.CONVERGENT_CAPABLE
    events = stream()
    expected = outputs(spec.operator(SCHEMA), events)
    differed = 0
    for start in range(1, 30):
        found = outputs(spec.operator(SCHEMA), events[start:])
        missed = max(event.batch.column("time").to_numpy().max() for event in events[:start])
        marks = [number for number in range(start, 40) if (events[number].watermark or 0) > missed]
        assert found[marks[0] + 1 - start :] == expected[marks[0] + 1 :]
        differed += found != expected[start:]
    assert differed > 0, "it would be repeatable"


def test_a_sort_without_flush_is_deterministic_and_no_more():
    """A great tuple that came before the restart is missing in the buffer for ever."""
    spec = SortSpec(("time",), 2)
    assert spec.operator_class is OperatorClass.DETERMINISTIC
    events = [StreamEvent(0, tuples(10**9))]
    events += [StreamEvent(n, tuples(n)) for n in range(1, 50)]
    expected = outputs(spec.operator(SCHEMA), events)
    assert expected == outputs(spec.operator(SCHEMA), events)
    found = outputs(spec.operator(SCHEMA), events[1:])
    assert all(one != other for one, other in zip(found, expected[1:], strict=True))


# --- recovery --------------------------------------------------------------------------------


def stored(operator, slots, position):
    """A snapshot of parts, as a log gives it back."""
    ids = operator.ids_of(slots)
    applied = np.full(slots.size, position, np.int64)
    columns = operator.snapshot_columns(slots)
    return StoredParts(ids, applied, [columns], [np.arange(slots.size)], [slots.size])


def filled() -> Sort:
    """An operator with a few tuples that wait."""
    operator = sort(4, per=("key",))
    operator.process(StreamEvent(0, tuples(5, 3, 4, 6)))
    operator.process(StreamEvent(4, tuples(1, key="b")))
    return operator


def test_a_snapshot_holds_all_of_a_part():
    """What is restored from it goes on as the original does."""
    original, copy = filled(), sort(4, per=("key",))
    slots = np.flatnonzero(original.opened_at >= 0)
    copy.restore(NOTHING, stored(original, slots, 4), clock=NO_TIME, late_tuples=7)
    copy.end_replay()
    assert copy.late_tuples == 7
    rest = StreamEvent(5, tuples(9, 2, 7), END_OF_TIME)
    assert times_of(copy.process(rest)) == times_of(original.process(rest))
    assert copy.late_tuples - 7 == original.late_tuples == 1


def test_what_a_watermark_has_sent_off_does_not_come_back():
    """Neither by a replay, in which watermarks do not come again, nor from an older snapshot."""
    original = sort(9, flush=True)
    event = StreamEvent(0, tuples(3, 5))
    original.process(event)
    snapshot = stored(original, np.flatnonzero(original.opened_at >= 0), 1)
    opening = StoredParts(np.array([0]), np.array([-1]), [[]], [np.array([0])], [1])
    for openings, snapshots in ((opening, NOTHING), (NOTHING, snapshot)):
        copy = sort(9, flush=True)
        copy.restore(openings, snapshots, clock=4, late_tuples=0)
        copy.replay(event)
        copy.end_replay()
        assert times_of(copy.punctuate(2, END_OF_TIME)) == [5]


def test_a_block_that_ended_can_open_again():
    """With the position of the tuple that opened it this time."""
    operator = sort(9, flush=True)
    operator.process(StreamEvent(0, tuples(1, 2), 10))
    assert operator.open_parts == 0
    outcome = operator.process(StreamEvent(2, tuples(20)))
    assert (outcome.opened_ids.tolist(), operator.open_parts) == ([2], 1)
    outcome = operator.punctuate(3, END_OF_TIME)
    assert (times_of(outcome), outcome.ended_ids.tolist()) == ([20], [2])


def test_a_replay_of_other_input_is_noticed():
    """A part that opened must hold something when the replay is over."""
    opening = StoredParts(np.array([3]), np.array([2]), [[]], [np.array([0])], [1])
    operator = sort(4)
    operator.restore(opening, NOTHING, clock=NO_TIME, late_tuples=0)
    with pytest.raises(ReplayMismatch, match="position 3"):
        operator.end_replay()


def with_column(columns, place, change):
    """The columns with one of them changed."""
    changed = list(columns)
    changed[place] = change(changed[place])
    return changed


@pytest.mark.parametrize(
    ("place", "change"),
    [
        pytest.param(-3, lambda lengths: lengths + 1, id="other lengths"),
        pytest.param(-3, lambda lengths: -lengths, id="negative lengths"),
        pytest.param(-3, lambda lengths: lengths[:1], id="too few lengths"),
        pytest.param(-3, lambda lengths: lengths.astype(np.int64), id="another type"),
        pytest.param(-2, lambda positions: positions[1:], id="too few positions"),
        pytest.param(-2, lambda positions: positions + 100, id="positions of the future"),
        pytest.param(-2, lambda positions: positions - 100, id="positions before all"),
        pytest.param(-1, lambda data: data[:0], id="no bytes"),
        pytest.param(-1, lambda data: data[: data.size // 2], id="half of the bytes"),
        pytest.param(-1, np.zeros_like, id="zeros"),
    ],
)
def test_a_damaged_snapshot_is_refused(place, change):
    """With `DamagedFrame`, and nothing else."""
    original = filled()
    whole = stored(original, np.flatnonzero(original.opened_at >= 0), 4)
    broken = whole._replace(columns=[with_column(whole.columns[0], place, change)])
    with pytest.raises(DamagedFrame):
        sort(4, per=("key",)).restore(NOTHING, broken, clock=NO_TIME, late_tuples=0)


def test_two_parts_for_one_buffer_are_refused():
    """A log cannot have two open blocks of one stretch, nor a clock beyond all times."""
    opening = StoredParts(np.array([3, 4]), np.array([2, 3]), [[]], [np.array([0, 1])], [2])
    with pytest.raises(DamagedFrame, match="two open parts"):
        sort(4).restore(opening, NOTHING, clock=NO_TIME, late_tuples=0)
    with pytest.raises(DamagedFrame, match="out of range"):
        sort(4).restore(NOTHING, NOTHING, clock=2**62 + 1, late_tuples=0)


def test_a_time_beyond_all_times_is_refused():
    """Of a sort that goes by time."""
    with pytest.raises(SchemaMismatch, match="beyond"):
        sort(4, flush=True).process(StreamEvent(0, tuples(2**62)))


# --- many tuples -----------------------------------------------------------------------------


def by_heap(times, keys, buffer):
    """What leaves of a sort per key, in order, by a heap of Python for each."""
    heaps, left = {}, []
    for row, (time, key) in enumerate(zip(times, keys, strict=True)):
        heap = heaps.setdefault(key, [])
        heapq.heappush(heap, (time, row))
        if len(heap) == buffer:
            left.append(heapq.heappop(heap)[1])
    return left + [row for _, row in sorted(chain.from_iterable(heaps.values()))]


@pytest.mark.parametrize(("buffer", "keys", "cut"), [(700, 1, 37), (40, 300, 501), (9000, 1, 900)])
def test_many_tuples_leave_as_they_should(buffer, keys, cut):
    """More than any table has room for at first, in pieces much smaller than the buffer, or not."""
    random = np.random.default_rng(buffer)
    times, owners = random.integers(0, 5000, 20_000), random.integers(0, keys, 20_000)
    schema = pa.schema([("time", pa.int64()), ("key", pa.int64()), ("row", pa.string())])
    rows = pa.array([str(row) for row in range(times.size)])
    batch = pa.RecordBatch.from_arrays([pa.array(times), pa.array(owners), rows], schema=schema)
    operator = SortSpec(("time",), buffer, per=("key",) if keys > 1 else ()).operator(schema)
    left = []
    for start in range(0, times.size, cut):
        outcome = operator.process(StreamEvent(start, batch.slice(start, cut)))
        left += [] if outcome.results is None else outcome.results.column("row").to_pylist()
    left += operator.punctuate(times.size, END_OF_TIME).results.column("row").to_pylist()
    expected = by_heap(times.tolist(), owners.tolist(), buffer)
    assert left == [str(row) for row in expected]


@pytest.mark.parametrize("late", [0, 3, 300])
@pytest.mark.parametrize(("buffer", "cut"), [(100, 1000), (1000, 300), (3000, 70), (2, 500)])
def test_nearly_sorted_tuples_leave_as_they_should(buffer, cut, late):
    """Some stream events are in order and are merged; those with late tuples are not."""
    random = np.random.default_rng(buffer + late)
    times = np.arange(20_000) // 3 + random.integers(0, max(buffer // 4, 1), 20_000)
    times[random.integers(buffer, times.size, late)] -= 5000
    schema = pa.schema([("time", pa.int64()), ("row", pa.int64())])
    rows = pa.array(np.arange(times.size))
    batch = pa.RecordBatch.from_arrays([pa.array(times), rows], schema=schema)
    operator = SortSpec(("time",), buffer).operator(schema)
    left = []
    for start in range(0, times.size, cut):
        outcome = operator.process(StreamEvent(start, batch.slice(start, cut)))
        left += [] if outcome.results is None else outcome.results.column("row").to_pylist()
        held = np.flatnonzero(operator.opened_at >= 0).astype(np.int32)
        (lengths, *_) = operator.snapshot_columns(held)
        assert lengths.sum() == min(buffer, start + cut, times.size)
    left += operator.punctuate(times.size, END_OF_TIME).results.column("row").to_pylist()
    assert left == by_heap(times.tolist(), [0] * times.size, buffer)


def test_waiting_tuples_are_taken_from_wherever_they_are():
    """Few or many, from batches long ago or new, whatever was forgotten in between."""
    random = np.random.default_rng(1)
    schema = pa.schema([("name", pa.string())])
    waiting, known = HeldBatches(schema), []
    for turn in range(200):
        names = [f"{turn}-{number}" for number in range(int(random.integers(0, 30)))]
        assert waiting.append(pa.RecordBatch.from_pydict({"name": names}, schema)) == len(known)
        known += names
        rows = random.integers(0, len(known), int(random.integers(0, 12))) if known else []
        taken = waiting.take(np.array(rows, np.int64)).column("name").to_pylist()
        assert taken == [known[row] for row in rows]
        if turn % 40 == 39:
            kept = np.flatnonzero(random.random(len(known)) < 0.3)
            waiting.keep(kept)
            known = [known[row] for row in kept]


def test_late_tuples_leave_by_an_output_of_their_own_if_asked_for():
    """Then what leaves a buffer is in order; the same tuples are late either way."""
    schema = pa.schema([("t", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"t": [3, 5, 1, 4, 9, 2, 7]}, schema=schema)
    found = {}
    for routed in (False, True):
        operator = SortSpec(("t",), 2, route_late=routed).operator(schema)
        outcome = operator.process(StreamEvent(0, batch, END_OF_TIME))
        found[routed] = outcome.results["t"].to_pylist()
        late = [] if outcome.late is None else outcome.late["t"].to_pylist()
        assert late == ([1, 2] if routed else [])
        assert operator.late_tuples == 2
    assert found[True] == sorted(found[True]) == [3, 4, 5, 7, 9]
    assert sorted(found[False]) == [1, 2, *found[True]]
