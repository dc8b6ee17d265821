"""The sentences of the thesis on persistent stream objects (chapters 3 and 4), as tests."""

import pytest
from log_vocabulary import number_of, sample_turn
from paper_vocabulary import Process

from rewake.log.log import Log
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits
from rewake.operators.windows.specs import count_window
from rewake.recovery.policies.shots import ShotsPolicy
from rewake.sim.memory import Choices, MemoryStore

SMALL = Limits(segment_bytes=600, index_interval=200)


@pytest.fixture
def store():
    """A disk with an empty log on it."""
    disk = MemoryStore()
    Log.create(disk, "pso", log_id=3)
    return disk


def append(store, numbers):
    """A writer appends sample turns; their timestamps are ten times their numbers."""
    writer = DirectWriter(store, limits=SMALL)
    for number in numbers:
        writer.append(sample_turn(number))
    writer.close()


# --- 3.1: the log of a stream ------------------------------------------------------------------


def test_what_is_forwarded_has_been_persisted(store):
    """3.1: "Once a completion of a write I/O is posted ... move ... to the forward-event list"."""
    writer = DirectWriter(store, limits=SMALL)
    for number in range(12):
        writer.append(sample_turn(number))
        # Complete means: it may be forwarded.  Whatever happens to the disk now, it is there.
        for seed in range(5):
            after = store.crash(Choices(seed))
            DirectWriter(after).close()
            found = [number_of(frame) for frame in Log.open_reader(after).frames()]
            assert found == list(range(number + 1))


def test_a_frame_that_is_not_complete_is_not_forwarded(store):
    """3.1: "the write is not complete unless the I/O has been flushed to disk"."""
    writer = DirectWriter(store, limits=SMALL)
    reader = Log.open_reader(store.attach())
    writer.submit(sample_turn(0))
    hidden = 0
    while writer.step() is not None:
        reader.refresh()
        hidden += reader.end_sequence == 0
        if reader.end_sequence == 1:
            for seed in range(20):
                after = store.crash(Choices(seed))
                DirectWriter(after).close()
                assert Log.open_reader(after).end_sequence == 1, "seen, then lost"
    assert hidden > 0
    assert reader.end_sequence == 1


def test_a_reader_goes_from_past_to_live_without_a_gap_or_a_repeat(store):
    """3.1: "the reader has caught up with the live stream"; the crossover is automatic."""
    append(store, range(10))
    tail = Log.open_reader(store.attach()).tail()
    seen = [number_of(frame) for frame in tail.poll(max_frames=4)]
    append(store, range(10, 25))
    while frames := tail.poll(max_frames=4):
        seen += [number_of(frame) for frame in frames]
    assert tail.poll() == []
    append(store, range(25, 27))
    seen += [number_of(frame) for frame in tail.poll()]
    assert seen == list(range(27))


def test_many_readers_read_from_different_places(store):
    """3.1: "read by multiple clients from different offsets"."""
    append(store, range(20))
    readers = {
        start: Log.open_reader(store.attach()).tail(from_sequence=start) for start in (0, 7, 19)
    }
    for start, tail in readers.items():
        assert [number_of(frame) for frame in tail.poll()] == list(range(start, 20))


def test_what_a_downstream_that_was_gone_has_missed_is_read_back_later(store):
    """3.1: "SEs ... are still persisted"; "as soon as such SEs are stable they are deleted"."""
    writer = DirectWriter(store, limits=SMALL)
    for number in range(30):
        writer.append(sample_turn(number))
        assert writer.pipeline.next_sequence == writer.completed, "nothing waits in memory"
    found = [number_of(frame) for frame in Log.open_reader(store.attach()).frames()]
    assert found == list(range(30))


def test_the_index_leads_to_the_event_that_contains_a_timestamp(store):
    """3.1: "mapping a given tuple identifier (a timestamp) into a serialized SE"."""
    append(store, range(40))
    reader = Log.open_reader(store)
    for timestamp in (0, 5, 10, 195, 390):
        first = next(iter(reader.frames(from_timestamp=timestamp)))
        assert number_of(first) == -(-timestamp // 10)


def test_a_position_leads_to_the_event_that_contains_it(store):
    """3.1: "a subset of the SE is requested, as for example, in the beginning of a ... replay"."""
    append(store, range(20))
    reader = Log.open_reader(store)
    for position in range(0, 60, 7):
        first = next(iter(reader.frames(from_position=position)))
        assert first.position <= position < first.position + first.tuples


def test_recovery_reconciles_the_index_with_the_log(store):
    """CEC IX: "reconcile the stream index ... with the log length"; the index alone is no truth."""
    append(store, range(40))
    whole = [number_of(frame) for frame in Log.open_reader(store).frames(from_timestamp=200)]
    indexes = [name for name in store.names() if name.endswith(".idx")]
    assert indexes
    for name in indexes:
        size = store.size(name)
        store.write(name, 0, (b"\xff" * 40,))
        store.write(name, size, (b"noise beyond the end of the log" * 3,))
    reader = Log.open_reader(store)
    assert [number_of(frame) for frame in reader.frames(from_timestamp=200)] == whole
    for name in indexes:
        store.delete(name)
    reader = Log.open_reader(store)
    assert [number_of(frame) for frame in reader.frames(from_timestamp=200)] == whole


# --- 4.2: slow windows in shots ----------------------------------------------------------------


def taken(process, keys, times):
    """How many CHECKs each of these moments led to."""
    found = []
    for now in times:
        left = process.send(keys, float(now))
        found.append(len(left.checks) if left else 0)
    return found


def test_all_slow_windows_are_checkpointed_in_n_over_m_shots():
    """4.2: "we checkpoint the entire N windows in S = N/M shots ... every T/S milliseconds"."""
    process = Process(count_window(99), ShotsPolicy(every=100, slow_after=10, windows=2))
    process.send("abcdef", 0.0)
    checks = taken(process, "a", range(100, 200))
    # N = 6, M = 2: three shots, 100/3 apart, from the start of the round on.
    assert [now for now, count in zip(range(100, 200), checks, strict=True) if count] == [
        100,
        134,
        168,
    ]
    assert sum(checks) == 6


def test_only_windows_open_longer_than_h_are_slow():
    """4.2: "we consider slow an active window whose open time has exceeded ... H"."""
    process = Process(count_window(99), ShotsPolicy(every=10, slow_after=50, windows=9))
    process.send("ab", 0.0)
    process.send("c", 30.0)
    assert taken(process, "a", [40]) == [0]
    assert process.send("a", 60.0).checks == [0, 1]


def test_no_shot_takes_more_than_m_windows():
    """4.2: "we allow only a certain ... amount of windows to be checked at each time"."""
    process = Process(count_window(99), ShotsPolicy(every=7, slow_after=0, windows=3))
    process.send("abcdefghij", 0.0)
    checks = taken(process, "abc", range(1, 60))
    assert max(checks) == 3


def test_losing_a_check_loses_time_but_no_state():
    """4.2: "even if we loose a Gcheck ... the ... Gopen tuple has already been emitted"."""
    process = Process(count_window(4), ShotsPolicy(every=1, slow_after=0, windows=9))
    process.send("a", 0.0)
    process.send("a", 1.0)
    assert process.checkpoint.snapshots.ids.tolist() == [0]
    del process.log[1]
    after = process.crash()
    after.send("aa"[after.cec.position :])
    assert after.send("aa").results == [("a", 0 + 1 + 2 + 3)]


def test_a_check_brings_the_time_to_replay_from_forward():
    """4.1: CHECKs "push forward the time T associated with the most-recent checkpoint"."""
    process = Process(count_window(99), ShotsPolicy(every=1, slow_after=0, windows=9))
    before = [process.send("ab", float(now)) and process.checkpoint.oldest_time for now in range(5)]
    assert before == sorted(before)
    assert before[-1] > before[0]
