"""Settings of continuous eventual checkpointing: which policy they choose."""

import pytest

from rewake.model.errors import UsageError
from rewake.recovery.approach import approach_named
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.policies.cost_benefit import CostBenefitPolicy
from rewake.recovery.policies.policy import OpenOnly
from rewake.recovery.policies.recover_within import RecoverWithin
from rewake.recovery.policies.shots import Shots, ShotsPolicy
from rewake.recovery.policies.targets import Targets, TargetsPolicy


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, OpenOnly),
        ({"records": 10}, TargetsPolicy),
        ({"tuples": 10}, TargetsPolicy),
        ({"shot_every": 5}, ShotsPolicy),
        ({"patience": 1}, CostBenefitPolicy),
    ],
)
def test_settings_choose_the_policy(settings, policy):
    """None leaves no CHECKs at all."""
    assert type(ContinuousEventual.from_settings(**settings).begin_policy()) is policy


def test_a_policy_is_given_as_a_value():
    """It is part of a query, so two that are the same are equal, and JSON can hold it."""
    assert ContinuousEventual(Shots(every=5, windows=3)).settings() == {
        "shot_every": 5,
        "shot_windows": 3,
    }
    assert ContinuousEventual(RecoverWithin("1s")) == ContinuousEventual.from_settings(
        recover_within="1s"
    )
    with pytest.raises(UsageError, match="'1s' is no policy: RecoverWithin"):
        ContinuousEventual("1s")


def test_settings_of_no_policy_are_refused():
    """They would say nothing."""
    with pytest.raises(UsageError, match=r"'cec' has no such setting.*period_ms"):
        approach_named("cec", period_ms=5)
    with pytest.raises(UsageError, match="give records, tuples, or both"):
        Targets()


def test_every_fragment_gets_a_policy_of_its_own():
    """A policy has a budget, which is not to be shared."""
    approach = ContinuousEventual(Targets(records=10))
    assert approach.begin_policy() is not approach.begin_policy()


@pytest.mark.parametrize(
    "settings",
    [
        {"records": 10, "patience": 1},
        {"records": -1},
        {"tuples": 5, "interval_ms": 20, "period_ms": 10},
        {"shot_every": 0},
        {"patience": -1},
        {"recover_within": "0s"},
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(settings):
    """Not when the node starts."""
    with pytest.raises(UsageError):
        ContinuousEventual.from_settings(**settings)
