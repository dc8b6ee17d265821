"""Fifty random kills over one run on Spark: not one result lost, repeated, reordered or wrong."""

import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from query_vocabulary import assert_right, run_on

from rewake.drill.queries import ItemDrill
from rewake.drill.when import Strike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

KILLS = 50
SECONDS = 110.0
RATE = 50_000.0


@pytest.mark.parametrize("seed", [1])
def test_fifty_random_kills_leave_no_mark(
    node_session: "SparkSession",
    tmp_path: Path,
    seed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Any node, any moment, also while it or its neighbour recovers."""
    random = Random(seed)
    nodes = ["items", "cheap", "averages"]
    strikes = sorted(
        (
            Strike(random.choice(nodes), "kill", at_seconds=random.uniform(0.5, 0.95 * SECONDS))
            for _ in range(KILLS)
        ),
        key=lambda strike: strike.at_seconds or 0.0,
    )
    drill = ItemDrill(
        tuples=int(SECONDS * RATE), items=20_000, event_tuples=1_024, rate=RATE,
        gun=str(tmp_path / "gun"),
    )  # fmt: skip
    result = run_on(node_session, drill, tmp_path, strikes)
    assert_right(result)
    assert len(result.blows) == KILLS
    detected = [each.detect for each in result.recoveries()]
    restarts = [each.restart for each in result.recoveries()]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{KILLS} kills in {result.seconds:.0f} s, {result.results} results, all right; "
            f"detected after p50 {np.median(detected):.0f} ms, max {max(detected):.0f}; "
            f"then restarted in p50 {np.median(restarts):.0f} ms, max {max(restarts):.0f}\n"
        )
