"""One clock: a source says how far its rows are out of order, and all steps go by that."""

from random import Random

import pyarrow as pa
import pytest
from one_clock_cases import (
    SCHEMA,
    committed,
    counted,
    random_query,
    rows_within,
    run,
)

from rewake import Batches
from rewake.graph import Query, time_window
from rewake.sim.connectors import ListSink

SEEDS = 30
SLACK = 20


def _sources(query: Query, seed: int, rows: int = 400):
    found = []
    for number, name in enumerate(("left", "right")):
        made = rows_within(Random(seed + number), rows, SLACK)
        table = pa.Table.from_pylist(made, SCHEMA)
        batches = Batches(table, event_tuples=7, time_column="t", slack=SLACK)
        found.append((query.source(name, batches), made))
    return found


def test_a_join_behind_sources_with_a_slack_loses_no_pair() -> None:
    """It says nothing of slack itself: what the sources declared in order is in order."""
    query, sink = Query("pairs"), ListSink()
    (left, ones), (right, others) = _sources(query, seed=5)
    left.join(right, on="k", within=10, time="t").to(sink)
    run(query, 1, faults=False)
    pairs = [
        (one["v"], other["v"])
        for one in ones
        for other in others
        if one["k"] == other["k"] and abs(one["t"] - other["t"]) < 10
    ]
    assert sorted((row["v"], row["v_right"]) for row in committed(sink)) == sorted(pairs)


def test_a_time_window_behind_a_left_join_loses_no_row() -> None:
    """Rows that met nobody come later than pairs, and the watermark waits for them."""
    query, sink = Query("sums"), ListSink()
    (left, ones), (right, _) = _sources(query, seed=9)
    some = right.filter("k = 1")
    joined = left.join(some, on="k", within=40, time="t", how="left")
    joined.aggregate(by="k", window=time_window(25), time="t", count=["k"]).to(sink)
    run(query, 1, faults=False)
    alone = sum(1 for row in ones if row["k"] != 1)
    assert sum(row["count_k"] for row in committed(sink) if row["k"] != 1) == alone


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_row_is_late_that_a_source_declared_in_order(seed) -> None:
    """Any steps, any cut, any crashes: results are those of all rows at once."""
    query, sink, wanted = random_query(Random(seed), rows=60)
    run(query, seed)
    assert counted(committed(sink)) == counted(wanted)
