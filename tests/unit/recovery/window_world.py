"""A world of windows in virtual time: they open, close or never do, and a policy leaves CHECKs.

No tuples, no operator: an order of footprints, and who is open.  What a recovery would take is
reckoned with costs of the world's own, which drift and are noisy; the policy only learns of them
what a host would tell it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rewake.recovery.footprint_order import FootprintOrder
from rewake.recovery.policies.policy import Extent
from rewake.recovery.policies.recover_within import RecoverWithinPolicy


class Weather(NamedTuple):
    """What the stream is like at a moment: tuples and new windows per second, and their lives.

    Lives are in tuples; a share of windows never closes.
    """

    tuples: float
    opens: float
    life: float
    forever: float = 0.0
    skew: float = 0.0


class Sample(NamedTuple):
    """What was seen after a step: times in ms, CHECKs in all."""

    now_ms: float
    predicted: float
    at_worst: float
    true: float
    best: float
    checks: int
    open_windows: int
    advice: str


class World:
    """Windows and a policy, step by step; everything random grows from the seed."""

    def __init__(self, policy: RecoverWithinPolicy, seed: int, *, step_ms: float = 100.0) -> None:
        self.policy = policy
        self.random = np.random.default_rng(seed)
        self.now_ms = 0.0
        self._step_ms = step_ms
        self.opened_at = np.full(1024, -1, np.int64)
        self._ends = np.zeros(1024, np.int64)
        self._free = list(range(1024))
        self.order = FootprintOrder(self.ids_of)
        self.position = 0
        self.checks = 0
        self.open_parts = 0
        # What things really cost, in us and ms.
        self.load_us, self.replay_us, self.fixed_ms = 1.0, 0.5, 50.0
        # Of parts that are large, what leaving a CHECK takes, and how large it is.
        self.check_us, self.check_bytes = 0.0, 0

    def ids_of(self, slots: Any) -> Any:
        return self.opened_at[slots]

    def step(self, weather: Weather) -> Sample:
        """Let a step pass: windows open and close, the policy chooses, the host tells it times."""
        self.now_ms += self._step_ms
        tuples = int(weather.tuples * self._step_ms / 1e3)
        opens = min(int(self.random.poisson(weather.opens * self._step_ms / 1e3)), tuples)
        self._open(opens, tuples, weather)
        self.position += tuples
        self._close()
        self.order.forget_dead(self.open_parts)
        chosen = self.policy.checks(self._extent())
        if chosen.size:
            self.checks += chosen.size
            self.order.checked(chosen, self.opened_at[chosen], self.position - 1)
        if chosen.size and self.check_bytes:
            size = int(chosen.size)
            self.policy.rates.checked(size, size * self.check_us, size * self.check_bytes)
        noise = self.random.gamma(20, 1 / 20)
        self.policy.rates.processed(tuples, tuples * self.replay_us * noise)
        return self._sample()

    def crash(self) -> None:
        """A recovery takes what it takes, and the policy is told."""
        extent, noise = self._extent(), self.random.gamma(100, 1 / 100, 3)
        self.policy.rates.recovered(
            records=extent.records,
            load_us=extent.records * self.load_us * noise[0],
            tuples=extent.tuples,
            replay_us=extent.tuples * self.replay_us * noise[1],
            fixed_ms=self.fixed_ms * noise[2],
        )

    def _extent(self) -> Extent:
        operator: Any = self  # of an operator, a policy sees who is open and no more
        return Extent(self.order, operator, self.position - 1, 0, self.now_ms)

    def _open(self, count: int, tuples: int, weather: Weather) -> None:
        while len(self._free) < count:
            size = self.opened_at.size
            self._free += range(size, 2 * size)
            self.opened_at = np.r_[self.opened_at, np.full(size, -1, np.int64)]
            self._ends = np.r_[self._ends, np.zeros(size, np.int64)]
        slots = np.array([self._free.pop() for _ in range(count)], np.int32)
        ids = self.position + np.sort(self.random.choice(max(tuples, 1), count, replace=False))
        lives = self.random.gamma(9, weather.life / 9, count)
        lives *= np.exp(weather.skew * self.random.standard_normal(count))
        lives[self.random.random(count) < weather.forever] = 2**60
        self.opened_at[slots] = ids
        self._ends[slots] = ids + lives.astype(np.int64)
        self.order.opened(slots, ids)
        self.open_parts += count

    def _close(self) -> None:
        closing = np.flatnonzero((self.opened_at >= 0) & (self._ends < self.position))
        self.opened_at[closing] = -1
        self._free += closing.tolist()
        self.open_parts -= closing.size
        self.order.results(closing.size)

    def _sample(self) -> Sample:
        extent = self._extent()
        outlook = self.policy.outlook(extent)
        cost_us = extent.records * self.load_us + extent.tuples * self.replay_us
        return Sample(
            self.now_ms,
            outlook.predicted_ms,
            outlook.at_worst_ms,
            self.fixed_ms + cost_us / 1e3,
            outlook.best_ms,
            self.checks,
            self.open_parts,
            outlook.advice,
        )


def run_for(
    world: World,
    hours: float,
    weather: Callable[[float], Weather],
    *,
    crash_every_s: float = 600.0,
    before: Callable[[World], None] = lambda _world: None,
) -> list[Sample]:
    """Let hours pass; `weather` is asked with the seconds that have, `before` each step."""
    found, crashed_ms = [], 0.0
    end_ms = world.now_ms + hours * 3600e3
    while world.now_ms < end_ms:
        before(world)
        found.append(world.step(weather(world.now_ms / 1e3)))
        if world.now_ms > crashed_ms + crash_every_s * 1e3:
            crashed_ms = world.now_ms
            world.crash()
    return found
