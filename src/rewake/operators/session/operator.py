"""Session windows: functions over tuples of a key that are close to each other in event time.

Tuples of a key less than `gap` apart belong to one session; one that lies between two sessions
makes them one.  The clock is that of time windows: the largest event time seen less the slack, or a
punctuation that is further; it moves with every tuple.  A session closes when the clock reaches
`last time + gap`, its end.  A tuple that belongs to no open session and whose own would have ended
is late.  Results are ordered by when they close, by window end, then by the session's first tuple;
they are a function of the tuples in order and of where watermarks stand, never of how the input was
cut.  A turn is atomic, but for a sum that overflows: then recover from the log.

A part is a key with all of its open sessions, for a tuple may make one of two of them.  It opens
with the tuple that starts a session of a key without any, and ends with its last session.

What a part's sessions are depends on its own tuples and on what the clock was at each: which
sessions were still open, and what was late.  A footprint holds the clock of its time (an OPEN that
of just before its tuple), and all tuples after T are replayed, so the replayed clock falls short
only by watermarks, which may not come again where they were.  A part for which the clock decided
what tuples alone would not have decided (a session closed beside another, or a tuple was late)
therefore leaves a CHECK with that turn (`Outcome.unrepeatable_slots`).  At tc the log's clock
closes what it has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rewake.model.errors import (
    DamagedFrame,
    InvalidWindow,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import StreamEvent, no_tuples
from rewake.operators.aggregate.aggregation import Aggregation
from rewake.operators.aggregate.descriptions import function_to_json, function_words
from rewake.operators.aggregate.functions import AggregateFunction, code_of, columns_that_matter
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s, arrow_array
from rewake.operators.columns.byte_rows import check_state, chosen_state
from rewake.operators.columns.keys import GroupBy
from rewake.operators.columns.values import TimeColumn, clamped, places_of
from rewake.operators.dead_letters import DEAD, dead_schema, diverts
from rewake.operators.expressions.compiler import no_column
from rewake.operators.kit.footprints import check_clocks, frames_of, seen_by_slot
from rewake.operators.session.routing import RoutedSessions, SessionRouter
from rewake.operators.session.window import SessionWindow
from rewake.operators.stateful import NO_SLOTS, Outcome, StoredParts
from rewake.operators.stateless import check_schema, plain_batch, plain_schema
from rewake.operators.windows.routing import Routing
from rewake.operators.windows.specs import slack_in_unit, slack_words


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What is computed over sessions; see `AggregateSpec` for what they have in common."""

    by: Sequence[str]
    window: SessionWindow
    aggregates: Sequence[AggregateFunction]
    time: str
    slack: str | int = 0
    null_keys: str = "group"
    route_late: bool = False
    window_columns: tuple[str, str] = field(default=("window_start", "window_end"))
    on_error: str = "stop"

    kind: ClassVar[str] = "sessions"
    # A session that starts after the restart is what it was.
    operator_class: ClassVar[OperatorClass] = OperatorClass.CONVERGENT_CAPABLE

    @property
    def further_outputs(self) -> Sequence[str]:
        """Where tuples go for which a user's function fails."""
        return (DEAD,) if diverts(self.on_error) else ()

    def keys(self, port: int) -> tuple[str, ...]:
        """Tuples of a key belong together."""
        assert port == 0, "sessions have one input"
        return tuple(self.by)

    def operator(self, *schemas: pa.Schema) -> Sessions:
        """A new operator."""
        (schema,) = schemas
        return Sessions(self, schema)

    def further_schema(self, output: str, *schemas: pa.Schema) -> pa.Schema:
        """The input's columns and the error's text."""
        if output not in self.further_outputs:
            raise UsageError(
                f"sessions have no output {output!r}; on_error='divert' gives them {DEAD!r}"
            )
        return dead_schema(plain_schema(schemas[0]))

    def describe(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        return {
            "by": list(self.by),
            "gap": self.window.gap,
            "aggregates": [function_to_json(function) for function in self.aggregates],
            "time": self.time,
            "slack": self.slack,
            "null_keys": self.null_keys,
            "route_late": self.route_late,
            "window_columns": list(self.window_columns),
            **({"on_error": self.on_error} if self.further_outputs else {}),
        }

    def code(self) -> Sequence[Callable[..., Any]]:
        """The functions of user-defined aggregates."""
        return code_of(self.aggregates)

    def rehearsed(self) -> SessionSpec:
        """The user has no functions here but compiled ones."""
        return self

    def words(self) -> Iterable[str]:
        """Functions and keys, then the window."""
        yield f"{', '.join(map(function_words, self.aggregates))} by {', '.join(self.by)}"
        slack = slack_words(self.slack)
        yield f"sessions with gaps of {self.window.gap} of {self.time}{slack}"


def _checked(spec: SessionSpec, schema: pa.Schema) -> None:
    if not spec.by:
        raise UsageError("sessions need at least one key column: give by='column'")
    if not spec.aggregates:
        raise UsageError("sessions need at least one function, for example count=True")
    if spec.time is None:
        raise InvalidWindow("sessions need an event-time column: give time='column'")
    if spec.null_keys not in ("group", "refuse"):
        raise UsageError(
            "null_keys is 'group' or 'refuse' (or 'drop', which steps make a filter of), not "
            f"{spec.null_keys!r}"
        )
    for name in (*spec.by, spec.time, *(each.column for each in spec.aggregates)):
        places = places_of(schema, name)
        if name and len(places) != 1:
            raise SchemaMismatch(no_column(name, schema.names, places))


class Sessions:
    """The operator.  A part's slot is its key; slot `k` is open iff `opened_at[k] >= 0`."""

    divisible = True
    # Keys share a clock; footprints are stored as their parts opened.
    any_order = False
    short_order = None
    results_of_parts = None

    def __init__(self, spec: SessionSpec, schema: pa.Schema) -> None:
        _checked(spec, schema)
        self.spec = spec
        self.schema = schema
        self._time = TimeColumn(schema, spec.time)
        unit_ns = self._time.unit_ns
        slack = slack_in_unit(spec.slack, unit_ns)
        self._behind = slack.watermarks
        self._router = SessionRouter(spec.window.in_unit(unit_ns), slack.tuples)
        self._keys = GroupBy(schema, spec.by, refuse_nulls=spec.null_keys == "refuse")
        self._aggregation = Aggregation(schema, spec.aggregates, spec.on_error)
        self.output_schema = self._results_schema()
        self.late_schema = plain_schema(schema)
        self.late_tuples = 0
        # While replaying, by slot: the last position a restored part has seen.
        self._applied = np.zeros(0, np.int64)

    def _results_schema(self) -> pa.Schema:
        fields = list(self._keys.fields)
        fields += [pa.field(name, self._time.kind) for name in self.spec.window_columns]
        fields += self._aggregation.fields
        names = [each.name for each in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaMismatch(
                f"two result columns are named {twice[0]!r}; give one a name of its own"
            )
        return pa.schema(fields)

    # --- the normal path ---------------------------------------------------------------------

    @property
    def delay(self) -> int:
        """How far its clock is behind watermarks; the event time of a session is its end."""
        return self._behind

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
    def open_parts(self) -> int:
        """How many keys have open sessions: N."""
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
        check_schema(event, self.schema)
        times = self._time.times(event.batch, event.position)
        keys = self._keys.intern(event.batch, event.position)
        router = self._router
        router.ensure_keys(self._keys.table.id_limit)
        routed = router.route(keys, times, event.position, clamped(event.watermark, self._behind))
        self._aggregation.ensure(router.pane_capacity)
        columns = self._aggregation.run(event.batch, event.position, _as_routing(routed))
        opened_slots, opened_ids = keys[routed.opened_rows], routed.opened_rows + event.position
        still = router.opened_at[opened_slots] == opened_ids
        ended, flagged = routed.ended_ids, routed.flagged
        outcome = Outcome(
            results=self._results(routed, columns),
            late=self._late(event, routed.late_rows),
            opened_slots=opened_slots[still],
            opened_ids=opened_ids[still],
            ended_ids=ended[ended < event.position],
            touched_slots=np.concatenate([keys, routed.keys]),
            others=self._aggregation.dead_letters(event.batch),
            unrepeatable_slots=flagged[router.opened_at[flagged] >= 0],
        )
        self._keys.table.forget_idle(router.open_parts, lambda end: router.opened_at[:end] >= 0)
        return outcome

    def punctuate(self, position: int, watermark: int) -> Outcome:
        """Apply a watermark that comes before the tuple at `position`, without tuples."""
        return self.process(StreamEvent(position, no_tuples(self.schema), watermark))

    def _results(self, routed: RoutedSessions, columns: list[pa.Array]) -> pa.RecordBatch | None:
        if not routed.closings.total:
            return None
        arrays = self._keys.table.columns(routed.keys)
        arrays += [arrow_array(each, self._time.kind) for each in (routed.starts, routed.ends)]
        return pa.RecordBatch.from_arrays([*arrays, *columns], schema=self.output_schema)

    def _late(self, event: StreamEvent, rows: Int64s) -> pa.RecordBatch | None:
        self.late_tuples += int(rows.size)
        if not self.spec.route_late or not rows.size:
            return None
        return plain_batch(event.batch.take(pa.array(rows)))

    # --- footprints --------------------------------------------------------------------------

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""
        return self._router.opened_at[slots]

    def keys_in(self, slots: Array) -> list[pa.Array]:
        """The keys of open parts, a column for each key column."""
        return self._keys.table.columns(slots)

    def common_clock(self, clocks: Sequence[int]) -> int:
        """The earliest: what the others have passed is still to be said of some keys."""
        return min(clocks)

    def opening_columns(self, slots: Array) -> list[Array]:
        """The key, and the clock just before the tuple that opened the part."""
        return [*self._keys.table.pack(slots), self._router.opening_clock[slots]]

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The key, the clock, how many panes; then what each pane is and holds."""
        lengths, panes, roots = self._router.panes_of(slots)
        clocks = np.full(slots.size, self.clock, np.int64)
        columns = [*self._keys.table.pack(slots), clocks, lengths.astype(np.uint32)]
        columns += self._router.pane_columns(panes, roots)
        return [*columns, *self._aggregation.snapshot(panes)]

    # --- recovery ----------------------------------------------------------------------------

    def restore(
        self, openings: StoredParts, snapshots: StoredParts, *, clock: int, late_tuples: int
    ) -> Int32s:
        """Take these parts as the open ones of a new operator; their slots, openings first."""
        assert self.open_parts == 0, "only a new operator can be restored"
        check_clocks(clock)
        self.late_tuples = late_tuples
        self._router.clock = clock
        opened, opening_clocks, no_panes, _ = self._stored(openings, whole=False)
        checked, checked_clocks, lengths, columns = self._stored(snapshots, whole=True)
        slots = np.concatenate([opened, checked])
        self._router.ensure_keys(self._keys.table.id_limit)
        panes = self._router.restore(
            slots,
            np.concatenate([openings.ids, snapshots.ids]),
            np.concatenate([opening_clocks, checked_clocks]),
            np.concatenate([no_panes, lengths]),
            columns[:4],
        )
        self._aggregation.ensure(self._router.pane_capacity)
        if panes.size:
            self._aggregation.restore(panes, columns[4:])
        self._applied = seen_by_slot(openings, snapshots, slots, self._router.opened_at.size)
        return slots

    def _stored(
        self, parts: StoredParts, *, whole: bool
    ) -> tuple[Int32s, Int64s, Int64s, list[Array]]:
        """Slots, clocks and numbers of panes of stored parts, and the columns of those panes."""
        layout = self.snapshot_columns(NO_SLOTS) if whole else self.opening_columns(NO_SLOTS)
        width = self._keys.table.footprint_columns
        slots, clocks, lengths = [NO_SLOTS], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        rest: list[list[Array]] = [[column] for column in layout[width + 2 :]]
        for columns, rows, total in frames_of(parts, layout, slice(width, width + 2)):
            slots.append(self._keys.table.unpack(columns[:width], rows, total))
            clocks.append(columns[width][rows])
            if not whole:
                lengths.append(np.zeros(rows.size, np.int64))
                continue
            taken, counts = pane_rows(columns[width + 1], columns[width + 2 :], rows)
            lengths.append(counts)
            for kept, column in zip(rest, chosen_state(columns[width + 2 :], taken), strict=True):
                kept.append(column)
        told = np.concatenate(clocks)
        check_clocks(told)
        joined = [np.concatenate(column) for column in rest]
        return np.concatenate(slots), told, np.concatenate(lengths), joined

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        check_schema(event, self.schema)
        times = self._time.times(event.batch, event.position)
        keys = self._keys.find(event.batch, event.position)
        slots, closings = self._router.replay(
            keys, times, event.position, clamped(event.watermark), self._applied
        )
        self._aggregation.ensure(self._router.pane_capacity)
        self._aggregation.apply(event.batch, event.position, slots, closings)
        return int(np.count_nonzero(slots >= 0))

    def end_replay(self) -> None:
        """All restored parts are up to date: from here on, `process`."""
        self._applied = np.zeros(0, np.int64)
        empty, closings = self._router.end_replay()
        self._aggregation.apply(no_tuples(self.schema), 0, NO_SLOTS, closings)
        if empty:
            raise ReplayMismatch(
                f"{empty} keys that are open by the log have no session: the input that was "
                "replayed is not the input the log was written from; replay the original stream, "
                "in its order"
            )


def _as_routing(routed: RoutedSessions) -> Routing:
    return Routing(
        slots=routed.slots,
        closings=routed.closings,
        closing_keys=routed.keys,
        closing_counts=routed.counts,
        closing_ends=routed.ends,
        opened_slots=NO_SLOTS,
        opened_rows=routed.opened_rows,
        ended_ids=routed.ended_ids,
        late_rows=routed.late_rows,
    )


def pane_rows(lengths: Array, columns: Sequence[Array], rows: Array) -> tuple[Array, Int64s]:
    """Which rows of the panes' columns belong to the chosen parts, and how many to each."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    check_state(columns, total)
    counts = lengths[rows].astype(np.int64)
    if np.any(counts < 1):
        raise DamagedFrame("a footprint holds a key without sessions")
    starts = np.repeat(ends[rows] - counts, counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return starts + within, counts
