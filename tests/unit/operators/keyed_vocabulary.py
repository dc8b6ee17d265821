"""What tests of keyed processing have in common: a stream, two functions, and operators of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rewake.model.stream_event import StreamEvent
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.operators.stateful import StoredParts

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.int64())])
OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int64())])
STATE = {"n": (pa.int64(), 0), "last": pa.string()}
NOTHING = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])


def event(position, *rows, watermark=None):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [pa.array(list(column), each.type) for column, each in zip(columns, SCHEMA)]  # noqa: B905
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return StreamEvent(position, batch, watermark)


def rows_of(batch):
    return [] if batch is None else [tuple(row.values()) for row in batch.to_pylist()]


def count(given):
    """Adds up v; puts the sum out; forgets the key at a negative sum."""
    values = given.batch.column("v").to_numpy()
    sums = np.add.reduceat(values, given.offsets[:-1])
    n = given.state.column("n").to_numpy() + sums
    output = pa.RecordBatch.from_arrays([given.keys.column("k"), pa.array(n)], schema=OUTPUT)
    state = [pa.array(n), given.keys.column("k")]
    state = pa.RecordBatch.from_arrays(state, schema=given.state.schema)
    return output, state, None, n < 0


def ticking(key, tuples, state):
    """A timer five after each key's last tuple."""
    if 13 in tuples.column("v").to_pylist():
        raise ValueError("thirteen")
    state["n"] += tuples.num_rows
    return None, state, tuples.column("t")[-1].as_py() + 5


def tick(key, time, state):
    """Says so, and once more two later."""
    if state["n"] == 99:
        raise RuntimeError("ninety-nine")
    state["n"] += 10
    return [{"k": key, "n": time}], state, time + 2 if state["n"] < 20 else None


def operator(function=count, **options):
    options = {"time": "t", **options}
    spec = ProcessSpec(function, ("k",), state_fields(STATE), OUTPUT, **options)
    return spec.operator(SCHEMA)


def ticker(**options):
    return operator(ticking, each_key=True, on_timer=tick, **options)


def restored(made, source, slots, applied, clock=None, openings=False):
    columns = source.opening_columns(slots) if openings else source.snapshot_columns(slots)
    parts = stored(source.ids_of(slots), applied, columns)
    both = (parts, NOTHING) if openings else (NOTHING, parts)
    made.restore(*both, clock=source.clock if clock is None else clock, late_tuples=0)
    return made


def stored(ids, applied, columns):
    applied = np.full(ids.size, applied, np.int64)
    return StoredParts(ids, applied, [columns], [np.arange(ids.size)], [ids.size])


def open_slots(made):
    return np.flatnonzero(made.opened_at >= 0).astype(np.int32)
