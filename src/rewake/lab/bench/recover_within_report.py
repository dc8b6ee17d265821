"""The page of `rewake bench recover-within`, and every drill as data beside it.

What always holds: whatever runs are complete are kept after each of them, so that a benchmark that
is cut short in any way leaves its drills.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from rewake.lab.bench.recover_within import Evidence
from rewake.lab.bench.recover_within_runs import drills_table
from rewake.lab.bench.report import ROWS_SCHEMA, bench_page
from rewake.lab.report import Facts, Page, Raw, data_folder

__all__ = ["KIND", "keep", "promises_page", "show"]

KIND = "recover-within"
_TITLE = "rewake bench recover-within"


def _raw(evidence: Evidence, command: str, facts: Facts) -> Raw:
    rows = pa.Table.from_pylist([asdict(row) for row in evidence.rows()], ROWS_SCHEMA)
    tables = {"rows": rows, "drills": drills_table(evidence.runs), "runs": _runs(evidence)}
    return Raw(KIND, command, facts, {"title": _TITLE, "missing": evidence.missing}, tables)


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
    """The page: figures, each configuration, each drill's prediction beside what it took."""
    page = bench_page(raw)
    drills, runs = raw.tables["drills"], raw.tables["runs"]
    if drills.num_rows:
        page.heading("Every drill")
        seen = pa.table(
            {
                "predicted": drills["predicted_ms"],
                "took": drills["achieved_ms"],
                "promised": [f"{each:g} s promised" for each in drills["target_s"].to_pylist()],
            }
        ).sort_by("predicted")
        page.chart(
            "Predicted and achieved", seen, x="predicted", y="took", series="promised",
            kind="point", x_scale="log", y_scale="log", x_title="predicted, ms",
            y_title="took beyond the restart, ms",
        )  # fmt: skip
    page.heading("Configurations")
    return page.table(
        "Runs",
        ["configuration", "drills", "too late", "CHECKs", "fewest possible", "stretch (positions)"],
        [list(row.values()) for row in runs.to_pylist()],
        "stretch: how old a footprint may get by the controller's own rates, in input positions.",
    )
