"""What a simulated node with any operator must have put out, by the oracle of that operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rewake.graph.plan.plan import NodePlan
from rewake.operators.aggregate.functions import AggregateFunction
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.join.operator import JoinSpec
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.resampling.operator import ResampleSpec
from rewake.operators.sorting.operator import SortSpec
from rewake.operators.stateful import LATE_PORT, RESULTS_PORT
from rewake.operators.windows.specs import CountWindow, SessionWindow, TimeWindow
from rewake.oracle.aggregates import Function, Punctuation, aggregate_with_late
from rewake.oracle.joins import join
from rewake.oracle.operators import resample, sessions, sort
from rewake.sim.operator_scenarios import PATIENCE

__all__ = ["ByPort", "Came", "Row", "expected"]

Row = dict[str, Any]
ByPort = dict[int, list[Row]]
# By which input, and the row.
Came = tuple[int, Row] | Punctuation


def expected(node: NodePlan, came: list[Came]) -> ByPort:
    """The rows of each port, before the steps behind the state."""
    spec = node.program.stateful
    match spec:
        case None:
            return {RESULTS_PORT: [each[1] for each in came if not isinstance(each, Punctuation)]}
        case AggregateSpec(window=SessionWindow() as window, time=str(time)):
            return _in_sessions(spec, window, time, came)
        case AggregateSpec():
            return _aggregated(spec, came)
        case JoinSpec():
            return _joined(spec, node, came)
        case SortSpec():
            (by,) = spec.by
            return sort(came, by=by, buffer=spec.buffer, per=spec.per, flush=spec.flush)
        case ResampleSpec():
            return _resampled(spec, came)
    assert isinstance(spec, ProcessSpec), f"no oracle knows {spec}"
    return {RESULTS_PORT: _counted_up(came)}


def _functions(functions: Sequence[AggregateFunction]) -> list[Function]:
    return [(type(each).__name__.lower(), each.column, each.result_name()) for each in functions]


def _aggregated(spec: AggregateSpec, came: list[Came]) -> ByPort:
    window = spec.window
    assert isinstance(window, CountWindow | TimeWindow), "of others a query has none"
    kind = "count" if isinstance(window, CountWindow) else "time"
    wanted, late = aggregate_with_late(
        [_row(item) for item in came],
        by=spec.by,
        window=(kind, int(window.size), int(window.advance)),
        functions=_functions(spec.aggregates),
        time=spec.time,
        slack=int(spec.slack),
    )
    return {RESULTS_PORT: wanted, LATE_PORT: late}


def _in_sessions(spec: AggregateSpec, window: SessionWindow, time: str, came: list[Came]) -> ByPort:
    return sessions(
        came,
        by=spec.by,
        gap=int(window.gap),
        time=time,
        slack=int(spec.slack),
        functions=_functions(spec.aggregates),
    )


def _resampled(spec: ResampleSpec, came: list[Came]) -> ByPort:
    (column,) = spec.columns
    how = str(spec.how)
    return resample(
        came, column=column, time=spec.time, window=int(spec.window), on=spec.on, how=how
    )


def _counted_up(came: list[Came]) -> list[Row]:
    """What the functions of the scenarios say of each key."""
    keys: dict[int, list[int]] = {}  # how many, the latest, which to come first
    results: list[Row] = []
    for arrived, each in enumerate(came):
        if isinstance(each, Punctuation):
            due = [k for k, (_, last, _) in keys.items() if last + PATIENCE <= each.time]
            for k in sorted(due, key=lambda k: (keys[k][1], keys[k][2])):
                count, last, _ = keys.pop(k)
                results.append({"k": k, "n": -count, "t": last + PATIENCE})
            continue
        k, time = each[1]["k"], each[1]["t"]
        count, last, first = keys.get(k, [0, time, arrived])
        keys[k] = [count + 1, max(last, time), first]
        results.append({"k": k, "n": count + 1, "t": time})
    return results


def _joined(spec: JoinSpec, node: NodePlan, came: list[Came]) -> ByPort:
    return join(
        came,
        on=[left for left, _ in spec.on],
        within=int(spec.within),
        time=spec.time[0],
        how=spec.how,
        slack=int(spec.slack),
        right=node.input_schemas[1].names,
    )


def _row(item: Came) -> Row | Punctuation:
    return item if isinstance(item, Punctuation) else item[1]
