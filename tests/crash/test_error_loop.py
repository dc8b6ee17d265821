"""The N-th operation fails, for every N until none is left to fail.

Whatever fails, and whether it fails once or from then on: the writer stops or stalls with a typed
error, nothing that was promised is lost, and the log opens again.  A failed sync is for good, and
what it was to make durable is not counted on.
"""

import itertools
from contextlib import suppress

import pytest
from log_vocabulary import Oracle, OracleWriter, read_numbers

from rewake.log.log import Log
from rewake.log.memory import Choices, Fate, Faults, MemoryStore
from rewake.log.retention import Needs, Retention, trim
from rewake.log.writing.pipeline import Limits, Mode, State
from rewake.model.errors import (
    LogExists,
    NotALog,
    OperatingFault,
    StorageFault,
    StorageFull,
    WriterFailed,
)

SMALL = Limits(segment_bytes=400, index_interval=200, batch_frames=3, sync_bytes=300)
EVERYTHING = (
    "create", "write", "read", "size", "sync", "sync_directory", "names", "delete", "rename",
    "truncate",
)  # fmt: skip

KINDS = {
    "EIO on anything": (StorageFault("EIO"), EVERYTHING, 0.0),
    "EIO half-way through a write": (StorageFault("EIO"), ("write",), 0.5),
    "no room for a write": (StorageFull("ENOSPC"), ("write", "create"), 0.0),
    "no room half-way through a write": (StorageFull("ENOSPC"), ("write",), 0.5),
    "a failed sync": (StorageFault("EIO"), ("sync", "sync_directory"), 0.0),
    "a sync without room": (StorageFull("ENOSPC"), ("sync",), 0.0),
}


def append_with_patience(writer: OracleWriter, number: int) -> None:
    writer.try_turn(number)
    writer.run()
    for _ in range(3):
        if writer.pipeline.state is State.STALLED:
            writer.retry()
    if writer.pipeline.state is State.STALLED:
        raise StorageFull("still no room")


def life_of_a_log(stores: list[MemoryStore], oracle: Oracle, mode: Mode) -> None:
    """Create, append, rotate, trim, close, succeed, append."""
    Log.create(stores, "loop", log_id=0xF00D)
    writer = OracleWriter(stores, mode=mode, limits=SMALL).watch(oracle)
    for number in range(6):
        append_with_patience(writer, number)
    oracle.trimmed = 4
    trim(stores, Needs(recovery=4), Retention(max_bytes=0))
    append_with_patience(writer, 6)
    writer.close()
    writer = OracleWriter(stores, mode=mode, limits=SMALL).watch(oracle)
    append_with_patience(writer, 7)
    writer.close()


def live_again(stores: list[MemoryStore], oracle: Oracle) -> None:
    """The fault is gone: open what there is, or create it, and go on."""
    for store in stores:
        store.faults = Faults()
        store.unlock()
    with suppress(LogExists):
        Log.create(stores, "loop", log_id=0xF00D)
    read_numbers(stores)  # a reader may see less than the next writer will find, but no damage
    writer = OracleWriter(stores, limits=SMALL).watch(oracle)
    oracle.judge(read_numbers(stores))
    writer.try_turn(90)
    writer.run()
    oracle.judge(read_numbers(stores))


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("stripes", "mode"), [(1, Mode.STABLE), (2, Mode.STABLE), (1, Mode.DELAYED)]
)
def test_whatever_fails_nothing_promised_is_lost(stripes, mode, kind, persistent, tally):
    """Every N: a typed error or none at all; then all promises hold, and the log goes on."""
    error, only, short_write = KINDS[kind]
    for n in itertools.count(1):
        faults = Faults(
            fail_at=n, error=error, only=only, persistent=persistent, short_write=short_write
        )
        stores = [MemoryStore(faults) for _ in range(stripes)]
        oracle = Oracle()
        try:
            life_of_a_log(stores, oracle, mode)
        except OperatingFault:
            assert faults.fired
        if not faults.fired:
            break
        recover_all([store.crash(always_lost) for store in stores], oracle)
        live_again([store.killed() for store in stores], oracle)
    tally(f"error loop, {kind}, {'persistent' if persistent else 'once'}: {n - 1} operations")
    assert n > 3


def always_lost(options: int) -> int:
    """The worst power loss: nothing unsynced survives."""
    return list(Fate).index(Fate.LOST) if options == len(Fate) else 0


def recover_all(stores: list[MemoryStore], oracle: Oracle) -> None:
    try:
        Log.open_for_append(stores)
    except NotALog:
        assert not oracle.promised
        return
    oracle.judge(read_numbers(stores))


@pytest.mark.parametrize("error", [StorageFault("EIO"), StorageFull("ENOSPC")], ids=str)
def test_a_failed_sync_stops_the_writer_for_good(error):
    """After a failed sync nothing completes any more, although the next sync would succeed."""
    store = MemoryStore()
    Log.create(store, "sync", log_id=1)
    oracle = Oracle()
    writer = OracleWriter(store).watch(oracle)
    writer.try_turn(0)
    writer.run()
    store.faults = Faults(fail_at=1, error=error, only=("sync",))
    writer.try_turn(1)
    with pytest.raises(WriterFailed):
        writer.run()
    assert writer.pipeline.state is State.FAILED
    with pytest.raises(WriterFailed):
        writer.try_turn(2)
    assert set(oracle.promised) == {0}
    recover_all([store.crash(Choices(3))], oracle)


def test_a_full_disk_stalls_and_resumes_without_loss():
    """The same bytes go to the same offset when there is room again."""
    store = MemoryStore()
    Log.create(store, "full", log_id=1)
    oracle = Oracle()
    writer = OracleWriter(store, limits=SMALL).watch(oracle)
    full = Faults(fail_at=1, error=StorageFull("x"), only=("write", "create"), persistent=True)
    for number in range(20):
        store.faults = full if number % 2 else Faults()
        writer.try_turn(number)
        writer.run()
        if number % 2:
            assert writer.pipeline.state is State.STALLED
            writer.retry()
            assert writer.pipeline.state is State.STALLED
            store.faults = Faults()
            writer.retry()
        assert writer.pipeline.state is State.RUNNING
        writer.pipeline.check_invariants()
    assert len(oracle.promised) == 20
    oracle.judge(read_numbers([store]))
