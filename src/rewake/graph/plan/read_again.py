"""What a step must be that keeps nothing itself, because its input is kept upstream.

After a crash it begins empty, in the middle of its input, and must come to what it was.  So it must
get the same input again, cut the same way and telling time at the same places, and must be one that
becomes the same again from there.  Where that cannot be, the plan is refused.

Its input comes from a log, or is held until it is kept in other places: then it is what it was.  Or
it is made again, and then what is said here of input holds for whoever makes it, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from rewake.graph.plan.fragments import Fragment
from rewake.graph.plan.wiring import Wiring
from rewake.graph.steps import Kind
from rewake.model.errors import UsageError
from rewake.operators.classes import OperatorClass
from rewake.recovery.approach import Keeper, Kept, Release

__all__ = ["check_read_again"]

_WITH_LOG = "give {} an approach with a log (rewake.ContinuousEventual()) or a standby"


def check_read_again(
    kept: Mapping[Fragment, tuple[Kept, str]],
    feeds: Mapping[Fragment, list[Fragment]],
    channels: Wiring,
) -> None:
    """Raise UsageError for a step that its approach could not bring back from its input alone."""
    fed_by = {each: [one for one, fed in feeds.items() if each in fed] for each in feeds}
    for fragment, (where, _) in kept.items():
        if where is not Kept.IN_QUEUE or fragment.approach.keeper is not Keeper.COORDINATOR:
            continue
        problem = _of_itself(fragment, channels)
        if not problem:
            problem = _of_input(fed_by[fragment], kept, fed_by, channels)
        if problem:
            raise UsageError(
                f"step {_name(fragment)!r} cannot be under approach {fragment.approach.name!r}, "
                f"which brings it back from its input alone: {problem}"
            )


def _name(fragment: Fragment) -> str:
    return (fragment.stateful or fragment.tail).name


def _of_itself(fragment: Fragment, channels: Wiring) -> str:
    """Why it would not come to what it was, and what to do; mostly nothing."""
    if fragment.head.kind is Kind.ENTRY:
        return "producers cannot be asked twice; " + _WITH_LOG.format("the entry")
    inputs = _inputs(fragment, channels)
    if inputs:
        return f"{inputs}; " + _WITH_LOG.format("it")
    known = fragment.program(channels.routes(fragment)).operator_class()
    if known >= OperatorClass.CONVERGENT_CAPABLE:
        return ""
    if known is OperatorClass.ARBITRARY:
        why = "what it gives goes by chance, by the clock of the machine, or by a system outside"
    else:
        why = (
            "begun in the middle of its input it would never give the same again, as windows of "
            "counts would begin elsewhere, or nothing says that it would, as of functions"
        )
    return (
        f"{why} (it is {known.words}, and must be convergent-capable: expressions, windows of "
        f"time, sessions, sorts with flush=True); " + _WITH_LOG.format("it")
    )


def _inputs(fragment: Fragment, channels: Wiring) -> str:
    """Whether the order of its input is chance; nothing when it has one input."""
    inputs = channels.inputs(fragment, 0)
    if len(inputs) < 2:
        return ""
    names = ", ".join(repr(each.name) for each in inputs)
    return f"it reads {names}, and in which order these meet is chance, which nobody writes down"


def _of_input(
    asked: list[Fragment],
    kept: Mapping[Fragment, tuple[Kept, str]],
    fed_by: Mapping[Fragment, list[Fragment]],
    channels: Wiring,
) -> str:
    """Why its input might not come again as it was, and what to do; mostly nothing."""
    waiting, seen = list(asked), set(asked)
    while waiting:
        fragment = waiting.pop()
        made_again = kept[fragment][0] is Kept.UPSTREAM or (
            kept[fragment][0] is Kept.IN_QUEUE and fragment.approach.release is Release.AT_ONCE
        )
        if not made_again:
            continue
        problem = _not_the_same(fragment, channels)
        if problem:
            return f"its input is made again by {_name(fragment)!r}, and {problem}"
        waiting += [each for each in fed_by[fragment] if each not in seen]
        seen.update(fed_by[fragment])
    return ""


def _not_the_same(fragment: Fragment, channels: Wiring) -> str:
    inputs = _inputs(fragment, channels)
    if inputs:
        return f"{inputs}; " + _WITH_LOG.format(repr(_name(fragment)))
    if fragment.head.idle_after_ms is not None:
        return (
            "when that falls silent (idle_after) is chance; leave idle_after out, or have a step "
            "between the two under an approach with a log"
        )
    if fragment.program(channels.routes(fragment)).operator_class() is OperatorClass.ARBITRARY:
        return "what that gives goes by chance or by a system outside; " + _WITH_LOG.format(
            repr(_name(fragment))
        )
    return ""
