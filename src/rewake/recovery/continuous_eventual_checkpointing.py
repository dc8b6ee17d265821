"""Continuous eventual checkpointing (CEC): a stateful operator whose output log is its checkpoint.

Normal path, per turn: opened windows leave an OPEN, closed ones their RESULT, and old ones a CHECK
when the policy says so; all of it goes into one frame, which also says how many windows are open
(N).  A window that opens and closes in one turn leaves only its RESULT; a turn that only updates
open windows leaves nothing.

Recovery: construct the eventual checkpoint, load it, replay input after T.  A replayed tuple at
time t that belongs to window w is applied when t > t_w if w is in the checkpoint, and only when
t > tc if it is not; until tc nothing is emitted, so nothing can be emitted twice.

The host must, in this order: append the record of a turn to the log; when it is durable, forward
the results.  After a crash: read the log backwards for `recover`, then deliver input from
`position` on.  Input at or before `acknowledged` will never be asked for again, once the turn's
record is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.log.columns import pack_columns
from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import StreamEvent
from rewake.operators.arrays import Int32s
from rewake.operators.stateful import Outcome, StatefulOperator
from rewake.recovery.eventual_checkpoint import EventualCheckpoint, construct, pack_parts
from rewake.recovery.footprint_order import FootprintOrder, Footprints
from rewake.recovery.policies.policy import CheckpointPolicy, Extent

RESULTS_OUTPUT, LATE_OUTPUT = 0, 1
_MANY_FRAMES = 65_536


class Turn(NamedTuple):
    """What a turn yields: the record to append (None: nothing to persist), and what to forward."""

    record: TurnRecord | None
    results: pa.RecordBatch | None
    late: pa.RecordBatch | None
    checks: int


_NOTHING = Turn(None, None, None, 0)


class ContinuousEventualCheckpointing:
    """One operator under CEC, driven turn by turn by a host."""

    def __init__(self, operator: StatefulOperator, policy: CheckpointPolicy) -> None:
        self.operator = operator
        self._policy = policy
        self._order = FootprintOrder(operator.ids_of)
        # The next input position; while recovering, replay lasts through this one.
        self.position = 0
        self._replay_through = -1
        # The input time of the last turn that left a record.
        self._recorded = -1
        # The record number at which each frame since the oldest needed one starts.
        self._frame_starts: deque[int] = deque()
        self._most_frames = _MANY_FRAMES

    # --- the normal path ---------------------------------------------------------------------

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """Process the next stream event, or replay it if the log has its effects already."""
        assert event.position == self.position, (
            f"the stream event at {event.position} is not the next one: {self.position}"
        )
        if self.recovering:
            return self._replay(event, now_ms)
        outcome = self.operator.process(event)
        self.position = event.end
        return self._footprints(outcome, now_ms)

    def _footprints(self, outcome: Outcome, now_ms: float) -> Turn:
        order, t_end = self._order, self.position - 1
        first_record = order.records
        results = outcome.results.num_rows if outcome.results is not None else 0
        order.results(results)
        order.opened(outcome.opened_slots, outcome.opened_ids)
        order.forget_dead(self.operator.open_parts)
        checked = self._policy.checks(self.extent(now_ms))
        if checked.size:
            order.checked(checked, self.operator.ids_of(checked), t_end)
        sections = self._sections(outcome, checked, t_end)
        if not sections:
            return _NOTHING
        self._note_frame(first_record)
        self._recorded = t_end
        record = TurnRecord(
            t_end=t_end,
            timestamp=self.operator.clock,
            open_windows=self.operator.open_parts,
            tuples=results,
            records=order.records - first_record,
            sections=tuple(sections),
        )
        return Turn(record, outcome.results, outcome.late, checked.size)

    def _note_frame(self, first_record: int) -> None:
        self._frame_starts.append(first_record)
        # A host that never asks which frames are needed must not pay for it with memory.
        if len(self._frame_starts) > self._most_frames:
            self._most_frames = 2 * self.frames_needed + _MANY_FRAMES

    def _sections(self, outcome: Outcome, checked: Int32s, t_end: int) -> list[Section]:
        sections = []
        if outcome.results is not None:
            results = outcome.results.serialize().to_pybytes()
            sections.append(Section(SectionKind.RESULTS, results))
        if outcome.late is not None:
            late = outcome.late.serialize().to_pybytes()
            sections.append(Section(SectionKind.RESULTS, late, LATE_OUTPUT))
        if outcome.opened_slots.size:
            columns = self.operator.opening_columns(outcome.opened_slots)
            opens = pack_parts(outcome.opened_ids, t_end, columns)
            sections.append(Section(SectionKind.OPENS, opens))
        if checked.size:
            ids = self.operator.ids_of(checked)
            checks = pack_parts(ids, t_end, self.operator.snapshot_columns(checked))
            sections.append(Section(SectionKind.CHECKS, checks))
        if outcome.ended_ids.size:
            sections.append(Section(SectionKind.CLOSED, pack_parts(outcome.ended_ids, t_end, [])))
        if sections and self.operator.late_tuples:
            total = np.array([self.operator.late_tuples], np.int64)
            sections.append(Section(SectionKind.METADATA, pack_columns([total])))
        return sections

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
        return self._order.oldest_time(self._recorded)

    @property
    def frames_needed(self) -> int:
        """How many of the newest frames recovery would read; older ones may be trimmed.

        The newest frame is always needed: it says how many windows are open.
        """
        oldest = self._order.oldest_record()
        while len(self._frame_starts) > 1 and self._frame_starts[1] <= oldest:
            self._frame_starts.popleft()
        return len(self._frame_starts)

    def check_invariants(self) -> None:
        """What always holds between turns."""
        self._order.check_invariants(self.operator.opened_at)
        assert self.extent().records >= self.operator.open_parts, "fewer records than windows"

    # --- recovery ----------------------------------------------------------------------------

    @classmethod
    def recover(
        cls, operator: StatefulOperator, policy: CheckpointPolicy, frames: Iterable[Frame]
    ) -> ContinuousEventualCheckpointing:
        """Rebuild from a log given newest frame first; `operator` is new.

        Deliver input from `position` on; `recovering` tells how long it is a replay.
        """
        self = cls(operator, policy)
        checkpoint = construct(frames)
        if checkpoint is not None:
            self._load(checkpoint)
        return self

    def _load(self, checkpoint: EventualCheckpoint) -> None:
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
        self.position = checkpoint.oldest_time + 1
        self._replay_through = self._recorded = checkpoint.time
        if not self.recovering:
            self.operator.end_replay()

    @property
    def recovering(self) -> bool:
        """Whether the next input is a replay of turns that the log has already."""
        return self.position <= self._replay_through

    def _replay(self, event: StreamEvent, now_ms: float) -> Turn:
        past, live = event, None
        if event.end > self._replay_through + 1:
            past, live = event.split(self._replay_through + 1)
        self.operator.replay(past)
        self.position = past.end
        if self.recovering:
            return _NOTHING
        self.operator.end_replay()
        if live is None:
            # The watermark behind the last replayed tuple may or may not have been applied
            # before the crash; applying it again changes nothing.
            live = StreamEvent(past.end, event.batch.slice(0, 0), event.watermark)
        if live.batch.num_rows == 0 and live.watermark is None:
            return _NOTHING
        return self.turn(live, now_ms)


def result_batch(
    frame: Frame, schema: pa.Schema, output: int = RESULTS_OUTPUT
) -> pa.RecordBatch | None:
    """The tuples a frame emitted on an output, or None."""
    payload = frame.section(SectionKind.RESULTS, output)
    if payload is None:
        return None
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError, KeyError) as error:
        raise DamagedFrame(
            f"the results of frame {frame.sequence} are not a batch of the log's schema: {error}"
        ) from error
    return batch
