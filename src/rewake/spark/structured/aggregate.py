"""`rewake.aggregate`: windows with eventual checkpoints inside a Structured Streaming query.

averages = items.transform(
    rewake.aggregate(by="item", window=rewake.count_window(10), avg="price", at="/state/averages")
)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rewake.graph.promised import RECOVER_WITHIN
from rewake.model.errors import UsageError
from rewake.operators.aggregate.functions import (
    AggregateFunction,
    First,
    Last,
    UserDefined,
    asked_for,
    listed,
)
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.windows.specs import CountWindow, Window, goes_by_watermarks
from rewake.spark.structured.hosting import Columns, Hosting, OrderMatters, named, order_of
from rewake.stores.places import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OrderMatters", "aggregate"]


def aggregate(
    *,
    by: Columns,
    window: Window,
    at: str | os.PathLike[str],
    avg: Columns = (),
    sum: Columns = (),  # noqa: A002
    min: Columns = (),  # noqa: A002
    max: Columns = (),  # noqa: A002
    first: Columns = (),
    last: Columns = (),
    stddev: Columns = (),
    count: bool | Columns = False,
    functions: Sequence[AggregateFunction] = (),
    time: str | None = None,
    slack: str | int | None = None,
    timeout: str | int | None = None,
    null_keys: str = "group",
    route_late: bool = False,
    on_error: str = "stop",
    recover_within: str | None = RECOVER_WITHIN,
    order_by: Columns | bool | None = None,
    shards: int | None = None,
    name: str | None = None,
    listen: str = "127.0.0.1",
    gaps: str = "refuse",
) -> Callable[[DataFrame], DataFrame]:
    """Functions over windows of each key's rows, for `DataFrame.transform` of a streaming query.

    `at` is the folder of the operator's state, on storage that all executors share.  `shards` says
    how many tasks divide the keys among them: by default as many as `at` has, or as Spark can run
    at once.  `order_by` names columns by which the rows of a batch are put in order first (the
    column `time`, where there is one); `order_by=False` takes them as they come.  `listen` is the
    address under which an executor's shard host is reached, for executors on several machines.
    `gaps="allow"` is for queries in which Spark leaves out batches that it knows to be empty.
    With `route_late`, rows that come too late are among the results, in a column `_late`; rows that
    a function fails for are so with `on_error="divert"`, in `_dead`.  `recover_within` is how long
    the loss of a shard's host may cost beyond its restart.  The rest is as in `Stream.aggregate`.
    """
    asked = asked_for(
        count, functions,
        avg=avg, sum=sum, min=min, max=max, first=first, last=last, stddev=stddev,
    )  # fmt: skip
    spec = AggregateSpec(
        listed(by),
        window,
        asked,
        time=time,
        slack=_checked_slack(slack),
        timeout=timeout,
        null_keys="group" if null_keys == "drop" else null_keys,
        route_late=route_late,
        on_error=on_error,
    )
    called = named(name, at, "aggregate")
    _check_functions(called, spec)
    return Hosting(
        spec=spec,
        described=spec.describe(),
        reads=_read_by(spec),
        at=os.path.abspath(local_path(at)),
        name=called,
        order_by=_order(spec, order_by, called),
        shards=shards,
        listen=listen,
        gaps=gaps,
        slack_said=slack is not None,
        drop_null_keys=null_keys == "drop",
        recover_within=recover_within,
    ).transform()


def _read_by(spec: AggregateSpec) -> tuple[str, ...] | None:
    """The columns that it reads; None for all of them, where rows are handed out as they came."""
    if spec.route_late or spec.further_outputs:
        return None
    read = [*spec.by, *(each.column for each in spec.aggregates), spec.time]
    return tuple(dict.fromkeys(each for each in read if each))


def _checked_slack(slack: str | int | None) -> str | int:
    if slack is not None and goes_by_watermarks(slack):
        raise UsageError(
            f"slack={slack!r} leaves time to Rewake's watermarks, which Spark's rows do not have: "
            "give a duration"
        )
    return slack or 0


def _check_functions(name: str, spec: AggregateSpec) -> None:
    for each in spec.aggregates:
        if isinstance(each, UserDefined):
            raise UsageError(
                f"{name!r}: {each.result_name()!r} is a function of your own, which cannot travel "
                "to the hosts of shards; use it in a Query, or compute with the built-in ones"
            )


def _order(spec: AggregateSpec, order_by: Columns | bool | None, name: str) -> tuple[str, ...]:
    """The columns by which a batch's rows are put in order."""
    if order_by is not None:
        return order_of(order_by, name)
    if spec.time is not None:
        return (spec.time,)
    by_arrival = [each for each in spec.aggregates if isinstance(each, First | Last)]
    if isinstance(spec.window, CountWindow) or by_arrival:
        what = "count windows" if isinstance(spec.window, CountWindow) else "first and last"
        warnings.warn(
            f"{name!r}: results of {what} depend on the order of rows, and Spark's shuffle gives "
            "them in any: name the columns that order them with order_by=..., or say "
            "order_by=False if any order will do",
            OrderMatters,
            stacklevel=4,
        )
    return ()
