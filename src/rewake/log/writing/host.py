"""Carrying out a pipeline's commands on stores, and the simplest host there is.

`carry_out` is shared by every host.  `DirectWriter` performs all commands at once, in the caller's
thread: tests and simulations use it, and it shows what a host owes to a pipeline.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from rewake.log.files.claims import owns
from rewake.log.files.layout import MARK
from rewake.log.frame import TurnRecord
from rewake.log.log import Log, as_stores
from rewake.log.store import Store, publish
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
from rewake.log.writing.pipeline import Limits, Mode, WritePipeline
from rewake.model.errors import Fenced, StorageFault

__all__ = ["DirectWriter", "carry_out"]


def carry_out(command: Command, stores: Sequence[Store], epoch: int) -> None:
    """Do what the command says.  Raises Fenced when a `Confirm` finds the claim gone."""
    match command:
        case Write(stripe, segment, offset, buffers):
            stores[stripe].write(segment, offset, buffers)
        case Sync(stripe, segment):
            stores[stripe].sync(segment)
        case Confirm():
            if not owns(stores[0], epoch):
                raise Fenced(f"epoch {epoch} was superseded")
        case WriteMark(offset, mark, sync, _):
            stores[0].write(MARK, offset, (mark,))
            if sync:
                stores[0].sync(MARK)
        case WriteIndex(stripe, name, offset, entry):
            _write_index(stores[stripe], name, offset, entry)
        case Rotate(stripe, segment, index_name, header):
            publish(stores[stripe], segment, header)
            with suppress(FileExistsError):
                stores[stripe].create(index_name, b"")
        case Gather() | Complete():
            pass


def _write_index(store: Store, name: str, offset: int, entry: bytes) -> None:
    try:
        store.write(name, offset, (entry,))
    except FileNotFoundError:
        with suppress(FileExistsError):
            store.create(name, b"")
        store.write(name, offset, (entry,))


class DirectWriter:
    """A writer that returns from `append` when the frame is complete."""

    def __init__(
        self,
        stores: Store | Sequence[Store],
        *,
        epoch: int | None = None,
        holder: str = "direct",
        mode: Mode = Mode.STABLE,
        limits: Limits | None = None,
        back_to: int | None = None,
    ) -> None:
        self.stores = as_stores(stores)
        self.point = Log.open_for_append(self.stores, epoch=epoch, holder=holder, back_to=back_to)
        self.pipeline = WritePipeline(self.point, mode=mode, limits=limits)
        self.completed = self.point.frontier.sequence
        self._queue: deque[Command] = deque()

    def append(self, turn: TurnRecord) -> int:
        """Append one turn; its sequence.  Raises what stopped the pipeline, if anything did."""
        sequence = self.submit(turn)
        self.run()
        return sequence

    def submit(self, turn: TurnRecord) -> int:
        """Append one turn without carrying anything out yet."""
        self.pipeline.check_usable()
        sequence = self.pipeline.next_sequence
        self._queue.extend(self.pipeline.append(self.pipeline.encode(turn), turn))
        return sequence

    def run(self) -> None:
        """Carry out all there is to do, then raise what stopped the pipeline, if anything did."""
        while self.step():
            pass
        if self.pipeline.failure is not None:
            self.pipeline.check_usable()

    def step(self) -> Command | None:
        """Carry out the next command and return it; None when there is none."""
        if not self._queue:
            return None
        command = self._queue.popleft()
        try:
            carry_out(command, self.stores, self.pipeline.epoch)
        except Fenced:
            self.pipeline.fenced()
        except (StorageFault, FileNotFoundError) as error:
            # A successor clears away what its predecessor was at: that is no fault of the disk.
            if owns(self.stores[0], self.pipeline.epoch):
                self._queue.extend(self.pipeline.failed(command, error))
            else:
                self.pipeline.fenced()
        else:
            if isinstance(command, Complete):
                self.completed = command.through
            # Answers come before what else is waiting: a mark and its completion stay together.
            self._queue.extendleft(reversed(self.pipeline.done(command)))
        if self.pipeline.failure is not None:
            self._queue.clear()
        return command

    def retry(self) -> None:
        """Try again what found no room."""
        self._queue.extend(self.pipeline.retry())
        self.run()

    def close(self) -> None:
        """Make everything durable and give the log back."""
        self._queue.extend(self.pipeline.close())
        try:
            self.run()
        finally:
            self.stores[0].unlock()
