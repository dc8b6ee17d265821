"""Join: pairs of tuples of two inputs that are equal in their keys and near in time (Hwang 2.2).

A pair joins when its keys are equal (a null is equal to nothing), its times are less than `within`
apart, and `where` holds for it.  It is emitted when the later of the two arrives: results are in
the order of arriving tuples, then of their partners' positions.  What has met no partner is emitted
by outer and anti joins when it can meet none any more, in the order of panes, the left input first,
then of positions; a semi join emits a left tuple when it meets its first partner.  A pair that
`where` fails for is an error or, where failures are diverted, a dead letter and no pair.

Results are exactly the join of the tuples that are not late.  A tuple is late when the clock has
reached the end of its pane (see `clock`).  All of it is a function of the tuples in order and
of where watermarks stand, never of how they were cut into stream events.  Tuples with a null key
move the clock, and may be late, only where they are emitted: otherwise they are passed over.

State: the tuples of both inputs, in panes of width `within` by event time; parts are panes, and the
marks of sealed panes (see `parts`).  Why a part can be rebuilt from its last footprint and the
input after it:
- The tuples of an open pane are those in its snapshot and those that came later, until its mark.
- Whether a tuple has met a partner follows from the tuples that are held: a pane stays open until
  its neighbours on the other input have been decided (one width longer than its tuples can meet
  others), so every partner of a tuple of an undecided pane is still there.  Nothing has to be known
  of when they met.  A snapshot has the flags only to save looking for partners again.
- The clock is in the log.  How far the input has come that is ahead of it follows from the latest
  tuple of that input, whose pane cannot have ended.

A turn is atomic: `process` either applies all of a stream event or, for a mistake in it, nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import TIME_LIMIT, StreamEvent
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.plain import plain_batch
from rewake.operators.dead_letters import DEAD, dead_letters
from rewake.operators.join.clock import DECIDED, UNNEEDED, JoinClock
from rewake.operators.join.columns import Arriving
from rewake.operators.join.parts import MARK, JoinParts
from rewake.operators.join.rule import LEFT, RIGHT, SIDES, JoinInputs, JoinRule
from rewake.operators.join.snapshots import PartTuples, read_parts, snapshots, tuples_read
from rewake.operators.join.state import FoundPartners, JoinState, Pairs
from rewake.operators.stateful import (
    FURTHER_PORTS,
    NO_SLOTS,
    Emissions,
    Outcome,
    StatefulOperator,
    StoredParts,
)

__all__ = ["Join", "JoinSpec"]


@dataclass(frozen=True)
class JoinSpec(JoinRule):
    """A join's rule, which makes operators."""

    def operator(self, *schemas: pa.Schema) -> Join:
        """A new operator; left is input 0, right is input 1."""
        left, right = schemas
        return Join(self, left, right)

    def rehearsed(self) -> JoinSpec:
        """Without a condition that is a function."""
        return replace(self, where=None) if self.code() else self


class _Arrivals(NamedTuple):
    """The tuples of a stream event that count.

    `readings` are those of the clock at each of them, `numbers` the places in it of those that are
    not late, which the other fields are about; `late` are places in the stream event.
    """

    all_times: Int64s
    readings: Int64s
    numbers: Int64s
    batch: pa.RecordBatch
    positions: Int64s
    times: Int64s
    keys: Int32s
    panes: Int64s
    late: Int64s
    late_panes: Int64s

    @property
    def source(self) -> Arriving:
        """The tuples that are not late."""
        return Arriving(self.batch, self.times)


class _Emitted(NamedTuple):
    """Results, each with the number of the arriving tuple at which it is due."""

    due: Array
    batch: pa.RecordBatch


class Join(StatefulOperator):
    """The operator, for inputs of these columns: left is input 0, right is input 1."""

    def __init__(self, spec: JoinRule, left: pa.Schema, right: pa.Schema) -> None:
        super().__init__(left, right)
        self.spec = spec
        self._inputs = JoinInputs(spec, left, right)
        self.output_schema = self._inputs.output_schema
        self._clock = JoinClock(self._inputs.within, self._inputs.slack)
        self._parts = JoinParts()
        self._state = JoinState(spec, self._inputs)
        self._held = self._state.held
        # While replaying: by input the tuples of all parts.
        self._replayed: tuple[list[PartTuples], list[PartTuples]] = ([], [])

    # --- what the host may know --------------------------------------------------------------

    @property
    def delay(self) -> int:
        """A tuple waits until its pane is decided: a width for itself, one for who could match."""
        return 2 * self._inputs.within + self._inputs.slack.watermarks

    @property
    def open_parts(self) -> int:
        """How many parts are open: N."""
        return self._parts.slots.used

    @property
    def clock(self) -> int:
        """The event-time clock, `NO_TIME` before it has started."""
        return self._clock.now

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self._parts.slots.opened_at

    def _holds(self, side: int) -> int:
        """How many widths behind the clock a pane of an input ends."""
        return UNNEEDED if self.spec.flags(1 - side) else DECIDED

    def _low(self, side: int) -> int:
        """Tuples of an input that are older than this are in panes that have ended."""
        return self._clock.start(self._clock.border(self._holds(side), self._clock.now))

    # --- the normal path ---------------------------------------------------------------------

    def process(self, event: StreamEvent) -> Outcome:
        """Apply a stream event; what it opened, closed and emitted."""
        side = event.port
        arrivals = self._arrivals(event)
        found = self._state.find(side, arrivals.source, arrivals.keys)
        pairs = found.pairs
        joined = self._joined(side, arrivals, pairs)
        dead = self._dead(side, arrivals, found)
        # Nothing has changed so far, and nothing can fail from here on.
        before = self._clock.now
        touched = self._hold(side, arrivals, pairs)
        self._clock.advance(side, arrivals.all_times, event.watermark)
        unmatched = self._unmatched(before, arrivals.readings)
        ended = self._end_panes()
        marks = self._mark_sealed(side, event.position, arrivals)
        ended_ids = self.ids_of(ended)
        self._parts.slots.give_back(ended)
        self._state.forget((self._low(LEFT), self._low(RIGHT)))
        touched = np.concatenate([touched, marks])
        opened = touched[self.ids_of(touched) >= event.position]
        opened = opened[np.argsort(self.ids_of(opened))]
        return Outcome(
            results=_in_order([unmatched, joined]),
            late=None,
            opened_slots=opened,
            opened_ids=self.ids_of(opened),
            ended_ids=ended_ids[ended_ids < event.position],
            touched_slots=touched,
            others=[*self._late(side, event, arrivals), *dead],
        )

    def _plain(self, event: StreamEvent) -> pa.RecordBatch:
        """The tuples of a stream event, without dictionaries."""
        self.check_schema(event, f"the {SIDES[event.port]} input of the join")
        return plain_batch(event.batch)

    def _arrivals(self, event: StreamEvent) -> _Arrivals:
        side = event.port
        batch = self._plain(event)
        times, keys = self._inputs.values(side, batch, event.position)
        considered: Array | None = None
        have_keys = self._inputs.have_keys(side, batch)
        if have_keys is not None and not self.spec.emits_alone(side):
            considered = np.flatnonzero(have_keys)
            times, keys = times[considered], keys[considered]
        readings, panes = self._clock.readings(side, times), self._clock.panes(times)
        late = self._clock.sealed(panes, readings)
        numbers, late_numbers = np.flatnonzero(~late), np.flatnonzero(late)
        rows, late_rows = numbers, late_numbers
        if considered is not None:
            rows, late_rows = considered[numbers], considered[late_numbers]
        if rows.size < batch.num_rows:
            batch = batch.take(pa.array(rows))
        all_times, late_panes = times, panes[late_numbers]
        if late_numbers.size:
            times, keys, panes = times[numbers], keys[numbers], panes[numbers]
        return _Arrivals(
            all_times,
            readings,
            numbers,
            batch,
            rows + event.position,
            times,
            keys,
            panes,
            late_rows,
            late_panes,
        )

    # --- results -----------------------------------------------------------------------------

    def _joined(self, side: int, arrivals: _Arrivals, pairs: Pairs) -> _Emitted | None:
        """What pairs are emitted as."""
        if self.spec.how == "semi":
            return self._met_first(side, arrivals, pairs)
        if pairs.arriving.size == 0 or self.spec.how == "anti":
            return None
        sided = self._state.sided(side, arrivals.source, pairs)
        batch = self._inputs.columns.batch(*sided)
        return _Emitted(arrivals.numbers[pairs.arriving], batch)

    def _met_first(self, side: int, arrivals: _Arrivals, pairs: Pairs) -> _Emitted | None:
        """Left tuples that have met their first partner."""
        if side == LEFT:
            rows = np.unique(pairs.arriving)
            batch = arrivals.batch.take(pa.array(rows)) if rows.size else None
            return None if batch is None else _Emitted(arrivals.numbers[rows], batch)
        new = np.flatnonzero(~self._held[LEFT].settled[pairs.partners])
        first = new[np.sort(np.unique(pairs.partners[new], return_index=True)[1])]
        if first.size == 0:
            return None
        batch = self._held[LEFT].batch(pairs.partners[first])
        return _Emitted(arrivals.numbers[pairs.arriving[first]], batch)

    def _unmatched(self, before: int, readings: Int64s) -> _Emitted | None:
        """Tuples without a partner, of the panes that were decided since the clock was `before`."""
        found: list[tuple[Array, ...]] = []
        for side in (LEFT, RIGHT):
            if not self.spec.emits_alone(side):
                continue
            _, later = self._parts.panes[side].split(self._clock.border(DECIDED, before))
            panes, _ = later.split(self._clock.border(DECIDED, self._clock.now))
            rows, counts = self._held[side].rows_of(panes.slots)
            due = self._clock.reached_at(DECIDED, panes.numbers, readings)
            due, numbers = np.repeat(due, counts), np.repeat(panes.numbers, counts)
            alone = ~self._held[side].settled[rows]
            self._held[side].settled[rows] = True
            rows = rows[alone]
            found.append((rows, np.full(rows.size, side), numbers[alone], due[alone]))
        if not any(each[0].size for each in found):
            return None
        rows, sides, numbers, due = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.lexsort((sides, numbers, due))
        rows, sides = rows[order], sides[order]
        return _Emitted(due[order], self._alone(rows, sides))

    def _alone(self, rows: Array, sides: Array) -> pa.RecordBatch:
        if self.spec.how == "anti":
            return self._held[LEFT].batch(rows)
        own = [np.where(sides == side, rows, -1) for side in (LEFT, RIGHT)]
        left, right = self._held
        return self._inputs.columns.batch(left, right, *own)

    def _late(self, side: int, event: StreamEvent, arrivals: _Arrivals) -> Emissions:
        self.late_tuples += arrivals.late.size
        if not self.spec.late_outputs or arrivals.late.size == 0:
            return ()
        return [(FURTHER_PORTS + side, plain_batch(event.batch.take(pa.array(arrivals.late))))]

    def _dead(self, side: int, arrivals: _Arrivals, found: FoundPartners) -> Emissions:
        """The pairs that the condition fails for."""
        if not found.errors:
            return ()
        sided = self._state.sided(side, arrivals.source, found.failing)
        port = FURTHER_PORTS + self.spec.further_outputs.index(DEAD)
        return [(port, dead_letters(self._inputs.columns.batch(*sided), found.errors))]

    # --- state -------------------------------------------------------------------------------

    def _hold(self, side: int, arrivals: _Arrivals, pairs: Pairs) -> Int32s:
        """Hold the tuples that arrived, and note who met; the slots of their panes."""
        if self.spec.flags(1 - side):
            self._held[1 - side].settled[pairs.partners] = True
        if arrivals.times.size == 0:
            return NO_SLOTS
        numbers, firsts, which = _different(arrivals.panes)
        first_ids = arrivals.positions[firsts]
        slots = self._parts.open_panes(side, numbers, first_ids)
        self._state.ensure_slots(self.opened_at.size)
        self._held[side].opened(slots[self.ids_of(slots) == first_ids])
        row = self._state.hold(
            side,
            arrivals.batch,
            arrivals.positions,
            arrivals.times,
            arrivals.keys,
            slots[which],
            self._low(side),
        )
        if self.spec.flags(side):
            self._held[side].settled[row + pairs.arriving] = True
        return slots

    def _end_panes(self) -> Int32s:
        """End the panes that nobody needs at this clock; the slots of what has ended."""
        ended = [
            self._parts.end(side, self._clock.border(self._holds(side), self._clock.now))
            for side in (LEFT, RIGHT)
        ]
        return np.concatenate(ended)

    def _mark_sealed(self, side: int, position: int, arrivals: _Arrivals) -> Int32s:
        """Mark panes that are still open and had late tuples."""
        if arrivals.late.size == 0:
            return NO_SLOTS
        numbers, firsts = np.unique(arrivals.late_panes, return_index=True)
        return self._parts.mark(side, numbers, arrivals.late[firsts] + position)

    # --- footprints --------------------------------------------------------------------------

    def opening_columns(self, slots: Array) -> list[Array]:
        """What identifies parts that have just opened: kind and number."""
        return [self._parts.slots.kinds[slots], self._parts.slots.numbers[slots]]

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The whole state of parts: kind, number and tuples."""
        kinds, numbers = self.opening_columns(slots)
        return snapshots(kinds, numbers, slots, self._held)

    # --- recovery ----------------------------------------------------------------------------

    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        """See `StatefulOperator`."""
        self._clock.now = clock
        opened = read_parts(openings, self.opening_columns(NO_SLOTS))
        checked = read_parts(snapshots, self.snapshot_columns(NO_SLOTS))
        kinds = np.concatenate([opened.kinds, checked.kinds])
        numbers = np.concatenate([opened.numbers, checked.numbers])
        self._check_open(kinds, numbers)
        slots = self._parts.restore(np.concatenate([openings.ids, snapshots.ids]), kinds, numbers)
        inputs = self._inputs
        for side, (schema, time) in enumerate(zip(inputs.schemas, inputs.times, strict=True)):
            found = tuples_read(snapshots, checked, side, schema, time, inputs.within)
            self._replayed[side].extend(found)
        return slots

    def _check_open(self, kinds: Array, numbers: Int64s) -> None:
        """No pane can be open that has ended by the clock, or that no time is in."""
        limit = TIME_LIMIT // self._inputs.within + 1
        for side in (LEFT, RIGHT):
            own = numbers[kinds % MARK == side]
            border = self._clock.border(self._holds(side), self._clock.now)
            if np.any((own < max(border, -limit)) | (own > limit)):
                raise DamagedFrame("a footprint of a pane of a join that cannot be open")

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        side = event.port
        batch = self._plain(event)
        times = self._inputs.times[side].times(batch, event.position)
        panes = self._parts.panes[side]
        places = panes.places(self._clock.panes(times))
        positions = event.position + np.arange(times.size)
        # Of a place below 0 anything may be said: it is no pane.
        wanted = places >= 0
        if panes.numbers.size:
            wanted &= (positions > self._applied[panes.slots[places]]) & (
                positions < panes.sealed[places]
            )
        have_keys = self._inputs.have_keys(side, batch)
        if have_keys is not None and not self.spec.emits_alone(side):
            wanted &= have_keys
        rows = np.flatnonzero(wanted)
        if rows.size:
            tuples = batch.take(pa.array(rows))
            self._replayed[side].append(
                PartTuples(tuples, positions[rows], np.zeros(rows.size, np.bool_))
            )
        return rows.size

    def _finish_replay(self) -> Array:
        """See `StatefulOperator`: every pane begins with the tuple that opened it."""
        self._state.ensure_slots(self.opened_at.size)
        for side in (LEFT, RIGHT):
            self._state.hold_again(side, self._replayed[side], self._slots_of)
            self._clock.advance(side, self._held[side].view("times"), None)
        self._replayed = ([], [])
        decided = self._clock.start(self._clock.border(DECIDED, self._clock.now))
        wrong = np.concatenate([self._misfilled(side) for side in (LEFT, RIGHT)])
        for side in (LEFT, RIGHT) if not wrong.size else ():
            held = self._held[side]
            if self.spec.emits_alone(side):
                held.view("settled")[held.view("times") < decided] = True
            if self.spec.flags(side):
                self._state.settle_again(side)
        return wrong

    def _slots_of(self, side: int, times: Int64s) -> Int32s:
        panes = self._parts.panes[side]
        return panes.slots[panes.places(self._clock.panes(times))]

    def _misfilled(self, side: int) -> Int32s:
        slots = self._parts.panes[side].slots
        rows, counts = self._held[side].rows_of(slots)
        firsts = np.full(slots.size, -1, np.int64)
        starts = (np.cumsum(counts) - counts)[counts > 0]
        firsts[counts > 0] = self._held[side].positions[rows[starts]]
        wrong: Int32s = slots[firsts != self.ids_of(slots)]
        return wrong


def _different(panes: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The different numbers, sorted; the first place of each; for each place, which it is.

    Tuples are mostly in order, so there are few stretches of one number.
    """
    starts = np.concatenate([[0], np.flatnonzero(panes[1:] != panes[:-1]) + 1])
    numbers, firsts, which = np.unique(panes[starts], return_index=True, return_inverse=True)
    lengths = np.diff(np.append(starts, panes.size))
    return numbers, starts[firsts], np.repeat(which.astype(np.int64), lengths)


def _in_order(emitted: list[_Emitted | None]) -> pa.RecordBatch | None:
    """Results by when they are due; of those due at once, in the order of the list."""
    some = [each for each in emitted if each is not None]
    if len(some) < 2:
        return some[0].batch if some else None
    order = np.argsort(np.concatenate([each.due for each in some]), kind="stable")
    return pa.concat_batches([each.batch for each in some]).take(pa.array(order))
