"""The writer of a log as a pure machine: appends in, commands out.

A host feeds it appends and the outcome of commands; it returns the next commands.  The host's
duties: carry out the commands of one answer in order; answer every `Write`, `Sync`, `Rotate`,
`WriteMark` and `Confirm` with `done`, `failed` or `fenced`; never two calls at once.  Commands of
different stripes may be carried out at the same time.

What always holds:

- Group commit: a stripe has one batch in the air; what is appended meanwhile gathers for the next.
- Frames complete in the order of their sequences, over all stripes, and only after `Confirm`.
- `stable`: a frame completes after its sync.  `delayed`: after its write; the sync follows every
  `sync_bytes`, at rotation, `flush` and `close`.
- Disk full loses nothing: the same write is tried again, at the same offset.  Every other failed
  write, and any failed sync, stops the writer for good.

    state    to                        when
    RUNNING  STALLED                   there was no room for a write or a new segment
    STALLED  RUNNING                   the retry succeeded
    either   FAILED, FENCED, CLOSED    a fault, a successor, `close` and all is durable
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rewake.log.commands import (
    Command,
    Complete,
    Confirm,
    Rotate,
    Sync,
    Write,
    WriteIndex,
    WriteMark,
)
from rewake.log.frame import TurnRecord, encode_frame
from rewake.log.index import ENTRY_SIZE, INDEX_INTERVAL, IndexEntry, encode_entry
from rewake.log.layout import SegmentId
from rewake.log.log import AppendPoint
from rewake.log.mark import Frontier, Mark, StripeEnd
from rewake.log.segment import SEGMENT_HEADER_SIZE, SegmentHeader
from rewake.model.errors import Fenced, StorageFull, UsageError, WriterFailed

__all__ = ["Limits", "Mode", "State", "WritePipeline"]


class Mode(Enum):
    """When a frame is complete."""

    STABLE = "stable"
    DELAYED = "delayed"


class State(Enum):
    """Whether frames can complete."""

    RUNNING = "running"
    STALLED = "stalled"
    FAILED = "failed"
    FENCED = "fenced"
    CLOSED = "closed"


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.RUNNING: frozenset({State.STALLED, State.FAILED, State.FENCED, State.CLOSED}),
    State.STALLED: frozenset({State.RUNNING, State.FAILED, State.FENCED, State.CLOSED}),
    State.FAILED: frozenset({State.CLOSED}),
    State.FENCED: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}
_ALIVE: Final = frozenset({State.RUNNING, State.STALLED})


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that trade memory and latency for throughput."""

    batch_bytes: int = 4 << 20
    batch_frames: int = 512  # a positioned vector write takes at most 1024 buffers
    window_bytes: int = 64 << 20
    window_frames: int = 16384
    segment_bytes: int = 64 << 20
    sync_bytes: int = 16 << 20
    index_interval: int = INDEX_INTERVAL


@dataclass(slots=True)
class _Batch:
    """Consecutive frames written to one stripe at once."""

    stripe: int
    first_sequence: int
    frontier: Frontier  # behind the batch; its ends are filled in when it is confirmed
    frames: int
    size: int
    entry: IndexEntry
    end: StripeEnd | None = None
    written: bool = False
    synced: bool = False


@dataclass(slots=True)
class _Stripe:
    """Where a stripe's next bytes go, and what is in the air."""

    number: int
    segment: SegmentId
    offset: int = SEGMENT_HEADER_SIZE
    index_offset: int = 0
    indexed: int = SEGMENT_HEADER_SIZE  # the segment is indexed up to here
    batch: _Batch | None = None
    buffers: Sequence[bytes] = ()
    command: Command | None = None  # in the air; repeated by `retry`
    stalled: bool = False
    dirty: list[_Batch] = field(default_factory=list)
    dirty_bytes: int = 0


class WritePipeline:
    """One writer's frames on their way to being complete."""

    def __init__(
        self, point: AppendPoint, *, mode: Mode = Mode.STABLE, limits: Limits | None = None
    ) -> None:
        self.state = State.RUNNING
        self.epoch = point.epoch
        self.log_id = point.descriptor.log_id
        self.mode = mode
        self.limits = limits or Limits()
        self.durable = point.frontier
        self.completed = point.frontier
        self.next_sequence = point.frontier.sequence
        self.next_position = point.frontier.position
        self.failure: Exception | None = None
        self.closing = False
        self._flushing = False
        self._seal = point.seal
        self._timestamp = point.frontier.timestamp
        self._generation = point.generation
        self._anchors = point.anchors
        self._anchored = point.frontier.ends
        self._pending: deque[tuple[bytes, int, int]] = deque()
        self._formed = point.frontier  # behind the last batch formed
        self._order: deque[_Batch] = deque()  # formed, not yet confirmed
        self._undurable: deque[_Batch] = deque()  # confirmed, not yet known to be durable
        self._asked = point.frontier.sequence
        self._outstanding_bytes = 0
        self._next_stripe = 0
        self._stripes = [
            _Stripe(number, end.segment) for number, end in enumerate(point.frontier.ends)
        ]

    # --- what the host asks ----------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether another append fits the window of outstanding frames."""
        outstanding = self.next_sequence - self.completed.sequence
        return outstanding == 0 or (
            self._outstanding_bytes < self.limits.window_bytes
            and outstanding < self.limits.window_frames
        )

    def encode(self, turn: TurnRecord) -> bytes:
        """The frame that the next `append` takes."""
        return encode_frame(
            turn,
            log_id=self.log_id,
            epoch=self.epoch,
            sequence=self.next_sequence,
            position=self.next_position,
            durable=self.durable.sequence,
        )

    def check_usable(self) -> None:
        """Raise what stands in the way of another append, if anything does."""
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)
        if self.closing or self.state not in _ALIVE:
            raise UsageError("the writer is closed; open the log again to append")

    def check_invariants(self) -> None:
        """What must hold between any two calls."""
        assert self.durable.sequence <= self.completed.sequence <= self._formed.sequence
        assert self._formed.sequence + len(self._pending) == self.next_sequence
        sequences = [batch.first_sequence for batch in (*self._undurable, *self._order)]
        assert sequences == sorted(set(sequences))
        assert (
            sum(batch.size for batch in self._order)
            + sum(len(frame) for frame, _, _ in self._pending)
            == self._outstanding_bytes
        )
        assert (self.state is State.STALLED) == any(s.stalled for s in self._stripes) or (
            self.state not in _ALIVE
        )

    # --- what happens ----------------------------------------------------------------------

    def append(self, frame: bytes, turn: TurnRecord) -> list[Command]:
        """Take the frame that `encode` made of `turn`."""
        self.next_sequence += 1
        self.next_position += turn.tuples
        self._timestamp = max(self._timestamp, turn.timestamp)
        self._outstanding_bytes += len(frame)
        self._pending.append((frame, self.next_position, self._timestamp))
        for stripe in self._stripes:
            if stripe.command is None:
                return self._start()
        return []

    def done(self, command: Command) -> list[Command]:
        """The host has carried out `command`."""
        if self.state not in _ALIVE:
            return []
        match command:
            case Write():
                return self._written(self._stripes[command.stripe])
            case Sync():
                return self._synced(self._stripes[command.stripe])
            case Rotate():
                return self._rotated(self._stripes[command.stripe])
            case Confirm():
                return self._confirmed(command.through)
        return []

    def failed(self, command: Command, error: Exception) -> list[Command]:
        """The host could not carry out `command`."""
        if self.state not in _ALIVE or isinstance(command, WriteIndex):
            return []
        if isinstance(error, StorageFull):
            if isinstance(command, WriteMark) and not command.sync:
                return []  # a mark may lag
            if isinstance(command, Write | Rotate):
                self._stripes[command.stripe].stalled = True
                self._become(State.STALLED)
                return []
        self.failure = WriterFailed(
            f"the writer of epoch {self.epoch} has stopped at sequence {self.completed.sequence}: "
            f"{type(command).__name__} failed ({error}); what was complete is safe, reopen the log "
            "to go on"
        )
        self.failure.__cause__ = error
        self._become(State.FAILED)
        return []

    def retry(self, stripe: int | None = None) -> list[Command]:
        """Try again what found no room, in one stripe or in all."""
        if self.state is not State.STALLED:
            return []
        return [
            s.command
            for s in self._stripes
            if s.stalled and s.command is not None and stripe in (None, s.number)
        ]

    def fenced(self, by: str = "a successor") -> None:
        """The host found that this writer's claim is gone."""
        if self.state not in _ALIVE:
            return
        self.failure = Fenced(
            f"the writer of epoch {self.epoch} was superseded by {by}; frames from sequence "
            f"{self.completed.sequence} on were not completed: append them through the new owner"
        )
        self._become(State.FENCED)

    def flush(self) -> list[Command]:
        """Make everything appended so far durable, whatever the mode."""
        self._flushing = True
        return self._start()

    def close(self) -> list[Command]:
        """Take no more appends; when all is durable, write the last mark and become CLOSED."""
        self.closing = True
        if self.state not in _ALIVE:
            self._become(State.CLOSED)
            return []
        return self.flush()

    # --- transitions of one stripe ---------------------------------------------------------

    def _start(self) -> list[Command]:
        """Give idle stripes something to do."""
        commands: list[Command] = []
        for _ in self._stripes:
            stripe = self._stripes[self._next_stripe]
            if stripe.command is None:
                commands += self._feed(stripe)
            if stripe.command is None:
                break
            self._next_stripe = (self._next_stripe + 1) % len(self._stripes)
            if not self._pending:
                break
        return commands or self._finish()

    def _feed(self, stripe: _Stripe) -> list[Command]:
        if self.state is not State.RUNNING:
            return []
        if self._pending:
            self._form_batch(stripe)
            return self._launch(stripe)
        return []

    def _finish(self) -> list[Command]:
        """With nothing left to write: sync what is dirty, and close when that is done."""
        if self._pending or self.state is not State.RUNNING or not self._flushing:
            return []
        commands = [
            self._in_air(stripe, Sync(stripe.number, stripe.segment.name))
            for stripe in self._stripes
            if stripe.command is None and stripe.dirty
        ]
        idle = not self._order and not any(s.command or s.dirty for s in self._stripes)
        if not commands and idle and self.durable.sequence == self.next_sequence:
            self._flushing = False
            if self.closing:
                self._asked = self.next_sequence
                return [Confirm(self.next_sequence)]
        return commands

    def _form_batch(self, stripe: _Stripe) -> None:
        entry = IndexEntry(*self._formed[:3], 0)
        buffers: list[bytes] = []
        size = 0
        position, timestamp = 0, 0
        while self._pending and len(buffers) < self.limits.batch_frames:
            if buffers and size + len(self._pending[0][0]) > self.limits.batch_bytes:
                break
            frame, position, timestamp = self._pending.popleft()
            buffers.append(frame)
            size += len(frame)
        sequence = self._formed.sequence + len(buffers)
        self._formed = Frontier(sequence, position, timestamp, ())
        batch = _Batch(stripe.number, entry.sequence, self._formed, len(buffers), size, entry)
        self._order.append(batch)
        stripe.batch, stripe.buffers = batch, buffers

    def _launch(self, stripe: _Stripe) -> list[Command]:
        """Write the stripe's batch, after a rotation if the segment is full."""
        assert stripe.batch is not None
        if stripe.offset < self.limits.segment_bytes or stripe.offset == SEGMENT_HEADER_SIZE:
            write = Write(stripe.number, stripe.segment.name, stripe.offset, stripe.buffers)
            return [self._in_air(stripe, write)]
        if stripe.dirty:
            return [self._in_air(stripe, Sync(stripe.number, stripe.segment.name))]
        entry = stripe.batch.entry
        segment = SegmentId(entry.sequence, self.epoch)
        header = SegmentHeader(
            log_id=self.log_id,
            stripe=stripe.number,
            id=segment,
            position=entry.position,
            timestamp=entry.timestamp,
            seal=self._seal,
            previous=stripe.segment,
            previous_end=stripe.offset,
        )
        rotate = Rotate(stripe.number, segment.name, segment.index_name, header.encode())
        return [self._in_air(stripe, rotate)]

    def _in_air(self, stripe: _Stripe, command: Command) -> Command:
        stripe.command = command
        return command

    def _landed(self, stripe: _Stripe) -> None:
        stripe.command = None
        if stripe.stalled:
            stripe.stalled = False
            if not any(other.stalled for other in self._stripes):
                self._become(State.RUNNING)

    def _rotated(self, stripe: _Stripe) -> list[Command]:
        self._landed(stripe)
        assert stripe.batch is not None
        stripe.segment = SegmentId(stripe.batch.first_sequence, self.epoch)
        stripe.offset = stripe.indexed = SEGMENT_HEADER_SIZE
        stripe.index_offset = 0
        return self._launch(stripe)

    def _written(self, stripe: _Stripe) -> list[Command]:
        self._landed(stripe)
        batch = stripe.batch
        assert batch is not None
        commands = self._index(stripe, batch)
        stripe.offset += batch.size
        batch.end = StripeEnd(stripe.segment, stripe.offset)
        batch.written = True
        stripe.batch, stripe.buffers = None, ()
        stripe.dirty.append(batch)
        stripe.dirty_bytes += batch.size
        if self.mode is Mode.STABLE or stripe.dirty_bytes >= self.limits.sync_bytes:
            commands.append(self._in_air(stripe, Sync(stripe.number, stripe.segment.name)))
        if self.mode is Mode.DELAYED:
            commands = self._confirmations() + commands + self._start()
        return commands

    def _index(self, stripe: _Stripe, batch: _Batch) -> list[Command]:
        if stripe.offset - stripe.indexed < self.limits.index_interval:
            return []
        entry = encode_entry(
            batch.entry._replace(offset=stripe.offset), log_id=self.log_id, epoch=self.epoch
        )
        command = WriteIndex(stripe.number, stripe.segment.index_name, stripe.index_offset, entry)
        stripe.index_offset += ENTRY_SIZE
        stripe.indexed = stripe.offset
        return [command]

    def _synced(self, stripe: _Stripe) -> list[Command]:
        self._landed(stripe)
        for batch in stripe.dirty:
            batch.synced = True
        stripe.dirty.clear()
        stripe.dirty_bytes = 0
        # A batch that was waiting for this sync to rotate goes first.
        waiting = self._launch(stripe) if stripe.batch is not None else []
        return self._confirmations() + waiting + self._start()

    # --- completion ------------------------------------------------------------------------

    def _confirmations(self) -> list[Command]:
        """Ask for confirmation of every batch up to the first that is not there yet."""
        through = self._asked
        for batch in self._order:
            if not (batch.synced or (batch.written and self.mode is Mode.DELAYED)):
                break
            through = max(through, batch.frontier.sequence)
        durable = any(batch.synced for batch in self._undurable)
        if through == self._asked and not durable:
            return []
        self._asked = through
        return [Confirm(through)]

    def _confirmed(self, through: int) -> list[Command]:
        before = self.completed.sequence
        while self._order and self._order[0].frontier.sequence <= through:
            batch = self._order.popleft()
            self._outstanding_bytes -= batch.size
            self.completed = _behind(self.completed, batch)
            self._undurable.append(batch)
        while self._undurable and self._undurable[0].synced:
            self.durable = _behind(self.durable, self._undurable.popleft())
        commands: list[Command] = [self._mark()]
        if self.completed.sequence > before:
            commands.append(Complete(self.completed.sequence))
        if self._flushing:
            commands += self._finish()
        elif self.closing and self.durable.sequence == self.next_sequence:
            self._become(State.CLOSED)
        return commands

    def _mark(self) -> WriteMark:
        """A mark; an anchor when it is the first to name a segment, and when closing."""
        segments = [end.segment for end in self.durable.ends]
        anchor = segments != [end.segment for end in self._anchored]
        anchor = anchor or (self.closing and self.durable.sequence == self.next_sequence)
        if anchor:
            self._anchors += 1
            self._anchored = self.durable.ends
        else:
            self._generation += 1
        mark = Mark(
            self.log_id, self.epoch, self._generation, self._anchors, self.durable, self.completed
        )
        return WriteMark(mark.slot(anchor=anchor), mark.encode(), anchor)

    def _become(self, state: State) -> None:
        if state is not self.state:
            assert state in TRANSITIONS[self.state], (self.state, state)
            self.state = state


def _behind(frontier: Frontier, batch: _Batch) -> Frontier:
    assert batch.end is not None
    sequence, position, timestamp, _ = batch.frontier
    if len(frontier.ends) == 1:
        return Frontier(sequence, position, timestamp, (batch.end,))
    ends = (*frontier.ends[: batch.stripe], batch.end, *frontier.ends[batch.stripe + 1 :])
    return Frontier(sequence, position, timestamp, ends)
