"""Which column is a step's time, in which unit it tells it, and how much of it is kept.

The unit is that of the column from which its clock is told.  A log says so, that it can be read by
date.  Steps that have a time of their own go by it; all others pass on what they are told, whatever
becomes of the column.  That is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from rewake.graph.steps import Graph, Step
from rewake.log.retention import Retention
from rewake.model.errors import UsageError
from rewake.model.units import duration_in_unit
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.join.operator import JoinSpec
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.resampling.operator import ResampleSpec
from rewake.operators.sorting.operator import SortSpec
from rewake.operators.stateful import StatefulSpec

__all__ = ["clock_columns", "described_time", "order_columns", "retention_of", "time_of"]

_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MACHINE_TIME: Final = pa.timestamp("ms", "UTC")


# --- which column ----------------------------------------------------------------------------


def clock_columns(spec: StatefulSpec) -> tuple[str, ...]:
    """By input: the column that moves the step's clock; none: only what it is told does."""
    match spec:
        case AggregateSpec(time=str(time)) | ProcessSpec(time=str(time)):
            return (time,)
        case JoinSpec(time=times):
            return times
        case ResampleSpec(time=time, at_time=at_time):
            return time, time if at_time is None else at_time
        case SortSpec(by=by, flush=True) if by:
            return (by[0],)
    return ()


def order_columns(spec: StatefulSpec) -> tuple[str, ...]:
    """By input: the column whose order matters to the step; none: no tuple is late for it.

    Windows that count tuples close when they are full, whatever time it is.
    """
    counts = isinstance(spec, AggregateSpec) and not spec.by_time
    return () if counts else clock_columns(spec)


# --- in which unit ---------------------------------------------------------------------------


def time_of(graph: Graph, step: Step) -> pa.DataType | None:
    """The type of the times of a step's output; None when it has none, or nobody says."""
    return _time_of(graph, step, frozenset())


def _time_of(graph: Graph, step: Step, seen: frozenset[Step]) -> pa.DataType | None:
    if step.source is not None:
        told: pa.DataType | None = getattr(step.source, "times", None)  # by a stream it reads
        return told or _type(step.schema, getattr(step.source, "time_column", None))
    inputs = graph.inputs(step)
    if isinstance(step.spec, ProcessSpec) and step.spec.by_machine:
        return _MACHINE_TIME
    if step.spec is not None and (columns := clock_columns(step.spec)):
        return _type(inputs[0].schema, columns[0])  # those of all inputs are of one type
    kinds = {_time_of(graph, port.step, seen | {step}) for port in inputs if port.step not in seen}
    return kinds.pop() if len(kinds) == 1 else None


def described_time(
    described: Mapping[str, Any], given: pa.Schema | None, results: pa.Schema | None
) -> pa.DataType | None:
    """The same of a log that only describes its operator, from the columns it takes and gives.

    Logs of nodes say it themselves; those of operators in micro-batches, and older ones, do not.
    """
    if described.get("timers") == "processing":
        return _MACHINE_TIME
    if given is not None and isinstance(described.get("time"), str):
        return _type(given, described["time"])
    start, _ = described.get("window_columns", ("window_start", "window_end"))
    return None if results is None else _type(results, start)


def _type(schema: pa.Schema, column: object) -> pa.DataType | None:
    return schema.field(column).type if column in schema.names else None


# --- for how long ----------------------------------------------------------------------------


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
            "nobody says it: give the source a time_column, or the step time='column'; or give a "
            "whole number in that unit, or keep_bytes"
        )
    return duration_in_unit(keep_for, _UNIT_NS[time.unit])
