"""Thesis Fig. 3.8 and 3.9: chains of 1 to 8 nodes, without logs and on 1 to 8 stripes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rewake_lab.reproduce.driving import PAPER_EVENT
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, middle, where
from rewake_lab.reproduce.thesis.chain import chain_throughput
from rewake_lab.reproduce.thesis.persistence import cores_here, tuples_of

_NODES = (1, 2, 4, 8)
# 0: without logs.
_STRIPES = (0, 1, 2, 4, 8)
_TUPLE_BYTES = 4096
_PAPER = {(1, 0): "62", (8, 0): "52", (1, 1): "less than 31", (1, 8): "31", (8, 1): "10"}


def _megabytes(setting: Setting, nodes: int) -> float:
    """Of tuples through the chain: a longer one is slower, and writes each of them more often."""
    return (400 if setting.full else 60) / (1 + nodes / 2)


def _rounds(setting: Setting) -> int:
    return 3 if setting.full else 2


def rows(setting: Setting) -> Iterator[Row]:
    """All chains on all numbers of stripes, taking turns; a short run warms up."""
    batch = tuples_of(_TUPLE_BYTES, PAPER_EVENT, setting.seed)
    cases = [(nodes, stripes) for nodes in _NODES for stripes in _STRIPES]
    folder = setting.folder / "chain"
    chain_throughput(2, 1, batch, 10, folder)
    for number in range(_rounds(setting)):
        for nodes, stripes in cases[:: -1 if number % 2 else 1]:
            turns = int(_megabytes(setting, nodes) * 1e6 / (_TUPLE_BYTES * PAPER_EVENT))
            row = chain_throughput(nodes, stripes, batch, max(1, turns), folder)
            yield {"round": number, "cores": cores_here(), **row}


def scaling(setting: Setting) -> str:
    """What differs from the thesis' set-up."""
    return (
        f"{_megabytes(setting, 1):.0f} MB of 4 KB tuples through one node and "
        f"{_megabytes(setting, 8):.0f} MB through eight, in blocks of {PAPER_EVENT}; nodes are "
        "processes of one machine, connected by sockets, instead of machines; stripes are folders "
        "of one local disk, to which all nodes write, instead of storage servers; "
        f"median of {_rounds(setting)} rounds"
    )


def _rate(table: pa.Table, nodes: int, stripes: int) -> float:
    return middle(table, "megabytes_per_s", nodes=nodes, stripes=stripes)


def _on(stripes: int) -> str:
    if not stripes:
        return "no persistence"
    return f"{stripes} stripe{'s' if stripes > 1 else ''}"


def findings(table: pa.Table) -> list[Finding]:
    """The corners of Fig. 3.8, and of Fig. 3.9."""
    found = []
    for nodes in (1, 8):
        for stripes in (0, 1, 8):
            name = f"{nodes} node{'s' if nodes > 1 else ''}, {_on(stripes)}"
            paper = _PAPER.get((nodes, stripes), "")
            found.append(Finding(name, _rate(table, nodes, stripes), "MB/s", paper))
    for stripes, paper in ((1, "80"), (8, "the most")):
        aggregate = 8 * _rate(table, 8, stripes)
        found.append(Finding(f"8 nodes together, {_on(stripes)}", aggregate, "MB/s", paper))
    return found


def _curves(table: pa.Table, *, aggregate: bool) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "nodes": nodes,
                "rate": _rate(table, nodes, stripes) * (nodes if aggregate else 1),
                "storage": _on(stripes),
            }
            for stripes in _STRIPES
            for nodes in _NODES
            if stripes or not aggregate
        ]
    )


def plots(table: pa.Table) -> list[Plot]:
    """Both figures."""
    return [
        Plot("Fig. 3.8: throughput of the chain", _curves(table, aggregate=False), x="nodes",
             y="rate", x_title="nodes", y_title="MB per second", kind="bar", series="storage"),
        Plot("Fig. 3.9: what all nodes persist together", _curves(table, aggregate=True), x="nodes",
             y="rate", x_title="nodes", y_title="MB per second", kind="bar", series="storage"),
    ]  # fmt: skip


def _striping(table: pa.Table, nodes: int) -> str:
    first, last = (
        where(table, nodes=nodes, stripes=each)["megabytes_per_s"].to_numpy() for each in (1, 8)
    )
    if last.min() > first.max():
        return f"they are faster in each of {first.size} rounds"
    if last.max() < first.min():
        return f"they are slower in each of {first.size} rounds"
    return "the difference is within that of rounds"


def verdict(table: pa.Table) -> str:
    """What agrees and what differs."""
    alone, eight = _rate(table, 1, 0), _rate(table, 8, 0)
    shares = {stripes: _rate(table, 1, stripes) / alone for stripes in (1, 8)}
    together = {
        nodes: max(nodes * _rate(table, nodes, s) for s in _STRIPES[1:]) for nodes in _NODES
    }
    scales = all(together[more] > together[less] for less, more in ((1, 2), (2, 4), (4, 8)))
    cores = table["cores"][0].as_py()
    return (
        f"Without persistence a chain of eight nodes reaches {eight / alone:.2f} of what one node "
        f"does (the thesis: 0.84): here all of them share {cores} core{'s' if cores > 1 else ''}, "
        f"there each had a machine. One node with a log reaches {shares[1]:.2f} of its throughput "
        f"on one stripe and {shares[8]:.2f} on eight (the thesis: less than half, and exactly "
        "half). Eight stripes instead of one: with one node "
        f"{_striping(table, 1)}, with eight nodes {_striping(table, 8)}; the thesis' stripes are "
        "servers with disks of their own, ours share a disk. All nodes together persist at best "
        + ", ".join(f"{together[nodes]:,.0f}" for nodes in _NODES)
        + f" MB/s with 1, 2, 4 and 8 nodes: this {'rises' if scales else 'does not always rise'} "
        "with the number of nodes (it does in the thesis)."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
