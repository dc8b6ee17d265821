"""Reading back what an aggregate's specification says of itself, so that a log can tell.

    {"by": ["item_id"],
     "window": {"kind": "count", "size": 10, "advance": 10},
     "aggregates": [{"function": "avg", "column": "item_price", "name": ""}],
     "time": "item_time"}

What equals its default is left out.  The description is for reading a log, never for running code
out of it: of a user-defined function it keeps the name and the initial state, not the function, so
that a spec read back describes the operator but cannot compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewake.model.errors import UsageError
from rewake.operators.aggregate.functions import (
    AggregateFunction,
    Avg,
    Count,
    First,
    Last,
    Max,
    Min,
    Stddev,
    Sum,
    UserDefined,
)
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.windows.specs import (
    CountWindow,
    RunningWindow,
    SessionWindow,
    TimeWindow,
    Window,
)

__all__ = ["spec_from_json"]

_FUNCTIONS: dict[str, type[AggregateFunction]] = {
    kind.__name__.lower(): kind
    for kind in (Count, Sum, Avg, Min, Max, First, Last, Stddev, UserDefined)
}
_WINDOWS: dict[str, type[Window]] = {
    kind.kind: kind for kind in (CountWindow, TimeWindow, SessionWindow, RunningWindow)
}
_STATED = ("kind", "by", "window", "aggregates")


def spec_from_json(described: Mapping[str, Any]) -> AggregateSpec:
    """The spec that was described; `UsageError` when it is none that this version knows."""
    kind_of_operator = described.get("kind", AggregateSpec.kind)
    if kind_of_operator != AggregateSpec.kind:
        raise UsageError(f"this describes a step of kind {kind_of_operator!r}, not an aggregate")
    try:
        window = dict(described["window"])
        kind = _WINDOWS[window.pop("kind")]
        rest = {name: described[name] for name in described if name not in _STATED}
        if "window_columns" in rest:
            start, end = rest["window_columns"]
            rest["window_columns"] = (start, end)
        return AggregateSpec(
            by=list(described["by"]),
            window=kind(**window),
            aggregates=[_function_from_json(each) for each in described["aggregates"]],
            **rest,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"this does not describe an aggregate ({type(error).__name__}: {error}); it may come "
            "from a newer version"
        ) from error


def _function_from_json(described: Mapping[str, Any]) -> AggregateFunction:
    rest = dict(described)
    kind = _FUNCTIONS[rest.pop("function")]
    if "initial" in rest:
        rest["initial"] = tuple(rest["initial"])
    return kind(**rest)
