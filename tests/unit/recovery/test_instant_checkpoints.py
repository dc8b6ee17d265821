"""Instant checkpoints: what is written when, what is needed, and what is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewake.log.columns import pack_columns
from rewake.log.frame import Section, SectionKind, decode_frame, encode_frame
from rewake.model.errors import DamagedFrame, DamagedLog, ReplayMismatch, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Count, Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.fragment import FilterStep, FragmentProgram
from rewake.operators.windows.specs import count_window, time_window
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.eventual.reading import unpack_parts
from rewake.recovery.instant.approach import Instant

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
COUNTS = FragmentProgram(stateful=AggregateSpec(["k"], count_window(3), [Count(), Sum("t")]))
TIMES = FragmentProgram(stateful=AggregateSpec(["k"], time_window(10), [Count()], time="t"))
GAPPED = FragmentProgram(stateful=AggregateSpec(["k"], count_window(1, 4), [Count()]))


def event(position, keys, times=None, watermark=None):
    times = [0] * len(keys) if times is None else times
    batch = pa.RecordBatch.from_pydict({"k": keys, "t": times}, schema=SCHEMA)
    return StreamEvent(position, batch, watermark)


class Process:
    """A fragment under instant checkpoints, with its log."""

    def __init__(self, program=COUNTS, frames=None, **settings):
        self.program, self.settings = program, settings
        self.frames = [] if frames is None else frames
        self.driven = Instant(**settings).build(
            program.operator(SCHEMA), program.emit, reversed(self.frames)
        )

    def send(self, keys, times=None, watermark=None, *, durable=True):
        """One turn; the frame it left, or None."""
        turn = self.driven.turn(event(self.driven.position, keys, times, watermark))
        self.driven.check_invariants()
        self.turn = turn
        return self.append(turn.record) if turn.record is not None and durable else None

    def append(self, record):
        encoded = encode_frame(
            record, log_id=1, epoch=1, sequence=len(self.frames), position=0, durable=0
        )
        self.frames.append(decode_frame(encoded))
        return self.frames[-1]

    def crash(self, frames=None):
        """The next process, with as much of the log as was needed."""
        kept = self.frames[len(self.frames) - self.driven.frames_needed :]
        return Process(self.program, kept if frames is None else frames, **self.settings)


def kinds(frame):
    return [section.kind.name for section in frame.sections]


def checked(frame):
    return unpack_parts(frame.section(SectionKind.CHECKS), frame.t_end)[0].tolist()


def closed(frame):
    return unpack_parts(frame.section(SectionKind.CLOSED), frame.t_end)[0].tolist()


# --- when ------------------------------------------------------------------------------------


def test_between_checkpoints_a_turn_leaves_its_results_and_nothing_else():
    """A turn without results leaves nothing."""
    process = Process(every_tuples=100)
    assert process.send([1, 1]) is None
    frame = process.send([1, 2])
    assert kinds(frame) == ["RESULTS", "METADATA"]
    assert (frame.tuples, frame.records, frame.open_windows) == (1, 1, 1)


def test_a_checkpoint_is_due_after_so_many_tuples_or_turns():
    """Whichever comes first; it is in one frame with the turn's results."""
    process = Process(every_tuples=4, every_turns=3)
    assert process.send([1, 2]) is None
    frame = process.send([1, 1])
    assert kinds(frame) == ["RESULTS", "CHECKS", "METADATA"]
    assert (checked(frame), process.turn.checks) == ([1], 1)
    assert process.send([]) is process.send([]) is None
    assert checked(process.send([3])) == [1, 4]


def test_settings_that_cannot_be_are_refused():
    """At least one period, and positive numbers."""
    for settings in (
        {"every_tuples": None},
        {"every_tuples": 0},
        {"every_turns": -1},
        {"full_every": 0},
    ):
        with pytest.raises(UsageError, match="give at least one period"):
            Instant(**settings)


# --- deltas ----------------------------------------------------------------------------------


def test_a_delta_holds_what_changed_and_what_ended():
    """Every `full_every`th checkpoint is full again."""
    process = Process(every_turns=1, full_every=3)
    assert checked(process.send([1, 2, 3])) == [0, 1, 2]
    delta = process.send([2, 4])
    assert (checked(delta), closed(delta)) == ([1, 4], [])
    delta = process.send([2, 1])
    assert (checked(delta), closed(delta)) == ([0], [1])
    assert checked(process.send([])) == [0, 2, 4]


def test_a_part_that_ended_since_it_opened_is_not_mentioned_in_a_delta():
    """No checkpoint has it."""
    process = Process(every_turns=2, full_every=9)
    process.send([7])
    process.send([])
    process.send([1])
    delta = process.send([1, 1])
    assert (checked(delta), closed(delta)) == ([], [])


def test_tuples_in_a_gap_between_windows_are_changes_too():
    """They are only counted, but the next window depends on it."""
    process = Process(GAPPED, every_turns=1, full_every=9)
    process.send([1])
    assert checked(process.send([1])) == [0]
    after = process.crash()
    assert after.driven.position == 2
    after.send([1, 1])
    assert after.send([1]).tuples == 1


def test_recovery_puts_deltas_on_top_of_the_full_checkpoint():
    """All windows are as they were; nothing has to be replayed."""
    process = Process(every_turns=1, full_every=5)
    for keys in ([1, 2, 3], [2, 4], [2, 1], [3, 5]):
        process.send(keys)
    after = process.crash()
    assert (after.driven.recovering, after.driven.position) == (False, 9)
    assert after.driven.progress()["open_windows"] == 4
    frame = after.send([1, 3, 4, 4, 5, 5])
    assert frame.tuples == 4
    assert checked(frame) == []


# --- what is needed --------------------------------------------------------------------------


def test_input_and_frames_before_the_last_checkpoint_are_not_needed():
    """Of frames: before the last full one."""
    process = Process(every_turns=2, full_every=2)
    assert (process.driven.acknowledged, process.driven.frames_needed) == (-1, 0)
    process.send([1, 1, 1])
    assert (process.driven.acknowledged, process.driven.frames_needed) == (-1, 1)
    process.send([1])  # full
    assert (process.driven.acknowledged, process.driven.frames_needed) == (3, 1)
    process.send([1, 1])
    process.send([2])  # delta
    assert (process.driven.acknowledged, process.driven.frames_needed) == (6, 3)
    assert process.driven.progress() == {
        "open_windows": 1,
        "extent_records": 2,
        "replay_tuples": 0,
    }
    process.send([])
    process.send([2])  # full
    assert (process.driven.acknowledged, process.driven.frames_needed) == (7, 1)


# --- recovery --------------------------------------------------------------------------------


def test_what_the_log_has_is_not_emitted_again():
    """Up to tc everything is processed and dropped."""
    process = Process(every_tuples=3)
    process.send([1, 1, 2])  # checkpoint
    process.send([1])  # a result
    process.send([2])  # nothing
    after = process.crash()
    assert (after.driven.recovering, after.driven.position) == (True, 3)
    assert after.driven.turn(event(3, [1])) == (None, (), 0)
    assert not after.driven.recovering
    assert after.send([2]) is None
    assert after.send([2]).tuples == 1


def test_replay_ends_in_the_middle_of_a_stream_event():
    """Its first part is dropped, its second counts."""
    process = Process(every_tuples=100)
    process.send([1, 1, 1])
    after = process.crash()
    turn = after.driven.turn(event(0, [1, 1, 1, 2, 2, 2]))
    assert turn.on(0).to_pylist() == [{"k": 2, "count": 3, "sum_t": 0}]


def test_a_log_without_a_checkpoint_is_replayed_from_the_start():
    """If it is all there."""
    process = Process(every_tuples=100)
    process.send([1, 1, 1])
    process.send([1, 1, 1])
    assert process.crash().driven.position == 0
    with pytest.raises(
        DamagedLog, match=r"from frame 1 on has no full checkpoint.*trimmed too far"
    ):
        process.crash(process.frames[1:])


def test_a_delta_without_its_full_checkpoint_is_refused():
    """So is one whose windows are not all there."""
    process = Process(every_turns=1, full_every=5)
    for keys in ([1, 2], [1], [3]):
        process.send(keys)
    with pytest.raises(DamagedLog, match="no full checkpoint"):
        process.crash(process.frames[1:])
    with pytest.raises(DamagedLog, match="with all of its windows"):
        process.crash([process.frames[0], process.frames[2]._replace(open_windows=9)])


def test_other_input_than_before_is_noticed():
    """It gives another number of tuples than the log has."""
    process = Process(every_tuples=100)
    process.send([1, 1, 1])
    with pytest.raises(ReplayMismatch, match=r"log has \[1\] tuples by output.*gave \[\]"):
        process.crash().send([1, 1, 2])


def test_stream_events_that_are_cut_differently_behind_a_filter_are_refused():
    """Positions behind a filter depend on the whole stream event."""
    program = FragmentProgram(
        (FilterStep(lambda b: pc.greater(b.column("k"), 0)),), COUNTS.stateful
    )
    process = Process(program, every_tuples=100)
    process.send([1, 1, 1])
    with pytest.raises(ReplayMismatch, match=r"ends at input position 2, inside .* from 0 to 4"):
        process.crash().send([1, 1, 1, 1])


# --- watermarks ------------------------------------------------------------------------------


def test_a_watermark_that_came_alone_is_repeated_from_the_log():
    """An idle source need not say it again."""
    process = Process(TIMES, every_tuples=3)
    process.send([1, 2, 2], [3, 4, 5])  # checkpoint
    assert process.send([], [], 10).tuples == 2
    process.send([4], [15])
    process.send([], [], 20)
    process.send([5], [16])  # late, after this watermark
    assert process.driven.operator.late_tuples == 1
    process.append(process.driven.bare_record())
    after = process.crash()
    assert (after.driven.position, after.driven.recovering) == (3, True)
    after.send([4], [15])
    after.send([5], [16])
    assert after.driven.operator.late_tuples == 1
    assert not after.driven.recovering
    assert (after.driven.operator.clock, after.driven.operator.open_parts) == (20, 0)


@pytest.mark.parametrize("again", [(None, None, None), (30, 30, 30)])
def test_what_replayed_input_says_of_time_is_not_listened_to(again):
    """Where channels meet, watermarks come at other places than they did; the log knows where."""
    process = Process(TIMES, every_tuples=100)
    process.send([1], [3])
    process.send([2], [15], 10)  # no window closes that has results here: 1 is in [0, 10)
    process.send([3], [5])  # late
    process.send([], [], 12)
    after = process.crash()
    for (key, time), watermark in zip([(1, 3), (2, 15), (3, 5)], again, strict=True):
        after.send([key], [time], watermark)
    assert not after.driven.recovering
    assert after.driven.operator.late_tuples == process.driven.operator.late_tuples == 1
    after.send([], [], 20)
    assert after.driven.operator.open_parts == 0


def test_a_watermark_right_behind_the_checkpoint_is_repeated_when_it_is_loaded():
    """No input has to come for it."""
    process = Process(TIMES, every_tuples=2)
    process.send([1, 2], [3, 4])
    process.send([], [], 10)
    after = process.crash()
    assert (after.driven.recovering, after.driven.operator.clock) == (False, 10)
    # The source may say it again: it has been heard.
    assert after.send([], [], 10) is None


def test_a_watermark_that_rode_on_the_last_tuples_may_come_behind_them():
    """The host may cut stream events differently."""
    process = Process(TIMES, every_tuples=100)
    assert process.send([1], [3], 10).tuples == 1
    after = process.crash()
    assert after.send([1], [3]) is None
    assert after.send([], [], 10) is None
    assert after.send([1], [12], 20).tuples == 1


def test_a_bare_record_keeps_the_clock():
    """What is late after it stays late."""
    process = Process(TIMES, every_tuples=100)
    process.send([], [], 50)
    process.append(process.driven.bare_record())
    after = process.crash()
    assert (after.driven.position, after.driven.recovering) == (0, False)
    after.send([1], [3])
    assert after.driven.operator.late_tuples == 1


# --- logs of others --------------------------------------------------------------------------


def test_a_log_of_another_approach_is_refused_both_ways():
    """Its frames mean something else."""
    process = Process(every_tuples=1)
    process.send([1])
    with pytest.raises(DamagedFrame, match="metadata of another"):
        ContinuousEventual().build(COUNTS.operator(SCHEMA), COUNTS.emit, process.frames)
    cec = ContinuousEventual().build(COUNTS.operator(SCHEMA), COUNTS.emit, ())
    process.frames.clear()
    process.append(cec.turn(event(0, [1])).record)
    with pytest.raises(DamagedFrame, match="under another approach"):
        process.crash(process.frames)


@pytest.mark.parametrize(
    "columns",
    [
        [[7, 0], []],
        [[1, -1], []],
        [[1, 0], [-5]],
        [[1], []],
        [[1, 0]],
    ],
)
def test_impossible_metadata_is_refused(columns):
    """Before anything is made of it."""
    process = Process(every_tuples=1)
    frame = process.send([1])
    payload = pack_columns([np.array(column, np.int64) for column in columns])
    sections = [each for each in frame.sections if each.kind != SectionKind.METADATA]
    damaged = frame._replace(sections=(*sections, Section(SectionKind.METADATA, payload)))
    with pytest.raises(DamagedFrame):
        process.crash([damaged])
