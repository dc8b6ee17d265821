"""A log's writer on a disk in memory, with virtual durations.

What always holds: operations of one process on one disk happen in their order; a process that is
killed leaves what it has handed over (the page cache outlives it), and perhaps a part of the write
it was at; power loss leaves what `MemoryStore.crash` says, and ends every process on that disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rewake.log.files.lineage import Lineage, LogRecord, check_record
from rewake.log.frame import Frame, TurnRecord
from rewake.log.log import Log
from rewake.log.retention import Retention, trim
from rewake.log.writing.commands import Command, Rotate, Sync, Write
from rewake.log.writing.flight import Limits, State
from rewake.log.writing.host import DirectWriter
from rewake.model.errors import StorageFault, StorageFull
from rewake.sim.memory import Choices, Faults, MemoryStore, PowerLost
from rewake.sim.world import Process

# Small enough that logs of a few kilobytes rotate and can be trimmed.
_LIMITS = Limits(segment_bytes=4096, batch_frames=8, index_interval=1024)
_RETRY_MS = 50.0


class Disk:
    """What is left when processes die, and how it behaves at present."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.slowness = 1.0

    def lose_power(self, choices: Choices) -> None:
        """The machine was off: what was not synced has met its fate."""
        self.store = self.store.crash(choices)

    def fill(self) -> None:
        """There is no room for anything new."""
        error = StorageFull("the simulated disk is full; it will have room again")
        self.store.faults = Faults(
            fail_at=1, error=error, persistent=True, only=("write", "create"), short_write=0.5
        )

    def fail_next_sync(self) -> None:
        """The next sync fails, once."""
        self.store.faults = Faults(fail_at=1, error=StorageFault("the disk failed"), only=("sync",))

    def cut_power_at(self, operation: int) -> None:
        """The power goes right before that many further changes have been made."""
        self.store.faults = Faults(crash_at=operation)

    def heal(self) -> None:
        """Everything works again, at its normal speed."""
        self.slowness = 1.0
        self.store.faults = Faults()


class _SteppedWriter(DirectWriter):
    """A direct writer whose next command can be seen before it is carried out."""

    @property
    def next_command(self) -> Command | None:
        return self._queue[0] if self._queue else None

    def try_again(self) -> None:
        self._queue.extend(self.pipeline.retry())


class TimedLog:
    """One attempt's hold on its node's log."""

    def __init__(
        self,
        process: Process,
        disk: Disk,
        epoch: int,
        *,
        writer: type[DirectWriter] | None = None,
        known: LogRecord | None = None,
    ) -> None:
        self._process = process
        self._disk = disk
        self._store = disk.store.attach()
        if known is not None:
            check_record((self._store,), known, process.name)
        kind = _stepped(writer)
        self._writer = kind(self._store, epoch=epoch, holder=process.name, limits=_LIMITS)
        self._reader = Log.open_reader(disk.store.attach())
        self._busy = False
        self._told = self._writer.completed
        self.on_durable: Callable[[int], None] = lambda _frames: None
        self.on_failure: Callable[[Exception], None] = lambda _error: None

    @property
    def next_sequence(self) -> int:
        """The sequence of the next frame."""
        return self._writer.pipeline.next_sequence

    @property
    def next_position(self) -> int:
        """The position of the next result tuple."""
        return self._writer.pipeline.next_position

    @property
    def lineage(self) -> Lineage:
        """Which epochs wrote the log, this one included."""
        (chain,) = self._reader.view.chains
        return Lineage.of(self._writer.point.descriptor.log_id, chain, self.next_position)

    @property
    def record(self) -> LogRecord:
        """How far the log is durable."""
        point = self._writer.point
        return LogRecord(point.descriptor.log_id, point.epoch, self._writer.completed, point.tag)

    def frames_backwards(self) -> Iterator[Frame]:
        """What recovery reads."""
        return self._reader.frames_backwards()

    def frames_from(self, sequence: int) -> Iterator[Frame]:
        """Everything complete from a sequence on, of what is retained and can be seen.

        A mark that lags may hide what another writer has written meanwhile.
        """
        self._reader.refresh()
        first = max(sequence, self._reader.first_sequence)
        if first > self._reader.end_sequence:
            return iter(())
        return self._reader.frames(from_sequence=first)

    def read_back(self, position: int, sequence: int, at_most: int) -> list[Frame]:
        """Some complete frames that end at `position` or later; none when there is none to see.

        Those below `sequence` have been read before.
        """
        self._reader.refresh()
        return self._reader.owed(position, sequence).poll(max_frames=at_most)

    def trim(self, before: int) -> None:
        """Frames below this sequence may go."""
        try:
            trim((self._store,), before, Retention(max_bytes=0))
            self._reader.reload()
        except StorageFault:
            return  # another time, when there is room again

    # --- writing -----------------------------------------------------------------------------

    def append(self, record: TurnRecord) -> None:
        """Put a turn on its way."""
        self._writer.submit(record)
        self._pump()

    def _pump(self) -> None:
        command = self._writer.next_command
        if self._busy or command is None:
            return
        self._busy = True
        self._process.after(self._duration_ms(command), self._step)

    def _duration_ms(self, command: Command) -> float:
        world = self._process.world
        if isinstance(command, Sync | Rotate):
            return world.between(0.3, 3.0) * self._disk.slowness
        if isinstance(command, Write):
            return world.between(0.01, 0.5) * self._disk.slowness
        return 0.01

    def _step(self) -> None:
        self._busy = False
        try:
            self._writer.step()
        except PowerLost as error:
            self.on_failure(error)
            return
        self._writer.pipeline.check_invariants()
        if self._writer.pipeline.failure is not None:
            self.on_failure(self._writer.pipeline.failure)
            return
        if self._writer.pipeline.state is State.STALLED and self._writer.next_command is None:
            self._process.after(_RETRY_MS, self._retry)
        self._pump()
        if self._writer.completed > self._told:
            self._told = self._writer.completed
            self.on_durable(self._told)

    def _retry(self) -> None:
        self._writer.try_again()
        self._pump()

    def cut_short(self) -> None:
        """The process was killed: of the write it was at, a part may have been done."""
        command = self._writer.next_command
        if self._busy and isinstance(command, Write) and self._process.world.chance(0.5):
            data = b"".join(command.buffers)
            part = self._process.world.random.randrange(len(data) + 1)
            try:
                self._store.write(command.segment, command.offset, (data[:part],))
            except (StorageFault, FileNotFoundError, PowerLost):
                return


def _stepped(writer: type[DirectWriter] | None) -> type[_SteppedWriter]:
    if writer is None:
        return _SteppedWriter
    return type("_Planted", (_SteppedWriter, writer), {})
