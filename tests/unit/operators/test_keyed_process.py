"""Keyed processing: turns, timers, errors, footprints and what is refused."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from rewake.connectors.memory import Batches
from rewake.graph.processes import process
from rewake.graph.query import Query
from rewake.log.frame import decode_frame, encode_frame
from rewake.model.errors import (
    DamagedFrame,
    NullKey,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.operators.classes import OperatorClass
from rewake.operators.keyed.calls import NO_TIMER
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import StateColumns, state_fields
from rewake.operators.keyed.vocabulary import FunctionFailed, KeyedResult
from rewake.operators.stateful import FURTHER_PORTS, StoredParts
from rewake.recovery.approach import by_port
from rewake.recovery.instant_checkpoints import InstantCheckpoints

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.int64())])
OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int64())])
STATE = {"n": (pa.int64(), 0), "last": pa.string()}
NOTHING = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])


def event(position, *rows, watermark=None):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(list(column), each.type) for column, each in zip(columns, SCHEMA)]  # noqa: B905
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return StreamEvent(position, batch, watermark)


def rows_of(batch):
    return [] if batch is None else [tuple(row.values()) for row in batch.to_pylist()]


def count(given):
    """Adds up v; puts the sum out; forgets the key at a negative sum."""
    values = given.batch.column("v").to_numpy()
    sums = np.add.reduceat(values, given.offsets[:-1])
    n = given.state.column("n").to_numpy() + sums
    output = pa.RecordBatch.from_arrays([given.keys.column("k"), pa.array(n)], schema=OUTPUT)
    state = [pa.array(n), given.keys.column("k")]
    state = pa.RecordBatch.from_arrays(state, schema=given.state.schema)
    return output, state, None, n < 0


def ticking(key, tuples, state):
    """A timer five after each key's last tuple."""
    if 13 in tuples.column("v").to_pylist():
        raise ValueError("thirteen")
    state["n"] += tuples.num_rows
    return None, state, tuples.column("t")[-1].as_py() + 5


def tick(key, time, state):
    """Says so, and once more two later."""
    if state["n"] == 99:
        raise RuntimeError("ninety-nine")
    state["n"] += 10
    return [{"k": key, "n": time}], state, time + 2 if state["n"] < 20 else None


def operator(function=count, **options):
    options = {"time": "t", **options}
    spec = ProcessSpec(function, ("k",), state_fields(STATE), OUTPUT, **options)
    return spec.operator(SCHEMA)


def ticker(**options):
    return operator(ticking, each_key=True, on_timer=tick, **options)


def restored(made, source, slots, applied, clock=None, openings=False):
    columns = source.opening_columns(slots) if openings else source.snapshot_columns(slots)
    parts = stored(source.ids_of(slots), applied, columns)
    both = (parts, NOTHING) if openings else (NOTHING, parts)
    made.restore(*both, clock=source.clock if clock is None else clock, late_tuples=0)
    return made


def stored(ids, applied, columns):
    applied = np.full(ids.size, applied, np.int64)
    return StoredParts(ids, applied, [columns], [np.arange(ids.size)], [ids.size])


def open_slots(made):
    return np.flatnonzero(made.opened_at >= 0).astype(np.int32)


# --- turns -----------------------------------------------------------------------------------


def test_a_function_is_called_once_with_the_tuples_of_all_keys_grouped():
    """Keys in the order of their first tuples, tuples in order of arrival."""
    calls = []

    def spy(given):
        calls.append(
            (
                given.keys.column(0).to_pylist(),
                given.batch.column("v").to_pylist(),
                given.key_of.tolist(),
                given.state.to_pylist(),
                given.positions.tolist(),
            )
        )

    made = operator(spy)
    made.process(event(7, ("b", 1, 0), ("a", 2, 0), ("b", 3, 0)))
    fresh = {"n": 0, "last": None}
    assert calls == [(["b", "a"], [1, 3, 2], [0, 0, 1], [fresh, fresh], [7, 9, 8])]


def test_state_is_kept_by_key_and_parts_open_with_first_tuples():
    """A part's id is the position of the tuple that opened it."""
    made = operator()
    outcome = made.process(event(0, ("a", 1, 0), ("b", 5, 0), ("a", 2, 0)))
    assert rows_of(outcome.results) == [("a", 3), ("b", 5)]
    assert outcome.opened_ids.tolist() == [0, 1]
    outcome = made.process(event(3, ("b", 1, 0), ("c", 1, 0)))
    assert rows_of(outcome.results) == [("b", 6), ("c", 1)]
    assert (outcome.opened_ids.tolist(), made.open_parts) == ([4], 3)


def test_a_key_that_is_forgotten_ends_its_part_and_starts_anew():
    """One that opened and ended in a turn is neither opened nor ended."""
    made = operator()
    made.process(event(0, ("a", 1, 0)))
    outcome = made.process(event(1, ("a", -5, 0), ("b", -1, 0)))
    assert (outcome.ended_ids.tolist(), outcome.opened_ids.tolist()) == ([0], [])
    assert made.open_parts == 0
    outcome = made.process(event(3, ("a", 2, 0)))
    assert (rows_of(outcome.results), outcome.opened_ids.tolist()) == ([("a", 2)], [3])


def test_timers_fire_when_the_clock_reaches_them_earliest_first():
    """Also those set when another fires."""
    made = ticker()
    assert made.process(event(0, ("a", 1, 0), ("b", 1, 1))).results is None
    assert made.process(event(2, ("c", 1, 4))).results is None
    outcome = made.process(event(3, ("c", 1, 7)))
    assert rows_of(outcome.results) == [("a", 5), ("b", 6), ("a", 7)]
    assert outcome.unrepeatable_slots.size == 0


def test_slack_holds_the_clock_back():
    """By so much, and a watermark moves it on all the same."""
    made = ticker(slack=10)
    made.process(event(0, ("a", 1, 0), ("b", 1, 14)))
    outcome = made.punctuate(2, 5)
    assert rows_of(outcome.results) == [("a", 5)]
    assert made.ids_of(outcome.unrepeatable_slots).tolist() == [0]


def test_the_end_of_the_stream_fires_what_is_set_and_no_more():
    """A function that sets a timer whenever one fires must not run for ever."""

    def again(key, time, state):
        return [{"k": key, "n": time}], state, time + 1

    made = operator(ticking, each_key=True, on_timer=again)
    outcome = made.process(event(0, ("a", 1, 0), watermark=END_OF_TIME))
    assert rows_of(outcome.results) == [("a", 5)]
    assert made.punctuate(1, END_OF_TIME).results is None


def test_state_may_be_of_many_types_and_starts_at_its_default():
    """What is not given a default is null; a list keeps its numbers."""
    kinds = {
        "flag": (pa.bool_(), True),
        "day": pa.date32(),
        "when": pa.timestamp("us", "UTC"),
        "small": (pa.uint8(), 7),
        "text": (pa.large_string(), "\u00e9"),
        "data": (pa.binary(), b"\0"),
        "items": (pa.list_(pa.float32()), [1.5]),
    }
    columns = StateColumns(state_fields(kinds))
    columns.ensure(8)
    slots = np.array([5, 2])
    columns.open(slots)
    fresh = {"flag": True, "day": None, "when": None, "small": 7, "text": "\u00e9"}
    fresh |= {"data": b"\0", "items": [1.5]}
    assert columns.take(slots).to_pylist() == [fresh, fresh]
    other = dict.fromkeys(kinds) | {"items": [], "text": "abc" * 9}
    columns.put(np.array([2]), pa.RecordBatch.from_pylist([other], schema=columns.schema))
    assert columns.take(slots).to_pylist() == [fresh, other]
    again = columns.unpack(columns.pack(slots), np.array([1]), 2)
    assert again.to_pylist() == [other]


def test_an_arena_is_swept_when_most_of_it_is_dead(monkeypatch):
    """Texts that are replaced again and again take no more and more memory."""
    monkeypatch.setattr("rewake.operators.keyed.state._SPARE_BYTES", 100)
    columns = StateColumns(state_fields({"text": pa.string()}))
    columns.ensure(3)
    slots = np.arange(3)
    for i in range(500):
        texts = [f"{i}-{j}" * (j + 1) for j in range(3)]
        columns.put(slots, pa.RecordBatch.from_pydict({"text": texts}))
        assert columns.take(slots).column(0).to_pylist() == texts
    assert columns._columns[0]._arena.size < 5000


# --- errors ----------------------------------------------------------------------------------


def test_an_error_names_function_key_and_tuple_and_changes_nothing():
    """The turn can be given again when the cause is gone."""
    made = ticker()
    made.process(event(0, ("a", 1, 0), ("b", 1, 0)))
    before = made.snapshot_columns(open_slots(made))
    with pytest.raises(FunctionFailed, match="position 5, of key 'b' with ValueError: thirteen"):
        made.process(event(2, ("a", 1, 50), ("b", 1, 9), ("c", 1, 9), ("b", 13, 9), ("b", 2, 9)))
    assert [str(each) for each in before] == [
        str(each) for each in made.snapshot_columns(open_slots(made))
    ]
    assert (made.clock, made.open_parts) == (0, 2)
    outcome = made.process(event(2, ("c", 1, 1)))
    assert outcome.opened_ids.tolist() == [2]


def test_a_timer_that_fails_undoes_the_tuples_of_its_turn():
    """A turn is atomic, whichever call of it fails."""
    made = ticker()
    made.process(event(0, *[("a", 1, 0)] * 99))
    before = [each.tolist() for each in made.snapshot_columns(open_slots(made))]
    with pytest.raises(FunctionFailed, match="key 'a', whose timer at 5 fired") as caught:
        made.process(event(99, ("b", 1, 3), ("c", 1, 6)))
    assert (caught.value.key, caught.value.function) == (("a",), "ticking")
    assert [each.tolist() for each in made.snapshot_columns(open_slots(made))] == before
    assert made.open_parts == 1


def test_divert_sends_the_tuples_of_failing_keys_to_an_output_and_keeps_the_rest():
    """Their state stays; a key whose first tuples fail is not opened."""
    made = ticker(on_error="divert")
    made.process(event(0, ("a", 1, 0), ("b", 1, 0)))
    outcome = made.process(
        event(2, ("b", 13, 1), ("c", 13, 1), ("a", 2, 1), ("b", 3, 1), ("d", 4, 1))
    )
    ((port, dead),) = outcome.others
    text = "ValueError: thirteen"
    assert (port, dead.schema.names) == (FURTHER_PORTS, ["k", "v", "t", "error"])
    assert rows_of(dead) == [("b", 13, 1, text), ("b", 3, 1, text), ("c", 13, 1, text)]
    assert outcome.opened_ids.tolist() == [6]
    state = made._parts.state.take(open_slots(made)).column("n").to_pylist()
    assert sorted(state) == [1, 1, 2]


def test_a_timer_that_fails_is_diverted_and_does_not_fire_again():
    """It leaves a tuple with its key alone."""
    made = ticker(on_error="divert")
    made.process(event(0, *[("a", 1, 0)] * 99))
    outcome = made.process(event(99, ("b", 1, 6)))
    ((_, dead),) = outcome.others
    assert rows_of(dead) == [("a", None, None, "timer at 5: RuntimeError: ninety-nine")]
    assert made.punctuate(100, 9).others == []


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (5, "must return"),
        ((pa.RecordBatch.from_pydict({"x": [1]}),), "output has columns x: int64"),
        (("text",), "must be a record batch"),
        ((None, pa.RecordBatch.from_pydict({"n": [1]})), "state has columns n: int64"),
        ((None, None, [1, 2]), "2 timers for 1 keys"),
        ((None, None, [2**62]), "beyond 2..62"),
        ((None, None, None, [True, False]), "2 flags to forget for 1 keys"),
    ],
)
def test_an_answer_that_cannot_be_is_an_error_of_the_function(answer, complaint):
    """It is named like one that the function raises."""
    made = operator(lambda _: answer)
    with pytest.raises(FunctionFailed, match=complaint):
        made.process(event(0, ("a", 1, 0)))
    assert made.open_parts == 0


def test_a_timer_must_be_later_than_the_one_that_fired():
    """Else it would fire for ever."""

    def now(given):
        at = given.fired if given.batch.num_rows == 0 else given.batch.column("t")
        return KeyedResult(timer=at)

    made = operator(now)
    with pytest.raises(FunctionFailed, match="at or before that time"):
        made.process(event(0, ("a", 1, 3)))


def test_a_timer_needs_event_time():
    """There is no clock otherwise."""
    with pytest.raises(FunctionFailed, match="give time='column'"):
        ticker(time=None).process(event(0, ("a", 1, 0)))


def test_a_state_that_was_not_declared_is_refused():
    """It would be lost without a word."""
    made = operator(lambda *_: (None, {"m": 1}), each_key=True)
    with pytest.raises(FunctionFailed, match="the state has no 'm'; it was declared with n, last"):
        made.process(event(0, ("a", 1, 0)))


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"by": "q"}, SchemaMismatch, "no column 'q'"),
        ({"by": "K"}, SchemaMismatch, "did you mean 'k'"),
        ({"by": ()}, UsageError, "at least one key column"),
        ({"time": "k"}, SchemaMismatch, "event time: column 'k' is of type string"),
        ({"on_error": "ignore"}, UsageError, "'stop' or 'divert'"),
        ({"on_timer": tick}, UsageError, "each_key=True"),
        ({"state": {"n": pa.struct([])}}, SchemaMismatch, "state 'n' cannot be of type struct"),
        ({"state": {"n": int}}, SchemaMismatch, "state 'n'.* is not an Arrow type"),
        ({"state": {"n": (pa.int8(), 300)}}, SchemaMismatch, "state 'n': the default 300"),
        ({"slack": -1}, UsageError, "slack must not be negative"),
        ({"output": ["k"]}, UsageError, "output is an Arrow schema"),
        ({"null_keys": "drop"}, UsageError, "null_keys is"),
    ],
)
def test_bad_settings_are_refused_when_the_step_is_added(options, error, complaint):
    """With the name of the step, and a near name for a column."""
    stream = Query("q").source("items", Batches(event(0, ("a", 1, 0)).batch))
    options = {"by": "k", "state": STATE, "output": OUTPUT, "name": "mine", **options}
    with pytest.raises(error, match=f"step 'mine': .*{complaint}"):
        process(stream, count, **options)


def test_null_keys_are_a_key_or_refused():
    """As in an aggregate."""
    made = operator()
    assert rows_of(made.process(event(0, (None, 1, 0), (None, 2, 0))).results) == [(None, 3)]
    with pytest.raises(NullKey, match="position 1"):
        operator(null_keys="refuse").process(event(0, ("a", 1, 0), (None, 1, 0)))


def test_only_divert_gives_a_stream_of_dead_tuples():
    """With the input's columns and the error's text."""
    stream = Query("q").source("items", Batches(event(0, ("a", 1, 0)).batch))
    options = {"by": "k", "state": STATE, "output": OUTPUT}
    made = process(stream, count, **options, on_error="divert", name="diverting")
    assert made.output("dead").schema.names == ["k", "v", "t", "error"]
    assert made.output("dead").name == "diverting.dead"
    with pytest.raises(UsageError, match="no output 'dead'"):
        process(stream, count, **options).output("dead")


# --- recovery --------------------------------------------------------------------------------


def test_a_part_comes_back_from_its_opening_and_its_tuples():
    """Those of other keys are nobody's."""
    made = operator()
    first = event(0, ("x", 1, 0), ("a", 1, 0), ("a", 2, 0))
    made.process(first)
    slots = made.ids_of(open_slots(made))
    slots = open_slots(made)[slots == 1]
    again = operator()
    restored(again, made, slots, 0, openings=True)
    assert again.replay(first) == 2
    again.end_replay()
    assert rows_of(again.process(event(3, ("a", 10, 0))).results) == [("a", 13)]


def test_a_replayed_part_knows_what_the_clock_was_when_it_opened():
    """Also if the tuple that told so is not replayed: timers fire between the same tuples."""
    stream = [event(0, ("x", 1, 100)), event(1, ("a", 1, 0)), event(2, ("a", 1, 1))]
    made = ticker()
    made.process(stream[0])
    assert made.process(stream[1]).unrepeatable_slots.size == 0
    made.process(stream[2])
    slots = open_slots(made)
    slots = slots[made.ids_of(slots) == 1]
    again = restored(ticker(), made, slots, 0, openings=True)
    for each in stream[1:]:
        again.replay(each)
    again.end_replay()
    found = again.snapshot_columns(open_slots(again))
    assert [each.tolist() for each in found] == [
        each.tolist() for each in made.snapshot_columns(slots)
    ]


def test_a_replay_without_the_opening_tuple_is_a_mismatch():
    """The input is another one."""
    made = operator()
    made.process(event(0, ("a", 1, 0)))
    again = restored(operator(), made, open_slots(made), -1, openings=True)
    again.replay(event(0, ("b", 1, 0)))
    with pytest.raises(ReplayMismatch, match="position 0"):
        again.end_replay()


def test_a_key_that_the_replay_forgets_is_a_mismatch():
    """By the log it is open."""
    made = operator()
    made.process(event(0, ("a", 1, 0)))
    again = restored(operator(), made, open_slots(made), 0)
    with pytest.raises(ReplayMismatch, match="forgotten"):
        again.replay(event(1, ("a", -9, 0)))


def test_hostile_footprints_raise_damaged_frame_and_nothing_else():
    """Whatever is in the columns: other types, other lengths, values out of range."""
    made = ticker()
    made.process(event(0, ("a", 1, 0), ("b", 1, 1), ("c", 1, 2)))
    slots = open_slots(made)
    random = np.random.default_rng(1)
    good = made.snapshot_columns(slots)
    damaged = 0
    for trial in range(400):
        columns = [column.copy() for column in good]
        which = int(random.integers(len(columns)))
        column = columns[which]
        match trial % 4:
            case 0:
                columns[which] = column.astype(np.float64)
            case 1:
                columns[which] = np.concatenate([column, column[:1], column[:1]])
            case 2:
                bits = random.integers(0, 256, column.nbytes, dtype=np.uint8)
                columns[which] = bits.view(column.dtype)
            case _:
                columns = columns[:which]
        try:
            parts = stored(made.ids_of(slots), 2, columns)
            ticker().restore(NOTHING, parts, clock=made.clock, late_tuples=0)
        except DamagedFrame:
            damaged += 1
    assert damaged > 200


def test_a_clock_out_of_range_is_damage():
    """Of the log, or of a footprint."""
    with pytest.raises(DamagedFrame, match="out of range"):
        operator().restore(NOTHING, NOTHING, clock=2**62 + 1, late_tuples=0)


def test_several_watermarks_at_one_position_are_repeated_one_by_one():
    """A timer that is set again between them must fire as often as it did."""
    frames = []
    options = InstantCheckpoints(every_tuples=None, every_turns=100)
    stream = [event(0, ("a", 1, 0)), event(1, watermark=5), event(1, watermark=END_OF_TIME)]
    driven = options.build(ticker(), by_port, ())
    for each in stream:
        turn = driven.turn(each)
        record, number = turn.record or driven.bare_record(), len(frames)
        encoded = encode_frame(record, log_id=1, epoch=1, sequence=number, position=0, durable=0)
        frames.insert(0, decode_frame(encoded))
    again = options.build(ticker(), by_port, frames)
    assert again.turn(stream[0]).record is None
    assert not again.recovering
    assert again.operator.snapshot_columns(open_slots(again.operator))[3].tolist() == [NO_TIMER]


# --- the class -------------------------------------------------------------------------------


def test_keyed_processing_is_deterministic_and_no_more():
    """The same input gives the same output; a later start never makes up for what it missed."""
    stream = [event(i, ("a", 1, i)) for i in range(20)]
    outputs = []
    for start in (0, 0, 5):
        made = operator()
        outputs.append([rows_of(made.process(each).results) for each in stream[start:]])
    assert outputs[0] == outputs[1]
    assert all(one != other for one, other in zip(outputs[0][5:], outputs[2], strict=True))
    assert made.spec.operator_class is OperatorClass.DETERMINISTIC


# --- the clock of the machine ----------------------------------------------------------------


def by_machine(function=None, **options):
    def waiting(key, tuples, state, now):
        return None, {"n": state["n"] + tuples.num_rows}, now + timedelta(milliseconds=50)

    def over(key, time, state):
        return [{"k": key, "n": state["n"]}], None

    options = {"time": None, "timers": "processing", "each_key": True, "on_timer": over, **options}
    return operator(function or waiting, **options)


def tick_at(position, now_ms):
    return StreamEvent.tick(position, SCHEMA, now_ms)


def test_timers_of_the_machine_fire_by_ticks_and_by_nothing_else():
    """Event times and watermarks tell nothing; the end of the stream does."""
    made = by_machine()
    made.process(tick_at(0, 1_000))
    made.process(event(1, ("a", 1, 10**9), watermark=10**12))
    assert made.open_parts == 1
    assert made.alarm == 1_050
    assert made.process(tick_at(2, 1_049)).results is None
    assert rows_of(made.process(tick_at(3, 1_050)).results) == [("a", 1)]
    made.process(event(4, ("b", 1, 0)))
    ended = made.punctuate(5, END_OF_TIME)
    assert rows_of(ended.results) == [("b", 1)]
    assert made.open_parts == 0


def test_a_timer_of_the_machine_needs_no_check_because_ticks_are_input():
    """They come again where they came; watermarks may not."""
    made = by_machine(on_timer=lambda _key, _time, state: (None, state))
    made.process(tick_at(0, 10))
    made.process(event(1, ("a", 1, 0)))
    fired = made.process(tick_at(2, 70))
    assert np.unique(fired.touched_slots).size == 1
    assert fired.unrepeatable_slots.size == 0


def test_what_depends_on_the_machines_clock_is_arbitrary():
    """The same tuples at other times of day are another output."""
    outputs = []
    for passed in (10, 60):
        made = by_machine()
        made.process(tick_at(0, 100))
        made.process(event(1, ("a", 1, 0)))
        results = [made.process(tick_at(2, 100 + passed)).results]
        made.process(event(3, ("a", 1, 0)))
        results.append(made.punctuate(4, END_OF_TIME).results)
        outputs.append([rows_of(each) for each in results if each is not None])
    assert outputs == [[[("a", 2)]], [[("a", 1)], [("a", 1)]]]
    assert made.spec.operator_class is OperatorClass.ARBITRARY


def test_timers_of_the_machine_and_an_event_time_column_are_refused():
    """There is one clock; the error says what to leave out."""
    with pytest.raises(UsageError, match="leave out time and slack"):
        operator(timers="processing")
    with pytest.raises(UsageError, match="'event' or 'processing'"):
        operator(timers="lunar")


def test_slack_may_leave_time_to_watermarks_alone():
    """Tuples of any time then fire nothing, and are never too far ahead."""
    made = ticker(slack="watermarks")
    made.process(event(0, ("a", 1, 0), ("a", 1, 10**9)))
    assert made.process(event(2, ("b", 1, 10**15))).results is None
    assert made.punctuate(3, 4).results is None
    assert rows_of(made.punctuate(3, 10**9 + 5).results)[0] == ("a", 10**9 + 5)


# --- late tuples -----------------------------------------------------------------------------


def test_a_function_sees_late_tuples_unless_they_are_routed():
    """Late is what is behind the clock before the turn."""
    for routed in (False, True):
        made = operator(slack=2, route_late=routed)
        made.process(event(0, ("a", 1, 10)))
        outcome = made.process(event(1, ("a", 2, 7), ("b", 4, 8), ("a", 3, 9)))
        assert rows_of(outcome.late) == ([("a", 2, 7)] if routed else [])
        assert rows_of(outcome.results) == (
            [("b", 4), ("a", 4)] if routed else [("a", 6), ("b", 4)]
        )
        assert made.late_tuples == (1 if routed else 0)


def test_a_key_of_which_a_tuple_was_late_by_a_watermark_leaves_a_check():
    """A replay may not meet that watermark, and would give the function what it never saw."""
    made = operator(slack=100, route_late=True)
    made.process(event(0, ("a", 1, 10), ("b", 1, 10)))
    made.process(event(2, watermark=20))
    outcome = made.process(event(2, ("a", 5, 15), ("c", 5, 15)))
    assert rows_of(outcome.late) == [("a", 5, 15), ("c", 5, 15)]
    assert made.ids_of(outcome.unrepeatable_slots).tolist() == [0]


def test_a_replay_leaves_out_the_tuples_that_were_late():
    """By the clock of the part's footprint, and of the tuples since."""
    made = operator(slack=2, route_late=True)
    made.process(event(0, ("a", 1, 10)))
    again = restored(operator(slack=2, route_late=True), made, open_slots(made), -1, openings=True)
    later = event(1, ("a", 100, 5), ("a", 2, 9))
    made.process(later)
    assert again.replay(event(0, ("a", 1, 10))) == 1
    assert again.replay(later) == 1
    again.end_replay()
    assert rows_of(again.process(event(3, ("a", 0, 10))).results) == [("a", 3)]
    assert rows_of(made.process(event(3, ("a", 0, 10))).results) == [("a", 3)]


def test_late_tuples_cannot_be_routed_without_a_time():
    """Nothing is late where no time is told."""
    with pytest.raises(UsageError, match="give time='column'"):
        operator(time=None, route_late=True)
