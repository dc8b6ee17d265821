"""Experiments with nodes and writers as processes: they begin together, lose nothing, leave."""

import socket
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from rewake.model.errors import OperatingFault
from rewake_lab.reproduce.driving import PAPER_EVENT
from rewake_lab.reproduce.experiment import Row, Setting
from rewake_lab.reproduce.thesis import fig37 as thesis_fig37
from rewake_lab.reproduce.thesis import fig38 as thesis_fig38
from rewake_lab.reproduce.thesis import fig310 as thesis_fig310
from rewake_lab.reproduce.thesis import table31 as thesis_table31
from rewake_lab.reproduce.thesis.chain import chain_throughput, run_node
from rewake_lab.reproduce.thesis.fig37 import AT_ONCE, LATER, aggregate_rate
from rewake_lab.reproduce.thesis.fig310 import PacedBlocks
from rewake_lab.reproduce.thesis.gang import Gang
from rewake_lab.reproduce.thesis.persistence import (
    BASELINE,
    STABLE,
    cores_here,
    throughput,
    tuples_of,
)

# --- processes ---------------------------------------------------------------------------------


def test_a_process_that_cannot_begin_fails_the_experiment(tmp_path: Path) -> None:
    """At once: nobody waits for it."""
    (tmp_path / "writer").write_text("a file in the way")
    with pytest.raises(OperatingFault, match="ended early"):
        aggregate_rate(LATER, 2, 1, tmp_path / "writer")


def test_a_process_that_fails_later_fails_the_experiment(tmp_path: Path) -> None:
    """A node whose upstream hangs up in the middle of a block."""
    ours, theirs = socket.socketpair()
    with pytest.raises(OperatingFault, match="exit codes"), ours:
        run_into_a_cut(ours, theirs, tmp_path)


def run_into_a_cut(ours: socket.socket, theirs: socket.socket, folder: Path) -> None:
    """Send half a block to a node that forwards to nobody."""
    with Gang() as gang, socket.socket() as nobody:
        gang.start(run_node, theirs, nobody, 64, str(folder / "node"), 0)
        theirs.close()
        gang.together()
        ours.sendall((100).to_bytes(8, "little") + b"half")
        ours.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("stripes", [0, 1, 2])
def test_a_chain_of_nodes_passes_all_tuples_on(tmp_path: Path, stripes: int) -> None:
    """With logs on any number of stripes and without; nothing is left behind."""
    row = chain_throughput(2, stripes, tuples_of(256, 8, 1), 20, tmp_path / "chain")
    assert (row["nodes"], row["stripes"]) == (2, stripes)
    assert float(row["megabytes_per_s"]) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [LATER, AT_ONCE])
def test_several_writers_write_at_the_same_time(tmp_path: Path, kind: str) -> None:
    """Each to a log of its own."""
    row = aggregate_rate(kind, 2, 2, tmp_path / "writers")
    assert float(row["megabytes_per_s"]) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_node_can_be_bound_to_one_core(tmp_path: Path) -> None:
    """And is free again afterwards."""
    cores = cores_here()
    throughput(STABLE, tuples_of(256, 8, 1), 5, tmp_path / "log", cores=1)
    assert cores_here() == cores


# --- what is said of them ----------------------------------------------------------------------


def chains(rate_on: dict[int, float]) -> pa.Table:
    """Rows of Fig. 3.8 for a machine of which all nodes have an equal share."""
    cases = product((1, 2, 4, 8), rate_on, (0, 1))
    return pa.Table.from_pylist(
        [
            {"nodes": nodes, "stripes": stripes, "round": number, "cores": 2,
             "seconds": 1.0, "megabytes_per_s": rate_on[stripes] / nodes + number}
            for nodes, stripes, number in cases
        ]
    )  # fmt: skip


def test_the_verdict_on_chains_follows_the_rows() -> None:
    """Eight stripes are better, worse or alike, as they were measured."""
    rates = {0: 1000.0, 1: 400.0, 2: 400.0, 4: 400.0, 8: 500.0}
    said = thesis_fig38.verdict(chains(rates))
    assert "a chain of eight nodes reaches 0.13 of what one node does" in said
    assert "0.40 of its throughput on one stripe and 0.50 on eight" in said
    assert "with one node they are faster in each of 2 rounds" in said
    assert "they are slower in each of 2 rounds" in thesis_fig38.verdict(chains(rates | {8: 300.0}))
    alike = thesis_fig38.verdict(chains(rates | {8: 400.0}))
    assert "the difference is within that of rounds" in alike
    assert len(thesis_fig38.plots(chains(rates))) == 2
    assert {each.paper for each in thesis_fig38.findings(chains(rates))} >= {"62", "52", "10", "80"}


def test_the_verdict_on_metadata_follows_the_rows() -> None:
    """Slower in every round, or not."""
    cases = product((1, 2, 4, 8), ((LATER, 100.0), (AT_ONCE, 80.0)), (0, 1))
    rows: list[Row] = [
        {
            "writers": writers,
            "metadata": kind,
            "megabytes_per_s": rate + 30 * number * (writers < 4),
        }
        for writers, (kind, rate), number in cases
    ]
    said = thesis_fig37.verdict(pa.Table.from_pylist(rows))
    assert "slower in every round with 4, 8." in said
    assert len(thesis_fig37.findings(pa.Table.from_pylist(rows))) == 12


def test_the_verdict_on_cores_follows_the_rows() -> None:
    """A machine with one core has nothing to tell."""
    rates = {(BASELINE, 1): 100.0, (BASELINE, 2): 110.0, (STABLE, 1): 40.0, (STABLE, 2): 80.0}
    rows: list[Row] = [
        {"configuration": name, "cores": cores, "round": 1, "megabytes_per_s": rate}
        for (name, cores), rate in rates.items()
    ]
    said = thesis_table31.verdict(pa.Table.from_pylist(rows))
    assert "1.10 (1.10 to 1.10) times the throughput without persistence" in said
    assert "gains more from them, in every round, as in the thesis" in said
    alone = pa.Table.from_pylist([row for row in rows if row["cores"] == 1])
    assert "nothing to compare" in thesis_table31.verdict(alone)
    assert len(thesis_table31.plots(alone)) == 1


# --- a node that comes back --------------------------------------------------------------------


def test_blocks_come_at_their_pace_and_what_is_late_comes_at_once() -> None:
    """A source that was held up catches up with the present."""
    reader = PacedBlocks(64, events_per_s=100.0, seed=1).open(0, 1)
    assert reader.read(1000.0) is not None
    assert reader.read(1009.0) is None
    events = [reader.read(1035.0) for _ in range(4)]
    assert [event.position // PAPER_EVENT for event in events if event] == [1, 2, 3]


def timeline(catching_up: float) -> pa.Table:
    """A crash at 3 s, a start at 5, a first tuple at 5.5 and all of it at 7."""
    moments = {"crashed_s": 3.0, "started_s": 5.0, "first_s": 5.5, "caught_up_s": 7.0}
    at = [quarter / 4 for quarter in range(40)]
    rates = [26.0 if t < 3 or t >= 7 else 0.0 if t < 5.5 else catching_up for t in at]
    return pa.Table.from_pylist(
        [{"at_s": t, "megabytes_per_s": rate, **moments} for t, rate in zip(at, rates, strict=True)]
    )


def test_the_verdict_on_a_recovery_follows_the_timeline() -> None:
    """Catching up is faster than before the crash, or not."""
    found = {each.what: each.ours for each in thesis_fig310.findings(timeline(60.0))}
    assert found["throughput before the crash"] == 26
    assert found["throughput while catching up"] == 60
    assert found["catching up"] == 1.5
    assert "unlike in the thesis (0.77)" in thesis_fig310.verdict(timeline(60.0))
    assert "as in the thesis (0.77)" in thesis_fig310.verdict(timeline(20.0))
    (plot,) = thesis_fig310.plots(timeline(60.0))
    assert [words for _, words in plot.marks] == ["B crashes", "B starts", "caught up"]


def test_a_node_that_was_killed_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real nodes, one of them killed and kept down for a moment."""
    times = thesis_fig310.Times(before=0.5, down=0.5, after=0.2)
    monkeypatch.setattr(thesis_fig310, "times_of", lambda _setting: times)
    monkeypatch.setattr(thesis_fig310, "RATE_MB", 4.0)
    table = pa.Table.from_pylist(list(thesis_fig310.rows(Setting(tmp_path))))
    seen = thesis_fig310.seen_in(table)
    assert seen.crashed < seen.started < seen.first <= seen.caught_up
    assert seen.started - seen.crashed >= 0.5
