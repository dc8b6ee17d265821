"""What a map, a join, a resample and an aggregate fail for, on nodes that are killed."""

from pathlib import Path

import pyarrow as pa
import pytest
from node_functions import larger, larger_unless_huge, only, value_unless_large

import rewake

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])


def build(rows: int) -> rewake.Query:
    texts = ["bad" if k % 7 == 3 else str(k) for k in range(rows)]
    table = pa.Table.from_pydict({"k": range(rows), "text": texts}, schema=SCHEMA)
    query = rewake.Query("dead")
    items = query.source("items", rewake.Batches(table, event_tuples=100))
    numbers = items.map(k="k", n="CAST(text AS BIGINT)", on_error="divert", name="numbers")
    numbers.to_stream("numbers")
    numbers.output("dead").to_stream("dead")
    return query


def killed(query: rewake.Query, folder: Path, stream: str, node: str) -> tuple[pa.Table, pa.Table]:
    """The results and the dead letters of a query whose node dies after the first results."""
    with rewake.start_processes(query, folder / "state") as running:
        running.await_start()
        with running.subscribe(stream) as following:
            first = following.read(timeout=120)
            running.signal_node(node)
            results = [first.batch, *(event.batch for event in following)]
        with running.subscribe("dead") as following:
            dead = [event.batch for event in following]
        running.await_end()
    return tuple(
        pa.Table.from_batches([each for each in batches if each.num_rows])
        for batches in (results, dead)
    )


def test_every_tuple_is_a_result_or_a_dead_letter_once_whatever_dies(tmp_path):
    """The node is killed while it divides them."""
    rows = 5_000
    numbers, dead = killed(build(rows), tmp_path, "numbers", "numbers")
    assert numbers.column("k").to_pylist() == [k for k in range(rows) if k % 7 != 3]
    assert dead.column("k").to_pylist() == [k for k in range(rows) if k % 7 == 3]
    assert set(dead.column("text").to_pylist()) == {"bad"}


TIMED = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])


def timed(rows: int) -> rewake.Batches:
    values = [2**62 if k % 7 == 3 else k for k in range(rows)]
    columns = {"k": range(rows), "v": values, "t": range(rows)}
    table = pa.Table.from_pydict(columns, schema=TIMED)
    return rewake.Batches(table, event_tuples=100, time_column="t")


def pairs_of(rows: int) -> rewake.Query:
    """Every tuple meets itself; the condition overflows for some."""
    query = rewake.Query("pairs")
    left, right = query.source("left", timed(rows)), query.source("right", timed(rows))
    made = left.join(
        right, on="k", within=10, time="t", where="v * 4 >= 0", on_error="divert", name="step"
    )
    made.to_stream("results")
    made.output("dead").to_stream("dead")
    return query


def answers_of(rows: int) -> rewake.Query:
    """The value at every request's own time, by a function that fails for some."""
    query = rewake.Query("answers")
    values, asked = query.source("values", timed(rows)), query.source("asked", timed(rows))
    made = values.resample(
        asked.map(key="k", t="t", name="requests"),
        time="t",
        window=2,
        columns={"x": "v"},
        how=value_unless_large,
        on_error="divert",
        name="step",
    )
    made.to_stream("results")
    made.output("dead").to_stream("dead")
    return query


@pytest.mark.parametrize(("build_query", "key"), [(pairs_of, "k"), (answers_of, "key")])
def test_pairs_and_requests_are_results_or_dead_letters_once_whatever_dies(
    tmp_path, build_query, key
):
    """The node of the step is killed between them."""
    rows = 5_000
    found, dead = killed(build_query(rows), tmp_path, "results", "step")
    failing = FAILING[build_query](rows)
    assert sorted(dead[key].to_pylist()) == sorted(failing)
    assert sorted(found[key].to_pylist()) == sorted(set(range(rows)) - set(failing))


FAILING = {
    pairs_of: lambda rows: [k for k in range(rows) if k % 7 == 3],
    # A window reaches two to either side.
    answers_of: lambda rows: [
        k for k in range(rows) if any(v % 7 == 3 for v in range(max(k - 2, 0), min(k + 3, rows)))
    ],
}


def largest_of(rows: int) -> rewake.Query:
    """The largest value of every ten tuples, by a function that fails for some."""
    query = rewake.Query("largest")
    own = rewake.UserDefined(
        "v", "largest", (-1.0,), update=larger_unless_huge, merge=larger, result=only
    )
    made = (
        query.source("values", timed(rows))
        .map(tens="k - k % 10", k="k", v="v", name="tens")
        .aggregate(
            by="tens",
            window=rewake.count_window(10),
            functions=[own],
            on_error="divert",
            name="step",
        )
    )
    made.to_stream("results")
    made.output("dead").to_stream("dead")
    return query


def test_an_aggregate_leaves_out_what_its_function_fails_for_whatever_dies(tmp_path):
    """Windows count the tuple, the function does not see it, and it is a dead letter once."""
    rows = 20_000
    found, dead = killed(largest_of(rows), tmp_path, "results", "step")
    assert dead["k"].to_pylist() == [k for k in range(rows) if k % 7 == 3]
    assert found["tens"].to_pylist() == list(range(0, rows, 10))
    assert found["largest"].to_pylist() == [
        max(k for k in range(start, start + 10) if k % 7 != 3) for start in range(0, rows, 10)
    ]
