"""Resample: the values of one stream at the times of another, interpolated (Hwang 2.2).

Input 0 are values, input 1 are requests: for each request at time t, its columns are emitted with
those of the values as they would be at t, computed from the values of its key within `window`
before t and (unless only the previous value is asked for) after it, `reach`.  A request is answered
when the clock has passed t + reach, so that all of its neighbours are known; what a watermark lets
be answered leaves in order of time, ties by arrival.  A request that comes after that is late.  A
value is late when no request that is not could see it: when the clock has passed its time + reach +
window.  Late tuples are counted, and routed if asked for.

The output is a function of the tuples in order and of where watermarks stand, never of how stream
events are cut.

Parts: panes, stretches of time of one input.  A snapshot holds a pane's tuples.  A pane of values
ends when the clock has passed its last time + reach + window, when the last request that could see
it has been answered; one of requests when it has passed its last time + reach.  So a pane depends
on no other: its state are those of its own tuples that are not too old, and what is too old is
decided by the clock alone.  Replay therefore needs no watermarks: a replayed tuple that is not too
old for the restored clock was not late when it came, and if it is a request it is not answered yet;
one that is too old was late, or is answered, or is seen by nobody any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rewake.model.errors import DamagedFrame, InvalidWindow, SchemaMismatch, UsageError
from rewake.model.stream_event import END_OF_TIME, NO_TIME, TIME_LIMIT, StreamEvent, no_tuples
from rewake.model.units import duration_in_unit
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.keys import GroupBy
from rewake.operators.columns.plain import plain_batch, plain_schema
from rewake.operators.columns.values import TimeColumn, place_of
from rewake.operators.dead_letters import DEAD, dead_letters, diverts
from rewake.operators.kit.footprints import check_layout
from rewake.operators.kit.tuples import pack_tuples, tuples_of
from rewake.operators.resampling.answers import Answers
from rewake.operators.resampling.panes import Panes
from rewake.operators.resampling.rule import REQUESTS, VALUES, ResampleRule, check_rule
from rewake.operators.resampling.tuples import Timed, TimedTuples
from rewake.operators.stateful import (
    FURTHER_PORTS,
    NO_IDS,
    NO_SLOTS,
    Emissions,
    Outcome,
    StatefulOperator,
    StoredParts,
)
from rewake.operators.windows.specs import check_reach

__all__ = ["Resample", "ResampleSpec"]


@dataclass(frozen=True)
class ResampleSpec(ResampleRule):
    """A resample's rule, which makes operators."""

    def operator(self, *schemas: pa.Schema) -> Resample:
        """A new operator."""
        if len(schemas) != 2:
            raise UsageError(f"a resample has two inputs, values and requests, not {len(schemas)}")
        return Resample(self, *schemas)

    def rehearsed(self) -> ResampleSpec:
        """The nearest value in place of a function."""
        return replace(self, how="nearest") if callable(self.how) else self


class Resample(StatefulOperator):
    """The operator.  Results have the columns of the requests, then those asked for."""

    clock = NO_TIME

    def __init__(self, spec: ResampleSpec, values: pa.Schema, requests: pa.Schema) -> None:
        super().__init__(values, requests)
        self.spec = spec
        plain = (plain_schema(values), plain_schema(requests))
        check_rule(spec, *plain)
        asked = spec.time if spec.at_time is None else spec.at_time
        place_of(plain[0], spec.time, "values")
        place_of(plain[1], asked, "requests")
        needed = {spec.time, *spec.on, *(column for _, column in spec.columns)}
        # Of the values, what is needed; of the requests, all.
        self._kept = [each for each in plain[0].names if each in needed]
        kept = pa.schema([plain[0].field(name) for name in self._kept])
        self._schemas = (kept, plain[1])
        self._times = (TimeColumn(kept, spec.time), TimeColumn(plain[1], asked))
        self._window, self._reach = self._in_unit()
        self._answers = Answers(
            kept,
            [column for _, column in spec.columns],
            method=spec.how,
            window=self._window,
            reach=self._reach,
            result=spec.result,
            divert=diverts(spec.on_error),
        )
        added = zip(spec.columns, self._answers.kinds, strict=True)
        self.output_schema = pa.schema(
            [*plain[1], *(pa.field(name, kind) for (name, _), kind in added)]
        )
        self._keys = self._shared_keys()
        self._tuples = (TimedTuples(kept), TimedTuples(plain[1]))
        self._panes = Panes(max(1, (self._window + self._reach) // 4))
        # While replaying, by slot: whether nothing has come of a pane of which only the opening is
        # known.
        self._awaited = np.zeros(0, np.bool_)

    def _in_unit(self) -> tuple[int, int]:
        one, other = self._times
        if one.kind != other.kind:
            raise SchemaMismatch(
                f"event time {one.name!r} of the values is {one.kind}, but {other.name!r} of the "
                f"requests is {other.kind}: they must be of one type; map one upstream"
            )
        window = duration_in_unit(self.spec.window, one.unit_ns)
        if isinstance(window, bool) or window <= 0:
            raise InvalidWindow(
                f"the window of a resample must be longer than nothing, but is {self.spec.window!r}"
            )
        check_reach("a window", window)
        return window, 0 if self.spec.how == "previous" else window

    def _shared_keys(self) -> tuple[GroupBy, GroupBy] | None:
        if not self.spec.on:
            return None
        both = [GroupBy(each, self.spec.on, refuse_nulls=False) for each in self._schemas]
        both[1].table = both[0].table
        return both[0], both[1]

    # --- the normal path ---------------------------------------------------------------------

    @property
    def delay(self) -> int:
        """A request is answered when the clock has passed what it may have to see."""
        return self._reach

    @property
    def open_parts(self) -> int:
        """How many panes are open: N."""
        return self._panes.open_parts

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self._panes.ids

    @property
    def _horizons(self) -> tuple[int, int]:
        """By port: tuples before this time are too old."""
        if self.clock == NO_TIME or self.clock >= TIME_LIMIT:
            return (self.clock, self.clock) if self.clock == NO_TIME else (END_OF_TIME, END_OF_TIME)
        answered = self.clock - self._reach
        return max(answered - self._window, NO_TIME), answered

    def process(self, event: StreamEvent) -> Outcome:
        """Take tuples in; then answer what the watermark lets be answered."""
        batch, times = self._read(event)
        positions = event.position + np.arange(batch.num_rows)
        late, batch, times, positions = self._without_late(event.port, batch, times, positions)
        touched = self._panes.open(self._panes.marks_of(times, event.port), positions)
        self._append(event.port, batch, times, positions)
        opened, ended, results = touched.opened, np.zeros(0, np.int64), None
        others: list[tuple[int, pa.RecordBatch]] = []
        routed = self.spec.route_late and late.num_rows > 0
        if routed and event.port == REQUESTS:
            others.append((FURTHER_PORTS, late))
        if self._advance(event.watermark):
            results, dead = self._answered()
            others += dead
            ended = self._panes.end(self._horizons)
            opened = opened[self._panes.ids[opened] >= 0]
            ended = ended[ended < event.position]
            self._forget_idle_keys()
        return Outcome(
            results=results,
            late=late if routed and event.port == VALUES else None,
            opened_slots=opened,
            opened_ids=self.ids_of(opened),
            ended_ids=ended,
            # What was answered, or is too old, may stay in a snapshot: `restore` leaves it out.
            touched_slots=touched.slots,
            others=others,
        )

    def _read(self, event: StreamEvent) -> tuple[pa.RecordBatch, Int64s]:
        """The tuples of a stream event without dictionaries, and their times."""
        # A watermark alone may come by any port.
        port = event.port if event.batch.num_rows else VALUES
        if event.batch.num_rows:
            self.check_schema(event)
            batch = plain_batch(event.batch)
            return batch, self._times[port].times(self._kept_of(port, batch), event.position)
        return no_tuples(plain_schema(event.batch.schema)), np.zeros(0, np.int64)

    def _kept_of(self, port: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(self._kept) if port == VALUES else batch

    def _without_late(
        self, port: int, batch: pa.RecordBatch, times: Int64s, positions: Int64s
    ) -> tuple[pa.RecordBatch, pa.RecordBatch, Int64s, Int64s]:
        """Late tuples, then the others with their times and positions."""
        late = times < self._horizons[port]
        count = int(np.count_nonzero(late))
        if not count:
            return batch.slice(0, 0), batch, times, positions
        self.late_tuples += count
        rest = np.flatnonzero(~late)
        others = batch.take(pa.array(rest))
        return batch.filter(pa.array(late)), others, times[rest], positions[rest]

    def _append(self, port: int, batch: pa.RecordBatch, times: Int64s, positions: Int64s) -> None:
        if not times.size:
            return
        batch = self._kept_of(port, batch)
        keys = np.zeros(times.size, np.int32)
        if self._keys is not None:
            keys = self._keys[port].intern(batch, int(positions[0]))
        self._tuples[port].append(Timed(times, positions, keys, batch))

    def _advance(self, watermark: int | None) -> bool:
        """Move the clock; whether it moved."""
        if watermark is None or watermark <= max(self.clock, -TIME_LIMIT):
            return False
        before, self.clock = self.clock, min(watermark, TIME_LIMIT)
        return self.clock > before

    def _answered(self) -> tuple[pa.RecordBatch | None, Emissions]:
        """Answer the requests that the clock has passed, and forget what nobody will ask for.

        Results, and dead letters.
        """
        values, requests = self._tuples
        too_old, answered = self._horizons
        due = requests.cut(answered)
        if not due.rows:
            values.drop_before(too_old)
            return None, ()
        values.cut(min(too_old, int(due.times[0]) - self._window))
        columns, failed = self._answers.answer(due, values.ordered())
        values.drop_before(too_old)
        arrays = [*due.batch.columns, *columns]
        results = pa.RecordBatch.from_arrays(arrays, schema=self.output_schema)
        found = np.ones(due.rows, np.bool_)
        if self.spec.missing == "drop":
            for column in columns:
                found &= column.is_valid().to_numpy(zero_copy_only=False)
        found[list(failed)] = False
        results = results if found.all() else results.filter(pa.array(found))
        return results if results.num_rows else None, self._dead(due, failed)

    def _dead(self, due: Timed, failed: dict[int, str]) -> Emissions:
        """The requests that the function fails for."""
        if not failed:
            return ()
        rows = sorted(failed)
        port = FURTHER_PORTS + self.spec.further_outputs.index(DEAD)
        batch = due.batch.take(pa.array(rows, pa.int64()))
        return [(port, dead_letters(batch, [failed[row] for row in rows]))]

    def _forget_idle_keys(self) -> None:
        if self._keys is None:
            return
        rows = sum(each.rows for each in self._tuples)
        self._keys[0].table.forget_idle(rows, self._has_tuples)

    def _has_tuples(self, id_limit: int) -> Array:
        """By key."""
        live = np.zeros(id_limit, np.bool_)
        for each in self._tuples:
            live[each.ordered().keys] = True
        return live

    # --- footprints --------------------------------------------------------------------------

    def opening_columns(self, slots: Array) -> list[Array]:
        """The marks of panes."""
        return [self._panes.marks[slots]]

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """Marks, how many tuples each pane holds, then by port: positions, and tuples as bytes."""
        place = np.full(self._panes.ids.size + 1, -1, np.int64)
        place[slots] = np.arange(slots.size)
        lengths = np.zeros(slots.size, np.int32)
        columns: list[Array] = []
        for port, tuples in enumerate(self._tuples):
            every = tuples.ordered()
            # Slot -1, of tuples whose pane has ended, has the last place, which is nobody's.
            places = place[self._panes.find(self._panes.marks_of(every.times, port))]
            rows = np.flatnonzero(places >= 0)
            rows = rows[np.argsort(places[rows], kind="stable")]
            lengths += np.bincount(places[rows], minlength=slots.size).astype(np.int32)
            data = pack_tuples(every.batch.take(pa.array(rows)))
            columns += [every.positions[rows], data]
        return [*self.opening_columns(slots), lengths, *columns]

    # --- recovery ----------------------------------------------------------------------------

    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        """See `StatefulOperator`."""
        self.clock = clock
        opened = _marks(openings, self.opening_columns(NO_SLOTS))
        checked = _marks(snapshots, self.snapshot_columns(NO_SLOTS))
        ids = np.concatenate([openings.ids, snapshots.ids])
        slots = self._panes.restore(ids, np.concatenate([opened, checked]))
        self._awaited = np.zeros(self._panes.ids.size, np.bool_)
        self._awaited[slots[: opened.size]] = True
        for port in (VALUES, REQUESTS):
            self._restore_tuples(port, snapshots, checked)
        return slots

    def _restore_tuples(self, port: int, snapshots: StoredParts, marks: Int64s) -> None:
        lengths = [np.where(columns[0] % 2 == port, columns[1], 0) for columns in snapshots.columns]
        for found in tuples_of(snapshots, self._schemas[port], lengths, 2 + 2 * port):
            try:
                times = self._times[port].times(found.batch, 0)
            except SchemaMismatch as error:
                raise DamagedFrame(f"a snapshot holds tuples without a time: {error}") from error
            if np.any(self._panes.marks_of(times, port) != marks[found.parts]):
                raise DamagedFrame("a snapshot holds tuples of another pane")
            rows = np.flatnonzero(times >= self._horizons[port])
            batch = found.batch.take(pa.array(rows))
            self._append(port, batch, times[rows], found.positions[rows])

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        batch, times = self._read(event)
        positions = event.position + np.arange(batch.num_rows)
        slots = self._panes.find(self._panes.marks_of(times, event.port))
        rows = np.flatnonzero(slots >= 0)
        rows = rows[positions[rows] > self._applied[slots[rows]]]
        self._awaited[slots[rows]] = False
        rows = rows[times[rows] >= self._horizons[event.port]]
        self._append(event.port, batch.take(pa.array(rows)), times[rows], positions[rows])
        return int(rows.size)

    def _finish_replay(self) -> Array:
        """See `StatefulOperator`: no pane is still awaited."""
        wrong, self._awaited = np.flatnonzero(self._awaited), np.zeros(0, np.bool_)
        return wrong


def _marks(parts: StoredParts, layout: list[Array]) -> Int64s:
    """The marks of stored panes, whose columns must be those of `layout`."""
    check_layout(parts, layout, slice(2))
    marks = np.concatenate([NO_IDS, *(columns[0] for columns in parts.columns)])
    return marks[parts.rows_of_all()]
