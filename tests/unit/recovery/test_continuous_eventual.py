"""Settings of continuous eventual checkpointing: which policy they choose."""

import pytest

from rewake.model.errors import UsageError
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.policies.cost_benefit import CostBenefit
from rewake.recovery.policies.policy import OpenOnly
from rewake.recovery.policies.shots import Shots
from rewake.recovery.policies.targets import Targets


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, OpenOnly),
        ({"records": 10}, Targets),
        ({"tuples": 10}, Targets),
        ({"shot_every": 5}, Shots),
        ({"patience": 1}, CostBenefit),
    ],
)
def test_settings_choose_the_policy(settings, policy):
    """None leaves no CHECKs at all."""
    assert type(ContinuousEventual(**settings).policy()) is policy


def test_every_fragment_gets_a_policy_of_its_own():
    """A policy has a budget, which is not to be shared."""
    approach = ContinuousEventual(records=10)
    assert approach.policy() is not approach.policy()


@pytest.mark.parametrize(
    "settings",
    [
        {"records": 10, "patience": 1},
        {"records": -1},
        {"tuples": 5, "interval_ms": 20, "period_ms": 10},
        {"shot_every": 0},
        {"patience": -1},
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(settings):
    """Not when the node starts."""
    with pytest.raises(UsageError):
        ContinuousEventual(**settings)
