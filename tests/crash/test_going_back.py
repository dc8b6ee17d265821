"""Going back, cut short anywhere: a reader looks, zombies wake, and bugs that were planted show."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from lives import (
    GOING_BACK,
    SMALL,
    Stores,
    append,
    check_recovery,
    count_operations,
    create,
    go_back,
    goes_back,
    open_writer,
    power_lost_at,
)
from log_vocabulary import Oracle, number_of, read_numbers

from rewake.log.files import claims
from rewake.log.files.layout import MARK
from rewake.log.files.mark import SLOT_SIZE
from rewake.log.log import Log
from rewake.log.memory import Choices, Faults, MemoryStore, PowerLost
from rewake.log.reading import view
from rewake.log.reading.chain import UNSEALED, Seals
from rewake.model.errors import Fenced, RewakeError, TakenBack


def begun(stripes: int) -> tuple[Stores, Oracle]:
    """A log of 8 frames, whose writer is still there."""
    stores, oracle = [MemoryStore() for _ in range(stripes)], Oracle()
    create(stores)
    append(open_writer(stores, oracle), range(8))
    stores[0].unlock()
    return stores, oracle


@pytest.mark.parametrize("stripes", [1, 2])
@pytest.mark.parametrize("to", [0, 3, 7])
def test_what_a_reader_saw_taken_back_stays_so_after_power_loss(stripes, to, tally):
    """Killed at each operation of going back; a reader looks; then power is lost."""
    states = 0
    for killed_at in range(1, 100):
        stores, oracle = begun(stripes)
        oracle.goes_back(to)
        faults = Faults(crash_at=killed_at)
        for store in stores:
            store.faults = faults
        with suppress(PowerLost):
            Log.open_for_append(stores, back_to=to)
        for store in stores:
            store.faults = Faults()
        seen = read_numbers([store.attach() for store in stores])
        oracle.judge(seen)
        gone = all(sequence < to for sequence in seen)
        for seed in range(20):
            states += 1
            crashed = [store.crash(Choices(killed_at << 20 | seed)) for store in stores]
            check_recovery(crashed, oracle)
            after = read_numbers(crashed)
            assert not gone or all(sequence < to for sequence in after), "it came back"
        if faults.mutations < killed_at:
            assert gone
            break
    tally(f"reader after a kill, then power loss, on {stripes}: {states} states")


class Pause(Faults):
    """No fault: something else happens just before the n-th operation."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        super().__init__()
        self.at = at
        self.then = then
        self.seen = 0

    def meet(self, kind: str) -> Exception | None:  # noqa: ARG002 - the signature of its base
        self.seen += 1
        if self.seen == self.at:
            self.then()
        return None


def superseded_at(stripes: int, operation: int) -> bool:
    """One goes back and is paused there, while another opens and appends; False: it was over."""
    stores, oracle = begun(stripes)
    found: dict[int, int] = {}
    tail = Log.open_reader([store.attach() for store in stores]).tail()
    assert len(tail.poll()) == 8

    def succeed() -> None:
        successor = open_writer([store.attach() for store in stores], oracle, epoch=9)
        append(successor, range(50, 53))
        found.update(read_numbers(stores))

    pause = Pause(operation, succeed)
    for store in stores:
        store.faults = pause
    oracle.goes_back(3)
    with suppress(Fenced):
        Log.open_for_append([store.attach() for store in stores], epoch=5, back_to=3)
    if pause.seen < operation:
        return False
    after = read_numbers(stores)
    oracle.judge(after)
    assert after == found, "one that was superseded has changed the log"
    assert list(after.values())[-3:] == [50, 51, 52]
    if len(after) == 8 + 3:
        assert [number_of(frame) for frame in tail.poll()] == [50, 51, 52]
    else:
        with pytest.raises(TakenBack):
            tail.poll()
    return True


@pytest.mark.parametrize("stripes", [1, 2])
def test_one_that_is_superseded_while_it_goes_back_changes_nothing_more(stripes, tally):
    """A successor opens at each of its operations: what that one found stays as it is."""
    operation = 1
    while superseded_at(stripes, operation):
        operation += 1
    tally(f"superseded while going back, on {stripes}: at {operation - 1} operations")
    assert operation > 20


@pytest.mark.parametrize("stripes", [1, 2])
def test_a_late_mark_of_a_fenced_writer_does_not_bring_frames_back(stripes):
    """A reader follows; the zombie's mark comes over that of the one who went back."""
    stores, oracle = [MemoryStore() for _ in range(stripes)], Oracle()
    create(stores)
    zombie = open_writer(stores, oracle, epoch=1)
    append(zombie, range(5))
    tail = Log.open_reader([store.attach() for store in stores]).tail()
    assert len(tail.poll()) == 5
    zombie.try_turn(100)
    for _ in range(3):
        zombie.step()
    go_back([store.attach() for store in stores], oracle, 2, epoch=2)
    with suppress(Fenced):
        zombie.run()
    with pytest.raises(TakenBack, match="gone back to frame 2"):
        tail.poll()
    assert list(read_numbers(stores)) == [0, 1]


# --- planted bugs ----------------------------------------------------------------------------


def search(script, stripes: int) -> None:
    """A short search through crashes."""
    for operation in range(1, count_operations(script, stripes) + 2):
        stores, oracle = power_lost_at(script, stripes, operation)
        for seed in range(6):
            check_recovery([s.crash(Choices(operation << 32 | seed)) for s in stores], oracle)


def test_a_log_without_seals_is_found_out(monkeypatch):
    """Planted: an older mark counts as far as it says."""
    monkeypatch.setattr(Seals, "limit", lambda self, epoch: UNSEALED)  # noqa: ARG005
    with pytest.raises((AssertionError, RewakeError)):
        search(goes_back, 1)


def a_follower_is_told() -> bool:
    stores, oracle = begun(1)
    tail = Log.open_reader([store.attach() for store in stores]).tail()
    tail.poll()
    append(go_back(stores, oracle, 2), range(20, 23))
    try:
        tail.poll()
    except TakenBack:
        return True
    return False


def test_marks_chosen_by_sequence_are_found_out(monkeypatch):
    """Planted: the mark that says most speaks, not the newest."""
    assert a_follower_is_told()
    right = view.read_mark

    def furthest(store, **which):
        marks = []
        data = store.read(MARK, 0, 4 * SLOT_SIZE)
        for slot in range(4):
            alone = data[slot * SLOT_SIZE :][:SLOT_SIZE] * 4
            with suppress(RewakeError):
                marks.append(right(MemoryStore.holding({MARK: alone}), **which))
        return max(marks, key=lambda mark: mark.durable.sequence)

    monkeypatch.setattr(view, "read_mark", furthest)
    assert not a_follower_is_told()


def test_segments_published_by_one_that_is_superseded_are_found_out(monkeypatch):
    """Planted: nobody looks for the claim before a seal is published."""
    right = claims.publish
    monkeypatch.setattr(claims, "publish", lambda store, name, data, **_: right(store, name, data))
    with pytest.raises((AssertionError, RewakeError)):
        all(superseded_at(1, operation) for operation in range(1, 200))


def test_the_scripts_go_back():
    """What is enumerated takes something back that was promised."""
    assert SMALL.segment_bytes < 1000
    for script, stripes in GOING_BACK:
        stores, oracle = power_lost_at(script, stripes, 0)
        numbers = read_numbers(stores)
        oracle.judge(numbers)
        assert set(numbers.values()) != set(range(len(numbers)))
