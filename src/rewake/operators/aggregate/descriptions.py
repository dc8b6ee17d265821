"""Windows and functions of an aggregate as plain values for logs, and as words for people."""

from __future__ import annotations

from typing import Any

from rewake.operators.aggregate.functions import AggregateFunction, UserDefined
from rewake.operators.windows.specs import CountWindow, RunningWindow, TimeWindow

Window = CountWindow | TimeWindow | RunningWindow


def window_to_json(window: Window) -> dict[str, Any]:
    """A window as values that JSON can hold."""
    if isinstance(window, RunningWindow):
        return {"kind": "running"}
    kind = "count" if isinstance(window, CountWindow) else "time"
    return {"kind": kind, "size": window.size, "advance": window.advance}


def function_to_json(function: AggregateFunction) -> dict[str, Any]:
    """A function as values that JSON can hold; of a user's own, its name and initial state."""
    name = type(function).__name__.lower()
    described = {"function": name, "column": function.column, "name": function.name}
    if isinstance(function, UserDefined):
        return described | {"initial": list(function.initial)}
    return described


def window_words(window: Window, time: str | None) -> str:
    """A window in words; `time` is the event-time column."""
    if isinstance(window, RunningWindow):
        return "running windows"
    size, advance = window.size, window.advance
    unit = " tuples" if isinstance(window, CountWindow) else f" of {time}"
    words = f"windows of {size}{unit}" + ("" if size == advance else f", one every {advance}")
    return words + (", tuples between them belong to none" if window.leaves_gaps else "")


def function_words(function: AggregateFunction) -> str:
    """A function in words."""
    text = f"{type(function).__name__.lower()}({function.column or '*'})"
    return f"{text} as {function.name}" if function.name else text
