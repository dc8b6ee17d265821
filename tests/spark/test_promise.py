"""A promised recovery time on Spark: nodes are its tasks, and Spark starts them again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest
from query_vocabulary import assert_right, run_on

from rewake.drill.when import Strike
from rewake.net.nodes.recoveries import kept_recoveries
from rewake_lab.bench.recover_within.streams import ShapedDrill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RATE = 100_000.0


def promised(folder: Path, shape: str, target: str) -> ShapedDrill:
    """Six seconds of the item stream with keys of a shape, in windows of ten."""
    return ShapedDrill(
        name="promised",
        tuples=int(6 * RATE),
        items=20_000,
        event_tuples=2_048,
        rate=RATE,
        recover_within=target,
        checkpoint_budget="20%",
        shape=shape,
        gun=str(folder / "gun"),
    )


@pytest.mark.parametrize("shape", ["uniform", "zipf", "bursty"])
def test_a_promise_that_can_be_kept_is_kept(
    node_session: SparkSession, tmp_path: Path, shape: str
) -> None:
    """Killed twice: each time within what was promised, and the prediction is kept beside it."""
    drill = promised(tmp_path, shape, "5s")
    strikes = [Strike("averages", "kill", at_fraction=share, settled=True) for share in (0.4, 0.7)]
    result = run_on(node_session, drill, tmp_path, strikes)
    assert_right(result)
    for each in result.recoveries():
        assert each.target == 5000
        assert each.predicted is not None
        assert each.beyond_restart <= each.target
    kept = kept_recoveries(tmp_path / "query", "averages")
    assert len(kept) == len(result.recoveries()) == 2
    assert all(each.within and each.predicted_ms is not None for each in kept)


def test_checks_that_a_promise_makes_do_not_show_in_the_results(
    node_session: SparkSession, tmp_path: Path
) -> None:
    """A tight promise leaves CHECKs of windows that stay open; what comes out is the same."""
    drill = promised(tmp_path, "zipf", "200ms")
    strike = Strike("averages", "kill", at_fraction=0.8)
    result = run_on(node_session, drill, tmp_path, [strike])
    assert_right(result)
    assert pc.max(result.nodes.table(0.0)["checks"]).as_py() > 0, "no CHECK was left"
