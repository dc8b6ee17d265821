"""The report of a drill: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import html
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.lab.drill.run import DrillResult
from rewake.lab.drill.summary import summary
from rewake.lab.drill.timeline import Timeline, timeline
from rewake.model.errors import UsageError

_STYLE = """
:root { color-scheme: light; --ink: #1d2433; --soft: #5b6475; --line: #e3e6ec; --good: #1a7f4b;
        --bad: #c0342b; --card: #f7f8fa; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff;
       max-width: 960px; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p.lead { color: var(--soft); margin-top: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: .7rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
        padding: .6rem .8rem; }
.card b { display: block; font-size: 1.25rem; }
.card span { color: var(--soft); font-size: .85rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; } td, th { padding: .35rem .6rem; text-align: right;
        border-bottom: 1px solid var(--line); } td:first-child, th:first-child { text-align: left; }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { color: var(--soft); font-size: .85rem; }
svg { max-width: 100%; height: auto; }
"""


def require_charts() -> None:
    """Refuse to begin what could not be reported at the end."""
    if any(find_spec(name) is None for name in ("altair", "vl_convert")):
        raise UsageError(
            "reports need the packages of the extra `report`: pip install 'rewake[report]'"
        )


def write_report(result: DrillResult, path: Path) -> Path:
    """Write the report; its path."""
    figures = summary(result)
    verdict = "every result right" if figures["ok"] else "RESULTS ARE NOT RIGHT"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>Rewake drill: {html.escape(result.drill.name)}</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Drill: {html.escape(result.drill.name)}</h1>",
        f"<p class='lead'>{_lead(figures)} <b class='{_class(figures['ok'])}'>{verdict}</b></p>",
        _cards(figures),
        "<h2>Around the kill</h2>",
        *_figures(result),
        "<h2>How each node came back (ms)</h2>",
        _recovery_table(figures),
        "<h2>The query</h2><figure>",
        result.drill.build().picture(),
        "</figure></body></html>",
    ]
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _class(good: bool) -> str:
    return "good" if good else "bad"


def _lead(figures: dict[str, Any]) -> str:
    kills = len(figures["kills"])
    times = {0: "nothing was killed", 1: "one node was killed"}.get(kills, f"{kills} kills")
    return (
        f"{figures['tuples']:,} tuples through the query in {figures['seconds']:.1f} s; {times}; "
        f"{figures['results']:,} results, compared with an oracle:"
    )


def _cards(figures: dict[str, Any]) -> str:
    latency = figures["latency_ms"]
    shown: list[tuple[str, str, str]] = [
        ("tuples per second", f"{figures['tuples_per_s']:,}", ""),
        ("latency p50 / p99", _pair(latency["p50"], latency["p99"]), ""),
    ]
    if figures["recovery_ms"] is not None:
        shown.append(("kill to next result", f"{figures['recovery_ms']['total']:.0f} ms", ""))
    shown += [
        (name, f"{figures[name]:,}", _class(figures[name] == 0))
        for name in ("lost", "duplicated", "reordered", "wrong")
    ]
    cards = "".join(
        f"<div class='card'><b class='{kind}'>{value}</b><span>{name}</span></div>"
        for name, value, kind in shown
    )
    return f"<div class='cards'>{cards}</div>"


def _pair(first: float | None, second: float | None) -> str:
    return "not paced" if first is None or second is None else f"{first:.0f} / {second:.0f} ms"


def _recovery_table(figures: dict[str, Any]) -> str:
    names = ("detect", "restart", "load", "replay", "total")
    if not figures["recoveries"]:
        return "<p>No node died.</p>"
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        f"<tr><td>{html.escape(each['node'])}</td>"
        + "".join(f"<td>{each[name]:.1f}</td>" for name in names)
        + "</tr>"
        for each in figures["recoveries"]
    )
    note = (
        "<p class='lead'>detect: until the coordinator knew; restart: until a new process asked "
        "for the node; load: reading the eventual checkpoint from the log; replay: input that the "
        "log already has the effects of; total: from the kill to the first new result.</p>"
    )
    return f"<table><tr><th>node</th>{head}</tr>{rows}</table>{note}"


def _figures(result: DrillResult) -> list[str]:
    seen = timeline(result)
    marks = [(blow.at - result.first_result_at, f"kill {blow.node}") for blow in result.blows]
    charts = [_chart(_rates(seen), "tuples per second", marks, log=False)]
    if result.origin_ms is not None:
        charts.append(_chart(_latencies(seen), "latency (ms)", marks, log=True))
    return [f"<figure>{chart}</figure>" for chart in charts]


def _rates(seen: Timeline) -> pa.Table:
    return _long(seen.seconds, {"input": seen.tuples_per_s, "results": seen.results_per_s})


def _latencies(seen: Timeline) -> pa.Table:
    return _long(seen.seconds, {"p50": seen.latency_p50_ms, "p99": seen.latency_p99_ms})


def _long(seconds: np.ndarray[Any, Any], series: dict[str, np.ndarray[Any, Any]]) -> pa.Table:
    """One row per point, as the charts want it; a null is a gap in the line."""
    tables = []
    for name, values in series.items():
        known = np.isfinite(values)
        columns = {
            "seconds": np.round(seconds, 3),
            "value": pa.array(np.maximum(np.where(known, values, 1.0), 0.1), mask=~known),
            "series": [name] * len(values),
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _chart(table: pa.Table, title: str, marks: list[tuple[float, str]], *, log: bool) -> str:
    """A chart as SVG, so that the page needs no script."""
    require_charts()
    import altair  # noqa: PLC0415 (an extra)
    import vl_convert  # noqa: PLC0415

    # Inputs and results differ by the size of a window, and nothing comes during an outage: a
    # scale that is logarithmic but for the smallest values shows both, and zero.
    scale = altair.Scale(type="log") if log else altair.Scale(type="symlog", constant=1000)
    lines = (
        altair.Chart(altair.Data(values=table.to_pylist()))
        .mark_line(strokeWidth=1.4, point=altair.OverlayMarkDef(size=12))
        .encode(
            x=altair.X("seconds:Q", title="seconds since the first result"),
            y=altair.Y("value:Q", title=title, scale=scale, axis=altair.Axis(format="~s")),
            color=altair.Color("series:N", title=None,
                               scale=altair.Scale(range=["#2563a8", "#d9822b"])),
        )
    )  # fmt: skip
    layers = [lines]
    if marks:
        data = altair.Data(values=[{"at": at, "what": what} for at, what in marks])
        rules = altair.Chart(data).mark_rule(color="#c0342b", strokeDash=[4, 3]).encode(x="at:Q")
        words = (
            altair.Chart(data)
            .mark_text(align="left", dx=4, dy=-2, color="#c0342b", baseline="top")
            .encode(x="at:Q", y=altair.value(4), text="what:N")
        )
        layers += [rules, words]
    chart = altair.layer(*layers).properties(width=820, height=220)
    return str(vl_convert.vegalite_to_svg(chart.to_json()))
