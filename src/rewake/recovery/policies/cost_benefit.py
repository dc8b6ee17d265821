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


class CostBenefit(CheckpointPolicy):
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
