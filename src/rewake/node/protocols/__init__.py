"""What makes nodes different, behind one interface: events in, commands out.

protocol      the interface, and what a node lends to whoever implements it
transparent   passes tuples on and keeps nothing: it makes them again when asked
sink          gives tuples to a sink, which commits them by position
logged        appends a record of each turn, and forwards it when it is durable
stood_by      has its approach keep each record in other places, and forwards it when it is kept
bookmarked    forwards at once, and makes it again after a crash: its upstreams keep its input
forgetful     forwards at once; a crash loses what was in memory
"""

from rewake.graph.plan.plan import NodePlan
from rewake.node.protocols.bookmarked import Bookmarked
from rewake.node.protocols.forgetful import Forgetful
from rewake.node.protocols.logged import Logged
from rewake.node.protocols.protocol import LogSoFar, Protocol, Shell
from rewake.node.protocols.sink import AtASink
from rewake.node.protocols.stood_by import StoodBy
from rewake.node.protocols.transparent import Transparent
from rewake.recovery.approach import Keeper, Kept

__all__ = [
    "AtASink",
    "Bookmarked",
    "Forgetful",
    "LogSoFar",
    "Logged",
    "Protocol",
    "Shell",
    "StoodBy",
    "Transparent",
    "protocol_of",
]


_BY_WHERE_OUTPUT_IS: dict[Kept, type[Protocol]] = {
    each.kept: each for each in (Transparent, Logged, Forgetful)
}
# Where it waits in the queue: by who makes sure that it can be there again.
_BY_KEEPER: dict[Keeper, type[Protocol]] = {
    Keeper.STANDBY: StoodBy,
    Keeper.COORDINATOR: Bookmarked,
}


def protocol_of(plan: NodePlan) -> type[Protocol]:
    """The protocol that a node of this plan follows."""
    if plan.sink is not None:
        return AtASink
    if plan.kept is Kept.IN_QUEUE:
        return _BY_KEEPER[plan.approach.keeper]
    return _BY_WHERE_OUTPUT_IS[plan.kept]
