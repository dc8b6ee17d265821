"""Keyed processing: turns, timers of the stream, state, and its class."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
from keyed_vocabulary import event, operator, rows_of, ticker, ticking

from rewake.model.stream_event import END_OF_TIME
from rewake.operators.classes import OperatorClass
from rewake.operators.keyed.state import StateColumns, state_fields


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
    monkeypatch.setattr("rewake.operators.keyed.state.SPARE_BYTES", 100)
    columns = StateColumns(state_fields({"text": pa.string()}))
    columns.ensure(3)
    slots = np.arange(3)
    tracemalloc.start()
    for i in range(500):
        texts = [f"{i}-{j}" * (j + 1) for j in range(3)]
        columns.put(slots, pa.RecordBatch.from_pydict({"text": texts}))
        assert columns.take(slots).column(0).to_pylist() == texts
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20_000


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
