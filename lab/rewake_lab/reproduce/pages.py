"""One page per paper, made of what was kept; nothing is run.

What always holds: every experiment of a paper that the folder holds is on its page, an unfinished
one with the rows it has and a sentence saying so, and those that are missing are named.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rewake.model.errors import UsageError
from rewake.report import Card, ChartMark, Facts, Page
from rewake_lab.reproduce.experiment import PAPERS, Experiment, Finding, OtherRows, Paper, Plot
from rewake_lab.reproduce.raw import Kept, kept_rows, manifest
from rewake_lab.reproduce.registry import ENTRIES, Entry

# Load average per core above which figures say little.  An experiment leaves some behind itself.
_BUSY = 2.0


def write_pages(folder: Path) -> list[Path]:
    """Make the pages of all papers of which the folder holds something."""
    kept = manifest(folder)
    if not kept:
        raise UsageError(
            f"{folder} holds no reproduced experiments; "
            f"run `rewake reproduce all --folder {folder}` first"
        )
    return [
        _write_page(folder, paper, kept)
        for paper in PAPERS
        if any(entry.paper == paper and entry.name in kept for entry in ENTRIES)
    ]


def _write_page(folder: Path, paper: Paper, kept: dict[str, Kept]) -> Path:
    entries = [entry for entry in ENTRIES if entry.paper == paper]
    there = [entry for entry in entries if entry.name in kept]
    commands = list(dict.fromkeys(kept[entry.name].command for entry in there))
    page = Page(
        PAPERS[paper],
        command="\n".join(commands),
        lead="The experiments run again by Rewake: our figures beside the paper's.",
        facts=Facts.from_json(kept[there[0].name].facts),
    )
    page.cards(_cards(entries, [kept[entry.name] for entry in there]))
    missing = [entry.name for entry in entries if entry.name not in kept]
    if missing:
        page.text(f"Not run: {', '.join(missing)}.", tone="bad")
    for entry in there:
        _add(page, folder, entry, kept[entry.name])
    return page.write(folder / f"{paper}.html")


def _cards(entries: list[Entry], there: list[Kept]) -> list[Card]:
    """What of the paper is there, at what size, and whether the machine was quiet."""
    complete = sum(each.state == "complete" for each in there)
    busiest = max(there, key=_load)
    return [
        Card("experiments complete", f"{complete} of {len(entries)}",
             "good" if complete == len(entries) else "bad"),
        Card("rows measured", sum(each.rows for each in there)),
        Card("scale", " and ".join(sorted({each.scale for each in there}))),
        Card("minutes", f"{sum(each.seconds for each in there) / 60:.1f}"),
        Card("load average per core, at most", f"{_load(busiest):.2f}",
             "bad" if _load(busiest) > _BUSY else "good", note=f"before {busiest.name}"),
    ]  # fmt: skip


def _load(kept: Kept) -> float:
    return float(kept.facts["load_average"]) / float(kept.facts["cores"])


def _add(page: Page, folder: Path, entry: Entry, kept: Kept) -> None:
    page.heading(f"{entry.figure}: {entry.title}")
    if kept.state == "complete":
        try:
            _add_shown(page, entry.load(), kept_rows(folder, entry.name))
        except OtherRows as error:
            page.text(str(error), tone="bad")
        except KeyError as error:  # a column of the rows, by the name that it has today
            page.text(f"the raw data has no {error}: run the experiment again", tone="bad")
    else:
        page.text(f"{kept.state}: only {kept.rows} rows were kept. {kept.error}", tone="bad")
        if kept.rows:
            table = kept_rows(folder, entry.name)
            cells = [list(row.values()) for row in table.to_pylist()]
            page.table("What was measured", table.column_names, cells)
    load, cores = kept.facts["load_average"], kept.facts["cores"]
    if _load(kept) > _BUSY:
        page.text(
            f"The machine was busy before this began: a load average of {load:.1f} on {cores} "
            "cores. Differences may be those of what else it did; run it again when it is quiet.",
            tone="bad",
        )
    page.text(
        f"Scale {kept.scale}: {kept.scaling}. Seed {kept.seed}, {kept.seconds:.0f} s from "
        f"{kept.started}, load average {load:.2f} before and {kept.load_after:.2f} after.",
        tone="soft",
    )


def _add_shown(page: Page, experiment: Experiment, table: pa.Table) -> None:
    verdict, plots = experiment.verdict(table), experiment.plots(table)
    page.text(verdict)
    for plot in plots:
        _draw(page, plot)
    page.table("Beside the paper", *finding_cells(experiment.findings(table)))


def finding_cells(findings: list[Finding]) -> tuple[list[str], list[list[object]]]:
    """Head and rows of the table of findings."""
    rows: list[list[object]] = [[each.what, each.ours, each.paper, each.unit] for each in findings]
    return ["figure", "ours", "the paper's", "unit"], rows


def _draw(page: Page, plot: Plot) -> None:
    page.chart(
        plot.title,
        plot.data,
        x=plot.x,
        y=plot.y,
        series=plot.series,
        kind=plot.kind,
        x_title=plot.x_title,
        y_title=plot.y_title,
        x_scale=plot.x_scale,
        y_scale=plot.y_scale,
        marks=[ChartMark(*mark) for mark in plot.marks],
    )
