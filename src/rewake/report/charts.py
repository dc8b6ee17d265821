"""Charts as SVG: columns in, a Vega-Lite specification, drawn by vl-convert without a browser.

What always holds: the drawing uses the page's colours (variables of its style) and no script, and a
long series is thinned in a way that keeps its highest and lowest points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import UsageError

Kind = Literal["line", "point", "bar"]
Scale = Literal["linear", "log", "symlog"]

_MOST_POINTS = 480  # of a line; more than the pixels it has cannot be seen
_DOTTED = 60  # shorter lines also show their points
_FALLBACKS = (
    "#2563a8",
    "#c96a12",
    "#2c8a63",
    "#8a4fb0",
    "#a8324a",
    "#5f6b7a",
    "#93791a",
    "#1f8a9c",
)
COLOURS = tuple(f"var(--series-{place}, {each})" for place, each in enumerate(_FALLBACKS, 1))
# Words of marks that are close to each other are in rows, all above the chart; in pixels.
_ROW, _ROWS, _LETTER, _AXIS = 15, 3, 7.0, 45
_HEIGHT = 220
_INK, _SOFT, _LINE = "var(--ink, #1d2433)", "var(--soft, #5b6475)", "var(--line, #dfe3ea)"
_BAD = "var(--bad, #c0342b)"


class ChartMark(NamedTuple):
    """A moment on the x axis, with words."""

    at: float
    words: str


class Limit(NamedTuple):
    """A level of the y axis, with words: a target, a promise."""

    at: float
    words: str


def require_charts() -> None:
    """Refuse to begin what could not be reported at the end."""
    if find_spec("vl_convert") is None:
        raise UsageError(
            "reports need the packages of the extra `report`: pip install 'rewake[report]'"
        )


def chart_spec(
    data: pa.Table | Mapping[str, Any],
    *,
    x: str,
    y: str | Sequence[str],
    series: str | None,
    kind: Kind,
    x_title: str | None,
    y_title: str | None,
    x_scale: Scale,
    y_scale: Scale,
    marks: Sequence[ChartMark],
    limits: Sequence[Limit],
    width: int,
) -> dict[str, Any]:
    """The specification of a chart of that width, for `svg_of`."""
    lines = _lines(data, x, y, series, as_category=kind == "bar")
    points = [point for name, line in lines.items() for point in _points(name, line, y_scale)]
    names = list(lines)
    y_name = y_title if y_title is not None else (y if isinstance(y, str) else "")
    # With room for the words above a limit.
    levels = [limit.at * 1.12 for limit in limits]
    down = _scale(y_scale, [point["y"] for point in points] + levels)
    if levels and y_scale == "linear":
        down["scale"]["domainMax"] = max(
            [*levels, *(point["y"] for point in points if point["y"] is not None)]
        )
    across: dict[str, Any] = {"field": "x", "title": x if x_title is None else x_title}
    if kind == "bar":
        across |= {"type": "nominal", "sort": None, "axis": {"labelAngle": 0, "labelLimit": 160}}
    else:
        across |= _scale(x_scale, [point["x"] for point in points])
        if x_scale == "linear":
            across["scale"]["nice"] = False  # charts of one run end at the same moment
    encoding: dict[str, Any] = {"x": across, "y": {"field": "y", "title": y_name} | down}
    encoding["color"] = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": names, "range": [COLOURS[n % len(COLOURS)] for n in range(len(names))]},
        "legend": {"title": None, "columns": max(1, width // 150)} if len(names) > 1 else None,
    }
    if kind == "bar" and len(names) > 1:
        encoding["xOffset"] = {"field": "series", "sort": None}
        encoding["y"]["stack"] = None
    longest = max((len(line[0]) for line in lines.values()), default=0)
    layers: list[dict[str, Any]] = [{"mark": _mark(kind, longest), "encoding": encoding}]
    layers[0]["data"] = {"values": points}
    placed = _placed(marks, points, width)
    layers += _mark_layers(marks, placed)
    layers += _limit_layers(limits)
    above = _ROW * max((each.row + 1 for each in placed), default=0)
    if encoding["color"]["legend"] is not None:
        encoding["color"]["legend"]["offset"] = above + 6
    return {
        "layer": layers,
        "width": width,
        "height": _HEIGHT + above,
        "padding": {"top": 5, "bottom": 5, "left": 2, "right": 2},
        "autosize": {"type": "fit", "contains": "padding"},
    }


def svg_of(spec: dict[str, Any]) -> str:
    """Draw a specification in the page's colours."""
    require_charts()
    import vl_convert  # noqa: PLC0415 (an extra, and slow to import)

    return str(vl_convert.vegalite_to_svg(spec | {"config": _config()}))


def _config() -> dict[str, Any]:
    font = "system-ui, sans-serif"
    return {
        "aria": False,  # the figure has a label; one for each point would be noise, and large
        "background": "transparent",
        "font": font,
        "view": {"stroke": None},
        "range": {"category": list(COLOURS)},
        "axis": {
            "labelColor": _SOFT, "titleColor": _SOFT, "gridColor": _LINE, "domainColor": _SOFT,
            "tickColor": _SOFT, "labelFontSize": 12, "titleFontSize": 12,
            "titleFontWeight": "normal",
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False, "tickCount": 5},
        "legend": {
            "orient": "top", "labelColor": _INK, "titleColor": _SOFT, "labelFontSize": 12,
            # A reader's font may be wider than the one that the drawing was laid out with.
            "columnPadding": 22,
        },
        "header": {"labelColor": _INK, "titleColor": _SOFT},
        "title": {"color": _INK},
        "text": {"color": _INK},
    }  # fmt: skip


# --- data ------------------------------------------------------------------------------------

_Line = tuple[list[Any], np.ndarray[Any, np.dtype[np.float64]]]


def _lines(
    data: pa.Table | Mapping[str, Any],
    x: str,
    y: str | Sequence[str],
    series: str | None,
    *,
    as_category: bool,
) -> dict[str, _Line]:
    """The x and y of each line, by its name."""
    table = data if isinstance(data, pa.Table) else pa.table(dict(data))
    columns = [y] if isinstance(y, str) else list(y)
    wanted = [x, *columns, *([] if series is None else [series])]
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise UsageError(
            f"there is no column {missing[0]!r} to draw; there are {', '.join(table.column_names)}"
        )
    if series is not None and len(columns) > 1:
        raise UsageError("a chart of several columns cannot also have a column of series")
    across = table.column(x).to_pylist()
    if as_category:
        across = [str(each) for each in across]
    if series is None:
        return {name: (across, _floats(table.column(name))) for name in columns}
    values = _floats(table.column(columns[0]))
    places: dict[str, list[int]] = {}
    for place, name in enumerate(table.column(series).to_pylist()):
        places.setdefault(str(name), []).append(place)
    return {name: ([across[at] for at in mine], values[mine]) for name, mine in places.items()}


def _floats(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.float64]]:
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def _points(name: str, line: _Line, y_scale: Scale) -> list[dict[str, Any]]:
    across, values = line
    # What a scale cannot show is a gap, as are values that are not there.
    drawn = np.isfinite(values) & ((values > 0) | (y_scale != "log"))
    return [
        {"x": across[at], "y": float(f"{values[at]:.6g}") if drawn[at] else None,
         "series": name}
        for at in _kept(values)
    ]  # fmt: skip


def _kept(values: np.ndarray[Any, Any]) -> list[int]:
    """Which points of a long line to draw: of each stretch its first, highest and lowest."""
    if values.size <= _MOST_POINTS:
        return list(range(values.size))
    kept: set[int] = {values.size - 1}
    edges = np.linspace(0, values.size, _MOST_POINTS // 3 + 1).astype(int)
    for start, end in pairwise(edges):
        stretch = values[start:end]
        kept.add(int(start))
        if np.isfinite(stretch).any():
            kept |= {int(start + np.nanargmax(stretch)), int(start + np.nanargmin(stretch))}
        if not np.isfinite(stretch).all():
            kept.add(int(start + np.argmin(np.isfinite(stretch))))
    return sorted(kept)


# --- drawing ---------------------------------------------------------------------------------


def _scale(kind: Scale, values: Sequence[Any]) -> dict[str, Any]:
    numbers = [abs(each) for each in values if isinstance(each, int | float)]
    most = max(numbers, default=0)
    # Thousands as 20k; below, no "500m" for a half.
    axis: dict[str, Any] = {
        "format": "~s" if most >= 10_000 else ",.4~r" if most >= 1000 else ".4~g",
        "labelExpr": "datum.value === 0 ? '0' : datum.label",
    }
    if kind == "symlog":
        # Logarithmic but for the smallest values: shows what differs by orders, and zero.
        powers = [10.0**power for power in range(-3, 19) if most / 2000 <= 10.0**power <= most]
        smallest = powers[0] if powers else 1.0
        scale = {"type": "symlog", "constant": smallest}
        ticks = axis | _own_labels(axis) | {"values": [0.0, *powers]}
        return {"type": "quantitative", "scale": scale, "axis": ticks}
    if kind == "log":
        axis |= _own_labels(axis)
        axis["values"] = _log_ticks([each for each in numbers if each > 0])
    return {"type": "quantitative", "scale": {"type": kind}, "axis": axis}


def _own_labels(axis: dict[str, Any]) -> dict[str, Any]:
    """Labels each with a unit of its own: with that of the largest, 10k would be 0M."""
    return {"labelExpr": f"datum.value === 0 ? '0' : format(datum.value, '{axis['format']}')"}


def _log_ticks(numbers: Sequence[float]) -> list[float]:
    """Powers of ten, and 2 and 5 times those where there are few."""
    low, high = min(numbers, default=1.0), max(numbers, default=10.0)
    steps = (1, 2, 5) if high < 300 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps]


def _mark(kind: Kind, longest: int) -> dict[str, Any]:
    if kind == "bar":
        return {"type": "bar"}
    if kind == "point":
        return {"type": "point", "filled": True, "size": 36}
    line: dict[str, Any] = {"type": "line", "strokeWidth": 1.6}
    if longest <= _DOTTED:
        line["point"] = {"size": 24, "filled": True}
    return line


class _Words(NamedTuple):
    """Where the words of a mark go: the row above the chart, and on which side of the mark."""

    mark: ChartMark
    row: int
    align: str


def _placed(
    marks: Sequence[ChartMark], points: Sequence[dict[str, Any]], width: int
) -> list[_Words]:
    """Places for the words of marks, so that none overlap; words without a place are left out."""
    numbers = [point["x"] for point in points if isinstance(point["x"], int | float)]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    pixels = (width - _AXIS) / ((high - low) or 1.0)
    ends = [-1e9] * _ROWS
    placed = []
    for mark in sorted(marks):
        at, room = (mark.at - low) * pixels, len(mark.words) * _LETTER
        left = at + room > width - _AXIS
        start, end = (at - room, at) if left else (at, at + room)
        free = [row for row in range(_ROWS) if ends[row] + _LETTER <= start]
        if free:
            ends[free[0]] = end
            placed.append(_Words(mark, free[0], "right" if left else "left"))
    return placed


def _mark_layers(marks: Sequence[ChartMark], placed: Sequence[_Words]) -> list[dict[str, Any]]:
    if not marks:
        return []
    across = {"field": "x", "type": "quantitative"}
    rule = {"type": "rule", "color": _BAD, "strokeDash": [4, 3]}
    rules = {"values": [{"x": mark.at} for mark in marks]}
    layers: list[dict[str, Any]] = [{"data": rules, "mark": rule, "encoding": {"x": across}}]
    for mark, row, align in placed:
        words = {"type": "text", "text": mark.words, "color": _BAD, "baseline": "bottom",
                 "fontSize": 12, "align": align}  # fmt: skip
        height = {"value": -3 - _ROW * row}
        layers.append(
            {
                "data": {"values": [{"x": mark.at}]},
                "mark": words,
                "encoding": {"x": across, "y": height},
            }
        )
    return layers


def _limit_layers(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = []
    for limit in limits:
        at = {"y": {"field": "y", "type": "quantitative"}}
        shared = {"data": {"values": [{"y": limit.at}]}}
        rule = {"type": "rule", "color": _INK, "strokeDash": [6, 4]}
        words = {
            "type": "text", "text": limit.words, "color": _INK, "align": "left", "dx": 4, "dy": -3,
            "baseline": "bottom", "fontSize": 12,
        }  # fmt: skip
        layers.append(shared | {"mark": rule, "encoding": at})
        layers.append(shared | {"mark": words, "encoding": at | {"x": {"value": 0}}})
    return layers
