"""Explicit targets Q for the extent and U for the replay, within a budget (CEC III.A).

"Produce a CHECK if q > Q or u > U or both ... starting from the older end of the extent."
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rewake.model.errors import UsageError
from rewake.model.given import check_number, check_whole
from rewake.operators.columns.arrays import Int32s
from rewake.recovery.policies.policy import Budget, CheckpointPolicy, Extent

_NO_TARGET = 2**62


@dataclass(frozen=True, slots=True)
class Targets:
    """Records (Q) and tuples (U) that recovery may take, within `interval_ms` of each `period_ms`.

    `check_us` is what a CHECK takes.
    """

    records: int | None = None
    tuples: int | None = None
    interval_ms: float = 5
    period_ms: float = 100
    check_us: float = 0.5

    def __post_init__(self) -> None:
        if self.records is None and self.tuples is None:
            raise UsageError("targets need a number: give records, tuples, or both")
        for name in ("records", "tuples"):
            if (target := getattr(self, name)) is not None:
                check_whole(f"Targets: {name}", target)
        for name in ("interval_ms", "period_ms", "check_us"):
            check_number(f"Targets: {name}", getattr(self, name))
        self.begin()  # so that what cannot be is refused here

    def begin(self) -> TargetsPolicy:
        """A new policy, for one fragment."""
        return TargetsPolicy(**asdict(self))


class TargetsPolicy(CheckpointPolicy):
    """Keeps q at or below `records` (Q) and u at or below `tuples` (U) as the budget allows.

    A Q below the number of open windows cannot be reached ("an unattainable target, resulting in
    unnecessary overhead", CEC IV.B); the budget bounds what trying costs.
    """

    def __init__(
        self,
        *,
        records: int | None = None,
        tuples: int | None = None,
        interval_ms: float = 5,
        period_ms: float = 100,
        check_us: float = 0.5,
    ) -> None:
        self._records = _NO_TARGET if records is None else records
        self._tuples = _NO_TARGET if tuples is None else tuples
        if min(self._records, self._tuples) < 0:
            raise UsageError(f"targets cannot be negative: Q = {records}, U = {tuples}")
        self.budget = Budget(interval_ms, period_ms, check_us)

    def checks(self, extent: Extent) -> Int32s:
        """The oldest windows that keep the targets from being met."""
        due = extent.order.overdue(
            most_records=self._records,
            oldest_time=extent.position - self._tuples,
            limit=self.budget.left(extent.now_ms),
        )
        self.budget.spend(due.size)
        return due
