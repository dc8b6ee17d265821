"""What a resample computes, as a value, and what is refused of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.given import check_flag
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.plain import plain_schema
from rewake.operators.columns.values import check_names, place_of
from rewake.operators.dead_letters import DEAD, check_on_error, dead_schema, diverts
from rewake.operators.resampling.answers import METHODS, Method
from rewake.operators.stateful import StatefulSpec, as_json

__all__ = ["REQUESTS", "VALUES", "ResampleRule", "check_rule"]

# The inputs.
VALUES, REQUESTS = 0, 1
LATE_REQUESTS = "late_requests"
_MISSING = ("null", "drop")


@dataclass(frozen=True)
class ResampleRule(StatefulSpec):
    """What a resample computes: result columns, each with the column of the values it comes from.

    `time` names the event-time column of the values, `at_time` that of the requests if it is
    another.  `on` names key columns that both have.  `how` is "linear", "previous", "nearest", or a
    function of `Windows` that gives an array of type `result`.  `missing` says what becomes of
    requests without enough neighbours: "null", or "drop" to leave them out; `on_error` of those
    that a function fails for: "stop", or "divert" to emit them on the output "dead".
    """

    columns: tuple[tuple[str, str], ...]
    time: str
    window: str | int
    on: tuple[str, ...] = ()
    how: Method = "linear"
    at_time: str | None = None
    missing: str = "null"
    route_late: bool = False
    result: pa.DataType = pa.float64()
    on_error: str = "stop"

    kind: ClassVar[str] = "resample"

    @property
    def operator_class(self) -> OperatorClass:
        """Windows stand where requests do, and what they miss at first passes (Hwang 3.2.2)."""
        return OperatorClass.CONVERGENT_CAPABLE

    @property
    def further_outputs(self) -> Sequence[str]:
        """Late requests, when late tuples are routed; then those that the function fails for."""
        late = (LATE_REQUESTS,) if self.route_late else ()
        return (*late, DEAD) if diverts(self.on_error) else late

    def keys(self, port: int) -> tuple[str, ...]:
        """Tuples of a key belong together, on both inputs."""
        assert port in (VALUES, REQUESTS), "a resample has two inputs"
        return self.on

    def _schema_of(self, output: str, *schemas: pa.Schema) -> pa.Schema:
        """That of the requests."""
        requests = plain_schema(schemas[REQUESTS])
        return dead_schema(requests) if output == DEAD else requests

    def code(self) -> Sequence[Callable[..., Any]]:
        """The user's function, if there is one."""
        return [self.how] if callable(self.how) else []

    def words(self) -> Iterable[str]:
        """Columns and keys, then the window."""
        how = as_json(self.how)
        columns = ", ".join(column for _, column in self.columns)
        yield f"{how} {columns}" + (f" on {', '.join(self.on)}" if self.on else "")
        yield f"values within {self.window} of {self.time}"
        if diverts(self.on_error):
            yield f"requests it fails for go to {DEAD!r}"


def check_rule(rule: ResampleRule, values: pa.Schema, requests: pa.Schema) -> None:
    """Refuse what makes no sense; errors name the column."""
    if not rule.columns:
        raise UsageError("a resample needs at least one column of the values: give columns=['x']")
    if not callable(rule.how) and rule.how not in METHODS:
        raise UsageError(f"how is one of {', '.join(METHODS)}, or a function, not {rule.how!r}")
    if rule.missing not in _MISSING:
        raise UsageError(f"missing is 'null' or 'drop', not {rule.missing!r}")
    check_on_error(rule.on_error)
    check_flag("route_late", rule.route_late)
    for _, column in rule.columns:
        place_of(values, column, "resample")
    check_names(
        [*requests.names, *(name for name, _ in rule.columns)],
        "give the value's another name: columns={'another': 'column'}",
    )
    for name in rule.on:
        one = values.field(place_of(values, name, "values, on"))
        other = requests.field(place_of(requests, name, "requests, on"))
        if one.type != other.type:
            raise SchemaMismatch(
                f"on: column {name!r} is {one.type} in the values, but {other.type} in the requests"
            )
