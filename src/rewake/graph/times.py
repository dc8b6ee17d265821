"""In which unit a step tells time: the type of the column that its watermarks are taken from.

A log says so, that it can be read by date.  Steps that have a time of their own go by it; all
others pass on what they are told, whatever becomes of the column.
"""

from __future__ import annotations

import pyarrow as pa

from rewake.graph.steps import Graph, Step

__all__ = ["time_of"]


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
