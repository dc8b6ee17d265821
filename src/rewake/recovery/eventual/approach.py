"""Continuous eventual checkpointing as an approach to choose: which CHECKs to leave, if any.

Without settings no CHECKs are left: cheapest to run, slowest to recover (CEC IV.A).  Four kinds of
settings choose a policy, and at most one kind may be given:

- `recover_within`: how long a crash may cost beyond the restart of a process, such as "1s", with at
  most `checkpoint_budget` of the time spent on CHECKs;
- `records` (Q) and `tuples` (U): targets, within `interval_ms` of every `period_ms` (CEC III.A);
- `shot_every` (T), `shot_slow_after` (H) and `shot_windows` (M): slow windows (Thesis 4.2);
- `patience`: CHECKs when they pay, at the costs `load_us`, `replay_us` and `check_us`.

The choice never changes results.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from rewake.log.frame import Frame
from rewake.model.errors import UsageError
from rewake.model.units import duration_ns, share
from rewake.operators.stateful import StatefulOperator
from rewake.recovery.approach import Emit, Keeper, Recovery, changed_settings, register
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.eventual.reading import late_tuples_in
from rewake.recovery.policies.cost_benefit import CostBenefit, MeasuredCosts
from rewake.recovery.policies.policy import CheckpointPolicy, OpenOnly
from rewake.recovery.policies.recover_within import RecoverWithin
from rewake.recovery.policies.shots import Shots
from rewake.recovery.policies.targets import Targets
from rewake.recovery.promises.rates import RecoveryRates

_NO_TARGET = 2**62


@register
@dataclass(frozen=True)
class ContinuousEventual:
    """The output log is the checkpoint; a crash never shows in the output."""

    name: ClassVar[str] = "cec"
    keeper: ClassVar[Keeper] = Keeper.LOG
    foretells: ClassVar[bool] = True
    repeats_turns: ClassVar[bool] = False
    allows_cycles: ClassVar[bool] = True

    recover_within: str | None = None
    checkpoint_budget: str | float = "5%"
    records: int | None = None
    tuples: int | None = None
    interval_ms: float = 5
    period_ms: float = 100
    check_us: float = 0.5
    shot_every: float | None = None
    shot_slow_after: float = 0
    shot_windows: int = 1000
    patience: float | None = None
    load_us: float = 0.1
    replay_us: float = 0.02

    def __post_init__(self) -> None:
        kinds = {
            "a time (recover_within)": self.recover_within is not None,
            "targets (records, tuples)": self.records is not None or self.tuples is not None,
            "shots (shot_every)": self.shot_every is not None,
            "costs (patience)": self.patience is not None,
        }
        given = [kind for kind, chosen in kinds.items() if chosen]
        if len(given) > 1:
            raise UsageError(f"choose one way to leave CHECKs, not {' and '.join(given)}")
        self.policy()  # so that a setting that cannot be is refused here

    def policy(self) -> CheckpointPolicy:
        """A new policy, as the settings say."""
        if self.recover_within is not None:
            return RecoverWithin(
                duration_ns(self.recover_within) / 1e6,
                RecoveryRates(),
                budget=share(self.checkpoint_budget),
            )
        if self.records is not None or self.tuples is not None:
            return Targets(
                records=_NO_TARGET if self.records is None else self.records,
                tuples=_NO_TARGET if self.tuples is None else self.tuples,
                interval_ms=self.interval_ms,
                period_ms=self.period_ms,
                check_cost_us=self.check_us,
            )
        if self.shot_every is not None:
            return Shots(
                every=self.shot_every, slow_after=self.shot_slow_after, at_once=self.shot_windows
            )
        if self.patience is not None:
            costs = MeasuredCosts(self.load_us, self.replay_us, self.check_us)
            return CostBenefit(costs, patience=self.patience, period_ms=self.period_ms)
        return OpenOnly()

    @property
    def caution(self) -> str:
        """Without CHECKs one part that stays open holds T where it is."""
        if not isinstance(self.policy(), OpenOnly):
            return ""
        return "no CHECKs: a crash replays its input since its oldest part opened (recover_within)"

    def settings(self) -> dict[str, Any]:
        """The settings that are not at their default, as JSON values."""
        return changed_settings(self)

    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:
        """Construct the eventual checkpoint, if there is one; see the class that is driven."""
        return ContinuousEventualCheckpointing.recover(operator, self.policy(), frames, emit)

    def late_tuples_in(self, frame: Frame) -> int:
        """How many tuples had come too late when this frame was written."""
        return late_tuples_in(frame)
