"""Aggregate: functions over windows of tuples, grouped by key (Hwang 2.2, CEC II).

Whole stream events in, whole stream events out.  Results are a function of the tuples in order,
never of how they were cut into stream events (but for running windows, which emit after every
stream event).  A turn is atomic: `process` either applies all of a
stream event or, for a mistake in it, nothing.

State is divided into parts (windows, or panes of overlapping windows).  A part is identified by
the position of the tuple that opened it.  Parts are snapshotted and restored independently, as
columns; what is restored may be older than the operator, and `replay` brings it up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rewake.model.errors import (
    InvalidWindow,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import TIME_LIMIT, StreamEvent, no_tuples
from rewake.model.units import duration_in_unit
from rewake.operators.aggregate.aggregation import Aggregation
from rewake.operators.aggregate.descriptions import (
    function_to_json,
    function_words,
    window_to_json,
    window_words,
)
from rewake.operators.aggregate.functions import AggregateFunction, code_of, columns_that_matter
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s, arrow_array
from rewake.operators.columns.byte_rows import check_state, chosen_state
from rewake.operators.columns.keys import GroupBy
from rewake.operators.columns.values import TimeColumn, clamped, field_of
from rewake.operators.dead_letters import DEAD, dead_schema, diverts
from rewake.operators.kit.footprints import check_clocks, frames_of, seen_by_slot
from rewake.operators.stateful import NO_SLOTS, Outcome, StoredParts
from rewake.operators.stateless import plain_schema
from rewake.operators.windows.count_routing import CountRouter
from rewake.operators.windows.routing import PartRows, Router, Routing
from rewake.operators.windows.running_routing import RunningRouter, current_values
from rewake.operators.windows.specs import (
    CountWindow,
    RunningWindow,
    TimeWindow,
    check_reach,
    slack_in_unit,
    slack_words,
)
from rewake.operators.windows.time_routing import TimeRouter
from rewake.operators.windows.tumbling_routing import TumblingCountRouter

_NO_TIMES = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """What an aggregate computes.

    `time` names the event-time column (needed by time windows and timeouts).  `slack` lets tuples
    be that much out of order.  `timeout` closes a count window that has been open that long in
    event time.  `null_keys` is "group" (null is a key) or "refuse".  `route_late` emits late tuples
    on a second output; they are counted either way.  `on_error` is "stop" or "divert": tuples for
    which the `update` of a user's function fails go to the output "dead", with the error's text;
    that function leaves them out, as it does nulls, and windows count them as before.
    """

    by: Sequence[str]
    window: CountWindow | TimeWindow | RunningWindow
    aggregates: Sequence[AggregateFunction]
    time: str | None = None
    slack: str | int = 0
    timeout: str | int | None = None
    null_keys: str = "group"
    route_late: bool = False
    window_columns: tuple[str, str] = field(default=("window_start", "window_end"))
    on_error: str = "stop"

    kind: ClassVar[str] = "aggregate"

    def __post_init__(self) -> None:
        given: object = self.window  # by callers whose types nobody checks
        if not isinstance(given, CountWindow | TimeWindow | RunningWindow):
            raise InvalidWindow(
                f"window={given!r} is no window: count_window(10) is so many tuples of a key, "
                'time_window("10 minutes") so much event time, session_window("30s") tuples with '
                "no longer gap between them, running_window() all tuples so far"
            )

    @property
    def operator_class(self) -> OperatorClass:
        """Time windows stand where time says; count windows where counting began (Hwang 3.2.2)."""
        aligned = isinstance(self.window, TimeWindow)
        return OperatorClass.CONVERGENT_CAPABLE if aligned else OperatorClass.DETERMINISTIC

    @property
    def further_outputs(self) -> Sequence[str]:
        """Where tuples go for which a user's function fails."""
        return (DEAD,) if diverts(self.on_error) else ()

    def keys(self, port: int) -> tuple[str, ...]:
        """Tuples of a key belong together."""
        assert port == 0, "an aggregate has one input"
        return tuple(self.by)

    def operator(self, *schemas: pa.Schema) -> Aggregate:
        """A new operator."""
        (schema,) = schemas
        return Aggregate(self, schema)

    def further_schema(self, output: str, *schemas: pa.Schema) -> pa.Schema:
        """The input's columns and the error's text."""
        if output not in self.further_outputs:
            raise UsageError(
                f"an aggregate has no output {output!r}; on_error='divert' gives it {DEAD!r}"
            )
        return dead_schema(plain_schema(schemas[0]))

    def describe(self) -> dict[str, Any]:
        """As values that JSON can hold; what equals its default is left out."""
        described: dict[str, Any] = {
            "by": list(self.by),
            "window": window_to_json(self.window),
            "aggregates": [function_to_json(function) for function in self.aggregates],
        }
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in described and value != each.default:
                described[each.name] = list(value) if isinstance(value, tuple) else value
        return described

    def code(self) -> Sequence[Callable[..., Any]]:
        """The functions of user-defined aggregates."""
        return code_of(self.aggregates)

    def rehearsed(self) -> AggregateSpec:
        """The user has no functions here but compiled ones."""
        return self

    def words(self) -> Iterable[str]:
        """Functions and keys, then the window."""
        yield f"{', '.join(map(function_words, self.aggregates))} by {', '.join(self.by)}"
        window = window_words(self.window, self.time)
        window += f", at most {self.timeout} of {self.time}" if self.timeout is not None else ""
        yield window + slack_words(self.slack)


def _router_for(spec: AggregateSpec, time: TimeColumn | None) -> Router:
    unit_ns = time.unit_ns if time is not None else 1
    slack = slack_in_unit(spec.slack, unit_ns).tuples
    if isinstance(spec.window, TimeWindow):
        if time is None:
            raise InvalidWindow("a time window needs an event-time column: give time='column'")
        if spec.timeout is not None:
            raise InvalidWindow(
                "a time window has no timeout: the watermark closes it; send punctuations when "
                "the stream may fall silent"
            )
        size, advance = spec.window.in_unit(unit_ns)
        return TimeRouter(size, advance, slack)
    if isinstance(spec.window, RunningWindow):
        return _running_router(spec, slack)
    if slack:
        raise InvalidWindow("slack is for time windows; a count window has no late tuples")
    if spec.timeout is None:
        window = spec.window
        return TumblingCountRouter(window.size) if window.tumbling else CountRouter(window)
    if time is None:
        raise InvalidWindow("a timeout needs an event-time column: give time='column'")
    timeout = duration_in_unit(spec.timeout, unit_ns)
    if timeout <= 0:
        raise InvalidWindow(f"a timeout must be longer than nothing, but is {spec.timeout!r}")
    check_reach("a timeout", timeout)
    return CountRouter(spec.window, timeout)


def _running_router(spec: AggregateSpec, slack: int) -> Router:
    if spec.timeout is not None:
        raise InvalidWindow("a running window has no timeout: it never closes")
    if slack:
        raise InvalidWindow("slack is for time windows; a running window has no late tuples")
    return RunningRouter()


class Aggregate:
    """The operator.  `schema` is that of its input; `output_schema` that of its results."""

    def __init__(self, spec: AggregateSpec, schema: pa.Schema) -> None:
        self.spec = spec
        self.schema = schema
        if not spec.by:
            raise UsageError("an aggregate needs at least one key column: give by=['column']")
        if not spec.aggregates:
            raise UsageError("an aggregate needs at least one function, for example Count()")
        if spec.null_keys not in ("group", "refuse"):
            raise UsageError(
                "null_keys is 'group' or 'refuse' (or 'drop', which steps make a filter of), not "
                f"{spec.null_keys!r}"
            )
        for name in spec.by:
            field_of(schema, name, "group by")
        self._time = TimeColumn(schema, spec.time) if spec.time is not None else None
        self._router = _router_for(spec, self._time)
        # In the unit of the time column; 0 for count windows.
        self._window_size = 0
        if isinstance(spec.window, TimeWindow) and self._time is not None:
            self._window_size = spec.window.in_unit(self._time.unit_ns)[0]
        unit_ns = 1 if self._time is None else self._time.unit_ns
        self._behind = slack_in_unit(spec.slack, unit_ns).watermarks
        self._timeout = 0 if spec.timeout is None else duration_in_unit(spec.timeout, unit_ns)
        self._keys = GroupBy(schema, spec.by, refuse_nulls=spec.null_keys == "refuse")
        self._aggregation = Aggregation(schema, spec.aggregates, spec.on_error)
        self.output_schema = self._results_schema()
        self.late_schema = pa.schema([_decoded(each) for each in schema])
        self.late_tuples = 0
        # While replaying, by slot: the last position a restored part has seen.
        self._applied = np.zeros(0, np.int64)

    def _results_schema(self) -> pa.Schema:
        fields = list(self._keys.fields)
        if isinstance(self.spec.window, TimeWindow):
            assert self._time is not None
            fields += [pa.field(name, self._time.kind) for name in self.spec.window_columns]
        fields += self._aggregation.fields
        names = [each.name for each in fields]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise SchemaMismatch(
                f"two result columns are named {sorted(twice)[0]!r}; give one a name of its own"
            )
        return pa.schema(fields)

    # --- the normal path ---------------------------------------------------------------------

    @property
    def divisible(self) -> bool:
        """A stream event may be cut anywhere, unless what is emitted depends on it."""
        return not self.running

    @property
    def delay(self) -> int:
        """How far its clock is behind watermarks; what times out has waited as long.

        The event time of a result is its window's end, which the clock has just reached.
        """
        return self._behind + self._timeout

    @property
    def running(self) -> bool:
        """Whether windows never close, and every turn emits what it touched."""
        return isinstance(self.spec.window, RunningWindow)

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of stream events."""
        return self.schema

    @property
    def columns_read(self) -> Sequence[str]:
        """The columns of stream events that make a difference, in the schema's order."""
        if self.spec.route_late or self.spec.further_outputs:
            return list(self.schema.names)
        spec = self.spec
        return columns_that_matter(self.schema, spec.by, spec.aggregates, spec.time)

    @property
    def any_order(self) -> bool:
        """Without a clock, keys do not know of each other."""
        return self._time is None

    @property
    def short_order(self) -> str | None:
        """The key column, if there is one alone and it is of signed integers."""
        first, *others = self._keys.fields
        return first.name if not others and pa.types.is_signed_integer(first.type) else None

    @property
    def results_of_parts(self) -> Callable[[Int32s], pa.RecordBatch] | None:
        """Running windows emit what they have come to."""
        return self.current if self.running else None

    @property
    def open_parts(self) -> int:
        """How many parts are open: N."""
        return self._router.open_parts

    @property
    def clock(self) -> int:
        """The event-time clock, `NO_TIME` before it has started."""
        return self._router.clock

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self._router.opened_at

    def process(self, event: StreamEvent) -> Outcome:
        """Apply a stream event; what it opened, closed and emitted."""
        self._check_schema(event)
        times = self._times(event)
        keys = self._keys.intern(event.batch, event.position)
        routing = self._router.route(
            keys,
            times,
            event.position,
            clamped(event.watermark, self._behind),
            self._keys.table.id_limit,
        )
        self._aggregation.ensure(self._router.capacity)
        columns = self._aggregation.run(event.batch, event.position, routing)
        results = self._results(routing, columns)
        late = self._late(event, routing)
        self._keys.table.forget_idle(self._router.live_keys, self._router.key_is_live)
        return Outcome(
            results=results,
            late=late,
            opened_slots=routing.opened_slots,
            opened_ids=routing.opened_rows + event.position,
            ended_ids=routing.ended_ids,
            touched_slots=routing.touched_slots,
            others=self._aggregation.dead_letters(event.batch),
        )

    def punctuate(self, position: int, watermark: int) -> Outcome:
        """Apply a watermark that comes before the tuple at `position`, without tuples."""
        return Aggregate.process(self, StreamEvent(position, no_tuples(self.schema), watermark))

    def current(self, slots: Int32s) -> pa.RecordBatch:
        """The current values of windows, one for each key, in the order of `slots`; they go on."""
        assert isinstance(self._router, RunningRouter | TumblingCountRouter), "windows overlap"
        counts = self._router.counts_of(slots)
        columns = self._aggregation.current(
            no_tuples(self.schema), current_values(slots, 0), counts
        )
        keys = self._keys.table.columns(slots)
        return pa.RecordBatch.from_arrays([*keys, *columns], schema=self.output_schema)

    def early(self) -> pa.RecordBatch | None:
        """What open windows come to so far; time windows as if time ended now, in a copy."""
        slots = np.flatnonzero(self.opened_at >= 0).astype(np.int32)
        if not slots.size:
            return None
        if isinstance(self._router, TimeRouter):
            return self._copy(slots).punctuate(0, TIME_LIMIT).results
        if isinstance(self._router, CountRouter):
            raise UsageError(
                "count windows that overlap or time out have no early results; ask for those of "
                "windows that tumble"
            )
        return self.current(slots)

    def _copy(self, slots: Int32s) -> Aggregate:
        """An operator of its own with the same open parts."""
        copy = Aggregate(self.spec, self.schema)
        ids, rows = self.ids_of(slots), np.arange(slots.size)
        stored = StoredParts(ids, ids, [self.snapshot_columns(slots)], [rows], [slots.size])
        nothing = StoredParts(ids[:0], ids[:0], [], [], [])
        copy.restore(nothing, stored, clock=self.clock, late_tuples=0)
        copy.end_replay()
        return copy

    def _check_schema(self, event: StreamEvent) -> None:
        schema = event.batch.schema
        if schema is not self.schema and not schema.equals(self.schema):
            raise SchemaMismatch(
                f"the stream event at position {event.position} has columns "
                f"{_describe(schema)}, but the operator was built for {_describe(self.schema)}"
            )
        # Equal schemas need not be compared again while batches share one.
        self.schema = schema

    def _times(self, event: StreamEvent) -> Int64s:
        return _NO_TIMES if self._time is None else self._time.times(event.batch, event.position)

    def _results(self, routing: Routing, columns: list[pa.Array]) -> pa.RecordBatch | None:
        if routing.closings.total == 0:
            return None
        arrays = self._keys.table.columns(routing.closing_keys)
        if self._time is not None and self._window_size:
            arrays.append(arrow_array(routing.closing_ends - self._window_size, self._time.kind))
            arrays.append(arrow_array(routing.closing_ends, self._time.kind))
        return pa.RecordBatch.from_arrays([*arrays, *columns], schema=self.output_schema)

    def _late(self, event: StreamEvent, routing: Routing) -> pa.RecordBatch | None:
        self.late_tuples += routing.late_rows.size
        if not self.spec.route_late or routing.late_rows.size == 0:
            return None
        late = event.batch.take(pa.array(routing.late_rows))
        # A batch stands alone in its frame, without the dictionaries of others.
        columns = [
            column.cast(each.type)
            for column, each in zip(late.columns, self.late_schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.late_schema)

    # --- footprints --------------------------------------------------------------------------

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""
        return self._router.ids_of(slots)

    def keys_in(self, slots: Array) -> list[pa.Array]:
        """The keys of open parts, a column for each key column."""
        return self._keys.table.columns(self._router.keys_of(slots))

    def common_clock(self, clocks: Sequence[int]) -> int:
        """The latest: no window that has closed can open again."""
        return max(clocks)

    def opening_columns(self, slots: Array) -> list[Array]:
        """What identifies parts that have just opened: key, then the router's columns."""
        keys = self._keys.table.pack(self._router.keys_of(slots))
        return [*keys, *self._router.opening_columns(slots)]

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The whole state of parts: key, the router's columns, the aggregates' state."""
        keys = self._keys.table.pack(self._router.keys_of(slots))
        router = self._router.snapshot_columns(slots)
        return [*keys, *router, *self._aggregation.snapshot(slots)]

    # --- recovery ----------------------------------------------------------------------------

    def restore(
        self, openings: StoredParts, snapshots: StoredParts, *, clock: int, late_tuples: int
    ) -> Int32s:
        """Take these parts as the open ones of a new operator; their slots, openings first."""
        assert self.open_parts == 0, "only a new operator can be restored"
        check_clocks(clock)
        self.late_tuples = late_tuples
        self._router.clock = clock
        nothing = NO_SLOTS
        self._keys.table.reserve(openings.ids.size + snapshots.ids.size)
        opened, _ = self._stored_rows(
            openings, self.opening_columns(nothing), len(self._router.opening_columns(nothing))
        )
        closed, state = self._stored_rows(
            snapshots, self.snapshot_columns(nothing), len(self._router.snapshot_columns(nothing))
        )
        slots = self._router.restore(opened, closed, self._keys.table.id_limit)
        self._aggregation.ensure(self._router.capacity)
        if closed.ids.size:
            self._aggregation.restore(slots[opened.ids.size :], state)
        self._applied = seen_by_slot(openings, snapshots, slots, self._router.capacity)
        return slots

    def _stored_rows(
        self, parts: StoredParts, layout: list[Array], router_columns: int
    ) -> tuple[PartRows, list[Array]]:
        """Key ids and router columns of stored parts, and what is left: the aggregates' state.

        `layout` shows which columns this operator writes.
        """
        width = self._keys.table.footprint_columns
        for columns, _, total in frames_of(parts, layout):
            check_state(columns[width:], total)
        frames = [columns[:width] for columns in parts.columns]
        keys = self._keys.table.unpack_all(frames, parts.rows, parts.totals)
        rows = parts.rows_of_all()
        whole = [
            np.concatenate([layout[place], *(columns[place] for columns in parts.columns)])
            for place in range(width, len(layout))
        ]
        joined = chosen_state(whole, rows)
        return PartRows(parts.ids, keys, joined[:router_columns]), joined[router_columns:]

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        self._check_schema(event)
        times = self._times(event)
        keys = self._keys.find(event.batch, event.position)
        slots, closings = self._router.replay(keys, times, event.position, self._applied)
        self._aggregation.apply(event.batch, event.position, slots, closings)
        return int(np.count_nonzero(slots >= 0))

    def end_replay(self) -> None:
        """All restored parts are up to date: from here on, `process`."""
        self._applied = np.zeros(0, np.int64)
        wrong = self._router.misfilled()
        if wrong.size:
            raise ReplayMismatch(
                f"{wrong.size} windows do not hold what the log says they must, the first of them "
                f"opened by the tuple at position {int(self.ids_of(wrong)[:1].min())}: the input "
                "that was replayed is not the input the log was written from; replay the original "
                "stream, in its order"
            )


def _decoded(field: pa.Field) -> pa.Field:
    kind = field.type
    return field.with_type(kind.value_type) if pa.types.is_dictionary(kind) else field


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in schema) or "none"
