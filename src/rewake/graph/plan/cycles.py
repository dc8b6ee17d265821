"""Where streams come back: what cannot be on a cycle, and what the nodes on one must know.

Cycles that share a node are taken together: the nodes that reach each other.  Of their channels
some *close a loop*, so that every cycle has one: nobody waits for their time, and in the rounds by
which a cycle ends they are one round behind (`rewake.node.channels.rounds`).  At first these are
the channels that read a loop.  A node that has no other input would have no time of its own, and
could not begin a round: then it is what it feeds that closes the loop, and so on.  Whoever is fed
from outside as well keeps its channels, so this ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from rewake.graph.plan.fragments import Fragment
from rewake.graph.plan.plan import Cycle, InputPlan, NodePlan
from rewake.model.errors import UsageError
from rewake.operators.keyed.operator import ProcessSpec
from rewake.recovery.approach import Kept

__all__ = ["Edges", "check_cycles", "on_cycles"]

Edges = dict[Fragment, list[Fragment]]


# --- what cannot be on one -----------------------------------------------------------------------


def check_cycles(feeds: Edges, kept: Mapping[Fragment, Kept]) -> None:
    """Raise where an approach does not work on a cycle, or a step could never come to its end."""
    for fragment in feeds:
        problem = _problem(fragment, kept[fragment])
        cycle = _way(feeds, fragment) if problem else []
        if cycle:
            names = [step.name for each in cycle for step in each.steps]
            raise UsageError(f"{problem}; the cycle is {' -> '.join([*names, names[0]])}")


# Why output that is retained there cannot go around.
_NOT_AROUND: Final = {
    Kept.IN_QUEUE: "its output waits in memory until it is not needed, and here that may be for "
    "ever",
    Kept.NOWHERE: "after a crash it could not have again what goes around",
}


def _problem(fragment: Fragment, kept: Kept) -> str:
    """Why a fragment cannot be on a cycle, and what to do; mostly nothing."""
    if kept in _NOT_AROUND:
        return (
            f"approach {fragment.approach.name!r} of step {fragment.tail.name!r} does not allow "
            f"cycles: {_NOT_AROUND[kept]}; give the steps on it an approach with a log, or open "
            "the loop"
        )
    step = fragment.stateful
    if step is not None and isinstance(step.spec, ProcessSpec) and step.spec.by_machine:
        return (
            f"step {step.name!r} goes by the clock of the machine, so it may put out tuples at any "
            "moment, and nobody could say when its loop has ended; let its timers go by event "
            "time, or move it out of the loop"
        )
    return ""


def _way(feeds: Edges, start: Fragment) -> list[Fragment]:
    """The fragments on a shortest cycle through one, beginning with it; none: empty."""
    came_from: dict[Fragment, Fragment] = {}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for fed in feeds[here]:
            if fed is start:
                cycle = [here]
                while cycle[-1] is not start:
                    cycle.append(came_from[cycle[-1]])
                return cycle[::-1]
            if fed not in came_from:
                came_from[fed] = here
                waiting.append(fed)
    return []


# --- what nodes must know ------------------------------------------------------------------------


def on_cycles(nodes: Sequence[NodePlan], closing: Mapping[str, int]) -> list[NodePlan]:
    """The nodes, told of the cycles that they are on.

    `closing`: the fragments whose output a loop reads, and how many tuples each may add to it.
    """
    if not closing:
        return list(nodes)
    feeds = {each.name: _consumers(each) for each in nodes}
    reached = {name: _reached(feeds, name) for name in feeds}
    marked = [_inside(each, reached) for each in nodes]
    while (moved := _moved_on(marked)) != marked:
        marked = moved
    return [_with_cycle(each, marked, reached, closing) for each in marked]


def _consumers(node: NodePlan) -> list[str]:
    return [name for output in node.outputs for name in output.consumers]


def _reached(feeds: Mapping[str, list[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(feeds[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += feeds[name]
    return found


def _inside(node: NodePlan, reached: Mapping[str, set[str]]) -> NodePlan:
    """Its inputs with what is inside; a loop that is no cycle is only another name."""

    def told(each: InputPlan) -> InputPlan:
        inside = each.upstream is not None and each.upstream in reached[node.name]
        return replace(each, inside=inside, around=inside and each.around)

    return replace(node, inputs=tuple(told(each) for each in node.inputs))


def _moved_on(nodes: list[NodePlan]) -> list[NodePlan]:
    """What closes loops, one step on where a node reads nothing else."""
    passing = {each.name for each in nodes if all(one.around for one in each.inputs)}

    def told(node: NodePlan, each: InputPlan) -> InputPlan:
        if not each.inside:
            return each
        from_passing = each.upstream in passing
        return replace(each, around=from_passing or (each.around and node.name not in passing))

    return [replace(node, inputs=tuple(told(node, each) for each in node.inputs)) for node in nodes]


def _with_cycle(
    node: NodePlan,
    nodes: Sequence[NodePlan],
    reached: Mapping[str, set[str]],
    closing: Mapping[str, int],
) -> NodePlan:
    if node.name not in reached[node.name]:
        return node
    mine = [
        each
        for each in nodes
        if each.name in reached[node.name] and node.name in reached[each.name]
    ]
    heads = sum(any(one.around for one in each.inputs) for each in mine)
    at_most = min(closing[each.fragment] for each in mine if each.fragment in closing)
    return replace(node, cycle=Cycle(heads, at_most))
