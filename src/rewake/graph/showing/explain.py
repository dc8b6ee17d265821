"""`explain`: a plan as a tree of text, in the direction in which tuples flow.

A fragment with several inputs is told where it is met first, and only named where it is met again.
"""

from __future__ import annotations

from collections.abc import Iterable

from rewake.graph.plan.plan import Plan
from rewake.graph.showing.overview import Box, Edge, Overview, overview


def explain(plan: Plan) -> str:
    """What runs, what joins it, what is logged and why, and what is guaranteed."""
    seen = overview(plan)
    fragments, nodes = len(seen.boxes), len(plan.nodes)
    on = f"{_counted(fragments, 'fragment')} on {_counted(nodes, 'node')}"
    hosts = "" if plan.servers is None else f", {_counted(len(plan.hosting), 'server')}"
    lines = [
        f"query {plan.query}: {on}{hosts}",
        f"fingerprint {plan.fingerprint[:16]}",
        "",
    ]
    told: set[str] = set()
    starts = [box for box in seen.boxes if not _edges_into(seen, box.name)]
    for box in starts or seen.boxes[:1]:
        lines += _told(seen, box, None, "", "", told)
    lines += ["", *_streams(plan), *_servers(plan)]
    return "\n".join(lines).rstrip() + "\n"


def _told(
    seen: Overview, box: Box, edge: Edge | None, first: str, rest: str, told: set[str]
) -> Iterable[str]:
    """One fragment and what it feeds; `first` goes before its name, `rest` before other lines."""
    late = ["late tuples"] if edge is not None and edge.late else []
    words = [] if edge is None else [*late, edge.ports, edge.words]
    over = ", ".join(each for each in words if each)
    over = f"  <- {over}" if over else ""
    if box.name in told:
        yield f"{first}{box.name}, {'see above' if not (edge and edge.back) else 'a loop'}{over}"
        return
    told.add(box.name)
    yield f"{first}{box.name}: {box.kind}, {_counted(box.shards, 'shard')}{over}"
    edges = [each for each in seen.edges if each.start == box.name]
    bar = "│ " if edges else "  "
    for line in _details(box):
        yield f"{rest}{bar}  {line}"
    boxes = {each.name: each for each in seen.boxes}
    for place, below in enumerate(edges):
        last = place == len(edges) - 1
        yield from _told(
            seen,
            boxes[below.end],
            below,
            f"{rest}{'└─' if last else '├─'} ",
            f"{rest}{'   ' if last else '│  '}",
            told,
        )


def _details(box: Box) -> Iterable[str]:
    yield from box.work
    yield box.log
    approach = f"approach {box.approach}, " if box.approach else ""
    yield f"{box.operator_class}, {approach}output {box.guarantee}: {box.given.why}"
    yield from (each for each in (box.survives, box.caution) if each)


def _streams(plan: Plan) -> Iterable[str]:
    if plan.streams:
        yield "streams"
    for name, outputs in plan.streams.items():
        yield f"  {name}: {', '.join(f'{node}:{output}' for node, output in outputs)}"


def _servers(plan: Plan) -> Iterable[str]:
    """Who is hosted where, if the query says how many servers there are."""
    if plan.servers is None:
        return
    yield "servers"
    for server in plan.hosting:
        yield f"  {server.name}: {', '.join(map(str, server.seats))}"


def _edges_into(seen: Overview, name: str) -> list[Edge]:
    return [edge for edge in seen.edges if edge.end == name and not edge.back]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
