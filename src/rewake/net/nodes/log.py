"""A node's log on disk: opening it as a new epoch, reading it back, trimming it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rewake.graph.plan.plan import NodePlan
from rewake.log.contents import Contents, metadata_of
from rewake.log.files.descriptor import Metadata
from rewake.log.files.layout import DESCRIPTOR
from rewake.log.files.lineage import WHAT_TO_DO, Lineage, LogRecord, check_record
from rewake.log.frame import Frame, TurnRecord
from rewake.log.reading.reader import LogReader, Tail
from rewake.log.retention import KEEP_NOTHING
from rewake.log.writing.flight import Limits
from rewake.log.writing.pipeline import State
from rewake.model.errors import (
    Fenced,
    HistoryMismatch,
    LogExists,
    LogInUse,
    OperatingFault,
    UsageError,
    WriterFailed,
)
from rewake.stores import create_log, open_log_reader, open_log_writer
from rewake.stores.edge import local_stores
from rewake.stores.writer import LogWriter

_FRAMES_PER_READ = 64
# The writer's window is wider than what the node lets be pending, so appending never blocks.
# A node at its limit lets much gather for a sync; one that keeps up hurries (`rewake.node.load`).
LIMITS = Limits(window_bytes=256 << 20, gather_bytes=4 << 20, gather_ms=50.0, rest_ms=2.0)


class NodeLog:
    """One node's log, owned by one epoch.

    `on_durable` is called from the writer's thread whenever `durable` has risen, or the writer has
    stopped.
    """

    def __init__(
        self,
        folder: Path,
        plan: NodePlan,
        fingerprint: str,
        epoch: int,
        on_durable: Callable[[int], None],
        known: LogRecord | None = None,
        former_fingerprint: str = "",
        limits: Limits = LIMITS,
    ) -> None:
        if known is not None:
            with ExitStack() as stack:
                check_record(local_stores(folder, create=True, stack=stack), known, plan.name)
        if not (folder / DESCRIPTOR).exists():
            self._create(folder, plan, fingerprint)
        self._writer = self._open(folder, plan, epoch, on_durable, limits)
        if known is None:  # else it is the one that this very query's coordinator knows
            self._check_owner((fingerprint, former_fingerprint), folder)
        self._reader: LogReader = open_log_reader(folder)
        self._retention = plan.retention if plan.keeps_history else KEEP_NOTHING
        self._tails: dict[int, Tail] = {}
        self._trimmed = 0

    @staticmethod
    def _open(
        folder: Path,
        plan: NodePlan,
        epoch: int,
        on_durable: Callable[[int], None],
        limits: Limits,
    ) -> LogWriter:
        try:
            return open_log_writer(
                folder, epoch=epoch, holder=f"epoch {epoch}", limits=limits, on_durable=on_durable
            )
        except Fenced as error:
            # If this is still the newest attempt, nobody can have been given a higher epoch.
            raise HistoryMismatch(
                f"the log of {plan.name!r} is newer than the coordinator's state: {error}, but "
                f"the newest epoch that the coordinator has given is {epoch}; {WHAT_TO_DO}"
            ) from error

    @staticmethod
    def _create(folder: Path, plan: NodePlan, fingerprint: str) -> None:
        try:
            create_log(folder, plan.name, _metadata(plan, fingerprint))
        except LogExists:
            return  # an earlier attempt was quicker
        except LogInUse as error:
            raise OperatingFault(
                f"an earlier attempt of node {plan.name!r} is still creating its log in {folder}; "
                "the next attempt looks again"
            ) from error

    def _check_owner(self, fingerprints: tuple[str, str], folder: Path) -> None:
        known = Contents(self._writer.descriptor).query
        if known not in fingerprints:
            self._writer.close()
            raise UsageError(
                f"the log in {folder} belongs to another query ({str(known)[:12]}), not to this "
                f"one ({fingerprints[0][:12]}); give the query a folder of its own"
            )

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next frame."""
        return self._writer.next_sequence

    @property
    def next_position(self) -> int:
        """The position of the next output tuple."""
        return self._writer.next_position

    @property
    def lineage(self) -> Lineage:
        """Which epochs wrote it, this one included."""
        log_id, (chain,) = self._writer.descriptor.log_id, self._reader.view.chains
        return Lineage.of(log_id, chain, self._writer.next_position)

    @property
    def record(self) -> LogRecord:
        """How far it is durable, for those who will want to know whether it is still the same."""
        writer = self._writer
        return LogRecord(writer.descriptor.log_id, writer.epoch, writer.durable, writer.tag)

    def durable(self) -> int:
        """How many frames are durable.  Raises Fenced or WriterFailed when no more will be."""
        state = self._writer.state
        if state is State.FENCED:
            raise Fenced("a later attempt of this node owns its log")
        if state is State.FAILED:
            raise WriterFailed("the log could not be written; the node must start anew")
        return self._writer.durable

    @property
    def stalled(self) -> bool:
        """Whether there is no room on the disk."""
        return self._writer.state is State.STALLED

    def append(self, record: TurnRecord) -> None:
        """Hand over a frame; it becomes durable in the background."""
        self._writer.append(record, timeout=1.0)

    def hurry(self) -> None:
        """Let what was appended become durable soon: it is not to wait for more."""
        self._writer.hurry()

    def frames_backwards(self) -> Iterator[Frame]:
        """All frames, newest first."""
        return self._reader.frames_backwards()

    def read_back(self, connection: int, position: int, sequence: int) -> list[Frame]:
        """Frames that end at `position` or after it, and are not below `sequence`.

        None may be ready yet.  Raises OutOfRange when some of them have been trimmed.
        """
        tail = self._tails.get(connection)
        if tail is None or tail.sequence != sequence:
            self._reader.reload()
            tail = self._tails[connection] = self._reader.owed(position, sequence)
        return tail.poll(max_frames=_FRAMES_PER_READ)

    def forget(self, connection: int) -> None:
        """A connection that read back is gone."""
        self._tails.pop(connection, None)

    def trim(self, before: int) -> None:
        """Nobody needs frames before this sequence number; whole segments go when they can."""
        if before <= self._trimmed + 256:
            return
        if self._writer.trim(before, self._retention) is not None:
            self._trimmed = before

    def close(self) -> None:
        """Make everything durable and give the log back."""
        self._reader.close()
        self._writer.close()


def _metadata(plan: NodePlan, fingerprint: str) -> Metadata:
    """What others need to read the log by itself: the columns of outputs, and what made them."""
    said: dict[str, Any] = {}
    stateful = plan.program.stateful
    if stateful is not None:
        said["operator"] = {"kind": stateful.kind, **stateful.describe()}
        # Only with the columns that the operator is given can its state be typed.
        said["rows"] = plan.program.given_schemas(*plan.input_schemas)[0]
        if stateful.state_schema is not None:
            said["state"] = stateful.state_schema
    return metadata_of(
        [each.schema for each in plan.outputs],
        watermarks=[number for number, each in enumerate(plan.outputs) if each.watermarks],
        times=plan.time,
        query=fingerprint,
        **said,
    )
