"""CEC Fig. 7: the effect of U, from 125,000 to 1,000,000 tuples (CEC IV.B)."""

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

_PAPER_TARGETS = (125_000, 250_000, 500_000, 1_000_000)
_PAPER = {
    "checks": ("", "fewer, less sharply than with Q"),
    "extent_records": ("120,000", "230,000"),
    "load_s": ("2.5", "6.7"),
    "replay_mb": ("20", "90"),
}


def rows(setting: Setting) -> Iterator[Row]:
    """A run with a crash for each U."""
    share = sizes(setting).share
    scaled = [(tuples, round(tuples * share)) for tuples in _PAPER_TARGETS]
    return sweep(setting, [({"paper_U": tuples, "U": u}, {"tuples": u}) for tuples, u in scaled])


def findings(table: pa.Table) -> list[Finding]:
    """The ends of each curve."""
    return list(ends(table, "U", _PAPER))


def plots(table: pa.Table) -> list[Plot]:
    """The four charts of the figure."""
    return four_plots(table, "U", "U (tuples to replay)")


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    words = []
    for cost in CHECK_COSTS:
        found = where(table, check_cost=cost).to_pylist()
        first, last = found[0], found[-1]
        growth = last["extent_records"] / first["extent_records"]
        shares = [f"{row['replay_tuples'] / row['U']:.2f}" for row in (first, last)]
        words.append(
            f"if a CHECK takes {cost}, CHECKs fall from {first['checks']:,} to {last['checks']:,}, "
            f"the extent grows {growth:.1f} times, and {shares[0]} of the target is left to replay "
            f"at the tightest, {shares[1]} at the loosest U"
        )
    return (
        f"From the tightest to the loosest U: {'; '.join(words)} (the paper: fewer CHECKs, 1.9 "
        "times, 1.60 and 0.90). Targets kept: "
        f"{targets_met(table, 'U', 'replay_tuples', 'U')}. Load takes {first['load_s']:.3f} to "
        f"{last['load_s']:.3f} s for extents of {first['extent_records']:,} to "
        f"{last['extent_records']:,} records (the paper: 2.5 to 6.7 s for 120,000 to 230,000). "
        f"Differences in time may come from {FASTER}."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
