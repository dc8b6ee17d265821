"""What a process or a Spark task is given to host nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewake.graph.plan.plan import NodePlan
from rewake.graph.plan.servers import Seat
from rewake.net.kill_points import Fault
from rewake.node.limits import NodeLimits
from rewake.node.messages import Address
from rewake.recovery.promises.rates import Costs

__all__ = ["NodeTask", "ServerTask"]


@dataclass(frozen=True, slots=True)
class NodeTask:
    """All that a server needs to run a node in one of its places."""

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
    place: int = 0

    @property
    def seat(self) -> Seat:
        """What it fills."""
        return Seat(self.plan.name, self.place)

    def __repr__(self) -> str:
        return f"NodeTask({self.seat})"


@dataclass(frozen=True, slots=True)
class ServerTask:
    """All that a process needs to be a server of a query; travels to it."""

    name: str
    nodes: tuple[NodeTask, ...]

    @property
    def coordinator(self) -> Address:
        """Where the query's coordinator listens."""
        return self.nodes[0].coordinator

    @property
    def token(self) -> str:
        """What the query's processes know each other by."""
        return self.nodes[0].token

    @property
    def allow_remote(self) -> bool:
        """Whether it may listen where other machines connect to."""
        return self.nodes[0].allow_remote

    @property
    def words(self) -> str:
        """What it hosts, for people."""
        names = ", ".join(repr(str(each.seat)) for each in self.nodes)
        return f"node {names}" if len(self.nodes) == 1 else f"server {self.name!r} (nodes {names})"

    def __repr__(self) -> str:
        return f"ServerTask({self.name!r})"
