"""Timers by the clock of the machine, on a node that is killed while they are set."""

from collections import Counter

import pyarrow as pa
from node_functions import held, quiet

import rewake

SCHEMA = pa.schema([("k", pa.int64())])
COUNTS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
KEYS, ROUNDS, EACH = 10, 4, 500


def build() -> rewake.Query:
    query = rewake.Query("quiet")
    held_back = query.entry("items", SCHEMA).process(
        held,
        by="k",
        state={"n": (pa.int64(), 0)},
        output=COUNTS,
        timers="processing",
        each_key=True,
        on_timer=quiet,
        name="bursts",
    )
    held_back.to_stream("counts")
    return query


def test_timers_fire_by_themselves_and_once_whoever_dies_before_they_do(tmp_path):
    """No tuple comes to set them off; what was counted is said once, killed or not."""
    batch = pa.RecordBatch.from_pydict({"k": [i % KEYS for i in range(EACH)]}, schema=SCHEMA)
    said: Counter[int] = Counter()
    with (
        rewake.start_processes(build(), tmp_path / "state") as running,
        running.subscribe("counts") as stream,
        running.produce("items") as producer,
    ):
        for turn in range(1, ROUNDS + 1):
            producer.send(batch)
            producer.flush()
            if turn % 2 == 0:
                running.signal_node("bursts")
            # The stream goes on, and nothing more is sent: only the clock can bring these.
            while said.total() < turn * EACH:
                for row in stream.read(timeout=60).batch.to_pylist():
                    said[row["k"]] += row["n"]
        producer.end()
        assert [event for event in stream if event.batch.num_rows] == []
        running.await_end()
    assert said == dict.fromkeys(range(KEYS), ROUNDS * EACH // KEYS)
