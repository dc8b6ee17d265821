"""A plan seen from afar: fragments instead of nodes, and in words what each is.

What `explain` and `picture` have in common.  Everything here is read off the plan, so it is what
runs, not what was meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rewake.graph.plan.guarantees import Given, guarantees
from rewake.graph.plan.plan import InputPlan, NodePlan, OutputPlan, Plan
from rewake.operators.expressions.expression import expression
from rewake.operators.fragment import FilterStep, MapStep, OutputRoute, StatelessStep
from rewake.operators.lookups import LookupStep
from rewake.operators.splitting import SplitStep
from rewake.operators.stateful import FURTHER_PORTS, LATE_PORT
from rewake.operators.stateless import DivertStep
from rewake.recovery.approach import Guarantee, Kept, Survives

PRECISE = Guarantee.PRECISE.words


@dataclass(frozen=True, slots=True)
class Edge:
    """All channels from one fragment to another on one port."""

    start: str
    end: str
    # How tuples are divided among the shards.
    words: str
    late: bool
    # Which output of the start, and which input of the end, where there are several.
    ports: str
    # Whether it leads back to a fragment that comes before, or to the same one.
    back: bool


@dataclass(frozen=True, slots=True)
class Box:
    """One fragment: its shards' nodes (which only differ by number), and what it is in words."""

    nodes: tuple[NodePlan, ...]
    kind: str
    # What it does, a line for each step.
    work: tuple[str, ...]
    given: Given
    streams: tuple[str, ...]

    @property
    def name(self) -> str:
        """The fragment's name."""
        return self.nodes[0].fragment

    @property
    def shards(self) -> int:
        """How many nodes run it."""
        return len(self.nodes)

    @property
    def guarantee(self) -> str:
        """What holds for its output, and because of whom where that is not itself."""
        words = self.given.guarantee.words
        return (
            words
            if self.given.because == self.name
            else f"{words}, because of {self.given.because}"
        )

    @property
    def operator_class(self) -> str:
        """What a restart without any state would do to its output (Hwang 3.2.2)."""
        node = self.nodes[0]
        return node.program.operator_class(len(node.inputs)).words

    @property
    def approach(self) -> str:
        """How it recovers; nothing when there is nothing to recover."""
        node = self.nodes[0]
        return "" if node.kept is Kept.UPSTREAM or node.sink is not None else _approach(node)

    @property
    def caution(self) -> str:
        """What its approach leaves open, where it has state."""
        node = self.nodes[0]
        return "" if node.program.stateless else node.approach.caution

    @property
    def survives(self) -> str:
        """What its approach cannot outlast, where that is said of no log; mostly nothing."""
        node = self.nodes[0]
        if node.places == 1 or node.approach.survives is Survives.ALL:
            return ""
        return f"survives {node.approach.survives.value}; when all end, the query is lost"

    @property
    def log(self) -> str:
        """Whether its output is logged, and why."""
        node = self.nodes[0]
        return f"{'logged' if node.kept is Kept.IN_LOG else 'not logged'}: {node.kept_because}"


@dataclass(frozen=True, slots=True)
class Overview:
    """All fragments in the order of the plan, and what joins them."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def overview(plan: Plan) -> Overview:
    """The fragments and edges of a plan."""
    groups: dict[str, list[NodePlan]] = {}
    for node in plan.nodes:
        groups.setdefault(node.fragment, []).append(node)
    edges = tuple(_edges(plan, list(groups)))
    given = guarantees(plan)
    boxes = []
    for name, nodes in groups.items():
        names = {node.name for node in nodes}
        streams = tuple(
            stream
            for stream, outputs in plan.streams.items()
            if any(node in names for node, _ in outputs)
        )
        united = [edge.start for edge in edges if edge.end == name]
        kind, work = _kind(nodes[0], united), tuple(_work(nodes[0], united))
        boxes.append(Box(tuple(nodes), kind, work, given[name], streams))
    return Overview(tuple(boxes), edges)


# --- edges ----------------------------------------------------------------------


def _edges(plan: Plan, order: list[str]) -> Iterable[Edge]:
    nodes = {node.name: node for node in plan.nodes}
    seen = set()
    for node in plan.nodes:
        for channel in node.inputs:
            if channel.upstream is None:
                continue
            start = nodes[channel.upstream]
            route = start.program.routes[channel.output]
            key = (start.fragment, node.fragment, route.port, channel.port)
            if key not in seen:
                seen.add(key)
                back = order.index(start.fragment) >= order.index(node.fragment)
                ports = _ports(start.outputs[channel.output], route, node, channel)
                words = _division(start, node, route)
                yield Edge(*key[:2], words, route.port == LATE_PORT, ports, back)


def _ports(output: OutputPlan, route: OutputRoute, end: NodePlan, channel: InputPlan) -> str:
    words = []
    if route.port >= FURTHER_PORTS:
        words.append(output.stream.rpartition(".")[2])
    if len(end.input_schemas) > 1:
        words.append(f"input {channel.port + 1}")
    return ", ".join(words)


def _division(start: NodePlan, end: NodePlan, route: OutputRoute) -> str:
    if route.keys is not None:
        return f"by {', '.join(route.keys)} into {route.parts}"
    if end.shards > 1:
        return "one to one"
    return "" if start.shards == 1 else f"{start.shards} into 1"


# --- in words --------------------------------------------------------------------------------


def _kind(node: NodePlan, united: Sequence[str]) -> str:
    if node.sink is not None:
        return "sink"
    if node.program.stateful is not None:
        return node.program.stateful.kind
    if node.inputs[0].source is not None:
        return "source"
    if node.inputs[0].produced:
        return "entry"
    if len(united) > 1:
        return "union"
    if not (node.program.before or node.program.split):
        return "stream"
    if node.program.split is not None:
        return "split"
    if node.program.must_log and not all(isinstance(s, MapStep) for s in node.program.before):
        return "lookup"
    steps = node.program.before
    plain = [step.inner if isinstance(step, DivertStep) else step for step in steps]
    return "filter" if all(isinstance(step, FilterStep) for step in plain) else "map"


def _work(node: NodePlan, united: Sequence[str]) -> Iterable[str]:
    first = node.inputs[0]
    if first.source is not None:
        yield f"read {_described(first.source.describe())}"
    elif first.produced:
        yield "take what producers send"
    elif len(united) > 1 and node.program.stateful is None:
        yield f"unite {', '.join(united)}"
    yield from (_step(step) for step in node.program.before)
    if node.program.stateful is not None:
        yield from node.program.stateful.words()
    yield from (_step(step) for step in node.program.after)
    if node.program.split is not None:
        yield from _split(node.program.split)
    if node.sink is not None:
        yield f"write {_described(node.sink.describe())}"


def _step(step: StatelessStep) -> str:
    match step:
        case FilterStep():
            return f"filter {expression(step.predicate).text}"
        case MapStep():
            columns = [(name, expression(each).text) for name, each in step.columns]
            return "map " + ", ".join(
                text if name in (text, "") else f"{name} = {text}" for name, text in columns
            )
        case DivertStep():
            return f"{_step(step.inner)}; what it fails for is diverted"
        case LookupStep():
            return step.words
        case _:
            return step.name


def _split(split: SplitStep) -> Iterable[str]:
    for name, step in split.outputs:
        yield f"{name}: {expression(step.predicate).text}"
    if split.rest is not None:
        yield f"{split.rest}: the rest"


def _approach(node: NodePlan) -> str:
    settings = node.approach.settings()
    known = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    return f"{node.approach.name}({known})" if known else node.approach.name


def _described(values: dict[str, Any]) -> str:
    """A source or sink in one line: its kind, then its plain settings, cut where it gets long."""
    rest = dict(values)
    kind = rest.pop("kind", None) or rest.pop("source", None) or rest.pop("sink", None)
    texts = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in rest.items()
        if value is not None and not isinstance(value, list | dict)
    ]
    text = " ".join([*([str(kind)] if kind else []), *texts])
    return text if len(text) <= 72 else text[:71] + "…"
