"""What a simulated run notes besides logs: what was promised, and what is remembered by nobody.

A node that promises how long a crash may cost goes by what turns take; here they take what the seed
says, and a tuple costs so much that small targets have their effect.  A node under amnesia has no
log to be judged by: what each of its lives took is noted, in the order in which it did.
"""

from __future__ import annotations

from typing import Final

from rewake.node.node import Node
from rewake.recovery.promises.rates import Costs
from rewake.sim.world import World

__all__ = ["Lives", "begin_promise", "check_promise"]

# By channel, first and end: what was taken in a turn.
Took = tuple[int, int, int]
# Of a machine on which a few hundred tuples are much.
_COSTS: Final = Costs(
    load_us=20.0, replay_us=400.0, work_us=200.0, check_us=100.0, fixed_ms=1.0, fixed_margin=1.5
)


def begin_promise(node: Node) -> None:
    """Say what things cost here, if anything was promised."""
    rates = None if node.recovery is None else node.recovery.rates
    if rates is not None:
        rates.start_from(_COSTS)


def check_promise(node: Node, world: World, *, worked: bool) -> None:
    """A turn was taken, or not: what is foretold now can be."""
    rates = None if node.recovery is None else node.recovery.rates
    if rates is None:
        return
    if worked and not node.recovering:
        node.took(rates, world.between(50.0, 400.0))
    figures = node.progress()
    predicted, at_worst = figures["predicted_ms"], figures["at_worst_ms"]
    assert 0 <= predicted <= at_worst, f"{node.plan.name} foretells {predicted}, worst {at_worst}"
    assert figures["best_ms"] >= 0, f"{node.plan.name} could be back in {figures['best_ms']} ms"


class Lives:
    """What the lives of nodes took that remember nothing, by node and epoch."""

    def __init__(self) -> None:
        self.took: dict[tuple[str, int], list[Took]] = {}

    def note(self, node: Node, before: list[int]) -> None:
        """A turn was taken, when so much of each channel had been."""
        taken = self.took.setdefault((node.plan.name, node.epoch), [])
        for channel, first in enumerate(before):
            end = node.merge.consumed(channel)
            if end > first:
                taken.append((channel, first, end))
