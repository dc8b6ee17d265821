"""`rewake.process`: a function of the user's over each key, inside a Structured Streaming query.

    alarms = readings.transform(
        rewake.process(
            heat.watch, by="sensor", state={"hot": (pa.int64(), 0)}, output=ALARMS, time="at",
            at="/state/watch",
        )
    )

What `applyInPandasWithState` is for, but called with Arrow and for all keys of a shard at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewake.graph.promised import RECOVER_WITHIN
from rewake.model.errors import UsageError
from rewake.operators.aggregate.functions import listed
from rewake.operators.expressions.expression import function_identity
from rewake.operators.keyed.described import process_to_json
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.operators.windows.specs import goes_by_watermarks
from rewake.spark.structured.hosting import Columns, Hosting, OrderMatters, named, order_of
from rewake.stores.places import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["process"]


def process(
    function: Callable[..., Any],
    *,
    by: Columns,
    state: Mapping[str, Any],
    output: pa.Schema,
    at: str | os.PathLike[str],
    time: str | None = None,
    slack: str | int | None = None,
    each_key: bool = False,
    on_timer: Callable[..., Any] | None = None,
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
    """What a function makes of each key's rows, for `DataFrame.transform` of a streaming query.

    The functions are those of `Stream.process`, and must be in a module that executors can import.
    Timers are of event time.  A function that fails stops the query, and its batch has changed
    nothing; with `on_error="divert"` the rows that it fails for are among the results, in a column
    `_dead`, and with `route_late` it never sees late rows, which are in `_late`.  `at`, `order_by`,
    `shards`, `listen`, `gaps` and `recover_within` are those of `rewake.aggregate`.
    """
    called = named(name, at, "process")
    if slack is not None and goes_by_watermarks(slack):
        raise UsageError(
            f"{called!r}: slack={slack!r} leaves time to Rewake's watermarks, which Spark's rows "
            "do not have: give a duration"
        )
    if not isinstance(output, pa.Schema):
        raise UsageError(f"{called!r}: output is an Arrow schema, not {output!r}")
    try:
        spec = ProcessSpec(
            function=function,
            by=listed(by),
            state=state_fields(state),
            output=output,
            time=time,
            slack=slack or 0,
            each_key=each_key,
            on_timer=on_timer,
            null_keys="group" if null_keys == "drop" else null_keys,
            route_late=route_late,
            on_error=on_error,
        )
        described = process_to_json(spec)
    except UsageError as error:
        raise type(error)(f"{called!r}: {error}") from error
    # Rows that are replayed must meet the function that they met before.
    described["code"] = [function_identity(each) for each in spec.code()]
    return Hosting(
        spec=spec,
        described=described,
        reads=None,
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


def _order(spec: ProcessSpec, order_by: Columns | bool | None, name: str) -> tuple[str, ...]:
    if order_by is not None:
        return order_of(order_by, name)
    if spec.time is not None:
        return (spec.time,)
    warnings.warn(
        f"{name!r}: what a function is given depends on the order of rows, and Spark's shuffle "
        "gives them in any: name the columns that order them with order_by=..., or say "
        "order_by=False if any order will do",
        OrderMatters,
        stacklevel=3,
    )
    return ()
