"""Checkpoint policies: what they refuse, and the bounds of a budget."""

import math

import numpy as np
import pytest

from rewake.model.errors import UsageError
from rewake.model.stream_event import NO_TIME
from rewake.recovery.footprint_order import FootprintOrder
from rewake.recovery.instant.approach import Instant
from rewake.recovery.policies.cost_benefit import CostBenefit, CostBenefitPolicy
from rewake.recovery.policies.policy import Budget, Extent, OpenOnly
from rewake.recovery.policies.shots import Shots, ShotsPolicy
from rewake.recovery.policies.targets import Targets, TargetsPolicy


class Windows:
    """Stands for an operator with these windows open, in slots 0, 1, ..."""

    def __init__(self, opened_at):
        self.opened_at = np.array(opened_at, np.int64)
        self.open_parts = self.opened_at.size

    def ids_of(self, slots):
        return self.opened_at[slots]


def extent(opened_at, position, now_ms=0.0, clock=NO_TIME):
    """An extent in which each window has left its OPEN only."""
    windows = Windows(opened_at)
    order = FootprintOrder(windows.ids_of)
    order.opened(np.arange(windows.open_parts, dtype=np.int32), windows.opened_at)
    return Extent(order=order, operator=windows, position=position, clock=clock, now_ms=now_ms)


@pytest.mark.parametrize(
    ("interval", "period", "cost"), [(0, 1, 1), (2, 1, 1), (1, 1, 0), (-1, 1, 1), (1, 1, -1)]
)
def test_a_budget_that_cannot_be_kept_is_refused(interval, period, cost):
    """The interval lies within the period, and a CHECK costs something."""
    with pytest.raises(UsageError, match="cannot be kept"):
        TargetsPolicy(records=1, tuples=1, interval_ms=interval, period_ms=period, check_us=cost)


@pytest.mark.parametrize(("records", "tuples"), [(-1, 0), (0, -1)])
def test_negative_targets_are_refused(records, tuples):
    """By name and value."""
    with pytest.raises(UsageError, match=f"Q = {records}, U = {tuples}"):
        TargetsPolicy(records=records, tuples=tuples)


@pytest.mark.parametrize(("every", "slow", "at_once"), [(0, 0, 1), (1, -1, 1), (1, 0, 0)])
def test_shots_that_cannot_be_are_refused(every, slow, at_once):
    """Period and number are positive, the threshold is not negative."""
    with pytest.raises(UsageError, match="must be positive"):
        ShotsPolicy(every=every, slow_after=slow, windows=at_once)


COSTS = ("load_us", "replay_us", "check_us")


@pytest.mark.parametrize("costs", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_costs_are_positive(costs):
    """What costs nothing would be done for ever."""
    with pytest.raises(UsageError, match="costs and patience must be positive"):
        CostBenefitPolicy(**dict(zip(COSTS, costs, strict=True)), patience=1)
    with pytest.raises(UsageError, match="costs and patience must be positive"):
        CostBenefitPolicy(load_us=1, replay_us=1, check_us=1, patience=0)


@pytest.mark.parametrize("wrong", ["a", True, math.nan, math.inf, []])
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (Targets, "records"), (Targets, "tuples"), (Targets, "interval_ms"),
        (Targets, "period_ms"), (Targets, "check_us"), (Shots, "every"), (Shots, "slow_after"),
        (Shots, "windows"), (CostBenefit, "patience"), (CostBenefit, "load_us"),
        (CostBenefit, "period_ms"), (Instant, "every_tuples"), (Instant, "every_turns"),
        (Instant, "full_every"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_refused_by_its_name(settings, name, wrong):
    """In words; nothing can be reckoned with NaN, and no text is compared with a number."""
    needed = {Shots: {"every": 5}, CostBenefit: {"patience": 1.0}}.get(settings, {"tuples": 1})
    given = {} if settings is Instant else needed
    with pytest.raises(UsageError, match=rf"{settings.__name__}: {name} is a (whole )?number"):
        settings(**{**given, name: wrong})


def test_a_budget_is_full_again_in_each_period():
    """What is left of a period is not carried over."""
    budget = Budget(interval_ms=2, period_ms=10, check_us=500)
    assert budget.left(0) == 4
    budget.spend(3)
    assert budget.left(9.9) == 1
    assert budget.left(10) == 4


def test_a_budget_allows_at_least_one_check():
    """Or a costly CHECK would never be taken."""
    assert Budget(interval_ms=1, period_ms=10, check_us=10**9).left(0) == 1


def test_open_only_never_checks():
    """However long the extent."""
    assert OpenOnly().checks(extent([0, 1, 2], position=10**6)).size == 0


@pytest.mark.parametrize(
    "policy",
    [
        TargetsPolicy(records=0, tuples=0),
        ShotsPolicy(every=1, slow_after=0, windows=3),
        CostBenefitPolicy(load_us=1, replay_us=1, check_us=1, patience=9),
    ],
)
def test_without_open_windows_nothing_is_checked(policy):
    """Nothing is left to checkpoint."""
    assert policy.checks(extent([], position=100)).size == 0


def test_targets_take_the_oldest_windows_first():
    """As many as it takes, within the budget."""
    policy = TargetsPolicy(records=10, tuples=4, interval_ms=1, period_ms=1, check_us=1)
    # T = -1, 2, 7: at position 9 with U = 4, those before 5 are overdue.
    assert policy.checks(extent([0, 3, 8], position=9)).tolist() == [0, 1]


def test_shots_go_by_the_stream_s_clock_when_there_is_one():
    """Thesis 4.2: "in virtual -tuple timestamp- time"."""
    policy = ShotsPolicy(every=10, slow_after=5, windows=1)
    assert policy.checks(extent([0], position=0, clock=100, now_ms=0)).size == 0
    assert policy.checks(extent([0], position=1, clock=104, now_ms=10**6)).size == 0
    assert policy.checks(extent([0], position=2, clock=110, now_ms=0)).tolist() == [0]


def test_cost_benefit_waits_for_its_period():
    """The search itself costs something."""
    policy = CostBenefitPolicy(load_us=1, replay_us=1, check_us=1, patience=9, period_ms=10)
    assert policy.checks(extent([0], position=50, now_ms=0)).tolist() == [0]
    assert policy.checks(extent([0], position=50, now_ms=9)).size == 0
    assert policy.checks(extent([0], position=50, now_ms=10)).tolist() == [0]
