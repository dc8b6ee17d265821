"""Tuples without a key: a group of their own, an error, or left out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rewake
from rewake.graph.query import Query
from rewake.graph.stream import Stream

ROWS = pa.table(
    {
        "k": pa.array([1, None, 1, None, 2, 2], pa.int64()),
        "v": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "at": pa.array(range(6), pa.timestamp("us")),
    }
)


def copies(key: Any, tuples: Any, state: Any) -> Any:
    """One row for each tuple of a key."""
    return [{"k": key[0] if isinstance(key, tuple) else key}] * len(tuples), state


STEPS: dict[str, Callable[[Stream], Stream]] = {
    "aggregate": lambda rows: rows.aggregate(
        by="k", window=rewake.count_window(2), sum="v", null_keys="drop", name="step"
    ),
    "sessions": lambda rows: rows.aggregate(
        by="k",
        window=rewake.session_window("1s"),
        time="at",
        sum="v",
        null_keys="drop",
        name="step",
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_tuples_without_a_key_are_left_out_on_request(tmp_path: Path, step: str) -> None:
    """As if they had been filtered out before; the others count as they would."""
    query = Query("nulls")
    rows = query.source("rows", rewake.Batches(ROWS, time_column="at"))
    STEPS[step](rows).to_stream("sums")
    with rewake.start_processes(query, tmp_path) as running:
        with running.subscribe("sums") as subscription:
            results = pa.Table.from_batches([event.batch for event in subscription])
        assert running.await_end(60.0)
    found = sorted(zip(results["k"].to_pylist(), results["sum_v"].to_pylist(), strict=True))
    assert found == [(1, 4), (2, 11)]


def test_a_step_that_leaves_them_out_says_so_in_the_plan() -> None:
    """It is a filter like any other, named after the step."""
    query = Query("nulls")
    rows = query.source("rows", rewake.Batches(ROWS))
    given = {"by": "k", "state": {"n": pa.int64()}, "output": pa.schema([("k", pa.int64())])}
    rows.process(copies, each_key=True, null_keys="drop", name="step", **given).to_stream("step")
    assert '"k" IS NOT NULL' in query.explain()
