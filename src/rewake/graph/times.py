"""In which unit a step tells time, and for how much of it its history is kept.

The unit is that of the column from which its watermarks are taken.  A log says so, that it can be
read by date.  Steps that have a time of their own go by it; all others pass on what they are told,
whatever becomes of the column.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rewake.graph.steps import Graph, Step
from rewake.log.retention import Retention
from rewake.model.errors import UsageError
from rewake.model.units import duration_in_unit

__all__ = ["retention_of", "time_of"]

_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def retention_of(graph: Graph, steps: Sequence[Step], time: pa.DataType | None) -> Retention:
    """What is kept of the log of some steps: for each of their streams as much as it asks for."""
    ages, sizes = [], []
    for name, port in graph.streams.items():
        if port.step in steps:
            keep_for, keep_bytes = graph.kept.get(name, (None, None))
            ages.append(None if keep_for is None else _age(name, keep_for, time))
            sizes.append(keep_bytes)
    return Retention(_most(ages), _most(sizes))


def _most(limits: list[int | None]) -> int | None:
    given = [each for each in limits if each is not None]
    return max(given) if given and len(given) == len(limits) else None


def _age(stream: str, keep_for: str | int, time: pa.DataType | None) -> int:
    if isinstance(keep_for, int):
        return keep_for
    if time is None or not pa.types.is_timestamp(time):
        raise UsageError(
            f"stream {stream!r}: keep_for={keep_for!r} needs the unit of the stream's time, and "
            "nobody says it; give a whole number in that unit, or keep_bytes"
        )
    return duration_in_unit(keep_for, _UNIT_NS[time.unit])


def time_of(graph: Graph, step: Step) -> pa.DataType | None:
    """The type of the times of a step's output; None when it has none, or nobody says."""
    return _time_of(graph, step, frozenset())


def _time_of(graph: Graph, step: Step, seen: frozenset[Step]) -> pa.DataType | None:
    if step.source is not None:
        return _type(step.schema, getattr(step.source, "time_column", None))
    inputs = graph.inputs(step)
    if step.spec is not None:
        time = getattr(step.spec, "time", None)  # of both inputs, which are of one type
        return _type(inputs[0].schema, time[0] if isinstance(time, tuple) else time)
    kinds = {_time_of(graph, port.step, seen | {step}) for port in inputs if port.step not in seen}
    return kinds.pop() if len(kinds) == 1 else None


def _type(schema: pa.Schema, column: object) -> pa.DataType | None:
    return schema.field(column).type if column in schema.names else None
