"""Promises and amnesia in the simulator: what a run with them must have in it."""

from rewake.drill.simulation import simulate

PROMISED, FORGETFUL = range(1, 81, 16), range(9, 89, 16)


def test_small_targets_leave_checks() -> None:
    """Else a promise would be judged that has no effect."""
    outcomes = [simulate(seed) for seed in PROMISED]
    assert not any(each.failure for each in outcomes)
    assert sum(each.checked.get("frames with CHECKs", 0) for each in outcomes) > 0


def test_what_is_behind_amnesia_is_compared() -> None:
    """A sink gets something from lives that remember nothing."""
    outcomes = [simulate(seed) for seed in FORGETFUL]
    assert not any(each.failure for each in outcomes)
    assert sum(each.checked["sink tuples"] for each in outcomes) > 0
