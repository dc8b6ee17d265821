"""What a join computes, as a value, and its inputs as it reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from rewake.model.errors import InvalidWindow, SchemaMismatch, UsageError
from rewake.model.given import check_flag
from rewake.model.units import duration_in_unit
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.plain import plain_schema
from rewake.operators.columns.values import TimeColumn, place_of
from rewake.operators.dead_letters import DEAD, check_on_error, dead_schema, diverts
from rewake.operators.expressions.expression import ArrowFunction, Computed
from rewake.operators.join.columns import JoinedColumns, implied_equalities
from rewake.operators.join.keys import JoinKeys
from rewake.operators.stateful import StatefulSpec
from rewake.operators.windows.specs import slack_in_unit, slack_words

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")
HOWS = ("inner", "left", "right", "full", "semi", "anti")
# Three windows may be added to a time, which is below 2**62.
_LONGEST = 2**60


@dataclass(frozen=True)
class JoinRule(StatefulSpec):
    """What a join computes.

    `on` are pairs of equality columns, left and right; `time` the event-time columns; `within` how
    far apart two tuples must be to be no pair any more.  `where` is a further condition over the
    result's columns.  `how` says what else is emitted, or what instead.  `slack` lets tuples be
    that much out of order.  `late_outputs` emits late tuples of each input on an output of their
    own; they are counted either way.  `suffixes` tell columns of the same name apart.  `on_error`
    says what becomes of a pair that the condition fails for: "stop", or "divert" to take it for no
    pair and emit it on the output "dead".
    """

    on: tuple[tuple[str, str], ...]
    within: str | int
    time: tuple[str, str]
    where: Computed | None = None
    how: str = "inner"
    slack: str | int = 0
    late_outputs: bool = False
    suffixes: tuple[str, str] = ("", "_right")
    on_error: str = "stop"

    kind: ClassVar[str] = "join"

    @property
    def operator_class(self) -> OperatorClass:
        """Panes stand where time says, so what is missed at first matters no more after a while."""
        return OperatorClass.CONVERGENT_CAPABLE

    @property
    def further_outputs(self) -> Sequence[str]:
        """Late tuples by input, for they are of other columns; then failing pairs."""
        late = ("late-left", "late-right") if self.late_outputs else ()
        return (*late, DEAD) if diverts(self.on_error) else late

    def flags(self, side: int) -> bool:
        """Whether it matters if a tuple of an input has met a partner."""
        return self.how != "inner" and (self.how == "full" or side == self._outer)

    @property
    def _outer(self) -> int:
        return RIGHT if self.how == "right" else LEFT

    def emits_alone(self, side: int) -> bool:
        """Whether tuples of an input are emitted that met no partner."""
        return self.flags(side) and self.how != "semi"

    def keys(self, port: int) -> tuple[str, ...]:
        """The equality columns of an input: tuples that are equal in them belong together."""
        return tuple(pair[port] for pair in self.on)

    def _schema_of(self, output: str, *schemas: pa.Schema) -> pa.Schema:
        """Late tuples have the columns of their input; failing pairs those of a pair."""
        if output == DEAD:
            return dead_schema(JoinInputs(self, *schemas).columns.schema)
        return plain_schema(schemas[self.further_outputs.index(output)])

    def code(self) -> Sequence[Callable[..., Any]]:
        """The condition, if it is a function."""
        return [self.where.function] if isinstance(self.where, ArrowFunction) else []

    def words(self) -> Iterable[str]:
        """Keys, then the window, then the condition."""
        pairs = [a if a == b else f"{a} = {b}" for a, b in self.on]
        yield f"{self.how} join on {', '.join(pairs)}"
        times = self.time[0] if self.time[0] == self.time[1] else " and ".join(self.time)
        slack = slack_words(self.slack)
        yield f"less than {self.within} of {times} apart{slack}"
        if self.where is not None:
            yield f"where {self.where.text}"
            if diverts(self.on_error):
                yield f"pairs it fails for go to {DEAD!r}"


class JoinInputs:
    """Two inputs that fit a rule: their columns, and how keys and times are read from them."""

    def __init__(self, rule: JoinRule, left: pa.Schema, right: pa.Schema) -> None:
        _check_rule(rule)
        self.schemas = [plain_schema(left), plain_schema(right)]
        for side, schema in enumerate(self.schemas):
            for name in (*rule.keys(side), rule.time[side]):
                place_of(schema, name, f"{SIDES[side]} input")
        self.times = [
            TimeColumn(schema, name) for schema, name in zip(self.schemas, rule.time, strict=True)
        ]
        self._check_types(rule)
        self.within = self._duration("within", rule.within)
        if self.within <= 0:
            raise InvalidWindow(
                f"within must be longer than nothing, but is {rule.within!r}: tuples join whose "
                "times are less than that apart"
            )
        self.slack = slack_in_unit(rule.slack, self.times[LEFT].unit_ns)
        self.columns = JoinedColumns(
            self.schemas[LEFT], self.schemas[RIGHT], rule.on, rule.time[LEFT], rule.suffixes
        )
        more = implied_equalities(rule.where, self.columns)
        self._on = [self._places(side, rule.keys(side)) for side in (LEFT, RIGHT)]
        self._equal = [self._on[side] + [each[side] for each in more] for side in (LEFT, RIGHT)]
        self.keys = JoinKeys([self.schemas[LEFT].field(place) for place in self._equal[LEFT]])
        left_only = rule.how in ("semi", "anti")
        self.output_schema = self.schemas[LEFT] if left_only else self.columns.schema

    def _places(self, side: int, names: Sequence[str]) -> list[int]:
        return [self.schemas[side].get_field_index(name) for name in names]

    def _check_types(self, rule: JoinRule) -> None:
        for one, other in (*rule.on, rule.time):
            kinds = [
                schema.field(name).type
                for schema, name in zip(self.schemas, (one, other), strict=True)
            ]
            if kinds[LEFT] != kinds[RIGHT]:
                raise SchemaMismatch(
                    f"left column {one!r} is of type {kinds[LEFT]}, but right column {other!r} of "
                    f"type {kinds[RIGHT]}; they are compared, so cast one of them upstream"
                )

    def _duration(self, what: str, value: str | int) -> int:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise InvalidWindow(f'{what} is a duration such as "10s", not {value!r}')
        length = duration_in_unit(value, self.times[LEFT].unit_ns)
        if length >= _LONGEST:
            raise InvalidWindow(f"{what} of {length} is beyond what 64-bit times can hold")
        return length

    def values(self, side: int, batch: pa.RecordBatch, position: int) -> tuple[Int64s, Int32s]:
        """Times, and the numbers of keys; `NO_KEY` for a tuple that is equal to no other."""
        times = self.times[side].times(batch, position)
        columns = [batch.column(place) for place in self._equal[side]]
        return times, self.keys.numbers(columns, _without_nulls(batch, self._equal[side]))

    def have_keys(self, side: int, batch: pa.RecordBatch) -> Array | None:
        """Flags of the tuples without nulls in their keys; None when that is all of them."""
        return _without_nulls(batch, self._on[side])


def _without_nulls(batch: pa.RecordBatch, places: list[int]) -> Array | None:
    valid: Array | None = None
    for place in places:
        column = batch.column(place)
        if column.null_count:
            flags: Array = column.is_valid().to_numpy(zero_copy_only=False)
            valid = flags if valid is None else valid & flags
    return valid


def _check_rule(rule: JoinRule) -> None:
    if rule.how not in HOWS:
        raise UsageError(f"how is one of {', '.join(HOWS)}, not {rule.how!r}")
    check_on_error(rule.on_error)
    check_flag("route_late", rule.late_outputs)
    if not rule.on:
        raise UsageError("a join needs at least one equality column: give on='column'")
    if rule.within is None:
        raise InvalidWindow(
            "a join needs a window, or it would have to hold its inputs for ever: give "
            'within="10s", for tuples less than that apart'
        )
