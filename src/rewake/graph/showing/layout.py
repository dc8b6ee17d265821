"""A layered layout: boxes in columns from left to right, lines around them (Sugiyama et al. 1981).

Four steps: a column for each box (after all that feed it), places for lines that pass a column, an
order within columns that keeps lines from crossing, and heights that keep them straight.  The same
graph always gives the same layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
_SWEEPS = 8
_ROW_GAP = 26.0
_BEND = 14.0  # the height that a line takes where it passes a column


@dataclass(frozen=True, slots=True)
class Place:
    """Where a box is; `x` and `y` are its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Half way down."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of boxes, and for each line the points it goes through, from box to box."""

    places: dict[str, Place]
    lines: dict[tuple[str, str], list[Point]]
    width: float
    height: float


def arrange(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str]],
    column_gap: float,
) -> Layout:
    """Place boxes of these sizes; `edges` lead from earlier boxes to later ones."""
    layers = _layers(list(sizes), edges)
    columns: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for name, layer in layers.items():
        columns[layer].append(name)
    heights = {name: size[1] for name, size in sizes.items()}
    chains = _chains(edges, layers, columns, heights)
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    _order(columns, links)
    middles = _middles(columns, links, heights)
    places = _places(columns, sizes, middles, column_gap)
    lines = {edge: _points(chain, places) for edge, chain in chains.items()}
    return Layout(
        {name: places[name] for name in sizes},
        lines,
        max((each.x + each.width for each in places.values()), default=0.0),
        max((each.y + each.height for each in places.values()), default=0.0),
    )


def _layers(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    layers = dict.fromkeys(names, 0)
    for name in names:  # in the order of the plan, so what feeds a box is done before it
        for start, end in edges:
            if start == name:
                layers[end] = max(layers[end], layers[start] + 1)
    return layers


def _chains(
    edges: Sequence[tuple[str, str]],
    layers: Mapping[str, int],
    columns: list[list[str]],
    heights: dict[str, float],
) -> dict[tuple[str, str], list[str]]:
    """Each edge as a chain that has a bend in every column it passes."""
    chains = {}
    for start, end in dict.fromkeys(edges):
        bends = [f"{start} {end} {layer}" for layer in range(layers[start] + 1, layers[end])]
        for layer, bend in enumerate(bends, layers[start] + 1):
            columns[layer].append(bend)
            heights[bend] = _BEND
        chains[start, end] = [start, *bends, end]
    return chains


def _order(columns: list[list[str]], links: Sequence[tuple[str, str]]) -> None:
    """Sort columns by where their neighbours are, to and fro."""
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            place = {name: spot for each in columns for spot, name in enumerate(each)}
            means = {
                name: _mean(
                    [place[a] for a, b in links if b == name]
                    if forward
                    else [place[b] for a, b in links if a == name],
                    place[name],
                )
                for name in column
            }
            column.sort(key=means.__getitem__)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _middles(
    columns: list[list[str]], links: Sequence[tuple[str, str]], heights: Mapping[str, float]
) -> dict[str, float]:
    """The height of each box's middle: near those of its neighbours, without overlap."""
    middles: dict[str, float] = {}
    for column in columns:
        _stack(column, dict.fromkeys(column, 0.0), heights, middles)
    for _ in range(_SWEEPS):
        for column in columns:
            wanted = {
                name: _mean(
                    [middles[b if a == name else a] for a, b in links if name in (a, b)],
                    middles[name],
                )
                for name in column
            }
            _stack(column, wanted, heights, middles)
    top = min((middles[name] - heights[name] / 2 for name in middles), default=0.0)
    return {name: middle - top for name, middle in middles.items()}


def _stack(
    column: Sequence[str],
    wanted: Mapping[str, float],
    heights: Mapping[str, float],
    middles: dict[str, float],
) -> None:
    """Put a column's boxes in order, as near to where they want to be as a common shift allows."""
    if not column:
        return
    floor = float("-inf")
    shift = 0.0
    for name in column:
        middle = max(wanted[name], floor + heights[name] / 2)
        middles[name] = middle
        shift += wanted[name] - middle
        floor = middle + heights[name] / 2 + _ROW_GAP
    for name in column:
        middles[name] += shift / len(column)


def _places(
    columns: list[list[str]],
    sizes: Mapping[str, tuple[float, float]],
    middles: Mapping[str, float],
    column_gap: float,
) -> dict[str, Place]:
    places = {}
    x = 0.0
    for column in columns:
        width = max((sizes[name][0] for name in column if name in sizes), default=0.0)
        for name in column:
            # A bend is as wide as its column, so that the line stays straight beside the boxes.
            own, height = sizes.get(name, (width, _BEND))
            places[name] = Place(x + (width - own) / 2, middles[name] - height / 2, own, height)
        x += width + column_gap
    return places


def _points(chain: Sequence[str], places: Mapping[str, Place]) -> list[Point]:
    first, last = places[chain[0]], places[chain[-1]]
    points = [(first.x + first.width, first.middle)]
    for bend in chain[1:-1]:
        place = places[bend]
        points += [(place.x, place.middle), (place.x + place.width, place.middle)]
    return [*points, (last.x, last.middle)]
