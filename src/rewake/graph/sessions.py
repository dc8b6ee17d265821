"""Session windows as a step of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewake.graph.checks import of_step
from rewake.graph.steps import Kind
from rewake.operators.aggregate.functions import AggregateFunction, asked_for, listed
from rewake.operators.session.operator import SessionSpec
from rewake.operators.session.window import SessionWindow
from rewake.recovery.approach import Approach, chosen_approach

if TYPE_CHECKING:
    from rewake.graph.stream import Columns, Stream

__all__ = ["sessions"]


def sessions(
    stream: Stream,
    *,
    by: Columns,
    gap: str | int | SessionWindow,
    time: str,
    avg: Columns = (),
    sum: Columns = (),  # noqa: A002
    min: Columns = (),  # noqa: A002
    max: Columns = (),  # noqa: A002
    first: Columns = (),
    last: Columns = (),
    stddev: Columns = (),
    count: bool | Columns = False,
    functions: Sequence[AggregateFunction] = (),
    slack: str | int | None = None,
    route_late: bool = False,
    null_keys: str = "group",
    on_error: str = "stop",
    name: str | None = None,
    shards: int = 1,
    approach: Approach | str | None = None,
    recover_within: str | None = None,
    checkpoint_budget: str | float = "5%",
    fragment: str | None = None,
) -> Stream:
    """Functions over each key's sessions: tuples with less than `gap` of event time between them.

    All else is as in `Stream.aggregate`.
    """
    name = stream._named(name, Kind.AGGREGATE)
    chosen = chosen_approach(approach, recover_within, checkpoint_budget)
    if null_keys == "drop":
        stream, null_keys = stream._with_keys(name, listed(by)), "group"
    with of_step(name):
        aggregates = asked_for(
            count,
            functions,
            avg=avg,
            sum=sum,
            min=min,
            max=max,
            first=first,
            last=last,
            stddev=stddev,
        )
        spec = SessionSpec(
            by=listed(by),
            window=gap if isinstance(gap, SessionWindow) else SessionWindow(gap),
            aggregates=aggregates,
            time=time,
            null_keys=null_keys,
            route_late=route_late,
            on_error=on_error,
        )
    return stream.add_stateful(
        Kind.AGGREGATE,
        spec,
        name=name,
        shards=shards,
        approach=chosen,
        fragment=fragment,
        slack=slack,
    )
