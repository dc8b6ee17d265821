"""A writer is paused anywhere, succeeded, and then goes on: not one of its bytes is read.

The zombie is paused after each of its commands, and wakes before each operation of its successor's
opening; both ways it then carries out all it had left, and more.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest
import strength
from log_vocabulary import Oracle, OracleWriter, read_numbers

from rewake.log.log import Log
from rewake.log.verify import verify
from rewake.log.writing.pipeline import Limits, Mode, State
from rewake.model.errors import Fenced
from rewake.sim.memory import Faults, MemoryStore, PowerLost

SMALL = Limits(segment_bytes=400, index_interval=200, batch_frames=3, sync_bytes=300)


class Wake(Faults):
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


def zombie_after(stores: list[MemoryStore], oracle: Oracle, mode: Mode, steps: int) -> OracleWriter:
    """A writer in the middle of its work, paused after that many commands."""
    zombie = OracleWriter(stores, epoch=1, mode=mode, limits=SMALL).watch(oracle)
    for number in range(8):
        zombie.try_turn(number)
    for _ in range(steps):
        zombie.step()
    return zombie


def goes_on(zombie: OracleWriter) -> None:
    """Carry out all that is left, then try to append more."""
    for number in (100, 101):
        with suppress(Fenced):
            zombie.run()
        with suppress(Fenced):
            zombie.try_turn(number)
    with suppress(Fenced):
        zombie.run()


def new_log(stripes: int) -> list[MemoryStore]:
    stores = [MemoryStore() for _ in range(stripes)]
    Log.create(stores, "zombie", log_id=0xDEAD)
    return stores


def steps_in_all(stripes: int, mode: Mode) -> int:
    zombie = zombie_after(new_log(stripes), Oracle(), mode, 0)
    return sum(1 for _ in iter(zombie.step, None))


def pauses_behind_its_second_frame(stripes: int, mode: Mode) -> range:
    """After how many commands it has two frames or more, which it never loses again."""
    pauses = range(steps_in_all(stripes, mode) + 1)
    first = next(
        steps
        for steps in pauses
        if zombie_after(new_log(stripes), Oracle(), mode, steps).completed >= 2
    )
    return range(first, pauses.stop)


CONFIGURATIONS = [(1, Mode.STABLE), (2, Mode.STABLE), (3, Mode.STABLE), (1, Mode.DELAYED)]


@pytest.mark.parametrize(("stripes", "mode"), CONFIGURATIONS)
def test_a_zombie_that_wakes_after_its_succession_is_fenced(stripes, mode, tally):
    """Paused after any command, it completes nothing more, and none of its later bytes is read."""
    steps = steps_in_all(stripes, mode)
    for paused_after in range(steps + 1):
        stores, oracle = new_log(stripes), Oracle()
        zombie = zombie_after(stores, oracle, mode, paused_after)
        confirmed = zombie.pipeline.completed.sequence  # it looked before there was a successor
        successor = OracleWriter([s.attach() for s in stores], epoch=2, limits=SMALL).watch(oracle)
        inherited = read_numbers(stores)
        assert len(inherited) >= confirmed
        for number in range(50, 53):
            successor.try_turn(number)
        successor.run()
        goes_on(zombie)
        assert zombie.pipeline.state is State.FENCED
        assert zombie.completed <= confirmed
        for number in range(53, 56):
            successor.try_turn(number)
        successor.run()
        after = read_numbers(stores)
        oracle.judge(after)
        assert list(after.values()) == [*inherited.values(), *range(50, 56)]
    tally(f"zombie on {stripes}, {mode.value}: paused after each of {steps} commands")


@pytest.mark.parametrize(("stripes", "mode"), CONFIGURATIONS)
def test_a_zombie_that_wakes_during_its_succession_is_fenced(stripes, mode, tally):
    """It wakes before any operation of the successor's opening, having been paused anywhere."""
    trials = 0
    pauses = range(0, steps_in_all(stripes, mode) + 1, 2)
    for paused_after in strength.sampled(pauses, 4, about=strength.LOG):
        for wakes_at in itertools.count(1):
            stores, oracle = new_log(stripes), Oracle()
            zombie = zombie_after(stores, oracle, mode, paused_after)
            wake = Wake(wakes_at, lambda zombie=zombie: goes_on(zombie))
            for store in stores:
                store.faults = wake
            handles = [store.attach() for store in stores]
            successor = OracleWriter(handles, epoch=2, limits=SMALL).watch(oracle)
            woken = wake.seen >= wakes_at
            if not woken:
                break
            trials += 1
            wake.at = 0
            for number in range(50, 53):
                successor.try_turn(number)
            successor.run()
            goes_on(zombie)
            assert zombie.pipeline.state is State.FENCED
            numbers = read_numbers(stores)
            oracle.judge(numbers)
            assert list(numbers.values())[-3:] == [50, 51, 52]
    tally(f"zombie on {stripes}, {mode.value}: woken during succession, {trials} trials")


@pytest.mark.parametrize(("stripes", "mode"), CONFIGURATIONS)
def test_a_zombie_that_wakes_while_its_successor_goes_back_brings_nothing_back(
    stripes, mode, tally
):
    """Paused anywhere behind its second frame, woken before any operation of the successor's."""
    trials = 0
    pauses = pauses_behind_its_second_frame(stripes, mode)
    for paused_after in strength.sampled(pauses, 4, about=strength.LOG):
        for wakes_at in itertools.count(1):
            stores, oracle = new_log(stripes), Oracle()
            zombie = zombie_after(stores, oracle, mode, paused_after)
            reader = Log.open_reader([store.attach() for store in stores])
            tail = reader.tail()
            tail.poll(max_frames=2)
            wake = Wake(wakes_at, lambda zombie=zombie: goes_on(zombie))
            for store in stores:
                store.faults = wake
            oracle.goes_back(2)
            handles = [store.attach() for store in stores]
            successor = OracleWriter(handles, epoch=2, limits=SMALL, back_to=2).watch(oracle)
            if wake.seen < wakes_at:
                break
            trials += 1
            wake.at = 0
            for number in range(50, 53):
                successor.try_turn(number)
            successor.run()
            goes_on(zombie)
            assert zombie.pipeline.state is State.FENCED
            assert list(read_numbers(stores).values()) == [0, 1, 50, 51, 52]
            reader.refresh()
            assert [frame.t_end for frame in tail.poll()] == [50, 51, 52]
            assert verify(stores).intact
    assert trials > (20 if strength.whole(*strength.LOG) else 2)
    tally(f"zombie on {stripes}, {mode.value}: woken while one goes back, {trials} trials")


def test_a_seal_in_one_stripe_holds_for_all():
    """A successor dies having sealed one stripe; what the zombie then adds to another is dead."""
    stores = new_log(2)
    zombie = OracleWriter(stores, epoch=1).watch(Oracle())
    for number in range(3):
        zombie.try_turn(number)
        zombie.run()
    zombie.try_turn(100)  # its write to the second stripe is still to come
    handles = [store.attach() for store in stores]
    stores[1].faults = Faults(crash_at=2)  # it settles the old segment, then wants to begin its own
    with pytest.raises(PowerLost):
        Log.open_for_append(handles, epoch=2)
    stores[1].faults = Faults()
    zombie.step()
    with pytest.raises(Fenced):
        zombie.run()
    assert Log.open_for_append(handles, epoch=3).frontier.sequence == 3
    assert list(read_numbers(stores).values()) == [0, 1, 2]
