"""What an approach answers of itself, and what follows for the output (Hwang 3.1 to 3.3).

Four answers say how an approach works: who keeps what a turn records, where output is retained
until it is not needed, when output leaves, and in how many places a node runs.  Nobody asks for an
approach by its name: planner, nodes, hosts and reports go by the answers.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from rewake.operators.classes import OperatorClass

__all__ = ["Guarantee", "Keeper", "Kept", "Release", "Survives", "guarantee_behind"]


class Keeper(Enum):
    """Who keeps what a turn records, so that it survives a crash."""

    LOG = "the node's log"
    # The approach itself, in the memory of the node's other places.
    STANDBY = "a standby"
    # No more than from where to go on: the input itself is kept upstream.
    COORDINATOR = "a bookmark at the coordinator"
    NOBODY = "nobody"


class Kept(Enum):
    """Where output that has left memory can be had again."""

    IN_LOG = "in the log"
    # It does not leave memory while a node may ask for it again.
    IN_QUEUE = "in the output queue"
    UPSTREAM = "upstream"
    NOWHERE = "nowhere"


class Release(Enum):
    """When output leaves the node."""

    # Held until what its turn recorded is kept: then no crash shows.
    WHEN_KEPT = "when its record is kept"
    AT_ONCE = "at once"


class Survives(Enum):
    """What may end without loss."""

    ALL = "the end of all processes"
    ONE_PLACE = "the end of one place at a time"
    NOTHING = "nothing"


class Guarantee(IntEnum):
    """What holds for output after a crash, from the least to the most (Hwang 3.2.1)."""

    # It may lose tuples.
    GAP = 0
    # Nothing is lost; even without repeats it is not the failure-free output.
    DIVERGENT = 1
    # Nothing is lost; repeats differ at first, without them it is the failure-free output.
    CONVERGENT = 2
    # Nothing is lost; identical tuples may come again.
    REPEATING = 3
    # The failure-free output.
    PRECISE = 4

    @property
    def words(self) -> str:
        """For people."""
        return self.name.lower()


def guarantee_behind(own: Guarantee, operator_class: OperatorClass, inputs: Guarantee) -> Guarantee:
    """What holds for an output: `own` with precise inputs, and its inputs have this guarantee.

    No minimum along the way: tuples that come again falsify sums and shift windows of counts for
    ever, so behind repeats only an operator goes on that takes each tuple by itself.
    """
    if inputs in (Guarantee.REPEATING, Guarantee.CONVERGENT) and (
        operator_class < OperatorClass.REPEATABLE
    ):
        inputs = Guarantee.DIVERGENT
    return min(own, inputs)
