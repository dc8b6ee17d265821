"""The figures as people compare them: a row for each contender, a column for each figure."""

from __future__ import annotations

from typing import Any

from rewake_lab.bench.peers.job import Workload
from rewake_lab.bench.peers.run import COLUMNS, Column, Outcome

NOTE = "* the best of its column; - not measured, for a reason that is given below"
HEAD = ("", *(f"{each.title} ({each.unit})" for each in COLUMNS))


def lines(outcome: Outcome, workload: Workload) -> list[list[str]]:
    """The cells of a workload's table; the best of a column has a star."""
    made = []
    for name in outcome.contenders:
        cells = [_cell(outcome, workload, name, column) for column in COLUMNS]
        made.append([name, *cells])
    return made


def _cell(outcome: Outcome, workload: Workload, name: str, column: Column) -> str:
    value = outcome.value(workload, name, column.key)
    if value is None:
        return "-"
    known = [outcome.value(workload, each, column.key) for each in outcome.contenders]
    values = [each for each in known if each is not None]
    best = min(values) if column.less else max(values)
    text = f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{text} *" if value == best and len(values) > 1 else text


def about(outcome: Outcome) -> dict[str, Any]:
    """What a page shows beside the figures."""
    tables = [
        {"title": workload.label, "columns": list(HEAD), "rows": lines(outcome, workload),
         "note": " ".join([f"{NOTE}.", *outcome.behind(workload)])}
        for workload in outcome.workloads()
    ]  # fmt: skip
    known = {name: text for name, text in outcome.settings.items() if text}
    return {"tables": tables, "settings": known, "missing": outcome.missing}
