"""The controller over hours of virtual time: streams that change, costs that drift."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from window_world import Sample, Weather, World, run_for

from rewake.recovery.policies.recover_within import RecoverWithinPolicy
from rewake.recovery.promises.rates import Costs, RecoveryRates

# The world's own costs are others: what is calibrated is a guess.
GUESS = Costs(load_us=2, replay_us=1, work_us=0.5, check_us=1, fixed_ms=80)
TARGET_MS = 1000.0


def calm(_seconds: float) -> Weather:
    return Weather(tuples=40_000, opens=400, life=400_000)


def skewed(_seconds: float) -> Weather:
    """Some windows live a hundred times as long as others."""
    return Weather(tuples=40_000, opens=200, life=400_000, skew=1.2)


def bursts(seconds: float) -> Weather:
    """Every minute, for two seconds, ten times the tuples and thirty times the windows."""
    if seconds % 60 < 2:
        return Weather(tuples=200_000, opens=6_000, life=300_000)
    return Weather(tuples=20_000, opens=200, life=300_000)


def slow(_seconds: float) -> Weather:
    """Windows that outlive any extent."""
    return Weather(tuples=40_000, opens=20, life=20_000_000)


def never_closing(seconds: float) -> Weather:
    """For minutes one window in fifty stays for ever; then all close, but those are there."""
    return Weather(tuples=40_000, opens=300, life=300_000, forever=0.02 if seconds < 300 else 0.0)


def changing(seconds: float) -> Weather:
    """Rates and keys go up and down with the hour, twentyfold."""
    up = 0.5 - 0.5 * np.cos(seconds / 1200 * 2 * np.pi)
    return Weather(tuples=5_000 + 95_000 * up, opens=50 + 950 * up, life=400_000)


def faster(seconds: float) -> Weather:
    """After a minute four times the tuples, from one step to the next."""
    return Weather(tuples=20_000 if seconds < 60 else 80_000, opens=40, life=20_000_000)


def more_keys(seconds: float) -> Weather:
    """After a minute ten times the keys, from one step to the next."""
    return Weather(tuples=40_000, opens=20 if seconds < 60 else 200, life=20_000_000)


def policy(budget: float = 0.05) -> RecoverWithinPolicy:
    return RecoverWithinPolicy(TARGET_MS, RecoveryRates(GUESS), budget=budget)


def late_share(seen: list[Sample]) -> float:
    return float(np.mean([each.true > TARGET_MS for each in seen]))


WEATHERS = [calm, skewed, bursts, slow, never_closing, changing]


@pytest.mark.slow
@pytest.mark.parametrize("weather", WEATHERS)
def test_the_prediction_stays_under_a_target_that_can_be_met(
    weather: Callable[[float], Weather],
) -> None:
    """Ten minutes of each: what is predicted, and what it would really take."""
    seen = run_for(World(policy(), 1), 1 / 6, weather)
    assert max(each.predicted for each in seen) <= TARGET_MS
    assert max(each.at_worst for each in seen) <= TARGET_MS
    assert not any(each.advice for each in seen)
    assert late_share(seen) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("weather", [calm, skewed, slow])
def test_checks_come_evenly(weather: Callable[[float], Weather]) -> None:
    """No stretch of ten seconds has many times the CHECKs of another: nothing oscillates."""
    seen = run_for(World(policy(), 2), 0.1, weather, crash_every_s=1e9)
    totals = np.array([each.checks for each in seen])[len(seen) // 3 :: 100]
    by_stretch = np.diff(totals)
    assert by_stretch.max() <= 2.0 * max(by_stretch.mean(), 100)


@pytest.mark.slow
@pytest.mark.parametrize("weather", [faster, more_keys, changing, never_closing])
def test_a_change_is_followed_without_a_swing(weather: Callable[[float], Weather]) -> None:
    """The cost stays just below the target, neither above it nor far below, and CHECKs follow."""
    seen = run_for(World(policy(), 6), 0.06, weather, crash_every_s=1e9)
    later = seen[len(seen) // 2 :]
    costs = np.array([each.at_worst for each in later])
    assert 0.75 * TARGET_MS < costs.min() < costs.max() <= TARGET_MS
    by_stretch = np.diff([each.checks for each in later[::50]])
    assert by_stretch.min() > 0
    assert np.abs(np.diff(by_stretch)).max() <= 0.25 * by_stretch.mean() + 50


@pytest.mark.slow
def test_predictions_come_near_what_is_true() -> None:
    """The guess was twice too high; after some recoveries it is not."""
    seen = run_for(World(policy(), 3), 0.1, skewed, crash_every_s=30)
    later = seen[len(seen) // 2 :]
    off = [abs(each.predicted - each.true) / each.true for each in later]
    assert np.median(off) < 0.15


@pytest.mark.slow
def test_costs_that_rise_are_followed() -> None:
    """A machine that becomes half as fast: late for a while, then within the target again."""

    def tire(world: World) -> None:
        if world.now_ms > 200e3:
            world.load_us, world.replay_us = 2.0, 1.0

    seen = run_for(World(policy(), 4), 0.15, skewed, crash_every_s=30, before=tire)
    assert late_share(seen[-len(seen) // 4 :]) <= 0.01
    assert seen[-1].checks > 0


def test_a_target_that_becomes_impossible_is_told_and_not_chased() -> None:
    """Very many windows stay open: the advice says so, and CHECKs stay within the budget."""
    limited = policy(budget=0.01)
    world = World(limited, 5)
    seen = run_for(world, 0.01, lambda _s: Weather(100_000, 12_000, 1e12))
    assert "cannot be met" in seen[-1].advice
    first_told = next(each for each in seen if each.advice)
    assert first_told.best > TARGET_MS * 0.9 or first_told.at_worst > TARGET_MS
    spent_us = seen[-1].checks * limited.rates.check_us
    assert spent_us <= 0.01 * (seen[-1].now_ms + 100) * 1e3


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_day_of_every_weather(seed: int) -> None:
    """They follow one another at random for twelve hours."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(WEATHERS) * 6) % len(WEATHERS)

    def weather(seconds: float) -> Weather:
        return WEATHERS[order[int(seconds // 1200) % order.size]](seconds)

    seen = run_for(World(policy(), seed), 12, weather)
    assert max(each.predicted for each in seen) <= TARGET_MS
    assert late_share(seen) <= 0.01
