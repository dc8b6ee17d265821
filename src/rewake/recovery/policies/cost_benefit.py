"""CHECKs when they pay: the cost-benefit analysis the paper leaves as ongoing work (CEC III.A).

A CHECK costs `check_us` now.  It makes a recovery shorter, by the records and tuples that the end
of the extent moves forward.  `patience` says how much a microsecond of recovery is worth in
microseconds of normal operation: the chance of a crash while the CHECK is of use, times how much
worse waiting for a recovery is than running slower.  All costs are measured on the machine at hand.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from rewake.model.errors import UsageError
from rewake.model.given import check_number
from rewake.operators.columns.arrays import Int32s
from rewake.recovery.policies.policy import CheckpointPolicy, Extent


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
        for name, value in asdict(self).items():
            check_number(f"CostBenefit: {name}", value)
        self.begin()  # so that what cannot be is refused here

    def begin(self) -> CostBenefitPolicy:
        """A new policy, for one fragment."""
        return CostBenefitPolicy(**asdict(self))


class CostBenefitPolicy(CheckpointPolicy):
    """Takes the CHECKs whose benefit outweighs their cost most, every `period_ms`."""

    def __init__(
        self,
        *,
        patience: float,
        load_us: float,
        replay_us: float,
        check_us: float,
        period_ms: float = 100,
        at_most: int = 100_000,
    ) -> None:
        if min(load_us, replay_us, check_us, patience) <= 0:
            raise UsageError(
                f"costs and patience must be positive: {load_us} us to load a record, {replay_us} "
                f"to replay a tuple, {check_us} for a CHECK, patience {patience}"
            )
        self._load, self._replay, self._price = patience * load_us, patience * replay_us, check_us
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
            load=self._load,
            replay=self._replay,
            price=self._price,
            limit=self._at_most,
        )
