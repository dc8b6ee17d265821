"""The writer's machine, driven by hand: no store, no thread, only commands."""

import pytest
from log_vocabulary import sample_turn

from rewake.log.files.descriptor import Descriptor
from rewake.log.files.layout import SegmentId
from rewake.log.files.mark import Frontier, StripeEnd
from rewake.log.frame import decode_header
from rewake.log.log import AppendPoint
from rewake.log.writing.commands import (
    Complete,
    Confirm,
    Gather,
    Rotate,
    Sync,
    Write,
    WriteIndex,
    WriteMark,
)
from rewake.log.writing.pipeline import TRANSITIONS, Limits, Mode, State, WritePipeline
from rewake.model.errors import Fenced, StorageFault, StorageFull, UsageError, WriterFailed

FRAME = sum(
    len(part)
    for part in WritePipeline(
        AppendPoint(
            Descriptor(1, "x"), 0, Frontier(0, 0, 0, (StripeEnd(SegmentId(0, 0), 88),)), 0, 1
        )
    ).encode(sample_turn(0))
)


def pipeline(stripes: int = 1, mode: Mode = Mode.STABLE, **limits) -> WritePipeline:
    ends = (StripeEnd(SegmentId(0, 4), 88),) * stripes
    point = AppendPoint(Descriptor(1, "x", stripes), 4, Frontier(0, 0, 0, ends), 0, 1)
    return WritePipeline(point, mode=mode, limits=Limits(**limits))


def frames_of(write: Write) -> int:
    """How many frames a write holds; all of these tests' are of one size."""
    return sum(len(buffer) for buffer in write.buffers) // FRAME


def append(machine: WritePipeline, count: int = 1) -> list:
    commands = []
    for _ in range(count):
        turn = sample_turn(machine.next_sequence)
        commands += machine.append(machine.encode(turn), turn)
        machine.check_invariants()
    return commands


def kinds(commands) -> list[type]:
    return [type(command) for command in commands]


def test_a_frame_is_written_synced_confirmed_marked_and_completed():
    """The order of persist before forward."""
    machine = pipeline()
    (write,) = append(machine)
    assert (write.stripe, write.offset, frames_of(write)) == (0, 88, 1)
    (sync,) = machine.done(write)
    assert isinstance(sync, Sync)
    (confirm,) = machine.done(sync)
    assert confirm == Confirm(1)
    assert machine.completed.sequence == 0
    mark, complete = machine.done(confirm)
    assert isinstance(mark, WriteMark)
    assert complete == Complete(1)
    assert machine.durable.sequence == machine.completed.sequence == 1


def test_what_is_appended_meanwhile_goes_out_together():
    """Group commit, within the caps on frames and bytes."""
    machine = pipeline(batch_frames=3)
    (write,) = append(machine)
    assert append(machine, 5) == []
    _, second = [*machine.done(write), *machine.done(Sync(0, write.segment))][1:]
    assert isinstance(second, Write)
    assert second.offset == 88 + FRAME
    assert frames_of(second) == 3


def test_a_batch_is_capped_by_bytes_but_never_empty():
    """One frame larger than the cap still goes."""
    machine = pipeline(batch_bytes=FRAME + 1)
    (write,) = append(machine, 3)
    commands = machine.done(machine.done(write)[0])
    assert frames_of(commands[-1]) == 1


def test_completion_is_in_order_over_stripes():
    """A later batch that is durable first waits for the earlier one."""
    machine = pipeline(stripes=2)
    first, second = append(machine, 2)
    assert (first.stripe, second.stripe) == (0, 1)
    late = machine.done(second)[0]
    assert machine.done(late) == []
    early = machine.done(first)[0]
    (confirm,) = machine.done(early)
    assert confirm == Confirm(2)
    assert machine.done(confirm)[-1] == Complete(2)


def test_a_frame_states_what_was_durable_when_it_was_encoded():
    """The proof that recovery uses to tell damage from a torn tail."""
    machine = pipeline()
    assert decode_header(machine.encode(sample_turn(0))[0]).durable == 0
    (write,) = append(machine)
    machine.done(*machine.done(machine.done(write)[0]))
    assert decode_header(machine.encode(sample_turn(1))[0]).durable == 1


def test_a_full_segment_is_rotated_before_the_next_batch():
    """The header of the new segment names the old one and its end; the first mark is an anchor."""
    machine = pipeline(segment_bytes=100)
    (write,) = append(machine)
    append(machine)
    commands = machine.done(machine.done(write)[0])
    assert kinds(commands) == [Confirm, Rotate]
    mark, _ = machine.done(commands[0])
    assert not mark.sync
    (write,) = machine.done(commands[1])
    assert (write.segment, write.offset) == (SegmentId(1, 4).name, 88)
    (confirm,) = machine.done(machine.done(write)[0])
    assert machine.done(confirm)[0].sync


def test_an_index_entry_is_written_for_every_interval():
    """And not for every batch."""
    machine = pipeline(index_interval=2 * FRAME)
    seen = []
    for _ in range(6):
        commands = append(machine)
        while commands:
            command = commands.pop(0)
            seen.append(type(command))
            commands = machine.done(command) + commands
    assert seen.count(WriteIndex) == 2


def test_a_full_disk_stalls_and_the_same_write_is_tried_again():
    """Nothing is lost, nothing else is started meanwhile."""
    machine = pipeline()
    (write,) = append(machine)
    assert machine.failed(write, StorageFull("full")) == []
    assert machine.state is State.STALLED
    assert append(machine) == []
    assert machine.retry() == [write]
    machine.failed(write, StorageFull("full"))
    assert machine.retry(0) == [write]
    assert machine.retry(1) == []
    assert kinds(machine.done(write)) == [Sync]
    assert machine.state is State.RUNNING
    assert machine.retry() == []


@pytest.mark.parametrize("error", [StorageFault("EIO"), StorageFull("ENOSPC")])
def test_any_failed_sync_is_for_good(error):
    """Also one that failed for want of room."""
    machine = pipeline()
    (write,) = append(machine)
    (sync,) = machine.done(write)
    machine.failed(sync, error)
    assert machine.state is State.FAILED
    assert machine.done(sync) == []
    with pytest.raises(WriterFailed, match="Sync failed"):
        machine.check_usable()


def test_a_failed_index_or_a_mark_without_room_is_no_failure():
    """Both may lag."""
    machine = pipeline()
    machine.failed(WriteIndex(0, "x", 0, b""), StorageFault("EIO"))
    machine.failed(WriteMark(0, b"", False), StorageFull("full"))
    assert machine.state is State.RUNNING
    machine.failed(WriteMark(0, b"", False), StorageFault("EIO"))
    assert machine.state is State.FAILED


def test_a_fenced_writer_completes_nothing():
    """Its frames are on disk, but nobody is told."""
    machine = pipeline()
    (write,) = append(machine)
    (confirm,) = machine.done(machine.done(write)[0])
    machine.fenced("another")
    assert machine.done(confirm) == []
    assert machine.completed.sequence == 0
    with pytest.raises(Fenced, match="another"):
        machine.check_usable()
    machine.fenced("a third")
    machine.failed(write, StorageFault("late"))
    assert machine.state is State.FENCED


def test_the_window_bounds_what_is_outstanding():
    """has_room is false until something completes; an empty window always has room."""
    machine = pipeline(window_frames=2, window_bytes=1)
    assert machine.has_room()
    (write,) = append(machine)
    assert not machine.has_room()
    (confirm,) = machine.done(machine.done(write)[0])
    machine.done(confirm)
    assert machine.has_room()


def test_delayed_mode_completes_after_the_write_and_syncs_now_and_then():
    """Every so many bytes; the mark tells durable from completed."""
    machine = pipeline(mode=Mode.DELAYED, sync_bytes=2 * FRAME)
    (write,) = append(machine)
    (confirm,) = machine.done(write)
    assert machine.done(confirm)[-1] == Complete(1)
    assert (machine.completed.sequence, machine.durable.sequence) == (1, 0)
    (write,) = append(machine)
    confirm, sync = machine.done(write)
    machine.done(confirm)
    (confirm,) = machine.done(sync)
    assert kinds(machine.done(confirm)) == [WriteMark]
    assert machine.durable.sequence == 2


def test_delayed_mode_syncs_before_it_rotates():
    """A segment that another one follows is durable."""
    machine = pipeline(mode=Mode.DELAYED, segment_bytes=100)
    (write,) = append(machine)
    (confirm,) = machine.done(write)
    machine.done(confirm)
    (sync,) = append(machine)
    assert isinstance(sync, Sync)
    assert kinds(machine.done(sync)) == [Confirm, Rotate]


def test_closing_ends_with_a_synced_mark():
    """After everything is durable; then no append is taken."""
    machine = pipeline()
    (write,) = append(machine)
    assert machine.close() == []
    with pytest.raises(UsageError, match="closed"):
        machine.check_usable()
    (confirm,) = machine.done(machine.done(write)[0])
    mark, complete, last = machine.done(confirm)
    machine.done(mark)
    machine.done(complete)
    (anchor,) = machine.done(last)
    assert anchor.sync
    assert machine.state is State.RUNNING
    machine.done(anchor)
    assert machine.state is State.CLOSED


def test_closed_is_the_end_of_every_state():
    """The transition table has no way out of CLOSED, and a way there from everywhere."""
    assert TRANSITIONS[State.CLOSED] == frozenset()
    assert all(State.CLOSED in TRANSITIONS[state] for state in State if state is not State.CLOSED)


def synced_once(machine: WritePipeline) -> list:
    """One frame written, synced and confirmed; what the machine wants next."""
    (write,) = append(machine)
    (sync,) = machine.done(write)
    confirm, *rest = machine.done(sync)
    machine.done(confirm)
    return rest


def test_after_a_sync_a_stripe_rests_so_that_a_batch_can_gather():
    """What is appended during the rest goes out together, when it is over."""
    machine = pipeline(gather_ms=5)
    assert synced_once(machine) == [Gather(0, 0.005)]
    assert append(machine, 3) == []
    assert not machine.gathered
    (write,) = machine.done(Gather(0, 0.005))
    assert frames_of(write) == 3


def test_a_rest_is_over_when_enough_has_gathered():
    """The host asks `gathered` while it waits."""
    machine = pipeline(gather_ms=5, gather_bytes=2 * FRAME)
    synced_once(machine)
    append(machine)
    assert not machine.gathered
    append(machine)
    assert machine.gathered


def test_whoever_waits_ends_the_rest():
    """Waiting for a frame must not cost the time of a rest."""
    machine = pipeline(gather_ms=5)
    synced_once(machine)
    machine.hurry()
    assert not machine.gathered, "nothing is pending, so nobody gains"
    append(machine)
    machine.hurry()
    assert machine.gathered
    machine.done(Gather(0, 0.005))
    assert not machine.gathered, "the next batch gathers again"


def test_hurrying_does_not_end_the_shortest_rest_but_pressure_does():
    """Syncs that follow each other at once would cost more than the little time they gain."""
    machine = pipeline(gather_ms=20, rest_ms=2, gather_bytes=2 * FRAME)
    assert synced_once(machine) == [Gather(0, 0.02, 0.002)]
    append(machine)
    assert machine.waiting
    machine.hurry()
    assert machine.gathered
    assert not machine.pressed
    assert not machine.waiting, "it has been hurried"
    append(machine)
    assert machine.pressed, "so much has gathered that a rest gains nothing"


def test_who_hurries_during_a_sync_finds_the_shortest_rest_behind_it():
    """The rest follows all the same, and is over as soon as it may be."""
    machine = pipeline(gather_ms=20, rest_ms=2)
    (write,) = append(machine)
    (sync,) = machine.done(write)
    append(machine)
    machine.hurry()
    assert Gather(0, 0.02, 0.002) in machine.done(sync)
    assert machine.gathered


def test_a_flush_ends_the_rest_and_closing_needs_none():
    """What is pending becomes durable at once."""
    machine = pipeline(gather_ms=5)
    synced_once(machine)
    append(machine)
    assert machine.flush() == []
    assert machine.gathered
    (write,) = machine.done(Gather(0, 0.005))
    assert isinstance(write, Write)
