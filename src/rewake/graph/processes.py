"""Keyed processing as a step of a query: a user's function over each key's tuples and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewake.graph.checks import of_step
from rewake.graph.promised import AS_QUERY
from rewake.graph.steps import Kind
from rewake.model.errors import UsageError
from rewake.model.given import shown
from rewake.operators.aggregate.functions import listed
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.recovery.approach import Approach

if TYPE_CHECKING:
    from rewake.graph.stream import Columns, Stream

__all__ = ["process"]


def process(
    stream: Stream,
    function: Callable[..., Any],
    *,
    by: Columns,
    state: Mapping[str, Any],
    output: pa.Schema,
    time: str | None = None,
    slack: str | int | None = None,
    on_error: str = "stop",
    each_key: bool = False,
    on_timer: Callable[..., Any] | None = None,
    null_keys: str = "group",
    timers: str = "event",
    route_late: bool = False,
    name: str | None = None,
    shards: int = 1,
    approach: Approach | None = None,
    recover_within: str | None = AS_QUERY,
    checkpoint_budget: str | float = "5%",
    fragment: str | None = None,
) -> Stream:
    """What a function makes of each key's tuples, with state of its own for each key.

    `state` names its columns: an Arrow type (null at first), or a type and what it is at first.
    The function is given `KeyedTuples`, all keys of a stream event at once, and returns
    `(output, state, timer, forget)` or the first of these; with `each_key`, it is called as
    `function(key, tuples, state)` for one key after the other and returns `(rows, state)` or
    `(rows, state, timer)`, and `on_timer(key, time, state)` when the key's timer fires.
    With `timers="processing"` timers go by the clock of the machine: a function finds it in
    `KeyedTuples.now`, one of each key is called as `function(key, tuples, state, now)`.
    With `route_late` it never sees tuples behind the event time: they are the stream `late`.
    With `on_error="divert"` tuples it fails for go to an output of their own (`output("dead")`).
    """
    name = stream._named(name, Kind.PROCESS)
    chosen = stream._chosen(approach, recover_within, checkpoint_budget)
    if null_keys == "drop":
        stream, null_keys = stream._with_keys(name, listed(by)), "group"
    if not isinstance(output, pa.Schema):
        raise UsageError(f"step {name!r}: output is an Arrow schema, not {shown(output)}")
    with of_step(name):
        spec = ProcessSpec(
            function=function,
            by=listed(by),
            state=state_fields(state),
            output=output,
            time=time,
            on_error=on_error,
            each_key=each_key,
            on_timer=on_timer,
            null_keys=null_keys,
            timers=timers,
            route_late=route_late,
        )
    return stream.add_stateful(
        Kind.PROCESS,
        spec,
        name=name,
        shards=shards,
        approach=chosen,
        fragment=fragment,
        slack=slack,
    )
