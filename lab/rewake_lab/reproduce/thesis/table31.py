"""Thesis Table 3.1: what a node gains from more cores, without and with stable writes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pyarrow as pa

from rewake_lab.reproduce.driving import PAPER_EVENT
from rewake_lab.reproduce.experiment import (
    Experiment,
    Finding,
    Plot,
    Row,
    Setting,
    middle,
    several,
)
from rewake_lab.reproduce.thesis.persistence import (
    BASELINE,
    STABLE,
    cores_here,
    throughput,
    tuples_of,
)

_TUPLE_BYTES = 4096
_PAPER = {BASELINE: ("63 (2 cores)", "75 (8 cores)"), STABLE: ("28 (2 cores)", "50 (8 cores)")}
_PAPER_GAIN = {BASELINE: "1.19", STABLE: "1.79"}


def _megabytes(setting: Setting) -> int:
    return 800 if setting.full else 120


def rows(setting: Setting) -> Iterator[Row]:
    """One core and all cores, taking turns; the first round warms up."""
    batch = tuples_of(_TUPLE_BYTES, PAPER_EVENT, setting.seed)
    turns = int(_megabytes(setting) * 1e6 / (_TUPLE_BYTES * PAPER_EVENT))
    numbers = sorted({1, cores_here()})
    cases = [(name, cores) for name in (BASELINE, STABLE) for cores in numbers]
    for number in range((5 if setting.full else 3) + 1):
        for name, cores in cases[:: -1 if number % 2 else 1]:
            count = max(1, turns // (1 if number else 10))
            row = throughput(name, batch, count, setting.folder / "log", cores=cores)
            if number:
                yield {"cores": cores, "round": number, **row}


def scaling(setting: Setting) -> str:
    """What differs from the thesis' set-up."""
    return (
        f"one core and all {cores_here()} of this machine instead of machines with 2 and 8 cores; "
        "the operator and its log are bound to them, the sink, a process of its own, is not; "
        f"{_megabytes(setting)} MB of 4 KB tuples for each measurement in blocks of {PAPER_EVENT}"
    )


def _cores(table: pa.Table) -> tuple[int, int]:
    numbers = sorted(int(each) for each in several(table, "cores"))
    return numbers[0], numbers[-1]


def _rate(table: pa.Table, name: str, cores: int) -> float:
    return middle(table, "megabytes_per_s", configuration=name, cores=cores)


def _gains(table: pa.Table, name: str) -> list[float]:
    """What the further cores bring in each round; sorted."""
    few, cores = _cores(table)
    rates = [
        [
            middle(table, "megabytes_per_s", configuration=name, cores=each, round=number)
            for each in (few, cores)
        ]
        for number in several(table, "round")
    ]
    return sorted(more / less for less, more in rates)


def _gain(table: pa.Table, name: str) -> float:
    return statistics.median(_gains(table, name))


def _gain_words(table: pa.Table, name: str) -> str:
    found = _gains(table, name)
    return f"{_gain(table, name):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


def findings(table: pa.Table) -> list[Finding]:
    """The table, and what the further cores bring."""
    found = []
    for name, papers in _PAPER.items():
        for cores, paper in zip(_cores(table), papers, strict=True):
            found.append(
                Finding(f"{name}, cores: {cores}", _rate(table, name, cores), "MB/s", paper)
            )
        found.append(Finding(f"{name}: gain", _gain(table, name), "ratio", _PAPER_GAIN[name]))
    return found


def plots(table: pa.Table) -> list[Plot]:
    """The table as bars."""
    shown = [
        {"configuration": name, "rate": _rate(table, name, cores), "cores": f"cores: {cores}"}
        for name in _PAPER
        for cores in dict.fromkeys(_cores(table))
    ]
    return [
        Plot("Throughput by cores of the node", pa.Table.from_pylist(shown), x="configuration",
             y="rate", x_title="", y_title="MB per second", kind="bar", series="cores")
    ]  # fmt: skip


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    few, cores = _cores(table)
    if few == cores:
        return (
            f"This machine has {cores} core for the experiment: there is nothing to compare with "
            "the thesis, where 8 instead of 2 brought 1.19 times without and 1.79 times with "
            "stable writes."
        )
    more = _gains(table, STABLE)[0] > _gains(table, BASELINE)[-1]
    gained = (
        "Persistence gains more from them, in every round, as in the thesis"
        if more
        else "Persistence does not gain more from them in every round; in the thesis it did"
    )
    share = {n: _rate(table, STABLE, n) / _rate(table, BASELINE, n) for n in (few, cores)}
    return (
        f"{cores} cores instead of {few} bring {_gain_words(table, BASELINE)} times the throughput "
        f"without persistence and {_gain_words(table, STABLE)} times with stable writes (median "
        "and range over the rounds; the thesis: 1.19 and 1.79 for 8 instead of 2). "
        f"{gained}. Stable writes "
        f"reach {share[few]:.2f} of the throughput without on {few} and {share[cores]:.2f} on "
        f"{cores} cores (the thesis: 0.44 and 0.67). The log writes in threads of its own, as the "
        "thesis' storage client did, and the sink works on the same cores here."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
