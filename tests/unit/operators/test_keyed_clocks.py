"""Keyed processing: which clock it goes by, and tuples that are late by it."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from keyed_vocabulary import SCHEMA, event, open_slots, operator, restored, rows_of, ticker

from rewake.model.errors import (
    UsageError,
)
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.operators.classes import OperatorClass

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
