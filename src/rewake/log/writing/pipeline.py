"""The writer of a log as a pure machine: appends in, commands out.

A host feeds it appends and the outcome of commands; it returns the next commands.  The host's
duties: carry out the commands of one answer in order; answer each with `done`, `failed` or (for a
`Confirm`) `fenced`; forget those that are left once there is a `failure`; never two calls at once.
Commands of different stripes may be carried out at the same time.

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

from rewake.log.files.index import ENTRY_SIZE, IndexEntry, encode_entry
from rewake.log.files.layout import SegmentId
from rewake.log.files.mark import Frontier, Mark, StripeEnd
from rewake.log.files.segment import SEGMENT_HEADER_SIZE, SegmentHeader
from rewake.log.frame import TurnRecord, frame_parts
from rewake.log.log import AppendPoint
from rewake.log.writing.commands import (
    Command,
    Complete,
    Confirm,
    Gather,
    Rotate,
    Sync,
    Write,
    WriteIndex,
    WriteMark,
)
from rewake.log.writing.flight import ALIVE, TRANSITIONS, Batch, Lane, Limits, Mode, Pending, State
from rewake.model.errors import Fenced, StorageFull, UsageError, WriterFailed

__all__ = ["TRANSITIONS", "Limits", "Mode", "State", "WritePipeline"]


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
        self._tag = point.tag
        self._timestamp = point.frontier.timestamp
        self._generation = point.generation
        self._anchors = point.anchors
        self._anchored = point.frontier.ends
        self._pending: deque[Pending] = deque()
        self._pending_bytes = 0
        self._hurried = False
        self._formed = point.frontier  # behind the last batch formed
        self._order: deque[Batch] = deque()  # formed, not yet confirmed
        self._undurable: deque[Batch] = deque()  # confirmed, not yet known to be durable
        self._asked = point.frontier.sequence
        self._outstanding_bytes = 0
        self._next_lane = 0
        self._lanes = [Lane(number, end.segment) for number, end in enumerate(point.frontier.ends)]

    # --- what the host asks ----------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether another append fits the window of outstanding frames."""
        outstanding = self.next_sequence - self.completed.sequence
        return outstanding == 0 or (
            self._outstanding_bytes < self.limits.window_bytes
            and outstanding < self.limits.window_frames
        )

    @property
    def waiting(self) -> bool:
        """Whether frames are pending that nobody has hurried yet."""
        return bool(self._pending) and not self._hurried

    @property
    def gathered(self) -> bool:
        """Whether a resting stripe should start its next batch now, if it has rested at all."""
        return self._hurried or self.pressed

    @property
    def pressed(self) -> bool:
        """Whether it should do so even if it has not."""
        return (
            self._pending_bytes >= self.limits.gather_bytes
            or self._flushing
            or self.state is not State.RUNNING
            or not self.has_room()
        )

    def encode(self, turn: TurnRecord) -> list[bytes]:
        """The frame that the next `append` takes, in pieces."""
        return frame_parts(
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
            raise type(self.failure)(*self.failure.args) from self.failure.__cause__
        if self.closing or self.state not in ALIVE:
            raise UsageError("the writer is closed; open the log again to append")

    def check_invariants(self) -> None:
        """What must hold between any two calls."""
        assert self.durable.sequence <= self.completed.sequence <= self._formed.sequence
        assert self._formed.sequence + len(self._pending) == self.next_sequence
        assert self._pending_bytes == sum(pending.size for pending in self._pending)
        sequences = [batch.first_sequence for batch in (*self._undurable, *self._order)]
        assert sequences == sorted(set(sequences))
        assert (
            sum(batch.size for batch in self._order) + self._pending_bytes
            == self._outstanding_bytes
        )
        stalled = any(lane.stalled for lane in self._lanes)
        assert self.state not in ALIVE or stalled == (self.state is State.STALLED)

    # --- what happens ----------------------------------------------------------------------

    def append(self, frame: list[bytes], turn: TurnRecord) -> list[Command]:
        """Take the frame that `encode` made of `turn`."""
        size = sum(map(len, frame))
        self.next_sequence += 1
        self.next_position += turn.tuples
        self._timestamp = max(self._timestamp, turn.timestamp)
        self._outstanding_bytes += size
        self._pending.append(Pending(frame, size, self.next_position, self._timestamp))
        self._pending_bytes += size
        for lane in self._lanes:
            if lane.command is None:
                return self._start()
        return []

    def done(self, command: Command) -> list[Command]:
        """The host has carried out `command`."""
        if self.state not in ALIVE:
            return []
        match command:
            case Write():
                return self._written(self._lanes[command.stripe])
            case Sync():
                return self._synced(self._lanes[command.stripe])
            case Rotate():
                return self._rotated(self._lanes[command.stripe])
            case Gather():
                self._landed(self._lanes[command.stripe])
                return self._start()
            case Confirm():
                return self._confirmed(command.through)
            case WriteMark(sync=True) if self._all_durable():
                self._become(State.CLOSED)
        return []

    def failed(self, command: Command, error: BaseException) -> list[Command]:
        """The host could not carry out `command`."""
        if self.state not in ALIVE or isinstance(command, WriteIndex):
            return []
        if isinstance(error, StorageFull):
            if isinstance(command, WriteMark) and not command.sync:
                return []  # a mark may lag: readers see these frames with the next one
            if isinstance(command, Write | Rotate):
                self._lanes[command.stripe].stalled = True
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
            lane.command
            for lane in self._lanes
            if lane.stalled and lane.command is not None and stripe in (None, lane.number)
        ]

    def fenced(self, by: str = "a successor") -> None:
        """The host found that this writer's claim is gone."""
        if self.state not in ALIVE:
            return
        self.failure = Fenced(
            f"the writer of epoch {self.epoch} was superseded by {by}; frames from sequence "
            f"{self.completed.sequence} on were not completed: append them through the new owner"
        )
        self._become(State.FENCED)

    def hurry(self) -> None:
        """Somebody waits for what is pending, or has no more: the next batch is not to gather."""
        self._hurried = bool(self._pending)

    def flush(self) -> list[Command]:
        """Make everything appended so far durable, whatever the mode."""
        self._flushing = True
        return self._start()

    def close(self) -> list[Command]:
        """Take no more appends; when all is durable, write the last mark and become CLOSED."""
        self.closing = True
        if self.state not in ALIVE:
            self._become(State.CLOSED)
            return []
        return self.flush()

    # --- transitions of one lane ---------------------------------------------------------

    def _start(self) -> list[Command]:
        """Give idle lanes something to do."""
        commands: list[Command] = []
        for _ in self._lanes:
            if not self._pending or self.state is not State.RUNNING:
                break
            lane = self._lanes[self._next_lane]
            if lane.command is None:
                self._form_batch(lane)
                commands += self._launch(lane)
            self._next_lane = (self._next_lane + 1) % len(self._lanes)
        return commands or self._finish()

    def _finish(self) -> list[Command]:
        """With nothing left to write: sync what is dirty, and close when that is done."""
        if self._pending or self.state is not State.RUNNING or not self._flushing:
            return []
        commands = [
            self._in_air(lane, Sync(lane.number, lane.segment.name))
            for lane in self._lanes
            if lane.command is None and lane.dirty
        ]
        idle = not self._order and not any(lane.command or lane.dirty for lane in self._lanes)
        if not commands and idle and self.durable.sequence == self.next_sequence:
            self._flushing = False
            if self.closing:
                self._asked = self.next_sequence
                return [Confirm(self.next_sequence)]
        return commands

    def _form_batch(self, lane: Lane) -> None:
        entry = IndexEntry(*self._formed[:3], 0)
        self._hurried = False
        buffers: list[bytes] = []
        frames, size = 0, 0
        while self._pending and frames < self.limits.batch_frames:
            if frames and size + self._pending[0].size > self.limits.batch_bytes:
                break
            last = self._pending.popleft()
            buffers += last.parts
            size += last.size
            frames += 1
        self._pending_bytes -= size
        sequence = self._formed.sequence + frames
        self._formed = Frontier(sequence, last.position, last.timestamp, ())
        batch = Batch(lane.number, entry.sequence, self._formed, frames, size, entry)
        self._order.append(batch)
        lane.batch, lane.buffers = batch, buffers

    def _launch(self, lane: Lane) -> list[Command]:
        """Write the lane's batch, after a rotation if the segment is full."""
        assert lane.batch is not None
        if lane.offset < self.limits.segment_bytes or lane.offset == SEGMENT_HEADER_SIZE:
            write = Write(lane.number, lane.segment.name, lane.offset, lane.buffers)
            return [self._in_air(lane, write)]
        if lane.dirty:
            return [self._in_air(lane, Sync(lane.number, lane.segment.name))]
        entry = lane.batch.entry
        segment = SegmentId(entry.sequence, self.epoch)
        header = SegmentHeader(
            log_id=self.log_id,
            stripe=lane.number,
            id=segment,
            position=entry.position,
            timestamp=entry.timestamp,
            seal=self._seal,
            previous=lane.segment,
            previous_end=lane.offset,
            tag=self._tag,
        )
        rotate = Rotate(lane.number, segment.name, segment.index_name, header.encode())
        return [self._in_air(lane, rotate)]

    def _in_air(self, lane: Lane, command: Command) -> Command:
        lane.command = command
        return command

    def _landed(self, lane: Lane) -> None:
        lane.command = None
        if lane.stalled:
            lane.stalled = False
            if not any(other.stalled for other in self._lanes):
                self._become(State.RUNNING)

    def _rotated(self, lane: Lane) -> list[Command]:
        self._landed(lane)
        assert lane.batch is not None
        lane.segment = SegmentId(lane.batch.first_sequence, self.epoch)
        lane.offset = lane.indexed = SEGMENT_HEADER_SIZE
        lane.index_offset = 0
        return self._launch(lane)

    def _written(self, lane: Lane) -> list[Command]:
        self._landed(lane)
        batch = lane.batch
        assert batch is not None
        commands = self._index(lane, batch)
        lane.offset += batch.size
        batch.end = StripeEnd(lane.segment, lane.offset)
        batch.written = True
        lane.batch, lane.buffers = None, ()
        lane.dirty.append(batch)
        lane.dirty_bytes += batch.size
        if self.mode is Mode.STABLE or lane.dirty_bytes >= self.limits.sync_bytes:
            commands.append(self._in_air(lane, Sync(lane.number, lane.segment.name)))
        if self.mode is Mode.DELAYED:
            commands = self._confirmations() + commands + (self._rest(lane) or self._start())
        return commands

    def _index(self, lane: Lane, batch: Batch) -> list[Command]:
        if lane.offset - lane.indexed < self.limits.index_interval:
            return []
        entry = encode_entry(
            batch.entry._replace(offset=lane.offset), log_id=self.log_id, epoch=self.epoch
        )
        command = WriteIndex(lane.number, lane.segment.index_name, lane.index_offset, entry)
        lane.index_offset += ENTRY_SIZE
        lane.indexed = lane.offset
        return [command]

    def _synced(self, lane: Lane) -> list[Command]:
        self._landed(lane)
        for batch in lane.dirty:
            batch.synced = True
        lane.dirty.clear()
        lane.dirty_bytes = 0
        # A batch that was waiting for this sync to rotate goes first.
        waiting = self._launch(lane) if lane.batch is not None else []
        return self._confirmations() + waiting + (self._rest(lane) or self._start())

    def _rest(self, lane: Lane) -> list[Command]:
        """Let a batch gather: many small ones cost the processor more than they gain in time."""
        limits = self.limits
        if lane.command is not None or limits.gather_ms <= 0 or self.pressed:
            return []
        if self._hurried and limits.rest_ms <= 0:
            return []
        rest = Gather(lane.number, limits.gather_ms / 1000, limits.rest_ms / 1000)
        return [self._in_air(lane, rest)]

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
        return commands

    def _all_durable(self) -> bool:
        """Whether the writer is closing and has nothing left to do but its last mark."""
        return self.closing and not self._flushing and self.durable.sequence == self.next_sequence

    def _mark(self) -> WriteMark:
        """A mark; an anchor when it is the first to name a segment, and when closing."""
        segments = [end.segment for end in self.durable.ends]
        anchor = segments != [end.segment for end in self._anchored]
        anchor = anchor or self._all_durable()
        if anchor:
            self._anchors += 1
            self._anchored = self.durable.ends
        else:
            self._generation += 1
        mark = Mark(
            self.log_id, self.epoch, self._generation, self._anchors, self.durable, self.completed
        )
        order = self._generation + self._anchors
        return WriteMark(mark.slot(anchor=anchor), mark.encode(), anchor, order)

    def _become(self, state: State) -> None:
        if state is not self.state:
            assert state in TRANSITIONS[self.state], (self.state, state)
            self.state = state


def _behind(frontier: Frontier, batch: Batch) -> Frontier:
    assert batch.end is not None
    sequence, position, timestamp, _ = batch.frontier
    if len(frontier.ends) == 1:
        return Frontier(sequence, position, timestamp, (batch.end,))
    ends = (*frontier.ends[: batch.stripe], batch.end, *frontier.ends[batch.stripe + 1 :])
    return Frontier(sequence, position, timestamp, ends)
