"""Keyed processing: functions that fail, answers that cannot be, and settings that are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from keyed_vocabulary import (
    OUTPUT,
    STATE,
    count,
    event,
    open_slots,
    operator,
    rows_of,
    tick,
    ticker,
)

from rewake.connectors.memory import Batches
from rewake.graph.processes import process
from rewake.graph.query import Query
from rewake.model.errors import (
    NullKey,
    SchemaMismatch,
    UsageError,
)
from rewake.operators.keyed.vocabulary import FunctionFailed, KeyedResult
from rewake.operators.stateful import FURTHER_PORTS


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
    # Behind the counts: which of them are null, and the lengths, bytes and nulls of `last`.
    *_, counts, _, _, _, _ = made.snapshot_columns(open_slots(made))
    assert sorted(counts.tolist()) == [1, 1, 2]


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
        ({"null_keys": "lose"}, UsageError, "null_keys is"),
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
