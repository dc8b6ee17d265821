"""From steps to fragments: the steps that run, fail and recover together on one node.

By default each entry, union, step with state and sink is a fragment of its own, and filters, maps
and a split that follow each other, or a source, are one with it.  `fragment="name"` fuses others,
or keeps a source apart, as far as a fragment can hold them: something that brings tuples in, steps
without state, at most one with state, and more steps without.

Invariant: within a fragment every step feeds exactly the next, shard by shard.
"""

from __future__ import annotations

from dataclasses import dataclass

from rewake.graph.steps import RESULTS, Graph, Kind, Port, Step
from rewake.model.errors import UsageError
from rewake.operators.fragment import FragmentProgram, OutputRoute, StatelessStep
from rewake.operators.stateful import StatefulSpec
from rewake.recovery.approach import Approach

_WITHOUT_STATE = (Kind.FILTER, Kind.MAP, Kind.SPLIT)
# What they share a fragment with by themselves: a source makes its tuples again as well as they do.
_FEEDS_WITHOUT_STATE = (Kind.SOURCE, *_WITHOUT_STATE)


@dataclass(frozen=True, eq=False, slots=True)
class Fragment:
    """Steps that are one unit of failure, with what they have in common."""

    name: str
    steps: tuple[Step, ...]
    approach: Approach

    @property
    def head(self) -> Step:
        """The step that takes the fragment's input."""
        return self.steps[0]

    @property
    def tail(self) -> Step:
        """The step whose results leave the fragment."""
        return self.steps[-1]

    @property
    def shards(self) -> int:
        """How many nodes run it."""
        return self.head.shards

    @property
    def stateful(self) -> Step | None:
        """Its stateful step."""
        return next((step for step in self.steps if step.spec is not None), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes, by shard."""
        if self.shards == 1:
            return (self.name,)
        return tuple(f"{self.name}-{shard}" for shard in range(self.shards))

    def program(self, routes: tuple[OutputRoute, ...]) -> FragmentProgram:
        """What its nodes run."""
        before: list[StatelessStep] = []
        after: list[StatelessStep] = []
        spec: StatefulSpec | None = None
        for step in self.steps:
            spec = step.spec or spec
            if step.stateless is not None:
                (before if spec is None else after).append(step.stateless)
        return FragmentProgram(tuple(before), spec, tuple(after), routes, self.tail.split)


def users(graph: Graph) -> dict[Port, list[Step]]:
    """Who reads each port, in the order the steps were added."""
    found: dict[Port, list[Step]] = {}
    for step in graph.steps:
        for port in graph.inputs(step):
            found.setdefault(port, []).append(step)
    return found


def form_fragments(graph: Graph) -> tuple[Fragment, ...]:
    """All fragments of a graph, in the order their first steps were added."""
    read_by = users(graph)
    groups: dict[Step, list[Step]] = {}  # by the last step so far
    for step in graph.steps:
        if step.kind is Kind.LOOP:
            continue
        earlier = _joined(graph, read_by, step)
        group = groups.pop(earlier) if earlier is not None else []
        groups[step] = [*group, step]
    order = {step: place for place, step in enumerate(graph.steps)}
    ordered = sorted(groups.values(), key=lambda group: order[group[0]])
    fragments = tuple(_fragment(graph, group) for group in ordered)
    _check_names(fragments)
    return fragments


def _joined(graph: Graph, read_by: dict[Port, list[Step]], step: Step) -> Step | None:
    """The step that this one shares a fragment with and follows, if there is one."""
    for port in step.inputs:
        earlier = port.step
        named = step.fragment is not None and earlier.fragment == step.fragment
        plain = step.fragment is None and earlier.fragment is None
        plain = plain and _approach(graph, step) == _approach(graph, earlier)
        usual = plain and step.kind in _WITHOUT_STATE and earlier.kind in _FEEDS_WITHOUT_STATE
        if not named and not usual:
            continue
        obstacle = _obstacle(graph, read_by, port, step)
        if not obstacle:
            return earlier
        if named:
            raise UsageError(
                f"steps {earlier.name!r} and {step.name!r} cannot share fragment "
                f"{step.fragment!r}: {obstacle}"
            )
    return None


def _obstacle(graph: Graph, read_by: dict[Port, list[Step]], port: Port, step: Step) -> str:
    """Why a step cannot be in one fragment with the one before it; nothing when it can."""
    earlier = port.step
    others = [each.name for each in read_by.get(Port(earlier), []) if each is not step]
    if len(step.inputs) > 1:
        return f"{step.name!r} has several inputs; only the first step of a fragment may"
    if any(
        each.further and each.kind is not Kind.SPLIT for each in (step, earlier) if not each.spec
    ):
        return "tuples that one of them fails for leave its fragment"
    if port.port != RESULTS:
        return f"{port.name!r} leaves the fragment of its step"
    if others:
        return f"{earlier.name!r} is also read by {', '.join(others)}"
    if Port(earlier) in graph.streams.values():
        return f"the output of {earlier.name!r} is kept as a stream"
    if earlier.shards != step.shards:
        return f"one has {earlier.shards} shards and the other {step.shards}"
    if step.shards > 1 and (step.partition_by or step.spec):
        return f"between them tuples are divided by key among {step.shards} shards"
    return _obstacle_of_state(step) if step.spec is not None else ""


def _obstacle_of_state(step: Step) -> str:
    earlier = step.inputs[0].step
    while earlier.fragment == step.fragment:
        if earlier.spec is not None:
            return f"a fragment holds one step with state, and {earlier.name!r} is one already"
        if earlier.kind is Kind.ENTRY:
            return (
                "a step with state is rebuilt by reading its input again, and producers cannot be "
                "asked twice"
            )
        if len(earlier.inputs) != 1:
            break
        earlier = earlier.inputs[0].step
    return ""


def _fragment(graph: Graph, steps: list[Step]) -> Fragment:
    name = steps[0].fragment or steps[-1].name
    _check_lookups(name, steps)
    given = [step for step in steps if step.approach is not None]
    for step in given[1:]:
        if step.approach != given[0].approach:
            raise UsageError(
                f"steps {given[0].name!r} and {step.name!r} cannot share fragment {name!r}: they "
                "have different approaches, and a fragment recovers as one"
            )
    return Fragment(name, tuple(steps), _approach(graph, given[0] if given else steps[0]))


def _check_lookups(name: str, steps: list[Step]) -> None:
    stateful = next((step for step in steps if step.spec is not None), None)
    asking = next((step for step in steps if step.kind is Kind.LOOKUP), None)
    if stateful is not None and asking is not None:
        raise UsageError(
            f"steps {asking.name!r} and {stateful.name!r} cannot share fragment {name!r}: a step "
            "with state is rebuilt by repeating its turns, and a database may answer differently "
            "then; leave the lookup in a fragment of its own"
        )


def _approach(graph: Graph, step: Step) -> Approach:
    return step.approach or graph.approach


def _check_names(fragments: tuple[Fragment, ...]) -> None:
    owners: dict[str, Fragment] = {}
    for fragment in fragments:
        for node in {fragment.name, *fragment.nodes}:
            other = owners.setdefault(node, fragment)
            if other is not fragment:
                raise UsageError(
                    f"step {fragment.tail.name!r} and step {other.tail.name!r} would both have a "
                    f"node or fragment named {node!r}; rename one, or let one follow the other "
                    "directly if they are meant to be one fragment"
                )
