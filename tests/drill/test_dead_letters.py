"""Tuples that a map fails for, on nodes that are killed."""

import pyarrow as pa

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


def test_every_tuple_is_a_result_or_a_dead_letter_once_whatever_dies(tmp_path):
    """The node is killed while it divides them."""
    rows = 5_000
    with rewake.start_processes(build(rows), tmp_path / "state") as running:
        running.await_start()
        with running.subscribe("numbers") as stream:
            first = stream.read(timeout=30)
            running.signal_node("numbers")
            rest = [event.batch for event in stream]
        with running.subscribe("dead") as stream:
            dead = pa.Table.from_batches([event.batch for event in stream if event.batch.num_rows])
        running.await_end()
    numbers = pa.Table.from_batches([each for each in (first.batch, *rest) if each.num_rows])
    assert numbers.column("k").to_pylist() == [k for k in range(rows) if k % 7 != 3]
    assert dead.column("k").to_pylist() == [k for k in range(rows) if k % 7 == 3]
    assert set(dead.column("text").to_pylist()) == {"bad"}
