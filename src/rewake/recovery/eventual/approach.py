"""Continuous eventual checkpointing as an approach to choose: which CHECKs to leave, if any.

Without a policy no CHECKs are left: cheapest to run, slowest to recover (CEC IV.A).  A query makes
of that its promise (`graph.promised`), unless it says recover_within=None.  A policy is one of four
values:

- `RecoverWithin`: how long a crash may cost beyond the restart of a process;
- `Targets`: how many records (Q) and tuples (U) recovery may take (CEC III.A);
- `Shots`: slow windows, in turn (Thesis 4.2);
- `CostBenefit`: CHECKs when they pay.

The choice never changes results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from rewake.log.frame import Frame
from rewake.model.errors import UsageError
from rewake.model.given import shown
from rewake.operators.stateful import StatefulOperator
from rewake.recovery.approach import (
    Approach,
    Emit,
    Keeper,
    Kept,
    Recovery,
    changed_settings,
    register,
)
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.eventual.reading import late_tuples_in
from rewake.recovery.policies.cost_benefit import CostBenefit
from rewake.recovery.policies.policy import CheckpointPolicy, OpenOnly
from rewake.recovery.policies.recover_within import RecoverWithin
from rewake.recovery.policies.shots import Shots
from rewake.recovery.policies.targets import Targets

__all__ = ["ContinuousEventual", "Policy"]

Policy = RecoverWithin | Targets | Shots | CostBenefit

# In plans and logs: which settings mean which policy, and fields that are called differently there.
_KINDS: Final[Mapping[tuple[str, ...], type[Policy]]] = MappingProxyType(
    {
        ("recover_within",): RecoverWithin,
        ("records", "tuples"): Targets,
        ("shot_every",): Shots,
        ("patience",): CostBenefit,
    }
)
_STORED: Final[Mapping[type[Policy], Mapping[str, str]]] = MappingProxyType(
    {
        RecoverWithin: {"time": "recover_within", "budget": "checkpoint_budget"},
        Shots: {"every": "shot_every", "slow_after": "shot_slow_after", "windows": "shot_windows"},
        Targets: {},
        CostBenefit: {},
    }
)


@register
@dataclass(frozen=True)
class ContinuousEventual(Approach):
    """The output log is the checkpoint; a crash never shows in the output."""

    name: ClassVar[str] = "cec"
    keeper: ClassVar[Keeper] = Keeper.LOG
    retains: ClassVar[Kept] = Kept.IN_LOG
    foretells: ClassVar[bool] = True

    policy: Policy | None = None

    def __post_init__(self) -> None:
        given: object = self.policy  # by callers whose types nobody checks
        if given is not None and not isinstance(given, Policy):
            raise UsageError(
                f"policy={shown(given)} is no policy: RecoverWithin('1s') is a time, "
                "Targets(records=10_000) are numbers, Shots(every=1000) slow windows in turn, "
                "CostBenefit(patience=0.1) CHECKs that pay"
            )

    @classmethod
    def from_settings(cls, **settings: Any) -> ContinuousEventual:
        """What has these settings; those of one policy, or none."""
        settings = {name: value for name, value in settings.items() if value is not None}
        given = [names for names in _KINDS if any(name in settings for name in names)]
        if len(given) > 1:
            kinds = " and ".join(" or ".join(names) for names in given)
            raise UsageError(f"choose one way to leave CHECKs, not {kinds}")
        if not given:
            return cls(**settings)
        kind = _KINDS[given[0]]
        fields = {stored: field for field, stored in _STORED[kind].items()}
        return cls(kind(**{fields.get(name, name): value for name, value in settings.items()}))

    def begin_policy(self) -> CheckpointPolicy:
        """A new policy, for one fragment."""
        return OpenOnly() if self.policy is None else self.policy.begin()

    @property
    def caution(self) -> str:
        """Without CHECKs one part that stays open holds T where it is."""
        if self.policy is not None:
            return ""
        return "no CHECKs: a crash replays its input since its oldest part opened (recover_within)"

    def settings(self) -> dict[str, Any]:
        """Those of the policy that are not at their default, as JSON values."""
        if self.policy is None:
            return {}
        stored = _STORED[type(self.policy)]
        changed = changed_settings(self.policy)
        return {stored.get(name, name): value for name, value in changed.items()}

    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:
        """Construct the eventual checkpoint, if there is one; see the class that is driven."""
        return ContinuousEventualCheckpointing.recover(operator, self.begin_policy(), frames, emit)

    def late_tuples_in(self, frame: Frame) -> int:
        """How many tuples had come too late when this frame was written."""
        return late_tuples_in(frame)
