"""Holding: a turn's record goes to its keeper, and its output leaves when the keeper has it.

What always holds: nothing is forwarded whose record is not kept, unless the approach lets output
leave at once; upstreams keep what a recovery
from the records would ask for again; the keeper keeps what a recovery or a consumer would read.
Who keeps records is up to those who derive from this.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import ClassVar, Final, NamedTuple

from rewake.log.frame import SectionKind, TurnRecord
from rewake.log.results import result_sections
from rewake.node.channels.input_merge import Taken
from rewake.node.channels.packets import punctuation_section
from rewake.node.channels.producers import Note
from rewake.node.commands import Acknowledge, NodeCommand
from rewake.node.frame_marks import FrameMarks
from rewake.node.messages import Ack, Packet
from rewake.node.protocols.protocol import LogSoFar, Shell
from rewake.node.protocols.under_approach import UnderApproach
from rewake.recovery.approach import Release, Turn

__all__ = ["Holding"]

# What a node remembers grows neither with its turns nor with how far a subscriber is behind.
_MOST_UNWRITTEN: Final = 1024


class _Pending(NamedTuple):
    """A turn whose record is on its way to its keeper."""

    sequence: int
    end: int
    bytes: int
    packets: list[Packet] | None
    # What recovery would need after this turn: input from here on, frames from here on.
    needs: tuple[list[int], int] | None
    note: Note | None
    # What leaves behind it, on a cycle.
    token: int | None = None


class Holding(UnderApproach):
    """Has records kept before it forwards."""

    repeats: ClassVar[bool] = True

    def __init__(self, shell: Shell, past: LogSoFar) -> None:
        super().__init__(shell, past)
        self.sequence = past.next_sequence
        self._kept_end = self.end
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        # Whether output leaves before its record is kept.
        self._at_once = shell.plan.approach.release is Release.AT_ONCE
        # What is said behind the output of a turn, by the sequence of its record.
        self._markers: deque[tuple[int, bytes]] = deque()
        self._frame_marks = FrameMarks()

    @classmethod
    def first_position(cls, epoch: int, past: LogSoFar) -> int:  # noqa: ARG003
        """Where the records go on."""
        return past.next_position

    # --- turns -------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Not too much is on its way to the keeper."""
        limits = self.shell.limits
        return (
            self._pending_bytes < limits.pending_bytes
            and len(self._pending) < limits.pending_frames
        )

    @property
    def busy(self) -> bool:
        """Whether the record of a turn is not kept yet."""
        return bool(self._pending)

    def turn(self, taken: Taken, now_ms: float, note: Note | None) -> list[NodeCommand]:
        """Write down what the turn gives, or which token leaves behind all that went before."""
        if taken.channel is None and taken.token is not None:
            return self._append(self.recovery.bare_record(), None, None, taken.token)
        return super().turn(taken, now_ms, note)

    def _leave(
        self, turn: Turn, rows: int, watermark: int | None, note: Note | None
    ) -> list[NodeCommand]:
        record = turn.record
        noted = note is not None or self._much_unwritten
        if record is None and (rows or watermark is not None or noted):
            record = self.recovery.bare_record()
            sections = (*record.sections, *result_sections(turn.outputs))
            record = record._replace(tuples=rows, sections=sections)
        return [] if record is None else self._append(record, watermark, note)

    @property
    def _much_unwritten(self) -> bool:
        """Whether so many turns in a row left no record that their order needs one."""
        unwritten = self.shell.merge.unwritten
        return unwritten >= _MOST_UNWRITTEN and not self.recovery.recovering

    def _append(
        self,
        record: TurnRecord,
        watermark: int | None,
        note: Note | None,
        token: int | None = None,
    ) -> list[NodeCommand]:
        sections = list(record.sections)
        determinants = self.shell.merge.section()
        if determinants is not None:
            sections.append(determinants)
        if self.shell.producers is not None:
            sections.append(self.shell.producers.section())
        if watermark is not None:
            sections.append(punctuation_section(watermark))
        record = record._replace(sections=tuple(sections))
        start, self.end = self.end, self.end + record.tuples
        packets = None
        if record.tuples or watermark is not None:
            packets = self._packets_of(record, start, watermark)
        size = sum(len(section.payload) for section in sections)
        sequence, self.sequence = self.sequence, self.sequence + 1
        needs = self.needs() if sequence % self.shell.limits.turns_per_trim == 0 else None
        left: list[NodeCommand] = []
        if self._at_once and packets is not None:
            left, packets = self.shell.outputs.offer(packets, sequence), None
        self._pending.append(_Pending(sequence, self.end, size, packets, needs, note, token))
        self._pending_bytes += size
        return [*left, *self._hand_over(sequence, start, record)]

    @abstractmethod
    def _hand_over(self, sequence: int, position: int, record: TurnRecord) -> list[NodeCommand]:
        """Give a record to its keeper; `position` is that of its first output tuple."""

    def _packets_of(self, record: TurnRecord, start: int, watermark: int | None) -> list[Packet]:
        packets = [Packet(start, self.end, 0, watermark)] * len(self.shell.plan.outputs)
        for kind, payload, output in record.sections:
            if kind == SectionKind.RESULTS:
                packets[output] = Packet(start, self.end, -1, watermark, payload)
        return packets

    # --- what is kept ------------------------------------------------------------------------

    def _forward(self, before: int) -> list[NodeCommand]:
        """Records before this sequence are kept: their output may go, and what only they needed."""
        commands: list[NodeCommand] = []
        notes: list[Note] = []
        needs = None
        while self._pending and self._pending[0].sequence < before:
            turn = self._pending.popleft()
            self._pending_bytes -= turn.bytes
            self._kept_end = turn.end
            if turn.packets is not None:
                commands += self.shell.outputs.offer(turn.packets, turn.sequence)
            if turn.token is not None:
                commands += self.shell.outputs.tell(turn.token)
            while self._markers and self._markers[0][0] <= turn.sequence:
                commands += super()._mark(self._markers.popleft()[1])
            if turn.note is not None:
                notes.append(turn.note)
            if turn.needs is not None:
                needs = turn.needs
                self._frame_marks.put(turn.end, turn.sequence + 1)
        commands += self._tell_producers(notes)
        return commands if needs is None else commands + self.release(*needs)

    def _mark(self, words: bytes) -> list[NodeCommand]:
        """Behind output that waits for its record, it waits, too."""
        if not self._pending:
            return super()._mark(words)
        self._markers.append((self._pending[-1].sequence, words))
        return []

    @property
    def durable_end(self) -> int:
        """Where the output ends whose records are kept."""
        return self._kept_end

    def tick(self, now_ms: float) -> list[NodeCommand]:  # noqa: ARG002
        """Say what is not needed, if nothing on its way will."""
        if self._pending or self.recovery.recovering:
            return []
        if self._frame_marks.last != self.sequence:
            self._frame_marks.put(self.end, self.sequence)
        return self.release(*self.needs())

    def needs(self) -> tuple[list[int], int]:
        """What a recovery would need now: input from here on, frames from here on."""
        inputs = self.shell.merge.needed(self.recovery.acknowledged + 1)
        frames = self.recovery.frames_needed
        if self.shell.producers is not None:
            frames = max(frames, self.shell.producers.frames_needed)
        return inputs, self.sequence - frames

    def release(self, inputs: list[int], own_frames: int) -> list[NodeCommand]:
        """Tell upstream what is not needed any more, and have what nobody needs forgotten."""
        self.needed = inputs
        merge = self.shell.merge
        commands: list[NodeCommand] = [
            Acknowledge(channel, Ack(merge.consumed(channel), needed))
            for channel, needed in enumerate(inputs)
        ]
        before = self._frame_marks.trimmable(self.shell.outputs.needed(), own_frames)
        return commands + self._forget(before) if before else commands

    @abstractmethod
    def _forget(self, before: int) -> list[NodeCommand]:
        """Nobody needs what was recorded before this sequence any more."""

    # --- for people and tests ----------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """What is on its way to the keeper."""
        return self._pending_bytes

    @property
    def remembered(self) -> int:
        """Where frames end."""
        return len(self._frame_marks)

    def check_invariants(self) -> None:
        """What always holds between events."""
        assert self._pending_bytes == sum(turn.bytes for turn in self._pending)
