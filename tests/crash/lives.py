"""Lives of a log, scripted, and what must be found when one is cut short by power loss."""

from collections.abc import Callable
from contextlib import suppress

import pytest
import strength
from log_vocabulary import Oracle, OracleWriter, read_numbers

from rewake.log.files.claims import owns
from rewake.log.files.layout import SegmentId, segment_id
from rewake.log.log import Log
from rewake.log.retention import Retention, trim
from rewake.log.writing.pipeline import Limits, Mode
from rewake.model.errors import Fenced, NotALog
from rewake.sim.memory import Faults, MemoryStore, PowerLost

STATES_PER_SCRIPT = 9_000 * strength.SCALE
SMALL = Limits(segment_bytes=400, index_interval=200, batch_frames=3, sync_bytes=300)

Stores = list[MemoryStore]
Script = Callable[[Stores, Oracle], None]


def open_writer(stores: Stores, oracle: Oracle, mode: Mode = Mode.STABLE, **how) -> OracleWriter:
    return OracleWriter(stores, mode=mode, limits=SMALL, **how).watch(oracle)


def append(writer: OracleWriter, numbers: range) -> None:
    for number in numbers:
        writer.try_turn(number)
        writer.run()


def go_back(
    stores: Stores, oracle: Oracle, to: int, mode: Mode = Mode.STABLE, *, epoch: int | None = None
) -> OracleWriter:
    """A successor that takes back the frames from `to` on."""
    stores[0].unlock()
    oracle.goes_back(to)
    return open_writer(stores, oracle, mode, back_to=to, epoch=epoch)


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
    trim(stores, 5, Retention(max_bytes=0))
    append(writer, range(9, 12))
    oracle.trimmed = 9
    trim(stores, 9, Retention(max_bytes=0))


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


def goes_back(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    append(open_writer(stores, oracle), range(8))
    writer = go_back(stores, oracle, 5)
    append(writer, range(20, 23))
    writer.close()


def goes_back_delayed(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    append(open_writer(stores, oracle, Mode.DELAYED), range(7))
    append(go_back(stores, oracle, 6, Mode.DELAYED), range(20, 23))
    append(go_back(stores, oracle, 3, Mode.DELAYED), range(30, 32))


def goes_back_again_and_again(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    append(open_writer(stores, oracle), range(7))
    append(go_back(stores, oracle, 4), range(20, 24))
    append(go_back(stores, oracle, 6), range(30, 32))  # within what the second one wrote
    append(go_back(stores, oracle, 4), range(40, 42))  # to where the second one began
    append(go_back(stores, oracle, 2), range(50, 52))
    append(go_back(stores, oracle, 4), range(60, 61))  # its end: nothing is taken back
    append(go_back(stores, oracle, 0), range(70, 72))


def goes_back_to_the_floor(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    append(open_writer(stores, oracle), range(14))
    oracle.trimmed = 8
    floor = trim(stores, 8, Retention(max_bytes=0)).floor
    assert 0 < floor <= 8
    writer = go_back(stores, oracle, floor)
    append(writer, range(20, 26))
    trim(stores, floor, Retention(max_bytes=0))  # what was taken back goes
    oracle.trimmed = floor + 4
    trim(stores, floor + 4, Retention(max_bytes=0))
    append(writer, range(26, 27))


def goes_back_behind_a_zombie(stores: Stores, oracle: Oracle) -> None:
    create(stores)
    zombie = open_writer(stores, oracle, epoch=1)
    append(zombie, range(5))
    zombie.try_turn(100)
    for _ in range(3):  # write, sync, confirm: its mark is still to come
        zombie.step()
    handles = [store.attach() for store in stores]
    successor = go_back(handles, oracle, 2, epoch=2)
    with suppress(Fenced):
        zombie.run()
    append(successor, range(20, 22))
    third = open_writer(handles, oracle, epoch=3)
    append(third, range(22, 24))


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
GOING_BACK: list[tuple[Script, int]] = [
    (goes_back, 1),
    (goes_back, 2),
    (goes_back_delayed, 1),
    (goes_back_again_and_again, 1),
    (goes_back_again_and_again, 2),
    (goes_back_to_the_floor, 1),
    (goes_back_to_the_floor, 2),
    (goes_back_behind_a_zombie, 1),
    (goes_back_behind_a_zombie, 2),
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


def check_reader_alone(stores: Stores, oracle: Oracle) -> dict[int, int]:
    """Before anybody has recovered the log, a reader finds all that was promised."""
    segments = [s for store in stores for name in store.names() if (s := segment_id(name))]
    if all(owns(stores[0], segment.epoch) for segment in sorted(segments, key=by_epoch)[-1:]):
        numbers = read_numbers(stores)
        oracle.judge(numbers)
        return numbers
    return {}


def by_epoch(segment: SegmentId) -> int:
    return segment.epoch


def check_recovery(stores: Stores, oracle: Oracle) -> None:
    alone: dict[int, int] = {}
    with suppress(NotALog):
        alone = check_reader_alone([store.killed() for store in stores], oracle)
    try:
        first = Log.open_for_append(stores)
    except NotALog:
        assert not oracle.promised  # the power went before the log was created
        return
    numbers = read_numbers(stores)
    oracle.judge(numbers)
    assert alone.items() <= numbers.items(), "a reader was shown what is not there"
    back = oracle.going_back
    if back is not None and alone and max(alone) < back:
        assert max(numbers) < back, "what a reader saw taken back is there again"
    assert first.frontier.sequence == max(numbers, default=first.frontier.sequence - 1) + 1
    stores[0].unlock()
    second = Log.open_for_append(stores)
    assert second.frontier[:3] == first.frontier[:3]
    assert read_numbers(stores) == numbers
