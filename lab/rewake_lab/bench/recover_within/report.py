"""The page of `rewake bench recover-within`, and every drill as data beside it.

What always holds: whatever runs are complete are kept after each of them, so that a benchmark that
is cut short in any way leaves its drills.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rewake.report import Card, Facts, Page, Raw, data_folder
from rewake_lab.bench.recover_within.measure import Evidence
from rewake_lab.bench.recover_within.runs import (
    EVENT_TUPLES,
    LATEST,
    NODE,
    RATE,
    SOONEST,
    WINDOW,
    Ran,
    drills_table,
)
from rewake_lab.bench.recover_within.streams import ShapedDrill
from rewake_lab.bench.report import ROWS_SCHEMA, bench_page, with_course
from rewake_lab.bench.rows import Shown

__all__ = ["KIND", "keep", "promises_page", "show", "shown_over_time"]

KIND = "recover-within"
_TITLE = "rewake bench recover-within"
_SETTINGS = {
    "killed": f"{NODE}, with SIGKILL, every {SOONEST:g} to {LATEST:g} s, decided by a seed",
    "rate": f"{RATE:,.0f} tuples/s in stream events of {EVENT_TUPLES:,}",
    "windows": f"count windows of {WINDOW} tuples, one for each key at a time",
    "checkpoint_budget": "5%",
}


def _raw(evidence: Evidence, command: str, facts: Facts) -> Raw:
    rows = pa.Table.from_pylist([asdict(row) for row in evidence.rows()], ROWS_SCHEMA)
    tables = {"rows": rows, "drills": drills_table(evidence.runs), "runs": _runs(evidence)}
    about = {"title": _TITLE, "missing": evidence.missing, "settings": _SETTINGS}
    about["query"] = ShapedDrill().build().explain()
    return with_course(Raw(KIND, command, facts, about, tables), shown_over_time(evidence.runs))


def shown_over_time(runs: list[Ran]) -> Shown | None:
    """Of all runs whose target is possible, the one that came closest to it, or passed it most."""
    known = [ran for ran in runs if ran.case.possible and ran.course is not None]
    hardest = max(known, key=lambda ran: ran.closest, default=None)
    if hardest is None or hardest.course is None:
        return None
    words = "The run whose recoveries came closest to what was promised, or passed it"
    return Shown(f"{words}: {hardest.case.name}.", hardest.course)


def _runs(evidence: Evidence) -> pa.Table:
    """A row for each configuration."""
    return pa.table(
        {
            "configuration": pa.array([ran.case.name for ran in evidence.runs], pa.string()),
            "drills": pa.array([len(ran.drills) for ran in evidence.runs], pa.int64()),
            "late": pa.array(
                [sum(not each.within for each in ran.drills) for ran in evidence.runs], pa.int64()
            ),
            "checks": pa.array([ran.checks for ran in evidence.runs], pa.float64()),
            "fewest": pa.array([ran.fewest for ran in evidence.runs], pa.int64()),
            "stretch": pa.array([ran.stretch for ran in evidence.runs], pa.float64()),
        }
    )


def keep(evidence: Evidence, path: Path | None, command: str, facts: Facts) -> None:
    """Keep what there is beside the page that is to come; without a page, nothing."""
    if path is not None:
        _raw(evidence, command, facts).write(data_folder(path))


def show(evidence: Evidence, path: Path, command: str, facts: Facts) -> Path:
    """Write the page to `path` and keep its data beside it."""
    raw = _raw(evidence, command, facts)
    raw.write(data_folder(path))
    return promises_page(raw).write(path)


def promises_page(raw: Raw) -> Page:
    """The page: figures, each drill's prediction beside what it took, each configuration."""
    drills, runs = raw.tables["drills"], raw.tables["runs"]
    possible = drills.filter(drills["possible"])
    late = possible.num_rows - pc.sum(possible["within"], min_count=0).as_py()
    page = bench_page(
        raw,
        [Card("kills", possible.num_rows), Card("too late", late, "bad" if late else "good")],
    )
    if drills.num_rows:
        _every_drill(page, drills)
    page.heading("Checkpoints and recoveries")
    page.table(
        "Runs",
        ["configuration", "drills", "too late", "CHECKs", "fewest possible", "stretch (positions)"],
        [list(row.values()) for row in runs.to_pylist()],
        "stretch: how old a footprint may get by the controller's own rates, in input positions.",
    )
    if drills.num_rows:
        columns, rows = _recoveries(drills)
        page.table("Recoveries, medians (times in ms, beyond the restart)", columns, rows)
    return page


def _every_drill(page: Page, drills: pa.Table) -> None:
    """Two charts with a point for each kill: what it took, and what there was to do."""
    page.heading("Every drill")
    promised = [f"{each:g} s promised" for each in drills["target_s"].to_pylist()]
    took = pa.table(
        {"predicted": drills["predicted_ms"], "took": drills["achieved_ms"], "promised": promised}
    ).sort_by("predicted")
    _points(page, "Predicted and achieved", took, "predicted, ms", "took beyond the restart, ms")
    extents = pa.table(
        {"q": drills["extent_records"], "u": drills["replay_tuples"], "promised": promised}
    ).sort_by("q")
    title = "q and u when the node was killed"
    _points(page, title, extents, "q: records to load", "u: tuples to replay")


def _points(page: Page, title: str, table: pa.Table, x_title: str, y_title: str) -> None:
    """A chart of the first column against the second, on logarithmic scales."""
    x, y, series = table.column_names
    page.chart(
        title, table, x=x, y=y, series=series, kind="point", x_scale="log", y_scale="log",
        x_title=x_title, y_title=y_title,
    )  # fmt: skip


def _recoveries(drills: pa.Table) -> tuple[list[str], list[list[object]]]:
    """Head and rows: of each configuration, the medians over its recoveries, and the slowest."""
    by = ["target_s", "keys", "windows", "on"]
    names = ["extent_records", "replay_tuples", "predicted_ms", "achieved_ms"]
    medians = [(name, "approximate_median") for name in names]
    grouped = drills.group_by(by, use_threads=False).aggregate([*medians, ("achieved_ms", "max")])
    columns = [*by, *(f"{name}_approximate_median" for name in names), "achieved_ms_max"]
    head = ["promised (s)", "keys", "windows", "on", "q", "u", "predicted", "took", "took at most"]
    return head, [[row[name] for name in columns] for row in grouped.to_pylist()]
