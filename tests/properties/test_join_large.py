"""Joins of many tuples, with a crash half-way, against DuckDB."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from aggregate_runs import ListedFrames

from rewake.log.results import result_batch
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.operators.expressions.expression import expression
from rewake.operators.fragment import FragmentProgram
from rewake.operators.join.operator import JoinSpec
from rewake.recovery.approach import approach_named

TUPLES, EVENT, WITHIN, SLACK = 20_000, 1_000, 100, 60
EXPECTED = """
    SELECT l.k, l.s, coalesce(greatest(l.t, r.t), l.t) AS t, r.v AS v_right, r.t AS t_right
    FROM l {how} JOIN r ON l.k = r.k AND abs(l.t - r.t) < {within} AND l.v % 3 = r.v % 3
"""
FOUND = "SELECT k, s, t, v_right, t_right FROM found"


def _side(rng, name):
    keys = rng.zipf(1.3, TUPLES) % 500
    times = np.arange(TUPLES) // 2 + rng.integers(0, SLACK, TUPLES)
    text = np.array([f"{name} {i}" for i in range(100)])[rng.integers(0, 100, TUPLES)]
    nulls = rng.random(TUPLES) < 0.01
    columns = {"k": pa.array(keys, mask=nulls), "v": rng.integers(0, 9, TUPLES), "s": text}
    return pa.table({**columns, "t": times})


def _events(left, right):
    """The tables in turns, and the end of both."""
    events, position = [], 0
    for start in range(0, TUPLES, EVENT):
        for port, table in enumerate((left, right)):
            batch = table.slice(start, EVENT).combine_chunks().to_batches()[0]
            events.append(StreamEvent(position, batch, port=port))
            position += EVENT
    return [*events, StreamEvent(position, events[0].batch.slice(0, 0), END_OF_TIME)]


def _run(spec, left, right):
    """What two processes put out together, the first of which dies half-way; and the operator."""
    events, program, log = _events(left, right), FragmentProgram(stateful=spec), ListedFrames()
    for turns in (len(events) // 2, len(events)):
        operator = program.operator(left.schema, right.schema)
        approach = approach_named("cec", records=4, interval_ms=1, period_ms=1)
        driven = approach.build(operator, program.emit, log.newest_first())
        for event in events[:turns]:
            if event.end < driven.position or event.end == driven.position > event.start:
                continue
            past = event.start < driven.position
            turn = driven.turn(event.split(driven.position)[1] if past else event)
            if turn.record is not None:
                log.append(turn.record)
            log.needed = driven.frames_needed
    batches = [result_batch(frame, operator.output_schema) for frame in log.frames]
    return pa.Table.from_batches([batch for batch in batches if batch is not None]), operator


@pytest.mark.parametrize(("how", "sql"), [("inner", "INNER"), ("left", "LEFT")])
def test_a_long_join_with_a_crash_agrees_with_duckdb(how, sql):
    """Skewed keys, nulls, disorder within the slack: the same rows, though a process died."""
    rng = np.random.default_rng(7)
    left, right = _side(rng, "left"), _side(rng, "right").drop_columns("s")
    where = expression("v % 3 = v_right % 3")
    on, times = (("k", "k"),), ("t", "t")
    spec = JoinSpec(on=on, within=WITHIN, time=times, where=where, how=how, slack=SLACK)
    found, operator = _run(spec, left, right)
    assert (operator.late_tuples, operator.open_parts) == (0, 0)
    with duckdb.connect() as connection:
        for name, table in (("l", left), ("r", right), ("found", found)):
            connection.register(name, table)
        expected = EXPECTED.format(how=sql, within=WITHIN)
        count = connection.execute(f"SELECT count(*) FROM ({expected})").fetchone()
        more = connection.execute(f"{FOUND} EXCEPT ALL {expected}").fetchmany(3)
        less = connection.execute(f"{expected} EXCEPT ALL {FOUND}").fetchmany(3)
    assert ((found.num_rows,), more, less) == (count, [], [])
