"""A writer with threads: the pipeline's commands carried out off the caller's thread.

One I/O thread per stripe.  `append` encodes in the caller's thread, hands the frame over, and wakes
a thread only if one sleeps; while a batch is in the air, appends merely gather.  Per batch a thread
does one vector write, one sync, one look at the claim and one mark.

What always holds: callbacks come in order and only for complete frames; a failure surfaces on the
next `append`, `wait`, `flush` or `close`; after `close` no thread and no descriptor is left.  A
callback runs in an I/O thread: it must be short, and must not call the writer.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Self

from rewake.log.files.claims import current_claim, owns
from rewake.log.files.descriptor import Descriptor
from rewake.log.frame import TurnRecord
from rewake.log.log import AppendPoint
from rewake.log.retention import Retention, Trimmed, trim
from rewake.log.store import Store
from rewake.log.writing.commands import (
    Command,
    Complete,
    Gather,
    Rotate,
    Sync,
    Write,
    WriteIndex,
    WriteMark,
)
from rewake.log.writing.host import carry_out
from rewake.log.writing.pipeline import Limits, Mode, State, WritePipeline
from rewake.model.errors import Fenced, RewakeError, StorageFull

__all__ = ["LogWriter"]

RETRY_SECONDS: Final = 0.2
CLOSE_SECONDS: Final = 30.0


class LogWriter:
    """Appends turns to a log; frames complete in order, in the background."""

    def __init__(
        self,
        stores: Sequence[Store],
        point: AppendPoint,
        *,
        mode: Mode = Mode.STABLE,
        limits: Limits | None = None,
        on_durable: Callable[[int], None] | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._stores = stores
        self._point = point
        self._pipeline = WritePipeline(point, mode=mode, limits=limits)
        self._on_durable = on_durable
        self._retry_seconds = retry_seconds
        self._appending = threading.Lock()
        self._lock = threading.Lock()
        self._marking = threading.Lock()
        self._marked = 0
        self._announcing = threading.Lock()
        self._completed = point.frontier.sequence
        self._progress = threading.Condition(self._lock)
        self._work = [threading.Condition(self._lock) for _ in stores]
        self._queues: list[deque[Command]] = [deque() for _ in stores]
        self._stopping = False
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(stripe,), name=f"log-writer-{stripe}")
            for stripe in range(len(stores))
        ]
        for thread in self._threads:
            thread.daemon = True  # a program that forgets to close must still be able to end
            thread.start()

    # --- facts ------------------------------------------------------------------------------

    @property
    def descriptor(self) -> Descriptor:
        """The log's identity, name and metadata."""
        return self._point.descriptor

    @property
    def epoch(self) -> int:
        """The epoch of this writer."""
        return self._point.epoch

    @property
    def tag(self) -> int:
        """What tells it from another writer of this epoch."""
        return self._point.tag

    @property
    def recovered(self) -> int:
        """The sequence at which this writer began: the end of the log as it was found."""
        return self._point.frontier.sequence

    @property
    def next_sequence(self) -> int:
        """The sequence that the next append gets."""
        return self._pipeline.next_sequence

    @property
    def next_position(self) -> int:
        """The position of the next appended turn's first result tuple."""
        return self._pipeline.next_position

    @property
    def durable(self) -> int:
        """Every frame with a lower sequence is durable."""
        return self._pipeline.durable.sequence

    @property
    def completed(self) -> int:
        """Every frame with a lower sequence is complete: durable, or written in delayed mode."""
        return self._completed

    @property
    def state(self) -> State:
        """Whether frames can complete."""
        return self._pipeline.state

    # --- appending --------------------------------------------------------------------------

    def append(self, turn: TurnRecord, timeout: float | None = None) -> int:
        """Hand over one turn and return its sequence; waits while the window is full."""
        pipeline = self._pipeline
        with self._appending:
            if not pipeline.has_room():
                self._await_room(timeout)
            sequence = pipeline.next_sequence
            frame = pipeline.encode(turn)
            with self._lock:
                if pipeline.failure is not None or pipeline.closing:
                    pipeline.check_usable()
                commands = pipeline.append(frame, turn)
                if commands:
                    self._route(commands)
                elif pipeline.gathered:
                    self._end_rest()
        return sequence

    def wait(self, sequence: int, timeout: float | None = None) -> bool:
        """Wait until the frame is complete; False when the time is over."""
        with self._lock:
            if self._completed <= sequence:
                self._pipeline.hurry()
                self._end_rest()
            return self._await(lambda: self._completed > sequence, timeout)

    def hurry(self) -> None:
        """What is pending need not gather any longer."""
        if self._pipeline.waiting:
            with self._lock:
                self._pipeline.hurry()
                self._end_rest()

    def flush(self, timeout: float | None = None) -> bool:
        """Make everything appended so far durable; False when the time is over."""
        with self._lock:
            target = self._pipeline.next_sequence
            if self._pipeline.state in (State.RUNNING, State.STALLED):
                self._route(self._pipeline.flush())
                self._end_rest()
            return self._await(lambda: self._pipeline.durable.sequence >= target, timeout)

    def trim(self, needed: int | None, retention: Retention) -> Trimmed | None:
        """Delete what is before the sequence `needed` and the user does not want to keep.

        None when there was no room to say so first, or this is the owner no more: nothing is
        deleted, and the next one may do it.
        """
        try:
            return trim(self._stores, needed, retention, epoch=self.epoch)
        except (StorageFull, Fenced):
            return None

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Complete everything, stop the threads and release the log; idempotent.

        Raises what stopped the writer, once everything is released.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            failure = self._pipeline.failure
            self._route(self._pipeline.close())
            self._end_rest()
            self._progress.notify_all()  # an append that waits for room must not
            ended = self._progress.wait_for(self._has_ended, timeout)
            failure = failure or self._pipeline.failure
            self._stopping = True
            for work in self._work:
                work.notify_all()
        for thread in self._threads:
            thread.join()
        for store in self._stores:
            store.close()
        if failure is not None:
            raise failure
        if not ended:
            raise self._out_of_time()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self.close()
        except RewakeError:
            if error is None:
                raise

    # --- waiting; the lock is held ------------------------------------------------------------

    def _has_ended(self) -> bool:
        return self._pipeline.state not in (State.RUNNING, State.STALLED)

    def _await(self, reached: Callable[[], bool], timeout: float | None) -> bool:
        self._progress.wait_for(lambda: reached() or self._pipeline.failure is not None, timeout)
        if reached():
            return True
        if self._pipeline.failure is not None:
            self._pipeline.check_usable()
        return False

    def _await_room(self, timeout: float | None) -> None:
        pipeline = self._pipeline
        with self._lock:
            if not self._await(lambda: pipeline.has_room() or pipeline.closing, timeout):
                raise self._out_of_time()

    def _out_of_time(self) -> RewakeError:
        pipeline = self._pipeline
        waiting = pipeline.next_sequence - pipeline.completed.sequence
        return StorageFull(
            f"{waiting} frames from sequence {pipeline.completed.sequence} on are not complete in "
            f"time (the writer is {pipeline.state.value}); free space or wait longer, then go on: "
            "nothing that was completed is lost"
        )

    # --- the I/O threads ----------------------------------------------------------------------

    def _route(self, commands: list[Command]) -> None:
        """Give each command to its stripe's thread.  The lock is held."""
        for command in commands:
            stripe = _stripe_of(command)
            self._queues[stripe].append(command)
            self._work[stripe].notify()

    def _end_rest(self) -> None:
        """Wake the threads that let a batch gather.  The lock is held."""
        for work in self._work:
            work.notify()

    def _serve(self, stripe: int) -> None:
        while (command := self._next_command(stripe)) is not None:
            self._perform(command, stripe)

    def _next_command(self, stripe: int) -> Command | None:
        queue = self._queues[stripe]
        with self._lock:
            while not queue:
                if self._stopping:
                    return None
                stalled = self._pipeline.state is State.STALLED
                self._work[stripe].wait(self._retry_seconds if stalled else None)
                if stalled and not queue and not self._stopping:
                    queue.extend(self._pipeline.retry(stripe))
            return queue.popleft()

    def _perform(self, command: Command, stripe: int) -> None:
        """Carry out a command and, at once, the answers that belong to this stripe."""
        waiting = deque([command])
        while waiting:
            command = waiting.popleft()
            answers = self._answers(command)
            if self._pipeline.failure is not None:
                return
            if not answers:
                continue
            mine = [c for c in answers if _stripe_of(c, stripe) == stripe]
            waiting.extendleft(reversed(mine))
            if len(mine) < len(answers):
                with self._lock:
                    self._route([c for c in answers if _stripe_of(c, stripe) != stripe])

    def _answers(self, command: Command) -> list[Command]:
        try:
            if isinstance(command, WriteMark):
                self._write_mark(command)
            elif isinstance(command, Complete):
                self._complete(command.through)
            elif isinstance(command, Gather):
                self._gather(command)
            else:
                carry_out(command, self._stores, self.epoch)
            with self._lock:
                answers = self._pipeline.done(command)
                if isinstance(command, WriteMark | Complete):
                    self._progress.notify_all()
                return answers
        except BaseException as error:  # whatever it is, it must not die unseen in a thread
            return self._trouble(command, error)

    def _gather(self, command: Gather) -> None:
        pipeline, work = self._pipeline, self._work[command.stripe]
        with self._lock:
            if command.least:
                work.wait_for(lambda: pipeline.pressed or self._stopping, command.least)
            more = command.seconds - command.least
            work.wait_for(lambda: pipeline.gathered or self._stopping, more)

    def _write_mark(self, command: WriteMark) -> None:
        with self._marking:  # of two anchors, at most one may be unsynced
            if command.sync or command.order > self._marked:
                self._marked = max(self._marked, command.order)
                carry_out(command, self._stores, self.epoch)

    def _trouble(self, command: Command, error: BaseException) -> list[Command]:
        with self._lock:
            # A successor clears away what its predecessor was at: that is no fault of the disk.
            if isinstance(error, Fenced) or not self._is_owner():
                self._pipeline.fenced(self._successor())
            else:
                self._pipeline.failed(command, error)
            self._progress.notify_all()
        return []

    def _is_owner(self) -> bool:
        try:
            return owns(self._stores[0], self.epoch)
        except RewakeError:
            return True  # nobody can tell: then the error speaks for itself

    def _successor(self) -> str:
        try:
            epoch, holder = current_claim(self._stores[0])
        except RewakeError:
            return "a successor"
        return f"{holder} (epoch {epoch})"

    def _complete(self, through: int) -> None:
        with self._announcing:  # another stripe's thread may be ahead, or behind
            if through > self._completed:
                self._completed = through
                if self._on_durable is not None:
                    self._on_durable(through)


def _stripe_of(command: Command, default: int = 0) -> int:
    """The stripe whose thread carries out the command; the others go wherever they arise."""
    if isinstance(command, Write | WriteIndex | Sync | Rotate):
        return command.stripe
    return default
