"""The operators whose footprints are fuzzed: every kind of window, key and aggregate state."""

from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa

from rewake.log.frame import Frame, decode_frame, encode_frame
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg, Count, First, Last, Max, Min, Stddev, Sum
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window, session_window, time_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly
from rewake.recovery.policies.targets import TargetsPolicy

__all__ = ["SCHEMA", "SPECS", "batch", "events", "frames", "operator"]

SCHEMA: Final = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("x", pa.float64()),
        ("v", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.int64()),
    ]
)

_ALL: Final = (
    Count(), Count("f"), Sum("v"), Avg("f"), Min("v"), Max("f"), First("v"), Last("f"), Stddev("f"),
)  # fmt: skip

SPECS: Final = (
    AggregateSpec(["k"], count_window(4), [Sum("v"), Count("v")]),
    AggregateSpec(["s"], count_window(4), [Sum("v"), Avg("f")]),
    AggregateSpec(["k"], count_window(6, 2), [Sum("v"), Min("f")]),
    AggregateSpec(["n"], count_window(3, 5), [Sum("v"), Last("v")]),
    AggregateSpec(["s", "n"], count_window(6, 4), [First("v")], time="t", timeout=9),
    AggregateSpec(["b"], count_window(4), [Count()], time="t", timeout=20),
    AggregateSpec(["k"], time_window(10), _ALL, time="t", slack=3, route_late=True),
    AggregateSpec(["n"], time_window(20, 5), [Sum("v"), Max("v")], time="t"),
    AggregateSpec(["x"], time_window(5, 12), [Count()], time="t", slack=2),
    AggregateSpec(["s"], time_window(30, 12), [Stddev("f")], time="t", slack=1),
    AggregateSpec(["k"], count_window(4), [Count()]),
    AggregateSpec(["x", "s"], count_window(7, 1), _ALL),
    AggregateSpec(["k"], session_window(3), _ALL, time="t", slack=2, route_late=True),
)


def operator(case: int) -> Aggregate:
    """A new operator of the case."""
    return Aggregate(SPECS[case % len(SPECS)], SCHEMA)


@cache
def batch(position: int, rows: int, *, jump: int = 0) -> pa.RecordBatch:
    """The tuples of the honest stream from `position` on; any cut gives the same tuples."""
    columns: list[list[object]] = [[] for _ in SCHEMA]
    for place in range(position, position + rows):
        mixed = place * 2654435761 >> 7
        values = (
            None if mixed % 11 == 0 else mixed % 5,
            mixed % 3 - 1,
            None if mixed % 13 == 0 else "key" * (mixed % 4),
            mixed % 2 == 0,
            (mixed % 4) / 2 - 0.5,
            None if mixed % 7 == 0 else mixed % 100 - 50,
            None if mixed % 5 == 0 else (mixed % 1000) / 8,
            place - mixed % 4 + jump,
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def events(position: int, end: int, rows: int) -> Iterator[StreamEvent]:
    """The honest stream from `position` up to `end`, cut into stream events of so many rows."""
    while position < end:
        count = min(rows, end - position)
        watermark = position - 3 if position % 17 == 0 else None
        yield StreamEvent(position, batch(position, count), watermark)
        position += count


@cache
def frames(case: int, tuples: int, rows: int, *, checks: bool) -> tuple[Frame, ...]:
    """The frames that an operator leaves for the first so many tuples."""
    policy = (
        TargetsPolicy(records=4, tuples=6, interval_ms=1, period_ms=1) if checks else OpenOnly()
    )
    driver = ContinuousEventualCheckpointing(operator(case), policy)
    found: list[Frame] = []
    position = 0
    for turns, event in enumerate(events(0, tuples, rows)):
        record = driver.turn(event, float(turns)).record
        if record is not None:
            encoded = encode_frame(
                record, log_id=1, epoch=0, sequence=len(found), position=position, durable=0
            )
            found.append(decode_frame(encoded))
            position += record.tuples
    return tuple(found)
