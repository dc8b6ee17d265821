"""The threaded writer: in order, durable, back-pressured, and quiet when it is gone."""

import os
import threading
import time

import pytest
from log_vocabulary import number_of, sample_turn

from rewake.log.files.layout import claim_name
from rewake.log.log import Log
from rewake.log.retention import Retention
from rewake.log.writing.pipeline import Limits, Mode, State
from rewake.model.errors import (
    Fenced,
    LogExists,
    LogInUse,
    NotALog,
    StorageFault,
    StorageFull,
    TakenBack,
    UsageError,
    WriterFailed,
)
from rewake.sim.memory import Faults, MemoryStore
from rewake.stores import LogWriter, create_log, open_log_reader, open_log_writer

SMALL = Limits(segment_bytes=4000, index_interval=1000, batch_frames=8)


@pytest.fixture(params=[1, 3], ids=["one stripe", "three stripes"])
def paths(request, tmp_path):
    folders = [tmp_path / f"stripe-{number}" for number in range(request.param)]
    create_log(folders, "clicks", {"schema": b"\1\2", "owner": "me"})
    return folders


def memory_writer(**how) -> tuple[MemoryStore, LogWriter]:
    store = MemoryStore()
    Log.create(store, "memory", log_id=5)
    point = Log.open_for_append(store)
    return store, LogWriter([store], point, retry_seconds=0.01, **how)


def append_waiting(writer: LogWriter, count: int) -> None:
    for number in range(count):
        writer.wait(writer.append(sample_turn(number)))


class Usurped(MemoryStore):
    """A store in which a successor takes over just when its predecessor begins a segment."""

    usurped = False

    def rename(self, old: str, new: str) -> None:
        if self.usurped:
            self.delete(claim_name(0))
            self.create(claim_name(1), b"the successor")
            self.delete(old)
        super().rename(old, new)


def test_whoever_is_superseded_in_mid_rotation_is_told_so_and_not_of_a_fault():
    """A successor clears drafts away; the predecessor must not blame the disk for it."""
    store = Usurped()
    Log.create(store, "memory", log_id=5)
    writer = LogWriter([store], Log.open_for_append(store), limits=Limits(segment_bytes=500))
    store.usurped = True
    with pytest.raises(Fenced, match="the successor"):
        append_waiting(writer, 1000)
    with pytest.raises(Fenced):
        writer.close()


@pytest.mark.parametrize("mode", Mode)
def test_what_was_appended_is_read_back_in_order(paths, mode):
    """Through rotations, stripes and several writers."""
    for epoch in range(3):
        with open_log_writer(paths, mode=mode, limits=SMALL) as writer:
            assert writer.recovered == epoch * 100
            for number in range(epoch * 100, epoch * 100 + 100):
                assert writer.append(sample_turn(number)) == number
    with open_log_reader(paths) as reader:
        assert [number_of(frame) for frame in reader.frames()] == list(range(300))
        assert reader.descriptor.metadata == {"schema": b"\1\2", "owner": "me"}
        assert reader.end_position == 900


def test_callbacks_come_in_order_and_only_for_what_can_be_read(paths):
    """What the callback names is durable; it never goes back."""
    seen = []
    with open_log_writer(paths, limits=SMALL, on_durable=seen.append) as writer:
        for number in range(200):
            writer.append(sample_turn(number))
        assert writer.wait(199, timeout=10)
        assert writer.completed == writer.durable == 200
        with open_log_reader(paths) as reader:
            assert reader.end_sequence == 200
    assert seen == sorted(set(seen))
    assert seen[-1] == 200


def test_a_tail_follows_a_writer_without_gap_or_repeat(paths):
    """Several tails, from past to live, while the writer rotates and is succeeded."""
    stop = threading.Event()
    results: list[list[int]] = [[] for _ in range(3)]
    failures: list[BaseException] = []

    def follow(result: list[int], start: int) -> None:
        try:
            with open_log_reader(paths) as reader:
                tail = reader.tail(from_sequence=min(start, reader.end_sequence))
                assert tail.sequence == start
                while not (stop.is_set() and not (new := tail.poll(max_frames=7))):
                    new = tail.poll(max_frames=7) if not stop.is_set() else new
                    result.extend(number_of(frame) for frame in new)
        except BaseException as error:
            failures.append(error)

    with open_log_writer(paths, limits=SMALL) as writer:
        for number in range(50):
            writer.append(sample_turn(number))
        writer.flush()
        threads = [
            threading.Thread(target=follow, args=(result, 20 * which))
            for which, result in enumerate(results)
        ]
        for thread in threads:
            thread.start()
        for number in range(50, 400):
            writer.append(sample_turn(number))
    with open_log_writer(paths, limits=SMALL) as writer:
        for number in range(400, 600):
            writer.append(sample_turn(number))
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not failures
    for which, result in enumerate(results):
        assert result == list(range(20 * which, 600))


def test_a_second_writer_is_refused_unless_it_brings_an_epoch(paths):
    """LogInUse names the holder; an explicit epoch takes over; the first is fenced."""
    first = open_log_writer(paths, holder="the first")
    first.wait(first.append(sample_turn(0)))
    with pytest.raises(LogInUse, match="the first"):
        open_log_writer(paths)
    with pytest.raises(Fenced, match="not new"):
        open_log_writer(paths, epoch=first.epoch)
    with open_log_writer(paths, epoch=first.epoch + 5, holder="the second") as second:
        assert second.recovered == 1
        first.append(sample_turn(666))
        with pytest.raises(Fenced, match="the second"):
            first.wait(1, timeout=10)
        with pytest.raises(Fenced):
            first.append(sample_turn(667))
        second.append(sample_turn(1))
    with pytest.raises(Fenced):
        first.close()
    first.close()
    with open_log_reader(paths) as reader:
        assert [number_of(frame) for frame in reader.frames()] == [0, 1]


def test_appends_wait_while_the_window_is_full():
    """Back-pressure: a stalled disk stops the caller, with a timeout if it wants one."""
    store, writer = memory_writer(limits=Limits(window_frames=4, batch_frames=2))
    full = Faults(fail_at=1, persistent=True, error=StorageFull("full"), only=["write"])
    store.faults = full
    for number in range(4):
        writer.append(sample_turn(number))
    with pytest.raises(StorageFull, match="stalled"):
        writer.append(sample_turn(4), timeout=0.05)
    assert not writer.wait(0, timeout=0.05)
    assert writer.state is State.STALLED
    store.faults = Faults()
    assert writer.append(sample_turn(4), timeout=10) == 4
    assert writer.flush(timeout=10)
    writer.close()
    assert [number_of(frame) for frame in Log.open_reader(store).frames()] == list(range(5))


def test_hurrying_ends_a_long_rest_without_waiting_for_anything():
    """Whoever has nothing more to append says so, and what gathered becomes durable."""
    reached = threading.Event()
    limits = Limits(gather_ms=600_000.0, rest_ms=1.0)
    _, writer = memory_writer(limits=limits, on_durable=lambda _: reached.set())
    writer.append(sample_turn(0))
    assert reached.wait(30), "the first batch has nothing to rest from"
    reached.clear()
    writer.append(sample_turn(1))
    writer.hurry()
    assert reached.wait(30), "the rest would have taken ten minutes"
    writer.hurry()  # nothing is pending: nothing happens
    assert writer.durable == 2
    writer.close()


def test_a_failed_sync_surfaces_everywhere():
    """WriterFailed on wait, append, flush and close; then the log opens again."""
    store, writer = memory_writer()
    writer.wait(writer.append(sample_turn(0)))
    store.faults = Faults(fail_at=1, error=StorageFault("EIO"), only=["sync"])
    writer.append(sample_turn(1))
    for action in (
        lambda: writer.wait(1, 10),
        lambda: writer.append(sample_turn(2)),
        lambda: writer.flush(10),
        writer.close,
    ):
        with pytest.raises(WriterFailed, match=r"sequence 1.*Sync failed.*EIO.*reopen"):
            action()
    writer.close()
    store.faults = Faults()
    assert Log.open_for_append(store).frontier.sequence in (1, 2)


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_an_unexpected_error_does_not_die_unseen(kind):
    """A bug in a callback stops the writer visibly instead of hanging its users."""

    def broken(_: int) -> None:
        raise kind("a bug")

    _, writer = memory_writer(on_durable=broken)
    with pytest.raises(WriterFailed, match="a bug"):
        writer.wait(writer.append(sample_turn(0)) + 1, timeout=10)
    with pytest.raises(WriterFailed):
        writer.close()


def test_closing_is_idempotent_and_final(paths):
    """After close nothing can be appended, and the log can be opened again."""
    writer = open_log_writer(paths)
    writer.append(sample_turn(0))
    writer.close()
    writer.close()
    assert writer.state is State.CLOSED
    with pytest.raises(UsageError, match="closed"):
        writer.append(sample_turn(1))
    open_log_writer(paths).close()


def test_no_thread_and_no_descriptor_is_left(paths):
    """Ten writers and readers later, the process is as it was."""
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for number in range(10):
        with open_log_writer(paths, limits=SMALL) as writer:
            writer.append(sample_turn(number))
        with open_log_reader(paths) as reader:
            assert reader.end_sequence == number + 1
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_writer_trims_while_it_writes(paths):
    """What is not needed goes; readers are told what is left."""
    with open_log_writer(paths, limits=SMALL) as writer:
        for number in range(200):
            writer.append(sample_turn(number))
            if number % 20 == 0:
                writer.flush()
        trimmed = writer.trim(150, Retention(max_bytes=0))
        for _ in range(100):  # a busy machine may not have closed a segment yet
            if trimmed.floor:
                break
            writer.flush()
            trimmed = writer.trim(150, Retention(max_bytes=0))
        assert 0 < trimmed.floor <= 150
        assert trimmed.segments > 0
    with open_log_reader(paths) as reader:
        assert reader.first_sequence == trimmed.floor
        assert [number_of(f) for f in reader.frames()] == list(range(trimmed.floor, 200))


def test_several_threads_may_append(paths):
    """Each gets its own sequences; all are there, none twice."""
    taken: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        mine.extend(writer.append(sample_turn(0)) for _ in range(100))

    with open_log_writer(paths, limits=SMALL) as writer:
        threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert sorted(sequence for mine in taken for sequence in mine) == list(range(400))
    with open_log_reader(paths) as reader:
        assert reader.end_sequence == 400


def test_closing_wakes_an_append_that_waits_for_room():
    """Nobody hangs on a disk that stays full: both get a typed error."""
    store, writer = memory_writer(limits=Limits(window_frames=1))
    store.faults = Faults(fail_at=1, persistent=True, error=StorageFull("full"), only=["write"])
    writer.append(sample_turn(0))
    errors: list[Exception] = []

    def wait_for_room() -> None:
        try:
            writer.append(sample_turn(1))
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=wait_for_room)
    thread.start()
    time.sleep(0.05)
    with pytest.raises(StorageFull, match="1 frames from sequence 0 on"):
        writer.close(timeout=0.1)
    thread.join(10)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_delayed_mode_is_durable_after_flush(paths):
    """Completed after the write; durable after flush."""
    with open_log_writer(paths, mode=Mode.DELAYED) as writer:
        for number in range(20):
            writer.append(sample_turn(number))
        assert writer.wait(19, timeout=10)
        assert writer.flush(timeout=10)
        assert writer.durable == 20


def test_a_log_is_not_created_twice_and_not_found_elsewhere(paths, tmp_path):
    """LogExists and NotALog, with what to do."""
    with pytest.raises(LogExists):
        create_log(paths, "again")
    with pytest.raises(NotALog):
        open_log_reader(tmp_path)
    with pytest.raises(NotALog):
        open_log_writer([*paths, tmp_path])


def test_stripes_in_the_wrong_order_are_refused(tmp_path):
    """A wrong directory is found before anything is read."""
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    create_log(folders, "clicks")
    with pytest.raises(NotALog, match="order of creation"):
        open_log_reader([folders[0], folders[2], folders[1]])
    with pytest.raises(NotALog, match="3 stripes but 2"):
        open_log_reader(folders[:2])


def test_appending_costs_the_caller_little(tmp_path):
    """While a batch is in the air an append is an encoding and a hand-over, not an I/O."""
    create_log(tmp_path, "cheap")
    with open_log_writer(tmp_path) as writer:
        costs = []
        for number in range(300):
            started = time.perf_counter()
            writer.append(sample_turn(number))
            costs.append(time.perf_counter() - started)
    assert sorted(costs)[150] < 0.002


def test_a_log_in_files_goes_back(tmp_path):
    """The frames from there on are taken back; one who follows is told."""
    create_log(tmp_path / "log", "back")
    with open_log_writer(tmp_path / "log") as writer:
        for number in range(6):
            writer.append(sample_turn(number))
    with open_log_reader(tmp_path / "log") as reader:
        tail = reader.tail()
        assert len(tail.poll()) == 6
        with open_log_writer(tmp_path / "log", back_to=2) as writer:
            assert (writer.recovered, writer.next_position) == (2, 6)
            writer.append(sample_turn(50))
        with pytest.raises(TakenBack):
            tail.poll()
    with open_log_reader(tmp_path / "log") as reader:
        assert [number_of(frame) for frame in reader.frames()] == [0, 1, 50]
