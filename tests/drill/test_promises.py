"""A promised recovery time where state is no window: joins and keyed processing, really killed."""

from pathlib import Path
from statistics import median

import pytest
from promised_drills import PromisedJoin, PromisedProcess

from rewake.drill.run import DrillResult, run_drill
from rewake.drill.when import Strike
from rewake.net.queries.processes import Processes

# A machine that has other things to do takes longer, and not by a little.
GENEROUS = 10.0


def drilled(drill, folder: Path, kills: int) -> DrillResult:
    """Run it, with so many kills of the node that is promised, each when it is back."""
    strikes = [
        Strike(drill.node, "kill", at_fraction=(each + 1) / (kills + 1), settled=True)
        for each in range(kills)
    ]
    return run_drill(drill, folder / "query", Processes(), strikes=strikes)


def check(result: DrillResult, node: str, kills: int) -> None:
    """Everything is right, and each kill had a prediction and a recovery.

    CHECKs were left, unless the promise could be kept without: how fast a machine is decides that.
    """
    assert result.verdict is not None
    assert result.verdict.expected > 0
    assert result.verdict.right, result.verdict
    recoveries = result.recoveries()
    assert len(result.blows) == len(recoveries) == kills
    for each in recoveries:
        assert each.target is not None
        assert each.predicted is not None
        assert each.predicted > 0
    needless = all(each.predicted <= each.target for each in recoveries)
    assert most_checks(result, node) > 0 or needless
    achieved = median(each.beyond_restart for each in recoveries)
    assert achieved < GENEROUS * recoveries[0].target, [each.beyond_restart for each in recoveries]


def most_checks(result: DrillResult, node: str) -> float:
    """The most CHECKs that a life of the node has left."""
    rows = result.nodes.table(0.0).to_pylist()
    return max((each["checks"] or 0.0) for each in rows if each["node"] == node)


@pytest.mark.slow
@pytest.mark.parametrize("drill", [PromisedJoin(), PromisedProcess()], ids=lambda each: each.node)
def test_a_promise_holds_for_panes_and_for_keys(tmp_path: Path, drill) -> None:
    """Two kills: every result once, after a recovery that was predicted."""
    check(drilled(drill, tmp_path, 2), drill.node, 2)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("drill", "kills"),
    [
        (PromisedJoin(seconds=40.0, within_ms=2_000, how="full"), 15),
        (PromisedJoin(seconds=40.0, within_ms=4_000, how="inner", recover_within="2s"), 15),
        # So few and so slow that a busy machine keeps up: kills go by what the source has read.
        (PromisedProcess(seconds=40.0, items=20_000, rate=2_000.0), 6),
    ],
    ids=["large panes", "larger panes", "many keys"],
)
def test_a_promise_holds_over_many_kills(tmp_path: Path, drill, kills: int) -> None:
    """Many kills of one run, while costs are learned."""
    check(drilled(drill, tmp_path, kills), drill.node, kills)
