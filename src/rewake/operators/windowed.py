"""Functions over windows of any kind: the window decides which operator computes them."""

from __future__ import annotations

from collections.abc import Sequence

from rewake.model.errors import InvalidWindow
from rewake.operators.aggregate.functions import AggregateFunction
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.session.operator import SessionSpec
from rewake.operators.session.window import SessionWindow
from rewake.operators.windows.specs import CountWindow, RunningWindow, TimeWindow

__all__ = ["Window", "WindowedSpec", "windowed"]

Window = CountWindow | TimeWindow | SessionWindow | RunningWindow
WindowedSpec = AggregateSpec | SessionSpec


def windowed(
    by: Sequence[str],
    window: Window,
    functions: Sequence[AggregateFunction],
    *,
    time: str | None = None,
    slack: str | int = 0,
    timeout: str | int | None = None,
    null_keys: str = "group",
    route_late: bool = False,
    on_error: str = "stop",
) -> WindowedSpec:
    """What is computed over windows; what is given is that of `AggregateSpec`."""
    if not isinstance(window, SessionWindow):
        return AggregateSpec(
            by,
            window,
            functions,
            time=time,
            slack=slack,
            timeout=timeout,
            null_keys=null_keys,
            route_late=route_late,
            on_error=on_error,
        )
    if time is None:
        raise InvalidWindow("sessions need an event-time column: give time='column'")
    if timeout is not None:
        raise InvalidWindow("a session has no timeout: its gap closes it")
    return SessionSpec(
        by,
        window,
        functions,
        time,
        slack=slack,
        null_keys=null_keys,
        route_late=route_late,
        on_error=on_error,
    )
