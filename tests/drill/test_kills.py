"""Kills at any place of a query: its output is what it would have been, each result once."""

from pathlib import Path

import pytest
from drill_vocabulary import Drill

from rewake.net.kill_points import Fault


@pytest.mark.parametrize(
    "victims",
    [
        ["items"],
        ["cheap"],
        ["averages"],
        ["items", "cheap"],
        ["cheap", "averages"],
        ["items", "averages"],
        ["items", "cheap", "averages"],
    ],
    ids="+".join,
)
def test_killed_nodes_leave_no_mark_on_the_output(tmp_path: Path, victims: list[str]) -> None:
    """One node, neighbours, both ends, all at once: while data flows."""
    with Drill(tmp_path) as drill:
        drill.flow(0.3)
        drill.let(0.6)
        drill.kill(*victims)
        for victim in victims:
            drill.back(victim)
        drill.finish()
    drill.check()


@pytest.mark.parametrize("point", ["recovery.before_loading", "recovery.replaying"])
def test_a_node_killed_during_its_recovery_recovers_from_that(tmp_path: Path, point: str) -> None:
    """Twice in a row: recovery leaves nothing behind that a later one would trip over."""
    faults = [Fault("averages", point, life=life) for life in (2, 3)]
    with Drill(tmp_path, faults=faults) as drill:
        drill.flow(0.5)
        drill.kill("averages")
        drill.back("averages", 4)
        drill.finish()
    drill.check()


def test_an_upstream_killed_while_its_downstream_recovers_serves_it_again(tmp_path: Path) -> None:
    """The replay asks for input that nobody has in memory any more."""
    faults = [Fault("cheap", "node.after_subscribed", hit=2), Fault("averages", "node.after_work")]
    faults[1] = Fault("averages", "node.after_work", hit=20)
    with Drill(tmp_path, faults=faults) as drill:
        drill.let(0.5)
        drill.back("averages")
        drill.back("cheap")
        drill.finish()
    drill.check()
