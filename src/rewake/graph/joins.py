"""The step that joins two streams: `join`, and the late tuples of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewake.graph.promised import AS_QUERY
from rewake.graph.steps import Kind
from rewake.model.errors import UsageError
from rewake.operators.expressions.expression import expression
from rewake.operators.join.operator import JoinSpec
from rewake.recovery.approach import Approach

if TYPE_CHECKING:
    from rewake.graph.stream import Stream, Value

__all__ = ["join"]

On = str | Sequence[str | tuple[str, str]]


def join(
    left: Stream,
    right: Stream,
    *,
    on: On,
    within: str | int,
    time: str | tuple[str, str],
    where: Value | None = None,
    how: str = "inner",
    slack: str | int | None = None,
    route_late: bool = False,
    suffixes: tuple[str, str] = ("", "_right"),
    on_error: str = "stop",
    name: str | None = None,
    shards: int = 1,
    approach: Approach | None = None,
    recover_within: str | None = AS_QUERY,
    checkpoint_budget: str | float = "5%",
    fragment: str | None = None,
) -> Stream:
    """Pairs of tuples of two streams that are equal in some columns and near in event time.

    `on` names the equality columns, a pair where their names differ: `on="id"`,
    `on=("id", "place")`, `on=[("id", "person_id")]`.  Tuples join whose times are less than
    `within` apart and for which `where` holds, a condition over the result's columns.  `how` is
    "inner", "left", "right", "full", "semi" or "anti".  The rest are those of `JoinRule`, and the
    options of all steps; with `route_late`, `output("late-left")` and `output("late-right")` are
    the late tuples of the inputs; with `on_error="divert"`, `output("dead")` are the pairs that
    `where` fails for.
    """
    name = left._named(name, Kind.JOIN)
    try:
        spec = JoinSpec(
            on=_pairs(on),
            within=within,
            time=(time, time) if isinstance(time, str) else _pair("time", time),
            where=None if where is None else expression(where),
            how=how,
            late_outputs=route_late,
            suffixes=_pair("suffixes", suffixes),
            on_error=on_error,
        )
    except UsageError as error:
        raise type(error)(f"step {name!r}: {error}") from error
    return left.add_stateful(
        Kind.JOIN,
        spec,
        right,
        name=name,
        shards=shards,
        approach=left._chosen(approach, recover_within, checkpoint_budget),
        fragment=fragment,
        slack=slack,
    )


def _pairs(on: On) -> tuple[tuple[str, str], ...]:
    each_on = [on] if isinstance(on, str) else on
    if not isinstance(each_on, Sequence):
        raise UsageError(f"on: {on!r} is neither a column nor a list of columns or pairs")
    return tuple((each, each) if isinstance(each, str) else _pair("on", each) for each in each_on)


def _pair(what: str, value: Sequence[str]) -> tuple[str, str]:
    pair = () if isinstance(value, str) or not isinstance(value, Sequence) else tuple(value)
    if len(pair) != 2 or not all(isinstance(each, str) for each in pair):
        raise UsageError(f"{what}: {value!r} is not a pair of names, for left and right")
    return pair[0], pair[1]
