"""Thesis Fig. 4.3: the impact of OPEN tuples in fast, slow and mixed windows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rewake_lab.reproduce.driving import PAPER_EVENT
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, middle
from rewake_lab.reproduce.open_cost import (
    DISK,
    NET,
    Workload,
    bars,
    loss_percent,
    loss_words,
    measure,
)

# 100 items that are bought often and 10 that are not, all in windows of 10.
MIXED = Workload("mixed", window=10, items=110, slow_items=10)
_WORKLOADS = (
    Workload("fast", window=1, items=2),
    Workload("slow", window=1000, items=2),
    MIXED,
)
_PAPER_LOSS = {"fast": ("16", "35"), "slow": ("the least", "10"), "mixed": ("16", "35")}
# OPENs per result.
_PAPER_OPENS = {"fast": "1", "slow": "1", "mixed": "1.0002"}


def _tuples(setting: Setting) -> int:
    return 4_000_000 if setting.full else 700_000


def rows(setting: Setting) -> Iterator[Row]:
    """The three regimes in stream events of the thesis' size."""
    for workload in _WORKLOADS:
        rounds = 5 if setting.full else 3
        yield from measure(setting, workload, PAPER_EVENT, _tuples(setting), rounds)


def scaling(setting: Setting) -> str:
    """What differs from the thesis' set-up."""
    return (
        f"{_tuples(setting):,} tuples in stream events of {PAPER_EVENT}; one machine: the source's "
        "tuples are made before, the sink is a process behind a socket, the log is on a local "
        "disk; slow items are one purchase in 256, a share that the thesis does not tell"
    )


def _opens_per_result(table: pa.Table, workload: str) -> float:
    opens, results = (
        middle(table, column, workload=workload, configuration=DISK)
        for column in ("opens", "results")
    )
    return opens / results


def findings(table: pa.Table) -> list[Finding]:
    """Losses against native, and OPENs per result."""
    found = []
    for workload in (each.name for each in _WORKLOADS):
        for name, paper in zip((NET, DISK), _PAPER_LOSS[workload], strict=True):
            loss = loss_percent(table, name, workload=workload)
            found.append(Finding(f"{workload} windows: lost in {name}", loss, "%", paper))
        opens = _opens_per_result(table, workload)
        paper = _PAPER_OPENS[workload]
        found.append(Finding(f"{workload} windows: OPENs per result", opens, "ratio", paper))
    return found


def plots(table: pa.Table) -> list[Plot]:
    """The bars of each regime."""
    return [bars(table, workload.name, PAPER_EVENT) for workload in _WORKLOADS]


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    words = []
    for workload in (each.name for each in _WORKLOADS):
        net, disk = (loss_words(table, name, workload=workload) for name in (NET, DISK))
        words.append(f"{workload} {net} and {disk}")
    opens = {each.name: _opens_per_result(table, each.name) for each in _WORKLOADS}
    return (
        "Results lost per second against native in Gopen/Net and Gopen/Disk (median and range over "
        f"the rounds): {'; '.join(words)}. The thesis: 16% and 35% for fast and mixed windows, "
        f"least and 10% for slow ones. OPENs per result: {opens['slow']:.3f} for slow and "
        f"{opens['mixed']:.3f} for mixed windows (the thesis: 1 for both), but {opens['fast']:.3f} "
        "for fast ones (1): a window that opens and closes within one turn leaves its RESULT alone "
        "here."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
