"""The controller that keeps a promised recovery time, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from window_world import Weather, World, run_for

from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly
from rewake.recovery.policies.recover_within import RecoverWithinPolicy
from rewake.recovery.promises.outlook import Outlook
from rewake.recovery.promises.rates import Costs, Estimate, RecoveryRates

SCHEMA = pa.schema([("item", pa.int64()), ("price", pa.int64())])
COSTS = Costs(
    load_us=1, replay_us=0.5, work_us=0.5, check_us=2.5, fixed_ms=20,
    fixed_margin=1.25, load_margin=1.25, replay_margin=1.25,
)  # fmt: skip
TURN = 200
Keys = Callable[[np.random.Generator, int, int], np.ndarray]


def uniform(random: np.random.Generator, turn: int, keys: int) -> np.ndarray:
    return random.integers(0, keys, TURN)


def skewed(random: np.random.Generator, turn: int, keys: int) -> np.ndarray:
    return np.minimum(random.zipf(1.3, TURN), keys) - 1


def in_bursts(random: np.random.Generator, turn: int, keys: int) -> np.ndarray:
    """Now and then a turn in which every tuple opens a window, then few keys only."""
    if turn % 200 < 20:
        return np.arange(TURN) + (turn % 20) * TURN + keys
    return random.integers(0, keys // 10 + 1, TURN)


def run(
    policy: RecoverWithinPolicy | OpenOnly,
    choose: Keys,
    *,
    turns: int,
    keys: int,
    size: int = 10,
    turn_ms: float = 2.0,
) -> Iterator[tuple[ContinuousEventualCheckpointing, list]]:
    """Drive an aggregate over `turns` turns, one every `turn_ms`; what there is after each."""
    random = np.random.default_rng(7)
    spec = AggregateSpec(["item"], count_window(size), [Avg("price")])
    cec = ContinuousEventualCheckpointing(Aggregate(spec, SCHEMA), policy)
    for turn in range(turns):
        items = choose(random, turn, keys).astype(np.int64)
        batch = pa.RecordBatch.from_arrays([pa.array(items), pa.array(items % 97)], schema=SCHEMA)
        done = cec.turn(StreamEvent(turn * TURN, batch), turn * turn_ms)
        yield cec, [batch.to_pylist() for _, batch in done.outputs]


def outlooks(policy: RecoverWithinPolicy, choose: Keys, **settings: float) -> list[Outlook]:
    turn_ms = settings.get("turn_ms", 2.0)
    found = run(policy, choose, **settings)  # type: ignore[arg-type]
    return [policy.outlook(cec.extent(number * turn_ms)) for number, (cec, _) in enumerate(found)]


@pytest.mark.parametrize("choose", [uniform, skewed, in_bursts])
def test_the_prediction_stays_under_the_target(choose: Keys) -> None:
    """Whatever the keys are like, also with windows that hardly ever close."""
    policy = RecoverWithinPolicy(100, RecoveryRates(COSTS), budget=0.2)
    seen = outlooks(policy, choose, turns=1500, keys=1000, size=1000)
    assert max(each.predicted_ms for each in seen) <= 100
    assert not any(each.advice for each in seen)


def test_without_need_there_are_no_checks() -> None:
    """Windows that close soon enough by themselves leave no CHECK."""
    policy = RecoverWithinPolicy(2000, RecoveryRates(COSTS))
    seen = outlooks(policy, uniform, turns=500, keys=400)
    assert seen[-1].checks == 0


def test_checks_are_few_more_than_the_fewest_possible() -> None:
    """A window that never closes must leave a CHECK each time it comes of age, and no more often.

    One that knew the future would let each get exactly as old as the target allows.
    """
    policy = RecoverWithinPolicy(200, RecoveryRates(COSTS), budget=0.2)
    keys, first, last = 600, 2000, 10_000
    seen = outlooks(policy, uniform, turns=last, keys=keys, size=10**6)
    spendable_us = (200 - policy.rates.fixed_ms) * 1e3 - keys * policy.rates.load_us
    oldest_age = spendable_us / policy.rates.replay_us
    fewest = keys * (last - first) * TURN / oldest_age
    taken = seen[-1].checks - seen[first].checks
    assert taken <= 1.5 * fewest
    assert taken >= 0.9 * fewest, "fewer than possible: what is measured is not what was meant"


def test_windows_of_one_age_come_apart() -> None:
    """All were opened at once; after some rounds, CHECKs come evenly."""
    policy = RecoverWithinPolicy(60, RecoveryRates(COSTS), budget=0.2)
    seen = outlooks(policy, uniform, turns=8000, keys=1000, size=10**6)
    by_look = [later.checks - sooner.checks for sooner, later in pairwise(seen[::20])]
    first, last = np.array(by_look[:80]), np.array(by_look[-80:])
    assert np.std(last) < np.std(first) / 2
    assert np.max(last) <= 4 * np.mean(last)


@pytest.mark.parametrize("choose", [uniform, skewed, in_bursts])
def test_results_are_those_without_checks(choose: Keys) -> None:
    """The choice of windows never shows in the output."""
    settings = {"turns": 400, "keys": 600, "size": 20}
    policy = RecoverWithinPolicy(40, RecoveryRates(COSTS), budget=0.5)
    with_checks = [results for _, results in run(policy, choose, **settings)]
    without = [results for _, results in run(OpenOnly(), choose, **settings)]
    assert with_checks == without


def test_no_more_than_the_budget_is_spent() -> None:
    """Also when the target cannot be met: trying has its price, and the price a limit."""
    policy = RecoverWithinPolicy(30, RecoveryRates(COSTS), budget=0.01)
    turns = 3000
    seen = outlooks(policy, uniform, turns=turns, keys=4000, size=10**6)
    spent_us = seen[-1].checks * policy.rates.check_us
    assert spent_us <= 0.01 * (turns * 2.0 + 100) * 1e3


def test_a_target_that_loading_alone_exceeds_is_told_with_the_way_out() -> None:
    """More windows than can be loaded in that time."""
    policy = RecoverWithinPolicy(30, RecoveryRates(COSTS), budget=1.0)
    last = outlooks(policy, uniform, turns=300, keys=30_000, size=10**6)[-1]
    assert last.best_ms > 30
    assert "cannot be met" in last.advice
    assert "more shards" in last.advice


def test_a_budget_that_is_too_small_is_told() -> None:
    """It would go, with more time for CHECKs."""
    policy = RecoverWithinPolicy(60, RecoveryRates(COSTS), budget=0.001)
    last = outlooks(policy, uniform, turns=3000, keys=4000, size=10**6)[-1]
    assert "checkpoint_budget" in last.advice


def test_nonsense_is_refused() -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match="longer than nothing"):
        RecoverWithinPolicy(0, RecoveryRates())
    for budget in (0, -1, 1.5):
        with pytest.raises(UsageError, match="checkpoint_budget"):
            RecoverWithinPolicy(100, RecoveryRates(), budget=budget)
    with pytest.raises(UsageError, match="positive"):
        Costs(load_us=0)


def test_a_cost_that_rises_is_followed() -> None:
    """What was calibrated is soon forgotten."""
    random = np.random.default_rng(1)
    estimate = Estimate(0.1)
    for sample in random.gamma(8, 1 / 8, 2000):
        estimate.observe(sample)
    assert 0.7 < estimate.mean < 1.3


def test_what_a_recovery_took_corrects_the_next_prediction() -> None:
    """Ten slow recoveries, and the prediction is near what they took."""
    rates = RecoveryRates(COSTS)
    for _ in range(40):
        rates.recovered(
            records=100_000, load_us=100_000, tuples=100_000, replay_us=50_000, fixed_ms=10
        )
    assert rates.predicted_ms(100_000, 100_000) == pytest.approx(160, rel=0.25)
    assert rates.costs.load_us == pytest.approx(1.0, rel=0.05)


def test_small_recoveries_tell_of_the_fixed_part() -> None:
    """Opening a file costs the same for one record as for many: rates are not blamed for it."""
    rates = RecoveryRates(COSTS)
    for _ in range(20):
        rates.recovered(records=1500, load_us=30_000, tuples=4000, replay_us=9_000, fixed_ms=20)
    assert rates.costs.load_us == COSTS.load_us
    assert rates.costs.replay_us == pytest.approx(COSTS.replay_us)
    assert rates.predicted_ms(1500, 4000) == pytest.approx(20 + 30 + 9, rel=0.1)


def test_a_few_checks_in_a_slow_turn_are_not_taken_for_slow_checks() -> None:
    """A turn that was held up would make a handful of CHECKs look a thousand times as dear."""
    rates = RecoveryRates(COSTS)
    rates.checked(3, 50_000.0)
    assert rates.check_us == COSTS.check_us
    for _ in range(100):
        rates.checked(1000, 1000.0)
    assert rates.check_us == pytest.approx(1.0, rel=0.3)


def test_checks_of_large_parts_tell_of_themselves_however_few_they_are() -> None:
    """A pane of a join is megabytes: two CHECKs of it say more than two thousand of windows."""
    rates = RecoveryRates(COSTS)
    assert rates.predicted_ms(0, 0, parts=8) == rates.predicted_ms(0, 0)
    for _ in range(4):
        rates.checked(2, 6_000.0, 2 * 4_000_000)
    assert rates.check_us == pytest.approx(3_000, rel=0.3)
    grown = rates.predicted_ms(0, 0, parts=8) - rates.predicted_ms(0, 0)
    assert grown == pytest.approx(8 * 3, rel=0.3)


def test_what_loading_large_parts_takes_is_not_blamed_on_other_records() -> None:
    """Nor on the fixed part: with fewer parts open, less is predicted again."""
    rates = RecoveryRates(COSTS)
    for _ in range(8):
        rates.checked(1, 3_000.0, 4_000_000)
    fixed = rates.costs.fixed_ms
    for _ in range(8):
        rates.recovered(records=100, load_us=24_000, tuples=0, replay_us=0, fixed_ms=fixed, parts=8)
    assert rates.costs.fixed_ms == pytest.approx(fixed, rel=0.2)
    assert rates.predicted_ms(100, 0, parts=8) == pytest.approx(fixed + 24, rel=0.2)


def test_a_budget_holds_where_parts_are_few_and_large() -> None:
    """Four panes, 20 ms for a CHECK of each: as many as 5% of the time allows, and no more."""
    world = World(RecoverWithinPolicy(300, RecoveryRates(COSTS), budget=0.05), seed=3)
    world.check_us, world.check_bytes = 20_000.0, 8_000_000
    seen = run_for(world, 0.05, lambda _seconds: Weather(300_000, 2.0, 600_000))
    settled = [each for each in seen if each.now_ms > 10_000]
    spent_ms = (settled[-1].checks - settled[0].checks) * world.check_us / 1e3
    passed_ms = settled[-1].now_ms - settled[0].now_ms
    assert 0 < spent_ms < 0.06 * passed_ms


def test_tuples_that_take_long_are_known_after_a_moment() -> None:
    """A user's function may take hundreds of times what was calibrated: seconds, not minutes."""
    rates = RecoveryRates(COSTS)
    for _ in range(20):
        rates.processed(500, 500 * 200.0)
    assert rates.work_us == pytest.approx(200, rel=0.3)
    for _ in range(10):
        rates.recovered(records=0, load_us=0, tuples=2000, replay_us=2000 * 200.0, fixed_ms=20)
    assert rates.costs.replay_us == pytest.approx(200, rel=0.3)


def test_one_turn_that_was_held_up_is_not_taken_for_slow_tuples() -> None:
    """What is far off once may be chance."""
    rates = RecoveryRates(COSTS)
    for _ in range(50):
        rates.processed(50_000, 50_000 * COSTS.work_us)
    rates.processed(1000, 400_000.0)
    assert rates.work_us < 1.1 * COSTS.work_us


def test_looking_for_windows_makes_neither_tuples_nor_checks_dear() -> None:
    """It is paid for out of the budget, and where it takes long it is done seldom."""
    rates = RecoveryRates(COSTS)
    for _ in range(200):
        rates.looked(5_000.0)
        rates.checked(2000, 5_000.0 + 2000 * COSTS.check_us)
        rates.looked(5_000.0)
        rates.processed(50_000, 5_000.0 + 50_000 * COSTS.work_us)
    assert rates.check_us == pytest.approx(COSTS.check_us)
    assert rates.work_us == pytest.approx(COSTS.work_us)
    assert rates.look_us == pytest.approx(5_000.0)


def test_a_sample_tells_of_windows_that_grow_old_together() -> None:
    """Far more than are looked at one by one share an age; they are begun with early enough."""
    policy = RecoverWithinPolicy(200, RecoveryRates(COSTS), budget=0.2)
    seen = outlooks(
        policy, lambda _random, turn, keys: (np.arange(TURN) + turn * TURN) % keys, turns=1500,
        keys=6000, size=10**6,
    )  # fmt: skip
    assert max(each.at_worst_ms for each in seen) <= 200
    assert seen[-1].checks > 0


def test_a_prediction_is_what_is_expected_and_a_promise_is_more() -> None:
    """The one is compared with what recoveries take, the other is kept under the target."""
    rates = RecoveryRates(COSTS)
    assert rates.predicted_ms(1000, 1000) == pytest.approx(20 + 1 + 0.5)
    assert rates.at_worst_ms(1000, 1000) > rates.predicted_ms(1000, 1000)


def test_a_target_below_the_fixed_part_is_told_and_not_chased() -> None:
    """No CHECK makes opening a log faster."""
    policy = RecoverWithinPolicy(15, RecoveryRates(COSTS), budget=1.0)
    seen = outlooks(policy, uniform, turns=300, keys=100, size=10**6)
    assert "opening the log alone" in seen[-1].advice
    patient = RecoverWithinPolicy(30, RecoveryRates(COSTS), budget=1.0)
    assert seen[-1].checks <= outlooks(patient, uniform, turns=300, keys=100, size=10**6)[-1].checks


def test_rates_that_are_no_rates_change_nothing() -> None:
    """A damaged file is refused as a whole."""
    rates = RecoveryRates(COSTS)
    before = rates.kept()
    broken = RecoveryRates().kept() | {"check_us": [-1.0, 1.0]}
    with pytest.raises(UsageError, match="no estimate"):
        rates.go_on(broken)
    assert rates.kept() == before
    with pytest.raises(UsageError, match="no margin"):
        rates.go_on(RecoveryRates().kept() | {"load_margin": [float("nan")]})
    assert rates.kept() == before
