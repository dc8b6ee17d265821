"""Power lost at every operation, with every fate of what was unsynced: no promise is broken.

Each script is run once to count its operations, then once per operation with the power cut there.
From each of those moments many disks are grown, one per seed, in which every unsynced operation was
kept, lost, torn, left as zeros or garbled, independently.  Every one of them must open, twice, and
hold all that was promised.  A failure names script, operation and seed: that is all it takes to
see it again.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from rewake.log.files.claims import owns
from rewake.log.files.layout import SegmentId, segment_id
from rewake.log.log import Log
from rewake.log.memory import Choices, Faults, MemoryStore, PowerLost
from rewake.log.retention import Needs, Retention, trim
from rewake.log.testing import Oracle, OracleWriter, read_numbers
from rewake.log.writing.pipeline import Limits, Mode
from rewake.model.errors import Fenced, NotALog

SCALE = float(os.environ.get("REWAKE_CRASH_SCALE", "1"))
STATES_PER_SCRIPT = int(9_000 * SCALE)
SMALL = Limits(segment_bytes=400, index_interval=200, batch_frames=3, sync_bytes=300)

Stores = list[MemoryStore]
Script = Callable[[Stores, Oracle], None]


def open_writer(stores: Stores, oracle: Oracle, mode: Mode = Mode.STABLE, **how) -> OracleWriter:
    return OracleWriter(stores, mode=mode, limits=SMALL, **how).watch(oracle)


def append(writer: OracleWriter, numbers: range) -> None:
    for number in numbers:
        writer.try_turn(number)
        writer.run()


def create(stores: Stores) -> None:
    Log.create(stores, "crash", log_id=0xC0FFEE)


# --- the scripts -----------------------------------------------------------------------------


def appends_one_by_one(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    append(open_writer(stores, oracle), range(4))


def appends_in_groups(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    writer = open_writer(stores, oracle)
    for number in range(7):
        writer.try_turn(number)
    writer.run()
    writer.close()


def rotates(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    append(open_writer(stores, oracle), range(8))


def rotates_delayed(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    writer = open_writer(stores, oracle, Mode.DELAYED)
    append(writer, range(8))
    writer.close()


def trims(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    writer = open_writer(stores, oracle)
    append(writer, range(9))
    oracle.trimmed = 5
    trim(stores, Needs(recovery=5), Retention(max_bytes=0))
    append(writer, range(9, 12))
    oracle.trimmed = 9
    trim(stores, Needs(recovery=9), Retention(max_bytes=0))


def closes_and_reopens(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    for epoch in range(3):
        writer = open_writer(stores, oracle)
        append(writer, range(epoch * 3, epoch * 3 + 3))
        writer.close()


def is_succeeded_without_closing(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    for epoch in range(4):
        writer = open_writer(stores, oracle, epoch=epoch)
        append(writer, range(epoch * 2, epoch * 2 + 2))


def leaves_a_zombie(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    zombie = open_writer(stores, oracle, epoch=1)
    append(zombie, range(3))
    zombie.try_turn(100)
    zombie.step()
    successor = open_writer([store.attach() for store in stores], oracle, epoch=2)
    append(successor, range(3, 5))
    with pytest.raises(Fenced):
        zombie.run()
    append(successor, range(5, 7))


SCRIPTS: list[tuple[Script, int]] = [
    (appends_one_by_one, 1),
    (appends_in_groups, 1),
    (appends_in_groups, 2),
    (rotates, 1),
    (rotates, 2),
    (rotates_delayed, 1),
    (trims, 1),
    (trims, 2),
    (closes_and_reopens, 1),
    (is_succeeded_without_closing, 2),
    (leaves_a_zombie, 1),
]


def power_lost_at(script: Script, stripes: int, operation: int) -> tuple[Stores, Oracle]:
    faults = Faults(crash_at=operation)
    stores = [MemoryStore(faults) for _ in range(stripes)]
    oracle = Oracle()
    with suppress(PowerLost):
        script(stores, oracle)
    return stores, oracle


def count_operations(script: Script, stripes: int) -> int:
    stores, _ = power_lost_at(script, stripes, 0)
    return stores[0].faults.mutations


def check_reader_alone(stores: Stores, oracle: Oracle) -> None:
    """Before anybody has recovered the log, a reader finds all that was promised."""
    segments = [s for store in stores for name in store.names() if (s := segment_id(name))]
    if all(owns(stores[0], segment.epoch) for segment in sorted(segments, key=by_epoch)[-1:]):
        oracle.judge(read_numbers(stores))


def by_epoch(segment: SegmentId) -> int:
    return segment.epoch


def check_recovery(stores: Stores, oracle: Oracle) -> None:
    with suppress(NotALog):
        check_reader_alone([store.killed() for store in stores], oracle)
    try:
        first = Log.open_for_append(stores)
    except NotALog:
        assert not oracle.promised  # the power went before the log was created
        return
    numbers = read_numbers(stores)
    oracle.judge(numbers)
    assert first.frontier.sequence == max(numbers, default=first.frontier.sequence - 1) + 1
    stores[0].unlock()
    second = Log.open_for_append(stores)
    assert second.frontier[:3] == first.frontier[:3]
    assert read_numbers(stores) == numbers


@pytest.mark.parametrize(
    ("script", "stripes"), SCRIPTS, ids=[f"{s.__name__}-{n}" for s, n in SCRIPTS]
)
def test_nothing_promised_is_lost_wherever_the_power_goes(script, stripes, tally):
    """For every operation and seed: all promised frames, no phantom, no gap, twice the same."""
    started = time.perf_counter()
    operations = count_operations(script, stripes)
    seeds = max(1, STATES_PER_SCRIPT // (operations + 1))
    for operation in range(1, operations + 2):
        stores, oracle = power_lost_at(script, stripes, operation)
        for seed in range(seeds):
            choose = Choices(operation << 32 | seed)
            try:
                check_recovery([store.crash(choose) for store in stores], oracle)
            except Exception as error:
                error.add_note(f"{script.__name__}, operation {operation}, seed {seed}")
                raise
    took = time.perf_counter() - started
    states = seeds * (operations + 1)
    tally(
        f"power loss, {script.__name__} on {stripes}: {operations} operations, {states} states, "
        f"in {took:.1f} s"
    )


@pytest.mark.parametrize(
    ("script", "stripes"), SCRIPTS, ids=[f"{s.__name__}-{n}" for s, n in SCRIPTS]
)
def test_power_lost_again_during_recovery_loses_nothing(script, stripes, tally):
    """Recovery itself dies at each of its operations, then recovers."""
    states = 0
    operations = count_operations(script, stripes)
    for operation in range(1, operations + 2, 3):
        stores, oracle = power_lost_at(script, stripes, operation)
        crashed = [store.crash(Choices(operation)) for store in stores]
        for again in range(1, 100):
            faults = Faults(crash_at=again)
            victims = [store.killed() for store in crashed]
            for victim in victims:
                victim.faults = faults
            with suppress(PowerLost, NotALog):
                Log.open_for_append(victims)
            states += 1
            check_recovery([v.crash(Choices(again)) for v in victims], oracle)
            if faults.mutations < again:
                break
    tally(f"power loss during recovery, {script.__name__} on {stripes}: {states} states")


@pytest.mark.parametrize("stripes", [1, 2])
def test_a_kill_then_a_successor_then_power_loss_loses_nothing(stripes, tally):
    """What a killed writer left unsynced is made durable before a successor builds on it."""
    states = 0
    operations = count_operations(rotates, stripes)
    for killed_at in range(1, operations + 2):
        for lost_at in range(1, 60):
            stores, oracle = power_lost_at(rotates, stripes, killed_at)
            faults = Faults(crash_at=lost_at)
            for store in stores:
                store.faults = faults
                store.unlock()
            with suppress(PowerLost, NotALog):
                append(open_writer(stores, oracle), range(50, 53))
            for seed in range(max(4, int(8 * SCALE))):
                states += 1
                choose = Choices(killed_at << 40 | lost_at << 20 | seed)
                check_recovery([store.crash(choose) for store in stores], oracle)
            if faults.mutations < lost_at:
                break
    tally(f"kill, successor, power loss on {stripes}: {states} states")
