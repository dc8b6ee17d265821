"""The page of a benchmark: its rows, their targets, and which are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewake.drill.kept import Course
from rewake.drill.report import came_back, over_time
from rewake.report import Card, Cell, Facts, Page, Raw, data_folder
from rewake_lab.bench.rows import Row, Shown

KIND = "bench"
ROWS_SCHEMA = pa.schema(
    {"name": pa.string(), "value": pa.float64(), "unit": pa.string(), "target": pa.string(),
     "note": pa.string()}
)  # fmt: skip


def write_bench_report(
    rows: Sequence[Row],
    path: Path,
    title: str,
    command: str,
    facts: Facts,
    about: Mapping[str, Any] | None = None,
    shown: Shown | None = None,
) -> Path:
    """Write the page to `path` and keep its data in the folder `<name>-data` beside it.

    `about` may have `tables` (title, columns, rows of text), `settings` (name to text), `missing`
    (sentences) and a `query` as `explain` tells it, which the page shows around the figures.
    """
    table = pa.Table.from_pylist([asdict(row) for row in rows], ROWS_SCHEMA)
    raw = Raw(KIND, command, facts, {**(about or {}), "title": title}, {"rows": table})
    raw = with_course(raw, shown)
    raw.write(data_folder(path))
    return bench_page(raw).write(path)


def with_course(raw: Raw, shown: Shown | None) -> Raw:
    """The same with a run that the page shows over time; without one, as it is."""
    if shown is None:
        return raw
    course = {"name": shown.words, **shown.course.about}
    about, tables = {**raw.about, "course": course}, {**raw.tables, **shown.course.tables}
    return Raw(raw.kind, raw.command, raw.facts, about, tables)


def bench_page(raw: Raw, cards: Sequence[Card] = ()) -> Page:
    """The page of a benchmark; `cards` come before those that all have."""
    rows = [Row(**row) for row in raw.tables["rows"].to_pylist()]
    page = Page(raw.about["title"], raw.command, facts=raw.facts)
    aimed = [row for row in rows if row.met is not None]
    met = sum(bool(row.met) for row in aimed)
    page.text("Figures of this one machine: ratios, measured side by side, travel; times do not.",
              tone="soft")  # fmt: skip
    page.cards(
        [
            *cards,
            Card("figures", len(rows)),
            Card("targets met", f"{met} of {len(aimed)}", "good" if met == len(aimed) else "bad"),
        ]
    )
    for table in raw.about.get("tables", []):
        page.table(table["title"], table["columns"], table["rows"], table.get("note", ""))
    if missing := raw.about.get("missing"):
        page.table("Not measured", ["what, and why"], [[each] for each in missing])
    columns = ["figure", "value", "unit", "target", "met", "note"]
    page.table("Figures", columns, [_row(row) for row in rows])
    if course := raw.about.get("course"):
        over_time(page, Course(course, raw.tables))
        page.text(course["name"], tone="soft")
        if recoveries := course.get("recoveries"):
            came_back(page, recoveries)
    if settings := raw.about.get("settings"):
        page.settings("Settings", settings)
    if query := raw.about.get("query"):
        page.heading("The query").drawing(query)
    return page


def _row(row: Row) -> list[object]:
    met = Cell(None) if row.met is None else Cell(row.met, "good" if row.met else "bad")
    return [row.name, row.value, row.unit, row.target, met, row.note]
