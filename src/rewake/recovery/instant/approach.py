"""Instant checkpoints: the whole state at once, every so often (checkpoint-rollback, CEC I-II).

The baseline that the CEC paper argues with.  Every `every_tuples` input tuples, or `every_turns`
turns, the state of all parts goes into the turn's frame, in one with the results, so that state and
output position cannot disagree.  With `full_every` above 1 only every so many checkpoints are full;
those between are deltas: the parts that changed since the last checkpoint, and the ids of those
that ended.  Between checkpoints a turn leaves its results and nothing else.

    CHECKS     of a checkpoint: parts, as in continuous eventual checkpointing
    CLOSED     of a delta: parts of the last checkpoint that have ended
    METADATA   column 0: what the frame is (0 results, 1 full, 2 delta), late tuples so far;
               column 1: tuples so far, by output

Recovery: read backwards to the newest full checkpoint, put the deltas on top, load, and process
input again from there.  What it emits up to tc is in the log already and is dropped; that it is as
much as the log has, on each output, is checked, so nothing can be emitted twice or get lost.

Watermarks are repeated from the log, which has a frame for each that moved the clock; what comes
with replayed input is not listened to.  An idle source may not say it again, and where channels
meet, time is that of the one behind: their tuples meet again in the order that was recorded, but
what each says of time between them may come earlier or later than it did.  (Ticks of the
machine's clock are input like tuples: they have positions, and come again.)

The host's duties are those of the package; a checkpoint is one frame, so its size is limited by
that of a frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.log.results import result_sections
from rewake.model.errors import ReplayMismatch, UsageError
from rewake.model.given import check_whole
from rewake.model.stream_event import StreamEvent
from rewake.operators.columns.arrays import Int32s
from rewake.operators.stateful import NO_SLOTS, Outcome, StatefulOperator
from rewake.operators.stateless import StatelessOperator
from rewake.recovery.approach import (
    NOTHING,
    Approach,
    Emissions,
    Emit,
    Keeper,
    Kept,
    Recovery,
    Turn,
    by_port,
    register,
    rows_in,
)
from rewake.recovery.eventual.reading import pack_parts
from rewake.recovery.instant.part_changes import PartChanges
from rewake.recovery.instant.reading import (
    DELTA,
    FULL,
    RESULTS_ONLY,
    CheckpointMark,
    FoundCheckpoint,
    search,
)


@register
@dataclass(frozen=True)
class Instant(Approach):
    """A checkpoint of everything every so many tuples or turns; a crash never shows in the output.

    At least one of `every_tuples` and `every_turns` must be given; whichever is due first counts.
    """

    name: ClassVar[str] = "instant"
    keeper: ClassVar[Keeper] = Keeper.LOG
    retains: ClassVar[Kept] = Kept.IN_LOG
    repeats_turns: ClassVar[bool] = True

    every_tuples: int | None = 100_000
    every_turns: int | None = None
    full_every: int = 1

    def __post_init__(self) -> None:
        for name in ("every_tuples", "every_turns", "full_every"):
            if (given := getattr(self, name)) is not None or name == "full_every":
                check_whole(f"Instant: {name}", given)
        periods = [each for each in (self.every_tuples, self.every_turns) if each is not None]
        if not periods or min(periods) < 1 or self.full_every < 1:
            raise UsageError(
                f"instant checkpoints every {self.every_tuples} tuples or {self.every_turns} "
                f"turns, every {self.full_every}th of them full: give at least one period, and "
                "positive numbers"
            )

    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:
        """Load the newest checkpoint, if there is one."""
        return InstantCheckpointing.recover(operator, self, frames, emit)

    def late_tuples_in(self, frame: Frame) -> int:
        """How many tuples had come too late when this frame was written."""
        return CheckpointMark.of(frame).late_tuples


class InstantCheckpointing(Recovery):
    """One operator under instant checkpoints, driven turn by turn by a host."""

    def __init__(self, operator: StatefulOperator, settings: Instant, emit: Emit = by_port) -> None:
        self.operator = operator
        self._settings = settings
        self._emit = emit
        self._changes = PartChanges(operator)
        # What a record is when no checkpoint is due.  Nothing is all there is of a state without
        # parts: every record is a checkpoint of it, and no input is ever asked for again.
        self._least = FULL if isinstance(operator, StatelessOperator) else RESULTS_ONLY
        # The next input position; while recovering, replay lasts through this one.
        self.position = 0
        self._replay_through = -1
        # Of the last checkpoint: its input time, and how many deltas it is behind a full one.
        self._checkpointed = -1
        self._deltas = -1
        # Since the last checkpoint; and whether somebody wants one now.
        self._tuples = self._turns = 0
        self._asked = False
        # Since the last full checkpoint, it included: what a recovery would read.
        self._frames = self._records = 0
        # Tuples emitted so far, by output.
        self._emitted = np.zeros(0, np.int64)
        # While replaying: what the log says beyond the checkpoint, and where it says something.
        self._log: FoundCheckpoint | None = None
        self._borders: deque[int] = deque()

    # --- the normal path ---------------------------------------------------------------------

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """Process the next stream event, or replay it if the log has its effects already."""
        assert event.start == self.position, (
            f"the stream event at {event.start} is not the next one: {self.position}"
        )
        if self.recovering:
            return self._replay(event, now_ms)
        before = self.operator.clock
        outputs = self._process(event)
        self._turns += 1
        kind = self._due()
        told = event.watermark is not None and not event.is_tick and self.operator.clock > before
        if not outputs and not told and kind == self._least:
            return NOTHING
        record, checks = self._record(kind, outputs)
        return Turn(record, outputs, checks)

    def _process(self, event: StreamEvent) -> Emissions:
        outcome = self.operator.process(event)
        self.position = event.end
        self._tuples += int(event.batch.num_rows)
        return self._take(outcome)

    def _take(self, outcome: Outcome) -> Emissions:
        if self._settings.full_every > 1:
            self._changes.note(outcome)
        outputs = self._emit(outcome)
        for output, batch in outputs:
            if output >= self._emitted.size:
                self._emitted = np.pad(self._emitted, (0, output + 1 - self._emitted.size))
            self._emitted[output] += batch.num_rows
        return outputs

    def ask(self) -> None:
        """Have the next turn leave a checkpoint."""
        self._asked = True

    def whole(self) -> TurnRecord:
        """A full checkpoint of the moment, which is no turn's."""
        return self._record(FULL, ())[0]

    def _due(self) -> int:
        settings = self._settings
        tuples_due = settings.every_tuples is not None and self._tuples >= settings.every_tuples
        turns_due = settings.every_turns is not None and self._turns >= settings.every_turns
        if self._least == FULL or not (tuples_due or turns_due or self._asked):
            return self._least
        first = self._deltas < 0
        return FULL if first or self._deltas + 1 >= settings.full_every else DELTA

    def _record(self, kind: int, outputs: Emissions) -> tuple[TurnRecord, int]:
        sections, checked = result_sections(outputs), NO_SLOTS
        if kind != RESULTS_ONLY:
            checked = self._checkpoint(kind, sections)
        numbers = np.array([kind, self.operator.late_tuples], np.int64)
        sections.append(CheckpointMark.section(numbers, self._emitted))
        tuples = rows_in(outputs)
        self._frames += 1
        record = TurnRecord(
            t_end=self.position - 1,
            timestamp=self.operator.clock,
            open_windows=self.operator.open_parts,
            tuples=tuples,
            records=tuples + checked.size,
            sections=tuple(sections),
        )
        return record, checked.size

    def _checkpoint(self, kind: int, sections: list[Section]) -> Int32s:
        operator, t_end = self.operator, self.position - 1
        changed, ended = self._changes.since(self._checkpointed)
        checked = changed
        if kind == FULL:
            checked = np.flatnonzero(operator.opened_at >= 0).astype(np.int32)
            self._frames = self._records = 0
        elif ended.size:
            sections.append(Section(SectionKind.CLOSED, pack_parts(ended, t_end, [])))
        if checked.size:
            columns = operator.snapshot_columns(checked)
            parts = pack_parts(operator.ids_of(checked), t_end, columns)
            sections.append(Section(SectionKind.CHECKS, parts))
        self._changes.forget()
        self._checkpointed, self._records = t_end, self._records + checked.size
        self._deltas = 0 if kind == FULL else self._deltas + 1
        self._tuples = self._turns = 0
        self._asked = False
        return checked

    def bare_record(self) -> TurnRecord:
        """A record that says no more than that input up to `position` has been consumed."""
        assert not self.recovering, "the log has a record of this time already"
        return self._record(self._least, ())[0]

    # --- what the host may know --------------------------------------------------------------

    @property
    def acknowledged(self) -> int:
        """The input time of the last checkpoint."""
        return self._checkpointed

    @property
    def frames_needed(self) -> int:
        """The frames since the last full checkpoint, it included."""
        return self._frames

    def progress(self) -> dict[str, float]:
        """Figures for people: open windows, parts to load, tuples to process again."""
        return {
            "open_windows": self.operator.open_parts,
            "extent_records": self._records,
            "replay_tuples": self.position - 1 - self._checkpointed,
        }

    def check_invariants(self) -> None:
        """What always holds between turns."""
        assert self._checkpointed < self.position, "a checkpoint of the future"
        assert self._checkpointed < 0 or self._frames > 0, "a checkpoint without a frame"

    # --- recovery ----------------------------------------------------------------------------

    @classmethod
    def recover(
        cls,
        operator: StatefulOperator,
        settings: Instant,
        frames: Iterable[Frame],
        emit: Emit = by_port,
    ) -> InstantCheckpointing:
        """Rebuild from a log given newest frame first; `operator` is new."""
        self = cls(operator, settings, emit)
        found = search(frames)
        if found is not None:
            self._load(found)
        return self

    def _load(self, found: FoundCheckpoint) -> None:
        if found.checkpoint is not None:
            point = found.checkpoint
            self.operator.restore(
                found.openings, found.snapshots, clock=point.clock, late_tuples=point.late_tuples
            )
            self.operator.end_replay()
            self._emitted = point.emitted.copy()
            self._checkpointed, self._deltas = point.time, found.deltas
        self._records, self._frames = found.records, found.frames
        self.position = self._checkpointed + 1
        self._replay_through = found.newest.time
        self._log = found
        self._borders = deque([*sorted(found.clocks), found.newest.time + 1])
        self._repeat_watermarks()

    @property
    def recovering(self) -> bool:
        """Whether the next input is a replay of turns that the log has already."""
        return self.position <= self._replay_through

    @property
    def replay_through(self) -> int:
        """The last position whose effects the log has: tc."""
        return self._replay_through

    def _repeat_watermarks(self) -> None:
        """Apply what the log says of time at this position; at tc, see that all is as it was."""
        found = self._log
        assert found is not None, "a replay without a log"
        # One by one: what a watermark sets off may depend on those before it.
        for clock in found.clocks.get(self.position, ()):
            if clock > self.operator.clock:
                self._take(self.operator.punctuate(self.position, clock))
        if not self.recovering:
            self._log = None
            self._check_emitted(found.newest)

    def _check_emitted(self, newest: CheckpointMark) -> None:
        if not np.array_equal(
            np.trim_zeros(self._emitted, "b"), np.trim_zeros(newest.emitted, "b")
        ):
            raise ReplayMismatch(
                f"up to input position {newest.time} the log has {newest.emitted.tolist()} tuples "
                f"by output, but processing the input again gave {self._emitted.tolist()}: it is "
                "not the input the log was written from; replay the original stream, in its order"
            )

    def _replay(self, event: StreamEvent, now_ms: float) -> Turn:
        """Process up to tc again, dropping what it emits; then go on with what is left."""
        rest = event
        while self.recovering:
            border = self._next_border()
            if rest.end < border:
                self._process(rest.without_watermark())
                return NOTHING
            self._check_divisible(rest, border)
            past, rest = rest.split(border)
            self._process(past)
            self._repeat_watermarks()
        if rest.end == rest.start and rest.watermark is None:
            return NOTHING
        return self.turn(rest, now_ms)

    def _next_border(self) -> int:
        """The next position at which the log says something, or the end of what it says."""
        while self._borders[0] <= self.position:
            self._borders.popleft()
        return self._borders[0]

    def _check_divisible(self, event: StreamEvent, border: int) -> None:
        if not self.operator.divisible and event.start < border < event.end:
            raise ReplayMismatch(
                f"a turn of the log ends at input position {border - 1}, inside the stream event "
                f"from {event.start} to {event.end}: the input was cut differently before the "
                "crash; deliver stream events as they were, or filter in a fragment of its own"
            )
