"""CEC Fig. 6: the effect of Q, from 1 to 8 times the number of open windows (CEC IV.B)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rewake_lab.reproduce.cec.target_runs import (
    CHECK_COSTS,
    FASTER,
    ends,
    four_plots,
    scaling,
    sizes,
    sweep,
    targets_met,
)
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, where

_TIMES = (1, 2, 4, 8)
_PAPER = {
    "checks": ("", "drops sharply beyond Q = 2"),
    "extent_records": ("120,000", "500,000"),
    "load_s": ("3.5", "27"),
    "replay_mb": ("25", "more than 200"),
}


def rows(setting: Setting) -> Iterator[Row]:
    """A run with a crash for each Q."""
    windows = sizes(setting).open_windows
    return sweep(
        setting,
        [({"times": n, "Q": n * windows}, {"records": n * windows}) for n in _TIMES],
    )


def findings(table: pa.Table) -> list[Finding]:
    """The ends of each curve."""
    return list(ends(table, "Q", _PAPER))


def plots(table: pa.Table) -> list[Plot]:
    """The four charts of the figure."""
    return four_plots(table, "times", "Q / open windows")


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    checks = []
    for cost in CHECK_COSTS:
        found = where(table, check_cost=cost).to_pylist()
        checks.append(", ".join(f"{row['checks']:,}" for row in found) + f" ({cost})")
    first, last = found[0], found[-1]
    largest = last["extent_records"] / last["open_windows"]
    return (
        f"CHECKs for Q = 1, 2, 4 and 8 times the open windows: {'; '.join(checks)}; in the paper "
        "they drop sharply beyond Q = 2. Targets kept: "
        f"{targets_met(table, 'Q', 'extent_records', 'times')} (the paper: 2 and more): how tight "
        "a target can be kept depends on how many CHECKs fit into an interval, which the paper "
        f"does not tell. The largest extent is {largest:.1f} times the open windows (the paper: "
        f"500,000 / 90,000 = 5.6). Load takes {first['load_s']:.3f} s at Q = 1 and "
        f"{last['load_s']:.3f} s at Q = 8 for extents of {first['extent_records']:,} and "
        f"{last['extent_records']:,} records (the paper: 3.5 and 27 s for 120,000 and 500,000). "
        f"Differences in time may come from {FASTER}."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
