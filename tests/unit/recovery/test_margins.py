"""How much longer than expected a recovery may take, learnt from how far predictions were off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rewake.model.errors import UsageError
from rewake.recovery.promises.margins import LEAST, Margin
from rewake.recovery.promises.rates import Costs, RecoveryRates

Noise = Callable[[np.random.Generator], float]


def steady(random: np.random.Generator) -> float:
    return float(random.gamma(200, 1 / 200))


def noisy(random: np.random.Generator) -> float:
    return float(random.gamma(10, 1 / 10))


def held_up_now_and_then(random: np.random.Generator) -> float:
    """One recovery in thirty takes two and a half times as long."""
    return 2.5 if random.random() < 1 / 30 else steady(random)


def exceeded(noise: Noise, seed: int) -> tuple[float, float]:
    """Which share of recoveries took longer than promised, and what was promised on average."""
    random = np.random.default_rng(seed)
    margin, late, factors = Margin(1.5), 0, []
    for _ in range(5000):
        took = noise(random)
        factors.append(margin.factor)
        late += took > margin.factor
        margin.observe(1.0, took)
    return late / 5000, float(np.mean(factors))


@pytest.mark.parametrize("noise", [steady, noisy, held_up_now_and_then])
def test_what_is_promised_is_hardly_ever_exceeded(noise: Noise) -> None:
    """Whatever the noise: the margin is a quantile of it, not a guess at its shape."""
    for seed in range(3):
        late, _ = exceeded(noise, seed)
        assert late <= 0.02


def test_who_predicts_well_promises_little_more_than_it_expects() -> None:
    """CHECKs are not spent on what never happens."""
    assert exceeded(steady, 1)[1] < 1.3 < exceeded(noisy, 1)[1]


def test_what_nobody_has_seen_yet_is_met_with_caution() -> None:
    """The first recovery has a margin, and keeps it until many have shown that less is enough."""
    margin = Margin(1.8)
    assert margin.factor == 1.8
    for _ in range(10):
        margin.observe(100, 101)
    assert margin.factor == 1.8
    for _ in range(100):
        margin.observe(100, 101)
    assert margin.factor == LEAST


def test_one_bad_recovery_is_believed_at_once_and_forgotten_in_the_end() -> None:
    """The next may be as bad; a freak counts no more than four times what was expected."""
    margin = Margin(1.2)
    margin.observe(10, 25)
    assert margin.factor == 2.5
    margin.observe(10, 10_000)
    assert margin.factor == 4
    for _ in range(100):
        margin.observe(10, 9)
    assert margin.factor == LEAST


def test_a_margin_outlives_its_process() -> None:
    """What was seen goes on; what is no margin is refused."""
    margin, later = Margin(1.2), Margin(1.2)
    margin.observe(10, 25)
    later.go_on(margin.kept())
    assert later.factor == margin.factor
    for broken in ([], [float("inf")], [-1.0]):
        with pytest.raises(UsageError, match="no margin"):
            later.go_on(broken)
    assert later.factor == margin.factor


def test_each_part_has_a_margin_of_its_own() -> None:
    """A slow disk makes loading doubtful, and nothing else."""
    rates = RecoveryRates(Costs(load_us=1, replay_us=1, work_us=1))
    before = (rates.replay_us, rates.fixed_ms)
    rates.recovered(
        records=100_000, load_us=300_000, tuples=100_000, replay_us=100_000, fixed_ms=100
    )
    assert rates.costs.load_margin == pytest.approx(3)
    assert (rates.replay_us, rates.fixed_ms) == pytest.approx(before)
