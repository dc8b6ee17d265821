"""What becomes of late tuples.

A late tuple is *dropped* when it leaves by no output, *diverted* when it leaves by one of its own,
and *kept* where the step takes it all the same (a sort lets it out, a function sees it).  Counts
are in the log with the state: they are those of all lives, and exact, because turns that are not in
the log are taken again.
"""

from __future__ import annotations

from rewake.node.late_watch import DIVERTED, DROPPED, KEPT, PERCENT
from rewake.operators.fragment import FragmentProgram
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.sorting.operator import SortSpec
from rewake.operators.stateful import FURTHER_PORTS, LATE_PORT

__all__ = ["Lateness", "fate_of_late"]


def fate_of_late(program: FragmentProgram) -> str | None:
    """What a fragment does with late tuples; None: it has no state, so nothing is ever late."""
    spec = program.stateful
    if spec is None:
        return None
    ports = {LATE_PORT} if spec.route_late else set()
    for number, name in enumerate(spec.further_outputs):
        ports |= {FURTHER_PORTS + number} if name.startswith("late") else set()
    if not ports and isinstance(spec, SortSpec | ProcessSpec):
        return KEPT
    used = {route.port for route in program.routes}
    return DIVERTED if ports and ports <= used else DROPPED


class Lateness:
    """Of one life of a node: how many tuples were late before it, and what becomes of them."""

    def __init__(self, program: FragmentProgram, before: int) -> None:
        self._fate = fate_of_late(program)
        self._before = before

    def figures(self, late: int, tuples_in: int) -> dict[str, float]:
        """Late tuples of all lives, and what became of them; of this life, their share."""
        if self._fate is None:
            return {}
        share = (late - self._before) / max(tuples_in, 1)
        return {"late_tuples": late, self._fate: late, PERCENT: 100.0 * share}
