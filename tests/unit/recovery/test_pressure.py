"""A machine that gives less than usual: noticed, reckoned with, and told before a crash."""

from __future__ import annotations

import pytest
from window_world import Weather, World, run_for

from rewake.recovery.policies.recover_within import RecoverWithinPolicy
from rewake.recovery.promises.pressure import Counted, Pressure
from rewake.recovery.promises.rates import Costs, RecoveryRates


class Machine:
    """Two processors, looked at ten times a second; the test says what is taken and wanted."""

    def __init__(self) -> None:
        self.pressure = Pressure()
        self._counted = Counted(0.0)

    def goes_on(
        self,
        seconds: float,
        *,
        taken: float = 0.0,
        threads: float = 0.5,
        read_again: float = 0.0,
        pressure: Pressure | None = None,
    ) -> None:
        """For so long: shares of time taken by the host, threads per processor, MB/s read again."""
        for _ in range(int(seconds * 10)):
            last = self._counted
            self._counted = Counted(
                last.at_ms + 100,
                last.ticks + 1000,
                last.taken + int(taken * 1000),
                last.read_again_mb + read_again / 10,
                threads,
            )
            (pressure or self.pressure).look(self._counted)


def test_a_machine_as_it_always_is_has_no_pressure() -> None:
    """Also one that is always busy: what recoveries cost there was learnt there."""
    for threads in (0.0, 0.5, 4.0):
        machine = Machine()
        machine.goes_on(60, taken=0.05, threads=threads)
        assert machine.pressure.factor == 1
        assert machine.pressure.words == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"taken": 0.4}, "host takes 40%"),
        ({"threads": 2.0}, "2.0 threads want each processor"),
        ({"read_again": 200.0}, "200 MB/s of files are read again"),
    ],
)
def test_what_presses_is_noticed_within_seconds_and_named(
    change: dict[str, float], words: str
) -> None:
    """Each of them makes a recovery longer than any that was seen."""
    machine = Machine()
    machine.goes_on(60)
    machine.goes_on(6, **change)
    assert machine.pressure.factor >= 1.4
    assert words in machine.pressure.words


def test_what_comes_and_goes_from_the_beginning_is_usual() -> None:
    """A neighbour with half of a processor was there before we were: whichever look was first."""
    machine = Machine()
    machine.goes_on(0.2, threads=1.0)
    for _ in range(50):
        machine.goes_on(0.1, threads=2.0)
        machine.goes_on(0.1, threads=1.0)
    assert machine.pressure.factor == 1


def test_pressure_that_is_gone_is_forgotten() -> None:
    """Seconds later all is as before."""
    machine = Machine()
    machine.goes_on(60)
    machine.goes_on(5, taken=0.5)
    machine.goes_on(10)
    assert machine.pressure.factor == 1


def test_a_system_that_tells_nothing_presses_nobody() -> None:
    """Zeros are no news; nor is a clock that stands still."""
    pressure = Pressure()
    for at in (0, 100, 100, 200):
        pressure.look(Counted(float(at)))
    assert pressure.factor == 1


def test_what_a_crash_would_cost_is_told_while_the_machine_is_under_pressure() -> None:
    """The outlook says it before it matters, with what presses; afterwards it says nothing."""
    costs = Costs(load_us=1, replay_us=0.5, work_us=0.5, check_us=1, fixed_ms=100)
    policy = RecoverWithinPolicy(300, RecoveryRates(costs))
    world, machine = World(policy, seed=1), Machine()
    pressure = policy.rates.pressure
    machine.goes_on(60, pressure=pressure)
    calm = run_for(world, 0.005, lambda _seconds: Weather(40_000, 100, 50_000))
    assert not any(each.advice for each in calm)
    machine.goes_on(6, taken=0.6, pressure=pressure)
    told = world.step(Weather(40_000, 100, 50_000))
    assert "under pressure (its host takes 60% of its time)" in told.advice
    assert told.at_worst > 300
    machine.goes_on(10, pressure=pressure)
    assert world.step(Weather(40_000, 100, 50_000)).advice == ""
