"""`picture`: a plan as the text of a Mermaid flowchart, which notebooks, GitHub and editors draw.

Boxes are fragments, arrows channels; a dotted arrow has late tuples or leads back.  What always
holds: text of the user is text there, whatever it holds, and the same plan gives the same picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rewake.graph.plan.plan import Plan
from rewake.graph.showing.overview import PRECISE, Box, Edge, overview
from rewake.recovery.approach import Kept

_LONGEST = 46  # letters in a line of a box
_SHAPES = {"source": ("([", "])"), "entry": ("([", "])"), "sink": ("[(", ")]")}


def picture(plan: Plan) -> str:
    """The picture as text."""
    seen = overview(plan)
    names = {box.name: f"f{number}" for number, box in enumerate(seen.boxes)}
    lines = ["flowchart LR"]
    for box in seen.boxes:
        opening, closing = _SHAPES.get(box.kind, ("[", "]"))
        words = "<br/>".join(map(_escaped, _words(box)))
        lines.append(f'  {names[box.name]}{opening}"{words}"{closing}')
    for edge in seen.edges:
        label = f'|"{_escaped(_label(edge))}"|' if _label(edge) else ""
        arrow = "-.->" if edge.late or edge.back else "-->"
        lines.append(f"  {names[edge.start]} {arrow}{label} {names[edge.end]}")
    return "\n".join(lines) + "\n"


def _words(box: Box) -> Iterator[str]:
    """The lines of a box."""
    node = box.nodes[0]
    yield f"{box.name}: {box.kind}" + (f" \u00d7 {box.shards}" if box.shards > 1 else "")
    yield from box.work
    if box.approach:
        yield f"approach {box.approach}"
    if node.sink is None:
        yield "logged" if node.kept is Kept.IN_LOG else "not logged"
    if box.guarantee != PRECISE:
        yield f"output: {box.guarantee}"
    yield from (f"stream {name}" for name in box.streams)


def _label(edge: Edge) -> str:
    words = ("loop" if edge.back else "", "late" if edge.late else "", edge.ports, edge.words)
    return ", ".join(each for each in words if each)


def _escaped(text: str) -> str:
    """What Mermaid shows as this text, cut where it is long: signs that might mean something."""
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return re.sub(r"[^\w\s.,:()+*/=%…\u00d7-]", lambda sign: f"#{ord(sign[0])};", text)
