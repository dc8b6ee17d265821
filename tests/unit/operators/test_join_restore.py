"""What a join reads back from a log: hostile bytes are damage, and other input is noticed."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.model.errors import DamagedFrame, ReplayMismatch
from rewake.model.stream_event import NO_TIME, StreamEvent
from rewake.operators.join.operator import JoinSpec
from rewake.operators.stateful import StoredParts

LEFT = pa.schema([("k", pa.int64()), ("s", pa.string()), ("t", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("b", pa.bool_()), ("t", pa.int64())])
SPEC = JoinSpec(on=(("k", "k"),), within=10, time=("t", "t"), how="full")
NOTHING = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])


def event(position, side, times):
    """Tuples of an input at these times."""
    third = ["x", None] if side == 0 else [True, None]
    arrays = [
        pa.array([1] * len(times)),
        pa.array([third[place % 2] for place in range(len(times))], (LEFT, RIGHT)[side][1].type),
        pa.array(times),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=(LEFT, RIGHT)[side])
    return StreamEvent(position, batch, port=side)


def driven():
    """An operator with two panes of each input and a mark, and its input."""
    operator = SPEC.operator(LEFT, RIGHT)
    events = [event(0, 0, [1, 5, 12, 3]), event(4, 1, [2, 11, 13]), event(7, 0, [4, 14])]
    for each in events:
        operator.process(each)
    return operator, events


def stored(operator, columns=None):
    """All parts of an operator as snapshots that were found in a log."""
    slots = np.flatnonzero(operator.opened_at >= 0).astype(np.int32)
    slots = slots[np.argsort(operator.ids_of(slots))]
    ids, rows = operator.ids_of(slots), np.arange(slots.size)
    columns = operator.snapshot_columns(slots) if columns is None else columns
    return StoredParts(ids, np.full(ids.size, 8), [columns], [rows], [ids.size])


def restored(snapshots, openings=NOTHING, clock=12):
    """A new operator with these parts."""
    operator = SPEC.operator(LEFT, RIGHT)
    operator.restore(openings, snapshots, clock=clock, late_tuples=1)
    operator.end_replay()
    return operator


def test_a_mark_is_left_by_the_first_late_tuple_of_an_open_pane():
    """It is a part of its own, whose id is that tuple's position."""
    operator, _ = driven()
    assert sorted(operator.opened_at[operator.opened_at >= 0].tolist()) == [0, 2, 4, 5, 7]
    assert operator.late_tuples == 1


def test_parts_come_back_as_they_were():
    """Snapshots of a restored operator are the same bytes."""
    operator, _ = driven()
    again = restored(stored(operator), clock=operator.clock)
    for one, other in zip(stored(operator).columns[0], stored(again).columns[0], strict=True):
        assert one.tobytes() == other.tobytes()
    assert again.open_parts == operator.open_parts


def _reopened(operator):
    """A new operator that knows no more than which parts had opened."""
    parts = stored(operator)
    columns = [parts.columns[0][:2]]
    openings = StoredParts(parts.ids, parts.ids - 1, columns, parts.rows, parts.totals)
    again = operator.spec.operator(LEFT, RIGHT)
    again.restore(openings, NOTHING, clock=operator.clock, late_tuples=operator.late_tuples)
    return again


@pytest.mark.parametrize("how", ["left", "semi", "anti", "full"])
def test_who_has_met_is_known_though_the_partner_can_meet_nobody_any_more(how):
    """A pane stays open until its neighbours are decided: a flag is found again by its tuples."""
    operator = replace(SPEC, how=how).operator(LEFT, RIGHT)
    # The left tuple of pane 1 meets the right tuple of pane 0, which then is decided.
    events = [event(0, 1, [9]), event(1, 0, [11])]
    for each in events:
        operator.process(each)
    operator.punctuate(2, 20)
    again = _reopened(operator)
    assert [again.replay(each) for each in events] == [1, 1]
    again.end_replay()
    # Met again, a tuple of a semi join stays silent; not met again, one of the others does.
    later = [event(2, 1, [20 if how == "semi" else 25])]
    later += [event(3, 0, [100]), event(4, 1, [100])]
    for each in later:
        expected, found = operator.process(each), again.process(each)
        assert found.results == expected.results
        assert found.ended_ids.tolist() == expected.ended_ids.tolist()


def test_how_far_the_input_ahead_has_come_is_known_from_its_tuples():
    """The log has only the clock, which is that of the input behind."""
    operator = SPEC.operator(LEFT, RIGHT)
    events = [event(0, 0, [500]), event(1, 1, [5])]
    for each in events:
        operator.process(each)
    again = _reopened(operator)
    for each in events:
        again.replay(each)
    again.end_replay()
    operator.process(event(2, 1, [490]))
    again.process(event(2, 1, [490]))
    assert again.clock == operator.clock == 490


def test_a_late_tuple_stays_out_when_its_pane_is_replayed():
    """Though nothing but the mark says that it was late."""
    operator, events = driven()
    again = _reopened(operator)
    assert [again.replay(each) for each in events] == [4, 3, 1]
    again.end_replay()
    for one, other in zip(stored(operator).columns[0], stored(again).columns[0], strict=True):
        assert one.tobytes() == other.tobytes()


def test_other_input_than_the_log_was_written_from_is_noticed():
    """A pane begins with the tuple that opened it, or the replay is wrong."""
    again = _reopened(driven()[0])
    again.replay(event(0, 0, [100, 200]))
    with pytest.raises(ReplayMismatch, match="replay the original stream"):
        again.end_replay()


def _with(columns, place, column):
    return [*columns[:place], column, *columns[place + 1 :]]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda c: c[:2], "other columns than the log"),
        (lambda c: _with(c, 0, c[0].astype(np.int16)), "other columns"),
        (lambda c: _with(c, 1, c[1][:-1]), "rows long"),
        (lambda c: _with(c, 0, np.full_like(c[0], 4)), "neither a pane nor a mark"),
        (lambda c: _with(c, 0, np.zeros_like(c[0])), "open already"),
        (lambda c: [np.full_like(c[0], 2), c[1], np.zeros_like(c[2]), *c[3:]], "not open"),
        (lambda c: _with(c, 0, np.full_like(c[0], 2)), "has tuples"),
        (lambda c: _with(c, 1, c[1] - 9), "cannot be open"),
        (lambda c: _with(c, 1, c[1] + 2**62), "cannot be open"),
        (lambda c: _with(c, 1, c[1] + 1), "tuples of other panes"),
        (lambda c: _with(c, 2, np.where(c[0] < 2, c[2] - 1, c[2])), "positions of a snapshot"),
        (lambda c: _with(c, 2, np.where(c[0] < 2, c[2] + 2**30, c[2])), "positions of a snapshot"),
        (lambda c: _with(c, 2, -c[2]), "lengths of a snapshot"),
        (lambda c: _with(c, 2, np.roll(c[2], 1)), "has tuples"),
        (lambda c: _with(c, 3, c[3][::-1].copy()), "not in order"),
        (lambda c: _with(c, 3, np.zeros_like(c[3])), "not in order"),
        (lambda c: _with(c, 4, c[4][::-1].copy()), "not what was written"),
        (lambda c: _with(c, 4, np.zeros_like(c[4])), "not what was written"),
    ],
)
def test_a_footprint_that_cannot_be_is_damage(damage, words):
    """Whatever is wrong with its columns, before anything is taken over."""
    operator, _ = driven()
    parts = stored(operator)
    with pytest.raises(DamagedFrame, match=words):
        restored(parts._replace(columns=[damage(parts.columns[0])]))


def test_a_clock_out_of_range_is_damage():
    """No tuple could have set it."""
    with pytest.raises(DamagedFrame, match="out of range"):
        restored(NOTHING, clock=2**63 - 1)
    assert restored(NOTHING, clock=NO_TIME).open_parts == 0


@pytest.mark.parametrize("applied", [-1, 1])
def test_a_snapshot_with_tuples_from_after_it_was_taken_is_damage(applied):
    """Replay would apply them twice."""
    parts = stored(driven()[0])
    with pytest.raises(DamagedFrame, match="tuples that came after it"):
        restored(parts._replace(applied=np.full(parts.ids.size, applied)))


@settings(max_examples=150)
@given(st.data())
def test_any_bytes_are_damage_or_an_operator(data):
    """Changed at random, a snapshot is refused as damaged, or it is a snapshot like others."""
    parts = stored(driven()[0])
    columns = [column.copy() for column in parts.columns[0]]
    for _ in range(data.draw(st.integers(1, 4))):
        filled = [place for place, column in enumerate(columns) if column.size]
        column = columns[data.draw(st.sampled_from(filled))]
        place = data.draw(st.integers(0, column.size - 1))
        limits = np.iinfo(column.dtype)
        column[place] = data.draw(
            st.sampled_from([0, 1, limits.min, limits.max])
            | st.integers(int(limits.min), int(limits.max))
        )
    try:
        operator = restored(parts._replace(columns=[columns]))
    except (DamagedFrame, ReplayMismatch):
        return
    operator.process(event(9, 1, [15, 40]))
