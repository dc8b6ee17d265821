"""CHECKs when they pay: the cost-benefit analysis the paper leaves as ongoing work (CEC III.A).

A CHECK costs `check_us` now.  It makes a recovery shorter, by the records and tuples that the end
of the extent moves forward.  `patience` says how much a microsecond of recovery is worth in
microseconds of normal operation: the chance of a crash while the CHECK is of use, times how much
worse waiting for a recovery is than running slower.  All costs are measured on the machine at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rewake.model.errors import UsageError
from rewake.operators.columns.arrays import Int32s
from rewake.recovery.policies.policy import CheckpointPolicy, Extent


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Microseconds to load a record, to replay a tuple, and to take a CHECK."""

    load_us: float
    replay_us: float
    check_us: float


@dataclass(frozen=True, slots=True)
class CostBenefit:
    """CHECKs when they pay: `patience` is what a microsecond of recovery is worth.

    The others are what loading a record, replaying a tuple and leaving a CHECK take.
    """

    patience: float
    load_us: float = 0.1
    replay_us: float = 0.02
    check_us: float = 0.5
    period_ms: float = 100

    def __post_init__(self) -> None:
        self.begin()  # so that what cannot be is refused here

    def begin(self) -> CostBenefitPolicy:
        """A new policy, for one fragment."""
        costs = MeasuredCosts(self.load_us, self.replay_us, self.check_us)
        return CostBenefitPolicy(costs, patience=self.patience, period_ms=self.period_ms)


class CostBenefitPolicy(CheckpointPolicy):
    """Takes the CHECKs whose benefit outweighs their cost most, every `period_ms`."""

    def __init__(
        self,
        costs: MeasuredCosts,
        *,
        patience: float,
        period_ms: float = 100,
        at_most: int = 100_000,
    ) -> None:
        if min(costs.load_us, costs.replay_us, costs.check_us) <= 0 or patience <= 0:
            raise UsageError(f"costs and patience must be positive: {costs}, {patience}")
        self.costs = costs
        self._patience = patience
        self._period_ms = period_ms
        self._at_most = at_most
        self._next_ms = float("-inf")

    def checks(self, extent: Extent) -> Int32s:
        """The oldest windows, as many as gain most."""
        if extent.now_ms < self._next_ms:
            return np.zeros(0, np.int32)
        self._next_ms = extent.now_ms + self._period_ms
        return extent.order.most_worthwhile(
            extent.position,
            load=self._patience * self.costs.load_us,
            replay=self._patience * self.costs.replay_us,
            price=self.costs.check_us,
            limit=self._at_most,
        )
