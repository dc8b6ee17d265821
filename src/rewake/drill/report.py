"""The page of a drill, made of what was kept of it; the same whether it has just run or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rewake.drill.kept import Course, raw_of
from rewake.drill.run import DrillResult
from rewake.report import Card, Cell, ChartMark, Facts, Limit, Page, Raw, data_folder, facts_now

_SECONDS = "seconds since the first result"
_WRONGS = ("lost", "duplicated", "reordered", "wrong")


def write_report(
    result: DrillResult,
    path: Path,
    command: str = "",
    *,
    facts: Facts | None = None,
    title: str = "Drill",
) -> Path:
    """Keep the data of a drill beside `path`, and write its page there; its path."""
    raw = raw_of(result, command, facts if facts is not None else facts_now(), title)
    raw.write(data_folder(path))
    return drill_page(raw).write(path)


def drill_page(raw: Raw) -> Page:
    """The page of a drill."""
    about, figures = raw.about, raw.about["figures"]
    page = Page(about["title"], raw.command, lead=_lead(figures), facts=raw.facts)
    page.text(
        "The verdict: every result right, none lost, duplicated, reordered or wrong."
        if figures["ok"]
        else "The verdict: RESULTS ARE NOT RIGHT; the figures say how many are lost, duplicated, "
        "reordered or wrong.",
        tone="good" if figures["ok"] else "bad",
    )
    page.cards(_cards(figures))
    for missed in figures["missed"]:
        page.text(f"{missed} did not happen: the query was over before.", tone="bad")
    over_time(page, Course(about, raw.tables))
    _tables(page, raw)
    page.heading("The query").drawing(about["query"])
    page.settings("Settings", about["settings"])
    return page


def over_time(page: Page, course: Course) -> None:
    """Charts of throughput, latency and what a crash would have cost, with every blow marked."""
    marks = [ChartMark(at, words) for at, words in course.about["marks"]]
    _pace(page, course, marks)
    _price(page, course, marks)


def _lead(figures: dict[str, Any]) -> str:
    kills = len(figures["kills"])
    times = {0: "nothing was killed", 1: "one node was hit"}.get(
        kills, f"nodes were hit {kills} times"
    )
    causes = ", ".join(f"{count} {cause}" for cause, count in figures.get("replaced", {}).items())
    replaced = f" (replaced: {causes})" if causes else ""
    return (
        f"{figures['tuples']:,} tuples went through the query in {figures['seconds']:.1f} s; "
        f"{times}{replaced}; {figures['results']:,} results came, each compared with what is "
        "expected."
    )  # fmt: skip


def _cards(figures: dict[str, Any]) -> list[Card]:
    latency, outages = figures["latency_ms"], figures["latency_with_outages_ms"]
    cards = [Card("tuples per second", figures["tuples_per_s"])]
    if latency["p50"] is not None:
        note = f"outages included: {outages['p50']:.0f} / {outages['p99']:.0f} ms"
        said = f"{latency['p50']:.0f} / {latency['p99']:.0f} ms"
        cards.append(Card("latency p50 / p99", said, note=note))
    first = figures["recovery_ms"]
    if first is not None:
        note = f"{first['beyond_restart']:.0f} ms beyond the restart"
        cards.append(Card("kill to next result", f"{first['total']:.0f} ms", note=note))
    return cards + [
        Card(name, figures[name], tone="bad" if figures[name] else "good") for name in _WRONGS
    ]


def _pace(page: Page, course: Course, marks: list[ChartMark]) -> None:
    seen = course.tables["timeline"]
    page.heading("Over time")
    rates = {"input": "tuples_per_s", "results": "results_per_s"}
    page.chart(
        "Throughput",
        _renamed(seen, rates), x="seconds", y=list(rates), x_title=_SECONDS,
        y_title="tuples per second", y_scale="symlog", marks=marks,
    )  # fmt: skip
    if course.about["paced"]:
        latencies = {"p50": "latency_p50_ms", "p99": "latency_p99_ms"}
        page.chart(
            "Latency",
            _renamed(seen, latencies), x="seconds", y=list(latencies), x_title=_SECONDS,
            y_title="ms", y_scale="log", marks=marks,
            note="From the moment at which the last tuple of a result was due to its arrival.",
        )  # fmt: skip


def _renamed(table: pa.Table, columns: dict[str, str]) -> pa.Table:
    shown = {name: table.column(kept) for name, kept in columns.items()}
    return pa.table({"seconds": table.column("seconds")} | shown)


def _price(page: Page, course: Course, marks: list[ChartMark]) -> None:
    """What a crash would have cost at each moment, against what was promised."""
    seen = course.tables["nodes"]
    stateful = [each for each in course.about["nodes"] if each["state"]]
    names = pa.array([each["node"] for each in stateful], pa.string())
    # From where the other charts begin.
    seen = seen.filter(pc.and_(pc.is_in(seen["node"], names), pc.greater_equal(seen["seconds"], 0)))
    if not seen.num_rows:
        return
    page.heading("What a crash would have cost")

    def chart(title: str, column: str, unit: str, limits: list[Limit], note: str) -> None:
        page.chart(
            title, seen, x="seconds", y=column, series="node", x_title=_SECONDS, y_title=unit,
            marks=marks, limits=limits, note=note,
        )  # fmt: skip

    if seen["predicted_ms"].null_count < seen.num_rows:
        promised = sorted({each for each in seen["target_ms"].to_pylist() if each is not None})
        limits = [Limit(each, f"promised: {each:g} ms") for each in promised]
        chart("Predicted recovery", "predicted_ms", "ms", limits,
              "Beyond the restart of a process, by the node's own reckoning.")  # fmt: skip
    for letter, column, target, note in (
        ("q", "extent_records", "records", "Records of its own log that a node would load."),
        ("u", "replay_tuples", "tuples", "Input tuples that a node would process again."),
    ):
        wanted = sorted({each[target] for each in stateful if each[target] is not None})
        limits = [Limit(each, f"target {letter.upper()}: {each:,}") for each in wanted]
        title = f"{letter}: {target} to {'load' if letter == 'q' else 'replay'}"
        chart(title, column, target, limits, note)


def _tables(page: Page, raw: Raw) -> None:
    page.heading("Checkpoints and recoveries")
    recoveries = raw.about["figures"]["recoveries"]
    if recoveries:
        came_back(page, recoveries)
    else:
        page.text("No node died.")
    columns = ["node", "approach", "CHECKs left", "most open windows", "q, most", "q, median",
               "u, most", "u, median", "late tuples", "of them dropped"]  # fmt: skip
    page.table(
        "What each node kept", columns, [_kept_row(raw, each) for each in raw.about["nodes"]]
    )


def came_back(page: Page, recoveries: Sequence[dict[str, Any]]) -> None:
    """A table with the phases of each recovery."""
    names = ("detect", "restart", "load", "replay", "total", "beyond_restart", "predicted")
    page.table(
        "How each node came back (ms)",
        ["node", *(name.replace("_", " ") for name in names), "promised"],
        [
            [each["node"], *(each.get(name) for name in names), _promised(each)]
            for each in recoveries
        ],
        "detect: until the coordinator knew; restart: until a new process asked for the node; "
        "load: reading the eventual checkpoint from the log; replay: input that the log "
        "already has the effects of; total: from the kill to the first new result; beyond "
        "restart: the total without the restart, which is what was predicted and promised.",
    )


def _promised(recovery: dict[str, Any]) -> Cell:
    target = recovery.get("target")
    if target is None:
        return Cell(None)
    return Cell(target, "good" if recovery["beyond_restart"] <= target else "bad")


def _kept_row(raw: Raw, node: dict[str, Any]) -> list[object]:
    if not node["state"]:
        return [node["node"], "no state", *[None] * 8]
    seen = raw.tables["nodes"]
    mine = seen.filter(pc.equal(seen["node"], node["node"]))
    figures: list[object] = [pc.max(mine[name]).as_py() for name in ("checks", "open_windows")]
    for name in ("extent_records", "replay_tuples"):
        figures.append(pc.max(mine[name]).as_py())
        median = pc.quantile(mine[name], q=0.5)[0].as_py() if mine.num_rows else None
        figures.append(median)
    late = [pc.max(mine[name]).as_py() for name in ("late_tuples", "late_dropped")]
    figures += [None if each is None else int(each) for each in late]
    return [node["node"], node["approach"], *figures]
