"""Thesis Fig. 3.8, its part for one node: stable writes on 1 to 8 stripes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rewake.lab.reproduce.driving import PAPER_EVENT
from rewake.lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, middle, where
from rewake.lab.reproduce.persistence import BASELINE, STABLE, throughput, tuples_of

_STRIPES = (1, 2, 4, 8)
_TUPLE_BYTES = 4096


def _megabytes(setting: Setting) -> int:
    return 400 if setting.full else 60


def rows(setting: Setting) -> Iterator[Row]:
    """Without a log (0 stripes), and with ever more stripes, taking turns."""
    batch = tuples_of(_TUPLE_BYTES, PAPER_EVENT, setting.seed)
    turns = int(_megabytes(setting) * 1e6 / (_TUPLE_BYTES * PAPER_EVENT))
    cases = (0, *_STRIPES)
    for number in range((5 if setting.full else 3) + 1):
        for stripes in cases[:: -1 if number % 2 else 1]:
            name = STABLE if stripes else BASELINE
            count = max(1, turns // (1 if number else 10))
            row = throughput(name, batch, count, setting.folder / "log", max(1, stripes))
            if number:
                yield {"stripes": stripes, "round": number, **row}


def scaling(setting: Setting) -> str:
    """What differs from the thesis' set-up."""
    return (
        f"{_megabytes(setting)} MB of 4 KB tuples for each measurement in blocks of {PAPER_EVENT}; "
        "stripes are folders of one local disk instead of eight storage servers; one node only"
    )


def _rate(table: pa.Table, stripes: int) -> float:
    return middle(table, "megabytes_per_s", stripes=stripes)


def findings(table: pa.Table) -> list[Finding]:
    """Throughput against that without a log."""
    found = [Finding("without persistence", _rate(table, 0), "MB/s", "62")]
    for stripes in _STRIPES:
        share = _rate(table, stripes) / _rate(table, 0)
        paper = {1: "less than 0.5", 8: "0.5"}.get(stripes, "")
        found.append(Finding(f"{stripes} stripes / without persistence", share, "ratio", paper))
    return found


def plots(table: pa.Table) -> list[Plot]:
    """One node's line of the figure."""
    names = ["none", *(str(stripes) for stripes in _STRIPES)]
    rates = [_rate(table, stripes) for stripes in (0, *_STRIPES)]
    return [
        Plot("One node on 1 to 8 stripes", pa.table({"stripes": names, "rate": rates}),
             x="stripes", y="rate", x_title="stripes", y_title="MB per second", kind="bar")
    ]  # fmt: skip


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    one, eight = _rate(table, 1) / _rate(table, 0), _rate(table, 8) / _rate(table, 0)
    first, last = (where(table, stripes=each)["megabytes_per_s"].to_numpy() for each in (1, 8))
    word = "makes no difference beyond that between rounds"
    if last.min() > first.max():
        word = "improves it in every round"
    elif last.max() < first.min():
        word = "makes it worse in every round"
    return (
        f"One node reaches {one:.2f} of its throughput without persistence on one stripe and "
        f"{eight:.2f} on eight (the thesis: less than half, and exactly half on larger set-ups): "
        f"striping {word} here. The thesis' stripes are servers with disks of their own; ours "
        "share one disk and its cores, so this shows what striping costs more than what it brings. "
        "Chains of 2 to 8 nodes (the rest of Fig. 3.8, and Fig. 3.9) are not run."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
