"""Keyed processing: footprints, replay, and what is no footprint of it."""

from __future__ import annotations

import numpy as np
import pytest
from keyed_vocabulary import NOTHING, event, open_slots, operator, restored, rows_of, stored, ticker

from rewake.log.frame import decode_frame, encode_frame
from rewake.model.errors import (
    DamagedFrame,
    ReplayMismatch,
)
from rewake.model.stream_event import END_OF_TIME
from rewake.operators.keyed.calls import NO_TIMER
from rewake.recovery.approach import by_port
from rewake.recovery.instant.approach import Instant


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
    options = Instant(every_tuples=None, every_turns=100)
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
