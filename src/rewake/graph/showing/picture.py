"""`picture`: a plan as a self-contained SVG.

Boxes are fragments, stacked when they have several shards; lines are channels.  Boxes bring their
own background and lines are of a middle grey, so the picture reads on light and dark pages alike.
It loads nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from rewake.graph.plan.plan import Plan
from rewake.graph.showing.layout import Layout, Place, Point, arrange
from rewake.graph.showing.overview import PRECISE, Box, Edge, Overview, overview

_LETTER = 6.7  # a generous width of a letter of 12 pixels
_LINE = 17.0
_HEADER = 28.0
_PADDING = 12.0
_MARGIN = 24.0
_LONGEST = 46  # letters in a line of a box
_GREY = "#7a8699"
_INK = "#1f2937"
_COLOURS = {
    "source": "#0f766e",
    "entry": "#0f766e",
    "filter": "#1d4ed8",
    "map": "#1d4ed8",
    "union": "#6d28d9",
    "aggregate": "#b45309",
    "sink": "#be123c",
}
_FONT = "font-family:ui-sans-serif,system-ui,sans-serif;font-size:12px"


def picture(plan: Plan) -> str:
    """The picture as SVG text, to be put into a page or a file."""
    seen = overview(plan)
    texts = {box.name: _texts(box) for box in seen.boxes}
    sizes = {box.name: _size(box, texts[box.name]) for box in seen.boxes}
    forward = [edge for edge in seen.edges if not edge.back]
    longest = max((len(_label(edge)) for edge in seen.edges), default=0)
    layout = arrange(
        sizes, [(edge.start, edge.end) for edge in forward], max(48.0, longest * _LETTER + 30)
    )
    backs = [edge for edge in seen.edges if edge.back]
    height = layout.height + 2 * _MARGIN + 22 * len(backs)
    body = [
        *(_line(edge, layout) for edge in _apart(forward)),
        *(_back_line(edge, layout, place) for place, edge in enumerate(backs)),
        *(_box(box, texts[box.name], layout.places[box.name]) for box in seen.boxes),
    ]
    return _document(plan, seen, layout.width + 2 * _MARGIN, height, body)


def _document(plan: Plan, seen: Overview, width: float, height: float, body: Sequence[str]) -> str:
    title = escape(f"The plan of query {plan.query}: {len(seen.boxes)} fragments")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="{_FONT};max-width:100%">'
    )
    tip = (
        '<defs><marker id="rewake-tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{_GREY}"/></marker></defs>'
    )
    shift = f'<g transform="translate({_MARGIN:.0f} {_MARGIN:.0f})">'
    return "\n".join([opening, f"<title>{title}</title>", tip, shift, *body, "</g>", "</svg>"])


# --- boxes -----------------------------------------------------------------------------------


def _texts(box: Box) -> list[tuple[str, str]]:
    """The lines of a box, each with its colour."""
    node = box.nodes[0]
    lines = [(_cut(line), _INK) for line in box.work]
    if box.approach:
        lines.append((_cut(f"approach {box.approach}"), _INK))
    if node.sink is None:
        lines.append(("logged" if node.logs else "not logged", "#166534" if node.logs else _GREY))
    if box.guarantee != PRECISE:
        lines.append((_cut(f"output: {box.guarantee}"), "#b91c1c"))
    lines += [(_cut(f"stream {name}"), "#166534") for name in box.streams]
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _heading(box: Box) -> str:
    return box.name if box.shards == 1 else f"{box.name} \u00d7 {box.shards}"


def _size(box: Box, lines: Sequence[tuple[str, str]]) -> tuple[float, float]:
    letters = max([len(line) for line, _ in lines] + [len(_heading(box)) + len(box.kind) + 3])
    width = max(letters * _LETTER + 2 * _PADDING, 130.0)
    return width, _HEADER + len(lines) * _LINE + _PADDING


def _box(box: Box, lines: Sequence[tuple[str, str]], place: Place) -> str:
    colour = _COLOURS.get(box.kind, _GREY)
    x, y, width, height = place.x, place.y, place.width, place.height
    outline = f'width="{width:.1f}" height="{height:.1f}" rx="7" stroke="{colour}"'
    parts = ["<g>", f"<title>{escape(_details(box))}</title>"]
    for behind in range(min(box.shards - 1, 2), 0, -1):
        away = 4 * behind
        parts.append(f'<rect x="{x + away:.1f}" y="{y + away:.1f}" {outline} fill="#f1f5f9"/>')
    parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {outline} fill="#ffffff" stroke-width="1.5"/>')
    parts.append(
        f'<path d="M{x:.1f} {y + _HEADER - 5:.1f}v{-_HEADER + 12:.1f}a7 7 0 0 1 7 -7'
        f"h{width - 14:.1f}a7 7 0 0 1 7 7v{_HEADER - 12:.1f}"
        f'z" fill="{colour}"/>'
    )
    line = y + 16
    parts.append(_text(x + _PADDING, line, _heading(box), "#ffffff", "font-weight:600"))
    parts.append(_text(x + width - _PADDING, line, box.kind, "#ffffff", "text-anchor:end"))
    for number, (text, ink) in enumerate(lines):
        parts.append(_text(x + _PADDING, y + _HEADER + 10 + number * _LINE, text, ink))
    return "".join([*parts, "</g>"])


def _details(box: Box) -> str:
    """What a pointer over the box shows: nothing cut."""
    approach = [f"approach {box.approach}"] if box.approach else []
    nodes = ", ".join(node.name for node in box.nodes)
    return "\n".join([f"nodes: {nodes}", *box.work, box.log, *approach, f"output {box.guarantee}"])


def _text(x: float, y: float, text: str, ink: str, style: str = "") -> str:
    styled = f' style="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}"{styled}>{escape(text)}</text>'


# --- lines -----------------------------------------------------------------------------------


def _label(edge: Edge) -> str:
    return ", ".join(each for each in ("late" if edge.late else "", edge.ports, edge.words) if each)


def _apart(edges: Iterable[Edge]) -> list[Edge]:
    """One edge for each pair of boxes; results and late tuples between the same two share it."""
    pairs: dict[tuple[str, str], Edge] = {}
    for edge in edges:
        known = pairs.get((edge.start, edge.end))
        words = edge.words if known is None else f"{_label(known)} + {_label(edge)}"
        late = edge.late and known is None
        ports = edge.ports if known is None else ""
        pairs[edge.start, edge.end] = Edge(edge.start, edge.end, words, late, ports, False)
    return list(pairs.values())


def _line(edge: Edge, layout: Layout) -> str:
    points = layout.lines[edge.start, edge.end]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        half = (x + to_x) / 2
        path += f"C{half:.1f} {y:.1f} {half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    dashes = ' stroke-dasharray="2 3"' if edge.late else ""
    return _path(path, dashes) + _middle_label(points, _label(edge))


def _middle_label(points: Sequence[Point], label: str) -> str:
    """Words in the gap before the last box, where no other box is."""
    if not label:
        return ""
    (x, y), (to_x, to_y) = points[-2:]
    return _pill((x + to_x) / 2, (y + to_y) / 2, label)


def _pill(x: float, y: float, label: str) -> str:
    """Words on a line, on a ground of their own."""
    width = len(label) * _LETTER + 8
    ground = (
        f'<rect x="{x - width / 2:.1f}" y="{y - 9:.1f}" width="{width:.1f}" height="18" rx="9" '
        'fill="#f1f5f9"/>'
    )
    return ground + _text(x, y + 4, label, "#475569", "text-anchor:middle")


def _back_line(edge: Edge, layout: Layout, number: int) -> str:
    """A loop: out at the right, below all boxes to the left, and in again."""
    start, end = layout.places[edge.start], layout.places[edge.end]
    x, y = start.x + start.width, start.middle + 12
    to_x, to_y = end.x, end.middle + 12
    floor = layout.height + 14 + 22 * number
    path = (
        f"M{x:.1f} {y:.1f}C{x + 30:.1f} {y:.1f} {x + 30:.1f} {floor:.1f} {x:.1f} {floor:.1f}"
        f"L{to_x:.1f} {floor:.1f}"
        f"C{to_x - 30:.1f} {floor:.1f} {to_x - 30:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    )
    label = ", ".join(each for each in ("loop", _label(edge)) if each)
    return _path(path, ' stroke-dasharray="6 4"') + _pill((x + to_x) / 2, floor, label)


def _path(path: str, extra: str) -> str:
    return (
        f'<path d="{path}" fill="none" stroke="{_GREY}" stroke-width="1.6"{extra} '
        'marker-end="url(#rewake-tip)"/>'
    )
