"""Power lost at every operation, with every fate of what was unsynced: no promise is broken.

Each script is run once to count its operations, then once per operation with the power cut there.
From each of those moments many disks are grown, one per seed, in which every unsynced operation was
kept, lost, torn, left as zeros or garbled, independently.  Every one of them must open, twice, and
hold all that was promised.  A failure names script, operation and seed: that is all it takes to
see it again.
"""

import time
from contextlib import suppress

import pytest
import strength
from lives import (
    GOING_BACK,
    SCRIPTS,
    STATES_PER_SCRIPT,
    append,
    check_recovery,
    count_operations,
    open_writer,
    power_lost_at,
    rotates,
)

from rewake.log.log import Log
from rewake.model.errors import NotALog
from rewake.sim.memory import Choices, Faults, PowerLost

ALL = [*SCRIPTS, *GOING_BACK]


@pytest.mark.parametrize(("script", "stripes"), ALL, ids=[f"{s.__name__}-{n}" for s, n in ALL])
def test_nothing_promised_is_lost_wherever_the_power_goes(script, stripes, tally):
    """For every operation and seed: all promised frames, no phantom, no gap, twice the same."""
    started = time.perf_counter()
    operations = count_operations(script, stripes)
    every = range(max(10, STATES_PER_SCRIPT // (operations + 1)))
    seeds = strength.sampled(every, 10, about=strength.LOG)
    for operation in range(1, operations + 2):
        stores, oracle = power_lost_at(script, stripes, operation)
        for seed in seeds:
            choose = Choices(operation << 32 | seed)
            try:
                check_recovery([store.crash(choose) for store in stores], oracle)
            except Exception as error:
                error.add_note(f"{script.__name__}, operation {operation}, seed {seed}")
                raise
    took = time.perf_counter() - started
    states = len(seeds) * (operations + 1)
    tally(
        f"power loss, {script.__name__} on {stripes}: {operations} operations, {states} states, "
        f"in {took:.1f} s"
    )


@pytest.mark.parametrize(("script", "stripes"), ALL, ids=[f"{s.__name__}-{n}" for s, n in ALL])
def test_power_lost_again_during_recovery_loses_nothing(script, stripes, tally):
    """Recovery itself dies at each of its operations, then recovers."""
    states = 0
    operations = count_operations(script, stripes)
    for operation in range(1, operations + 2, 3):
        stores, oracle = power_lost_at(script, stripes, operation)
        crashed = [store.crash(Choices(operation)) for store in stores]
        for again in strength.sampled(range(1, 100), 4, about=strength.LOG):
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
        for lost_at in strength.sampled(range(1, 60), 4, about=strength.LOG):
            stores, oracle = power_lost_at(rotates, stripes, killed_at)
            faults = Faults(crash_at=lost_at)
            for store in stores:
                store.faults = faults
                store.unlock()
            with suppress(PowerLost, NotALog):
                append(open_writer(stores, oracle), range(50, 53))
            for seed in range(8 * strength.SCALE):
                states += 1
                choose = Choices(killed_at << 40 | lost_at << 20 | seed)
                check_recovery([store.crash(choose) for store in stores], oracle)
            if faults.mutations < lost_at:
                break
    tally(f"kill, successor, power loss on {stripes}: {states} states")
