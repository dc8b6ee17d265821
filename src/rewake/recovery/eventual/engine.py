"""Continuous eventual checkpointing (CEC): a stateful operator whose output log is its checkpoint.

Normal path, per turn: opened windows leave an OPEN, closed ones their RESULT, and old ones a CHECK
when the policy says so; all of it goes into one frame, which also says how many windows are open
(N).  A window that opens and closes in one turn leaves only its RESULT; a turn that only updates
open windows leaves nothing.

Recovery: construct the eventual checkpoint, load it, replay input after T.  A replayed tuple at
time t that belongs to window w is applied when t > t_w if w is in the checkpoint, and only when
t > tc if it is not; until tc nothing is emitted, so nothing can be emitted twice.

Where steps before the state leave tuples out, positions depend on whole stream events: a frame then
says where its turn started, and replay starts with a whole turn, at or before T.

A turn is two calls in a row: `process` applies a stream event, `record` says what of it goes into
the log.  Whoever wants to decide between them what is logged calls the two instead of `turn`.

The host must, in this order: append the record of a turn to the log; when it is durable, forward
the results.  After a crash: read the log backwards for `recover`, then deliver input from
`position` on.  Input at or before `acknowledged` will never be asked for again, once the turn's
record is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from rewake.log.columns import pack_columns
from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.log.results import result_sections
from rewake.model.errors import ReplayMismatch
from rewake.model.stream_event import StreamEvent
from rewake.operators.columns.arrays import Int32s
from rewake.operators.stateful import Emissions, Outcome, StatefulOperator
from rewake.recovery.approach import (
    LATE_OUTPUT,
    NOTHING,
    RESULTS_OUTPUT,
    Emit,
    Recovery,
    Turn,
    by_port,
    rows_in,
)
from rewake.recovery.eventual.reading import Pack, construct, pack_metadata, pack_parts
from rewake.recovery.footprint_order import FootprintOrder, Footprints
from rewake.recovery.policies.policy import CheckpointPolicy, Choice, Extent
from rewake.recovery.promises.rates import RecoveryRates

__all__ = [
    "LATE_OUTPUT",
    "RESULTS_OUTPUT",
    "ContinuousEventualCheckpointing",
    "Turn",
]

MANY_FRAMES = 65_536


class ContinuousEventualCheckpointing(Recovery):
    """One operator under CEC, driven turn by turn by a host.

    `emit` makes a fragment's outputs of the operator's results; without one, results go to output 0
    and late tuples to output 1.  `pack` makes footprint sections of columns.
    """

    def __init__(
        self,
        operator: StatefulOperator,
        policy: CheckpointPolicy,
        emit: Emit = by_port,
        pack: Pack = pack_columns,
    ) -> None:
        self.operator = operator
        self._policy = policy
        self._promise = policy.promise
        self._emit = emit
        self._pack = pack
        self._order = FootprintOrder(operator.ids_of)
        self._checks = 0
        self._now_ms = 0.0
        # The next input position; while recovering, replay lasts through this one.
        self.position = 0
        self._replay_through = -1
        # The input time of the last turn that left a record.
        self._recorded = -1
        # The record number at which each frame since the oldest needed one starts.
        self._frame_starts: deque[int] = deque()
        self._most_frames = MANY_FRAMES
        # Start and end of turns that opened windows, where they must be replayed whole.
        self._turns: deque[tuple[int, int]] = deque()

    # --- the normal path ---------------------------------------------------------------------

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """Process the next stream event, or replay it if the log has its effects already."""
        if self.recovering:
            live = self.replay(event)
            return NOTHING if live is None else self.turn(live, now_ms)
        outcome = self.process(event)
        return self.record(event.start, outcome, self._emit(outcome), self._policy.checks, now_ms)

    def process(self, event: StreamEvent) -> Outcome:
        """Apply the next stream event; `record` must follow."""
        self._check_next(event)
        outcome = self.operator.process(event)
        self.position = event.end
        return outcome

    def _check_next(self, event: StreamEvent) -> None:
        assert event.start == self.position, (
            f"the stream event at {event.start} is not the next one: {self.position}"
        )

    def record(
        self,
        start: int,
        outcome: Outcome,
        outputs: Emissions,
        checks: Choice,
        now_ms: float = 0.0,
    ) -> Turn:
        """What the stream event from `start` leaves in the log: `outputs`, OPENs, CHECKs, ends.

        Windows of the `outcome` that are not among its opened ones must be among the `checks`,
        which are chosen when all else has been counted.
        """
        order, t_end = self._order, self.position - 1
        first_record = order.records
        tuples = rows_in(outputs)
        order.results(tuples)
        order.opened(outcome.opened_slots, outcome.opened_ids)
        order.forget_dead(self.operator.open_parts)
        self._now_ms = now_ms
        checked = checks(self.extent(now_ms))
        if outcome.unrepeatable_slots.size:
            checked = np.union1d(checked, outcome.unrepeatable_slots).astype(np.int32)
        if checked.size:
            self._checks += checked.size
            order.checked(checked, self.operator.ids_of(checked), t_end)
        sections = result_sections(outputs) + self._parts(outcome, checked, t_end)
        if not sections:
            return NOTHING
        whole = not self.operator.divisible and outcome.opened_slots.size > 0
        if whole:
            self._turns.append((start, self.position))
        sections += self._metadata(start if whole else None)
        record = self._record(first_record, tuples, sections)
        return Turn(record, outputs, checked.size)

    def _record(self, first_record: int, tuples: int, sections: list[Section]) -> TurnRecord:
        self._note_frame(first_record)
        self._recorded = self.position - 1
        return TurnRecord(
            t_end=self._recorded,
            timestamp=self.operator.clock,
            open_windows=self.operator.open_parts,
            tuples=tuples,
            records=self._order.records - first_record,
            sections=tuple(sections),
        )

    def bare_record(self) -> TurnRecord:
        """A record that says no more than that input up to `position` has been consumed."""
        assert not self.recovering, "the log has a record of this time already"
        return self._record(self._order.records, 0, self._metadata(None))

    def _note_frame(self, first_record: int) -> None:
        self._frame_starts.append(first_record)
        # A host that never asks what is needed must not pay for it with memory.
        if len(self._frame_starts) > self._most_frames:
            self._most_frames = 2 * self.frames_needed + MANY_FRAMES
            self._replay_from(self._order.oldest_time(self._recorded))

    def _parts(self, outcome: Outcome, checked: Int32s, t_end: int) -> list[Section]:
        sections = []
        if outcome.opened_slots.size:
            columns = self.operator.opening_columns(outcome.opened_slots)
            opens = pack_parts(outcome.opened_ids, t_end, columns, self._pack)
            sections.append(Section(SectionKind.OPENS, opens))
        if checked.size:
            ids = self.operator.ids_of(checked)
            columns = self.operator.snapshot_columns(checked)
            checks = pack_parts(ids, t_end, columns, self._pack)
            sections.append(Section(SectionKind.CHECKS, checks))
        if outcome.ended_ids.size:
            closed = pack_parts(outcome.ended_ids, t_end, [], self._pack)
            sections.append(Section(SectionKind.CLOSED, closed))
        return sections

    def _metadata(self, turn_start: int | None) -> list[Section]:
        late = self.operator.late_tuples
        if not late and turn_start is None:
            return []
        return [Section(SectionKind.METADATA, pack_metadata(late, turn_start))]

    # --- what the host and the policy may know -----------------------------------------------

    def extent(self, now_ms: float = 0.0) -> Extent:
        """The eventual checkpoint as it stands."""
        return Extent(
            order=self._order,
            operator=self.operator,
            position=self.position - 1,
            clock=self.operator.clock,
            now_ms=now_ms,
        )

    @property
    def acknowledged(self) -> int:
        """Input up to here is not needed for recovery any more: T, or tc if no window is open.

        Turns that left no record are not in the log: their input would be replayed.
        """
        return self._replay_from(self._order.oldest_time(self._recorded)) - 1

    def _replay_from(self, oldest_time: int) -> int:
        """Where replay starts: behind T, or with the turn that holds it if that must be whole."""
        position = oldest_time + 1
        # T only rises, so earlier turns are never asked for again.
        while self._turns and self._turns[0][1] <= position:
            self._turns.popleft()
        return min(position, self._turns[0][0]) if self._turns else position

    @property
    def frames_remembered(self) -> int:
        """Of how many frames it is known where they start; never many more than are needed."""
        return len(self._frame_starts)

    @property
    def frames_needed(self) -> int:
        """How many of the newest frames recovery would read; older ones may be trimmed.

        The newest frame is always needed: it says how many windows are open.
        """
        oldest = self._order.oldest_record()
        while len(self._frame_starts) > 1 and self._frame_starts[1] <= oldest:
            self._frame_starts.popleft()
        return len(self._frame_starts)

    def progress(self) -> dict[str, float]:
        """Figures for people: open windows, extent, tuples to replay."""
        extent = self.extent()
        figures: dict[str, float] = {
            "open_windows": extent.open_windows,
            "extent_records": extent.records,
            "replay_tuples": extent.tuples,
            "checks": self._checks,
        }
        if self._promise is not None:
            figures |= self._promise.outlook(extent).figures()
            figures["replay_from"] = extent.oldest_time + 1
            figures |= self._promise.rates.figures()
        return figures

    @property
    def rates(self) -> RecoveryRates | None:
        """What the parts of a recovery cost, where a policy goes by it: the host keeps it true."""
        return None if self._promise is None else self._promise.rates

    @property
    def advice(self) -> str:
        """Why a promised recovery time cannot be kept, and what to do; mostly nothing."""
        if self._promise is None:
            return ""
        return self._promise.outlook(self.extent(self._now_ms)).advice

    def check_invariants(self) -> None:
        """What always holds between turns."""
        self._order.check_invariants(self.operator.opened_at)
        assert self.extent().records >= self.operator.open_parts, "fewer records than windows"

    # --- recovery ----------------------------------------------------------------------------

    @classmethod
    def recover(
        cls,
        operator: StatefulOperator,
        policy: CheckpointPolicy,
        frames: Iterable[Frame],
        emit: Emit = by_port,
    ) -> ContinuousEventualCheckpointing:
        """Rebuild from a log given newest frame first; `operator` is new.

        Deliver input from `position` on; `recovering` tells how long it is a replay.
        """
        self = cls(operator, policy, emit)
        self.load(frames)
        return self

    def load(self, frames: Iterable[Frame]) -> None:
        """Take over what a log holds, given newest frame first; the operator is new."""
        checkpoint = construct(frames)
        if checkpoint is None:
            return
        slots = self.operator.restore(
            checkpoint.openings,
            checkpoint.snapshots,
            clock=checkpoint.clock,
            late_tuples=checkpoint.late_tuples,
        )
        ids = np.concatenate([checkpoint.openings.ids, checkpoint.snapshots.ids])
        times = np.concatenate([checkpoint.openings.applied, checkpoint.snapshots.applied])
        footprints = Footprints(slots, ids, checkpoint.footprint_records, times)
        self._order.restore(footprints, checkpoint.extent_records)
        self._frame_starts = deque(checkpoint.frame_starts)
        self._turns = deque(checkpoint.turns)
        self.position = self._replay_from(checkpoint.oldest_time)
        self._replay_through = self._recorded = checkpoint.time
        if not self.recovering:
            self.operator.end_replay()

    @property
    def recovering(self) -> bool:
        """Whether the next input is a replay of turns that the log has already."""
        return self.position <= self._replay_through

    @property
    def replay_through(self) -> int:
        """The last position whose effects the log has: tc."""
        return self._replay_through

    def replay(self, event: StreamEvent) -> StreamEvent | None:
        """Bring restored windows up to date; what of the stream event the log does not have yet."""
        self._check_next(event)
        past, live = event, None
        if event.end > self._replay_through + 1:
            self._check_divisible(event)
            past, live = event.split(self._replay_through + 1)
        # What replayed input says of time may not stand where it stood; the log knows what counts.
        self.operator.replay(past.without_watermark())
        self.position = past.end
        if self.recovering:
            return None
        self.operator.end_replay()
        if live is None:
            # The watermark behind the last replayed tuple may or may not have been applied
            # before the crash; applying it again changes nothing.
            nothing = event.batch.slice(0, 0)
            live = StreamEvent(past.end, nothing, event.watermark, port=event.port)
        return None if live.end == live.start and live.watermark is None else live

    def _check_divisible(self, event: StreamEvent) -> None:
        if not self.operator.divisible:
            raise ReplayMismatch(
                f"the log ends at input position {self._replay_through}, inside the stream event "
                f"from {event.start} to {event.end}: the input was cut differently before the "
                "crash; deliver stream events as they were, or filter in a fragment of its own"
            )
