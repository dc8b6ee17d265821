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
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rewake.model.errors import InvalidWindow, UsageError
from rewake.model.given import check_flag
from rewake.model.stream_event import TIME_LIMIT, StreamEvent, no_tuples
from rewake.model.units import duration_in_unit
from rewake.operators.aggregate.aggregation import Aggregation
from rewake.operators.aggregate.functions import AggregateFunction, code_of, columns_that_matter
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s, arrow_array
from rewake.operators.columns.keys import GroupBy, check_null_keys
from rewake.operators.columns.plain import plain_batch
from rewake.operators.columns.values import TimeColumn, check_names, clamped, field_of
from rewake.operators.kit.footprints import read_back
from rewake.operators.stateful import (
    NO_IDS,
    NO_SLOTS,
    KeyedOperator,
    Outcome,
    StatefulSpec,
    StoredParts,
    open_slots,
)
from rewake.operators.windows.count_routing import CountRouter
from rewake.operators.windows.one_per_key import KeyedRouter
from rewake.operators.windows.routing import PartRows, Router, Routing
from rewake.operators.windows.running_routing import RunningRouter, current_values
from rewake.operators.windows.session_routing import SessionRouter
from rewake.operators.windows.specs import (
    CountWindow,
    RunningWindow,
    SessionWindow,
    TimeWindow,
    Window,
    WindowKind,
    check_reach,
    slack_in_unit,
    slack_words,
)
from rewake.operators.windows.time_routing import TimeRouter
from rewake.operators.windows.tumbling_routing import TumblingCountRouter


@dataclass(frozen=True)
class AggregateSpec(StatefulSpec):
    """What an aggregate computes.

    `time` names the event-time column (needed by time windows, sessions and timeouts).  `slack`
    lets tuples be that much out of order.  `timeout` closes a count window that has been open that
    long in event time.  `null_keys` is "group" (null is a key) or "refuse".  `route_late` emits
    late tuples on a second output; they are counted either way.  `on_error` is "stop" or "divert":
    tuples for which the `update` of a user's function fails go to the output "dead", with the
    error's text; that function leaves them out, as it does nulls, and windows count them as before.
    """

    by: Sequence[str]
    window: Window
    aggregates: Sequence[AggregateFunction]
    time: str | None = None
    slack: str | int = 0
    timeout: str | int | None = None
    null_keys: str = "group"
    route_late: bool = False
    window_columns: tuple[str, str] = ("window_start", "window_end")
    on_error: str = "stop"

    kind: ClassVar[str] = "aggregate"

    def __post_init__(self) -> None:
        given: object = self.window  # by callers whose types nobody checks
        if not isinstance(given, WindowKind):
            raise InvalidWindow(
                f"window={given!r} is no window: count_window(10) is so many tuples of a key, "
                'time_window("10 minutes") so much event time, session_window("30s") tuples with '
                "no longer gap between them, running_window() all tuples so far"
            )
        check_flag("route_late", self.route_late)

    @property
    def by_time(self) -> bool:
        """Whether a window is a stretch of event time, which its results say."""
        return isinstance(self.window, TimeWindow | SessionWindow)

    @property
    def operator_class(self) -> OperatorClass:
        """Windows of time stand where time says; others where counting began (Hwang 3.2.2)."""
        return OperatorClass.CONVERGENT_CAPABLE if self.by_time else OperatorClass.DETERMINISTIC

    def keys(self, port: int) -> tuple[str, ...]:
        """Tuples of a key belong together."""
        assert port == 0, "an aggregate has one input"
        return tuple(self.by)

    def operator(self, *schemas: pa.Schema) -> Aggregate:
        """A new operator."""
        (schema,) = schemas
        return Aggregate(self, schema)

    def code(self) -> Sequence[Callable[..., Any]]:
        """The functions of user-defined aggregates."""
        return code_of(self.aggregates)

    def words(self) -> Iterable[str]:
        """Functions and keys, then the window."""
        yield f"{', '.join(each.words for each in self.aggregates)} by {', '.join(self.by)}"
        window = self.window.words(self.time)
        window += f", at most {self.timeout} of {self.time}" if self.timeout is not None else ""
        yield window + slack_words(self.slack)


def _router_for(spec: AggregateSpec, time: TimeColumn | None) -> Router:
    unit_ns = time.unit_ns if time is not None else 1
    slack = slack_in_unit(spec.slack, unit_ns).tuples
    _check_time(spec)
    match spec.window:
        case TimeWindow() as window:
            return TimeRouter(*window.in_unit(unit_ns), slack)
        case SessionWindow() as window:
            return SessionRouter(window.in_unit(unit_ns), slack)
        case CountWindow() as window if spec.timeout is None and window.tumbling:
            return TumblingCountRouter(window.size)
        case CountWindow() as window:
            return CountRouter(window, _timeout(spec, unit_ns))
        case _:
            return RunningRouter()


def _check_time(spec: AggregateSpec) -> None:
    """Refuse what a kind of window has no use for, or lacks."""
    window = spec.window
    if spec.by_time and spec.time is None:
        what = "a time window needs" if isinstance(window, TimeWindow) else "sessions need"
        raise InvalidWindow(f"{what} an event-time column: give time='column'")
    if spec.timeout is not None and not isinstance(window, CountWindow):
        why = "a running window has no timeout: it never closes"
        if isinstance(window, TimeWindow):
            why = (
                "a time window has no timeout: the watermark closes it; send punctuations when "
                "the stream may fall silent"
            )
        elif isinstance(window, SessionWindow):
            why = "a session has no timeout: its gap closes it"
        raise InvalidWindow(why)
    if spec.slack and not spec.by_time:
        what = "count" if isinstance(window, CountWindow) else "running"
        raise InvalidWindow(f"slack is for time windows; a {what} window has no late tuples")
    if spec.timeout is not None and spec.time is None:
        raise InvalidWindow("a timeout needs an event-time column: give time='column'")


def _timeout(spec: AggregateSpec, unit_ns: int) -> int:
    if spec.timeout is None:
        return 0
    timeout = duration_in_unit(spec.timeout, unit_ns)
    if timeout <= 0:
        raise InvalidWindow(f"a timeout must be longer than nothing, but is {spec.timeout!r}")
    check_reach("a timeout", timeout)
    return timeout


class Aggregate(KeyedOperator):
    """The operator.  `output_schema` is that of its results."""

    spec: AggregateSpec

    def __init__(self, spec: AggregateSpec, schema: pa.Schema) -> None:
        super().__init__(schema)
        self.spec = spec
        if not spec.by:
            raise UsageError("an aggregate needs at least one key column: give by=['column']")
        if not spec.aggregates:
            raise UsageError("an aggregate needs at least one function, for example Count()")
        check_null_keys(spec.null_keys)
        for name in spec.by:
            field_of(schema, name, "group by")
        self._time = TimeColumn(schema, spec.time) if spec.time is not None else None
        self._router = _router_for(spec, self._time)
        unit_ns = 1 if self._time is None else self._time.unit_ns
        self._behind = slack_in_unit(spec.slack, unit_ns).watermarks
        self._timeout = _timeout(spec, unit_ns)
        self._keys = GroupBy(schema, spec.by, refuse_nulls=spec.null_keys == "refuse")
        self._aggregation = Aggregation(schema, spec.aggregates, spec.on_error)
        self.output_schema = self._results_schema()

    def _results_schema(self) -> pa.Schema:
        fields = list(self._keys.fields)
        if self.spec.by_time:
            assert self._time is not None
            fields += [pa.field(name, self._time.kind) for name in self.spec.window_columns]
        fields += self._aggregation.fields
        check_names([each.name for each in fields])
        return pa.schema(fields)

    # --- what the host may know --------------------------------------------------------------

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
    def columns_read(self) -> Sequence[str]:
        """The columns of stream events that make a difference, in the schema's order."""
        spec = self.spec
        if spec.route_late or spec.further_outputs:
            return list(self.input_schema.names)
        return columns_that_matter(self.input_schema, spec.by, spec.aggregates, spec.time)

    @property
    def any_order(self) -> bool:
        """Without a clock, keys do not know of each other."""
        return self._time is None

    @property
    def short_order(self) -> str | None:
        """The key column, if there is one alone and it is of signed integers."""
        first, *others = self._keys.fields
        if others or isinstance(self.spec.window, SessionWindow):
            return None
        return first.name if pa.types.is_signed_integer(first.type) else None

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

    # --- the normal path ---------------------------------------------------------------------

    def process(self, event: StreamEvent) -> Outcome:
        """Apply a stream event; what it opened, closed and emitted."""
        self.check_schema(event)
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
        late = self._late(event, routing.late_rows)
        self._keys.table.forget_idle(self._router.live_keys, self._router.key_is_live)
        return Outcome(
            results=results,
            late=late,
            opened_slots=routing.opened_slots,
            opened_ids=routing.opened_rows + event.position,
            ended_ids=routing.ended_ids,
            touched_slots=routing.touched_slots,
            others=self._aggregation.dead_letters(event.batch),
            unrepeatable_slots=routing.unrepeatable,
        )

    def current(self, slots: Int32s) -> pa.RecordBatch:
        """The current values of windows, one for each key, in the order of `slots`; they go on."""
        assert isinstance(self._router, KeyedRouter), "windows overlap"
        columns = self._aggregation.current(
            no_tuples(self.input_schema),
            current_values(slots, 0),
            self._router.counts[slots].astype(np.int64),
        )
        keys = self._keys.table.columns(slots)
        return pa.RecordBatch.from_arrays([*keys, *columns], schema=self.output_schema)

    def early(self) -> pa.RecordBatch | None:
        """What open windows come to so far; windows of time as if it ended now, in a copy."""
        slots = open_slots(self)
        if not slots.size:
            return None
        if self.spec.by_time:
            return self._copy(slots).punctuate(0, TIME_LIMIT).results
        if isinstance(self._router, CountRouter):
            raise UsageError(
                "count windows that overlap or time out have no early results; ask for those of "
                "windows that tumble"
            )
        return self.current(slots)

    def _copy(self, slots: Int32s) -> Aggregate:
        """An operator of its own with the same open parts."""
        copy = Aggregate(self.spec, self.input_schema)
        ids, rows = self.ids_of(slots), np.arange(slots.size)
        stored = StoredParts(ids, ids, [self.snapshot_columns(slots)], [rows], [slots.size])
        nothing = StoredParts(NO_IDS, NO_IDS, [], [], [])
        copy.restore(nothing, stored, clock=self.clock, late_tuples=0)
        copy.end_replay()
        return copy

    def _times(self, event: StreamEvent) -> Int64s:
        return NO_IDS if self._time is None else self._time.times(event.batch, event.position)

    def _results(self, routing: Routing, columns: list[pa.Array]) -> pa.RecordBatch | None:
        if routing.closings.total == 0:
            return None
        arrays = self._keys.table.columns(routing.closing_keys)
        if self._time is not None and self.spec.by_time:
            arrays.append(arrow_array(routing.closing_starts, self._time.kind))
            arrays.append(arrow_array(routing.closing_ends, self._time.kind))
        return pa.RecordBatch.from_arrays([*arrays, *columns], schema=self.output_schema)

    def _late(self, event: StreamEvent, rows: Int64s) -> pa.RecordBatch | None:
        self.late_tuples += rows.size
        if not self.spec.route_late or rows.size == 0:
            return None
        return plain_batch(event.batch.take(pa.array(rows)))

    # --- footprints --------------------------------------------------------------------------

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""
        return self._router.ids_of(slots)

    def keys_in(self, slots: Array) -> list[pa.Array]:
        """The keys of open parts, a column for each key column."""
        return self._keys.table.columns(self._router.keys_of(slots))

    def common_clock(self, clocks: Sequence[int]) -> int:
        """The clock under which parts of shards with these clocks go on together."""
        return self._router.common_clock(clocks)

    def opening_columns(self, slots: Array) -> list[Array]:
        """What identifies parts that have just opened: key, then the router's columns."""
        keys = self._keys.table.pack(self._router.keys_of(slots))
        return [*keys, *self._router.opening_columns(slots)]

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The whole state of parts: key, the router's columns, the aggregates' state."""
        keys = self._keys.table.pack(self._router.keys_of(slots))
        columns, places = self._router.snapshot(slots)
        return [*keys, *columns, *self._aggregation.snapshot(places)]

    # --- recovery ----------------------------------------------------------------------------

    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        """See `StatefulOperator`."""
        router, table = self._router, self._keys.table
        router.clock = clock
        table.reserve(openings.ids.size + snapshots.ids.size)
        opened = read_back(openings, self.opening_columns(NO_SLOTS), table)
        checked = read_back(
            snapshots, self.snapshot_columns(NO_SLOTS), table, router.columns_of_parts
        )
        width = len(router.snapshot(NO_SLOTS)[0])
        slots, places = router.restore(
            PartRows(openings.ids, opened.keys, opened.columns),
            PartRows(snapshots.ids, checked.keys, checked.columns[:width]),
            table.id_limit,
        )
        self._aggregation.ensure(router.capacity)
        if places.size:
            self._aggregation.restore(places, checked.columns[width:])
        return slots

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        self.check_schema(event)
        times = self._times(event)
        keys = self._keys.find(event.batch, event.position)
        places, closings = self._router.replay(
            keys, times, event.position, clamped(event.watermark), self._applied
        )
        self._aggregation.ensure(self._router.capacity)
        self._aggregation.apply(event.batch, event.position, places, closings)
        return int(np.count_nonzero(places >= 0))

    def _finish_replay(self) -> Array:
        """See `StatefulOperator`."""
        wrong, closings = self._router.finish_replay()
        self._aggregation.apply(no_tuples(self.input_schema), 0, NO_SLOTS, closings)
        return wrong
