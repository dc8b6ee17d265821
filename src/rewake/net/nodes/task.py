"""What a process or a Spark task is given to run a node."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewake.graph.plan.plan import NodePlan
from rewake.net.kill_points import Fault
from rewake.node.limits import NodeLimits
from rewake.node.messages import Address
from rewake.recovery.promises.rates import Costs

__all__ = ["NodeTask"]


@dataclass(frozen=True, slots=True)
class NodeTask:
    """All that a process needs to run a node; travels to it."""

    plan: NodePlan
    folder: str
    fingerprint: str
    former_fingerprint: str
    coordinator: Address
    token: str
    limits: NodeLimits = field(default_factory=NodeLimits)
    faults: tuple[Fault, ...] = ()
    # What recovery costs on this machine, where somebody promised how long it may take.
    costs: Costs | None = None
    allow_remote: bool = False

    def __repr__(self) -> str:
        return f"NodeTask({self.plan.name!r})"
