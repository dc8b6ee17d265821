"""Sessions, sorts, resamples, splits and one-to-many maps as processes, each killed while it works.

Joins and keyed processing are killed in the drills of NEXMark and of promises, lookups and sinks
into databases in those of databases.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from node_functions import doubled

import rewake
from rewake.model.stream_event import END_OF_TIME
from rewake.net.kill_points import Fault
from rewake.net.queries.processes import Processes
from rewake.net.queries.running import RunningQuery
from rewake.oracle.aggregates import Punctuation
from rewake.oracle.operators import resample, sessions, sort

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
ROWS = 4_000
KILLED = ("sessions", "sorted", "doubled", "priced", "divided")


def table(seed: int) -> pa.Table:
    """Rows in the order of their time, with pauses now and then."""
    times = [n + n // 97 * 20 for n in range(ROWS)]
    values = [n * (7919 + seed) % 1009 for n in range(ROWS)]
    keys = [value % 5 for value in values]
    return pa.Table.from_pydict({"k": keys, "v": values, "t": times}, schema=SCHEMA)


def build() -> rewake.Query:
    """One stream into all of them, and another for the times that a resample is asked for."""
    query = rewake.Query("operators")
    sources = [
        query.source(name, rewake.Batches(table(seed), event_tuples=50, time_column="t"))
        for seed, name in enumerate(("items", "asked"))
    ]
    items, asked = sources
    items.aggregate(
        by="k", window=rewake.session_window(15), time="t", sum="v", count=True, name="sessions"
    ).to_stream()
    items.bsort(by="v", buffer=40, name="sorted").to_stream()
    items.map(doubled, many=True, name="doubled").to_stream()
    items.resample(
        asked, time="t", window=10, columns={"then": "v"}, on="k", how="linear", name="priced"
    ).to_stream()
    parts = items.split({"large": "v > 500", "even": "k % 2 = 0"}, rest="rest", name="divided")
    for name, part in parts.items():
        part.to_stream(name)
    return query


def expected() -> dict[str, list[dict[str, Any]]]:
    """By stream."""
    rows, asked = table(0).to_pylist(), table(1).to_pylist()
    came = [*((0, row) for row in rows), Punctuation(END_OF_TIME)]
    both = [*((0, row) for row in rows), *((1, row) for row in asked), Punctuation(END_OF_TIME)]
    functions = [("sum", "v", "sum_v"), ("count", "", "count")]
    return {
        "sessions": sessions(came, by=["k"], gap=15, time="t", slack=0, functions=functions)[0],
        "sorted": sort(came, by="v", buffer=40, per=(), flush=False)[0],
        "doubled": [each for row in rows for each in (row, {**row, "v": -row["v"]})],
        "priced": resample(both, column=("then", "v"), time="t", window=10, on=["k"], how="linear")[
            0
        ],
        "large": [row for row in rows if row["v"] > 500],
        "even": [row for row in rows if row["v"] <= 500 and row["k"] % 2 == 0],
        "rest": [row for row in rows if row["v"] <= 500 and row["k"] % 2],
    }


@pytest.mark.slow
@pytest.mark.parametrize("killed", [KILLED[::2], KILLED[1::2]], ids=", ".join)
def test_every_operator_comes_back_exactly(tmp_path: Path, killed: tuple[str, ...]) -> None:
    """Each is killed in the midst of its work, twice: streams hold what they should, in order."""
    faults = [Fault(node, "node.after_work", 15, life) for node in killed for life in (1, 2)]
    found: dict[str, list[dict[str, Any]]] = {}
    with RunningQuery(build().plan(), tmp_path / "state", Processes(), faults=faults) as running:
        for stream in expected():
            with running.subscribe(stream) as reader:
                found[stream] = [row for event in reader for row in event.batch.to_pylist()]
        running.await_end()
        epochs = {node: running.status()[node]["epoch"] for node in killed}
    assert min(epochs.values()) >= 3, epochs
    for stream, rows in expected().items():
        assert found[stream] == rows, stream
