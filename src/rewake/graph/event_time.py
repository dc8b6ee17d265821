"""One clock: which streams carry watermarks, and by what a step behind them goes.

Where all inputs of a step carry watermarks, these alone are its clock, and a slack of its own holds
that back further.  Where none does, its clock is the latest time it has seen, less its slack.
Where some do, no watermark would ever come, and the latest time would make tuples late that a
source has declared in order: then the step must say what it goes by.

A watermark is about one event time of each step's results (see `docs/design/event-time.md`).  Other
columns of theirs are behind it by a known time, and then the clock of whoever goes by them is held
back by that; or by any time at all, and then nobody can go by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from rewake.graph.steps import Carried, Kind, Port, Step
from rewake.graph.times import order_columns
from rewake.model.errors import UsageError
from rewake.operators.aggregate.functions import AggregateFunction, First, Last, Max, Min
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.join.operator import JoinSpec
from rewake.operators.resampling.operator import ResampleSpec
from rewake.operators.sorting.operator import SortSpec
from rewake.operators.stateful import StatefulSpec
from rewake.operators.windows.specs import (
    SessionWindow,
    TimeWindow,
    behind_watermarks,
    goes_by_watermarks,
)

__all__ = ["carried_behind", "on_one_clock"]

# How far a column is behind, in pieces to be added up; None: any far.
Lag = tuple[str | int, ...] | None
Spec = TypeVar("Spec", bound=StatefulSpec)


def carried_behind(inputs: Sequence[Port], spec: StatefulSpec | None = None) -> Carried:
    """What a step passes on, which has these inputs."""
    kinds = {port.carries for port in inputs}
    carried = kinds.pop() if len(kinds) == 1 else Carried.BY_SOME
    if isinstance(spec, SortSpec) and not spec.flush and carried is Carried.BY_ALL:
        return Carried.BY_SOME  # tuples wait that watermarks have passed, and so do these
    return carried


def on_one_clock(name: str, spec: Spec, slack: str | int | None, inputs: Sequence[Port]) -> Spec:
    """The spec with the slack that its inputs ask for; `slack` is what the user has said, if so."""
    columns = order_columns(spec)
    if not columns:
        return spec if slack is None else replace(spec, slack=slack)  # type: ignore[type-var]
    carried = carried_behind(inputs)
    by_watermarks = carried is Carried.BY_ALL or (slack is not None and goes_by_watermarks(slack))
    if not by_watermarks and slack is None and carried is Carried.BY_SOME and _has_slack(spec):
        raise UsageError(
            f"step {name!r}: some of what it reads carries watermarks and some does not (a source "
            "without time_column, an entry without watermarks=True, a loop, or a sort without "
            "flush=True is before it), so none would ever come; let all carry them, or say "
            'slack="..." to go by the latest time seen less that'
        )
    if not by_watermarks:
        return replace(spec, slack=slack) if slack is not None else spec  # type: ignore[type-var]
    lags = [_lag(port, column) for port, column in zip(inputs, columns, strict=True)]
    for port, column, lag in zip(inputs, columns, lags, strict=True):
        if lag is None or (lag and not _has_slack(spec)):
            raise UsageError(
                f"step {name!r}: {column!r} of {port.name!r} may be further in the past than any "
                "watermark tells; take the time at which that step's windows end, or that of a "
                "step before it"
            )
    if not _has_slack(spec):
        return spec
    return replace(spec, slack=behind_watermarks(slack, *(_any_of(lags) or ())))  # type: ignore[type-var]


def _has_slack(spec: StatefulSpec) -> bool:
    return hasattr(spec, "slack")


# --- how far a column is behind the watermark of its stream ---------------------------------------


def _any_of(lags: Iterable[Lag]) -> Lag:
    """At least as long as each of them: their units may differ, so different ones are added up."""
    added: Lag = ()
    for lag in dict.fromkeys(lags):
        added = _sum(added, lag)
    return added


def _sum(one: Lag, other: Lag) -> Lag:
    return None if one is None or other is None else one + other


def _lag(port: Port, column: str) -> Lag:
    """How far a column is behind; that of which nothing is known is taken for the event time."""
    step = port.step
    if step.kind is Kind.MAP:
        text = next((each.text for name, each in step.computes if name == column), "")
        return _lag(step.inputs[0], text) if text in step.inputs[0].schema.names else ()
    if step.spec is not None:
        return _lag_of_result(step, column) if port.port == 0 else ()
    return _any_of(_lag(each, column) for each in step.inputs if column in each.schema.names)


def _lag_of_result(step: Step, column: str) -> Lag:
    match step.spec:
        case AggregateSpec(window=TimeWindow(size=size)) as spec:
            return _lag_of_window(step, spec, column, size)
        case AggregateSpec(window=SessionWindow(gap=gap)) as spec:
            found = _function(spec.aggregates, column)
            if column == spec.window_columns[0] or isinstance(found, First | Min):
                return None
            return _lag_of_window(step, spec, column, gap)
        case AggregateSpec() as spec:
            found = _function(spec.aggregates, column)
            if found is None:
                return _lag(step.inputs[0], column) if column in spec.by else ()
            return None if isinstance(found, First | Min) else _lag(step.inputs[0], found.column)
        case SortSpec():
            return _lag(step.inputs[0], column)
        case JoinSpec() | ResampleSpec():
            of = step.inputs[0 if isinstance(step.spec, JoinSpec) else 1]
            return _lag(of, column) if column in of.schema.names else ()
    return ()


def _lag_of_window(step: Step, spec: AggregateSpec, column: str, reach: str | int) -> Lag:
    """The end of a window is its event time; times of its tuples are within it."""
    if column == spec.window_columns[1]:
        return ()
    if column == spec.window_columns[0]:
        return (reach,)
    found = _function(spec.aggregates, column)
    origin = column if found is None else found.column
    return _sum((reach,), _lag(step.inputs[0], origin)) if origin == spec.time else ()


def _function(functions: Sequence[AggregateFunction], column: str) -> AggregateFunction | None:
    """The function that gives one of a column's own values as this result."""
    for each in functions:
        if each.result_name() == column and isinstance(each, First | Last | Max | Min):
            return each
    return None
