"""What holds for each fragment's output after a crash, and why: computed, never declared.

From what an approach answers, from the classes of operators, from what chance has a part in, and
from what stands before, along the way from the sources (Hwang 3.2, Tables 3.2 and 3.4).

Tables 3.2 and 3.4 differ in whether a consumer is asked what it has when output is made again.
Here it always is: a consumer subscribes from its position, and positions are the same in every
life.  So what is made again as it was is not repeated, and output that leaves at once is precise,
too, unless chance has a part in what is made.  What consumes it may still say otherwise: a
guarantee is no minimum along the way (`guarantee_behind`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rewake.graph.plan.plan import NodePlan, Plan
from rewake.model.errors import UsageError
from rewake.operators.classes import OperatorClass
from rewake.recovery.approach import Guarantee, Keeper, Kept, Release, guarantee_behind

__all__ = ["Given", "check_required", "guarantee_named", "guarantees"]


class Given(NamedTuple):
    """What holds for an output; the fragment that brings it about; and why, in a few words."""

    guarantee: Guarantee
    because: str
    why: str


def guarantees(plan: Plan) -> dict[str, Given]:
    """By fragment; until nothing changes any more, because cycles lead back."""
    nodes = {node.name: node for node in plan.nodes}
    first: dict[str, NodePlan] = {}
    feeds: dict[str, dict[str, None]] = {}
    for node in plan.nodes:
        first.setdefault(node.fragment, node)
        feeds.setdefault(node.fragment, {})
        for channel in node.inputs:
            if channel.upstream is not None:
                feeds.setdefault(nodes[channel.upstream].fragment, {})[node.fragment] = None
    found = {name: _own(node, nodes) for name, node in first.items()}
    own, waiting = dict(found), list(first)
    while waiting:
        here = waiting.pop(0)
        for fed in feeds[here]:
            behind = _behind(own[fed], first[fed], found[here])
            if behind.guarantee < found[fed].guarantee:
                found[fed] = behind
                waiting.append(fed)
    return found


def _behind(own: Given, node: NodePlan, inputs: Given) -> Given:
    """What holds for a node's output when this holds for its input."""
    operator_class = node.program.operator_class(len(node.inputs))
    given = guarantee_behind(own.guarantee, operator_class, inputs.guarantee)
    return own if given is own.guarantee else Given(given, inputs.because, inputs.why)


def _own(node: NodePlan, nodes: Mapping[str, NodePlan]) -> Given:
    """What a node gives when its input is precise."""
    if node.sink is not None:
        return Given(Guarantee.PRECISE, node.fragment, "committed by position")
    if node.kept is Kept.UPSTREAM:
        return Given(Guarantee.PRECISE, node.fragment, "made again as it was")
    chance, approach = _chance(node, nodes), node.approach
    operator_class = node.program.operator_class(len(node.inputs))
    given = approach.guarantee(OperatorClass.ARBITRARY if chance else operator_class)
    return Given(given, node.fragment, _why(approach.keeper, approach.release, given, chance))


def _why(keeper: Keeper, release: Release, given: Guarantee, chance: str) -> str:
    if keeper is Keeper.NOBODY:
        return "what is in memory is lost"
    if release is Release.WHEN_KEPT:
        return f"held until its record is in {keeper.value}"
    if given is Guarantee.PRECISE:
        return "what left is made again as it was"
    return f"it leaves at once, and {chance}" if chance else "it leaves at once"


def _chance(node: NodePlan, nodes: Mapping[str, NodePlan]) -> str:
    """What part chance has in a node's output, for a record that is lost; mostly nothing."""
    if len(node.inputs) > 1:
        return "the order in which its inputs meet is chance"
    if node.program.operator_class() is OperatorClass.ARBITRARY:
        return "it goes by the time of day, or by what a system outside says"
    if _may_fall_silent(node, nodes):
        return "when its input falls silent is chance"
    return ""


def _may_fall_silent(node: NodePlan, nodes: Mapping[str, NodePlan]) -> bool:
    """Whether time may pass because nothing has come, without a record of when."""
    waiting, seen = [node], {node.name}
    while waiting:
        for channel in waiting.pop().inputs:
            if channel.idle_after_ms is not None:
                return True
            upstream = None if channel.upstream is None else nodes[channel.upstream]
            if upstream and upstream.kept is Kept.UPSTREAM and upstream.name not in seen:
                seen.add(upstream.name)
                waiting.append(upstream)
    return False


# --- what a user asks for ------------------------------------------------------------------------


def guarantee_named(name: str) -> Guarantee:
    """The guarantee of that name."""
    for each in Guarantee:
        if each.words == name:
            return each
    names = ", ".join(each.words for each in sorted(Guarantee, reverse=True))
    raise UsageError(f"require={name!r} is no guarantee; choose one of {names}")


def check_required(plan: Plan, required: Iterable[tuple[str, str, Guarantee]]) -> None:
    """Raise where an output gives less; of each: what it is for people, its fragment, how much."""
    found = guarantees(plan)
    for what, fragment, wanted in required:
        given = found[fragment]
        if given.guarantee < wanted:
            raise UsageError(
                f"{what} is {given.guarantee.words}, not {wanted.words}, because of step "
                f"{given.because!r}: {given.why}; {_remedy(plan, given)}"
            )


def _remedy(plan: Plan, given: Given) -> str:
    approach = next(node.approach for node in plan.nodes if node.fragment == given.because)
    if approach.keeper is Keeper.NOBODY:
        return "give it an approach that keeps something, such as rewake.ContinuousEventual()"
    return "have its output held until its record is kept, or give it an approach with a log"
