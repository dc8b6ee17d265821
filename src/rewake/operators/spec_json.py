"""An aggregate's specification as plain values, so that a log can say what made it.

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
from dataclasses import fields
from typing import Any

from rewake.model.errors import UsageError
from rewake.operators.aggregate import AggregateSpec
from rewake.operators.functions import (
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
from rewake.operators.windows import CountWindow, RunningWindow, TimeWindow

__all__ = ["spec_from_json", "spec_to_json"]

_FUNCTIONS: dict[str, type[AggregateFunction]] = {
    kind.__name__.lower(): kind
    for kind in (Count, Sum, Avg, Min, Max, First, Last, Stddev, UserDefined)
}
_WINDOWS: dict[str, type[CountWindow | TimeWindow | RunningWindow]] = {
    "count": CountWindow,
    "time": TimeWindow,
    "running": RunningWindow,
}
_STATED = ("by", "window", "aggregates")
_DEFAULTS = {each.name: each.default for each in fields(AggregateSpec) if each.name not in _STATED}


def spec_to_json(spec: AggregateSpec) -> dict[str, Any]:
    """The spec as values that JSON can hold."""
    described: dict[str, Any] = {
        "by": list(spec.by),
        "window": _window_to_json(spec.window),
        "aggregates": [_function_to_json(function) for function in spec.aggregates],
    }
    for name, default in _DEFAULTS.items():
        value = getattr(spec, name)
        if value != default:
            described[name] = list(value) if isinstance(value, tuple) else value
    return described


def spec_from_json(described: Mapping[str, Any]) -> AggregateSpec:
    """The spec that was described; `UsageError` when it is none that this version knows."""
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


def _window_to_json(window: CountWindow | TimeWindow | RunningWindow) -> dict[str, Any]:
    if isinstance(window, RunningWindow):
        return {"kind": "running"}
    kind = "count" if isinstance(window, CountWindow) else "time"
    return {"kind": kind, "size": window.size, "advance": window.advance}


def _function_to_json(function: AggregateFunction) -> dict[str, Any]:
    name = type(function).__name__.lower()
    described = {"function": name, "column": function.column, "name": function.name}
    if isinstance(function, UserDefined):
        return described | {"initial": list(function.initial)}
    return described


def _function_from_json(described: Mapping[str, Any]) -> AggregateFunction:
    rest = dict(described)
    kind = _FUNCTIONS[rest.pop("function")]
    if "initial" in rest:
        rest["initial"] = tuple(rest["initial"])
    return kind(**rest)
