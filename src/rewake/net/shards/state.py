"""One shard of an operator inside a shard host: its log, and the operator that the log rebuilds.

What always holds: results leave only when the record of their batch is durable; after any failure
the shard is `broken` and must be dropped, and what the log has decides, when it is opened again,
whether the batch happened.  All methods are called under the shard's lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.log.contents import Contents, metadata_of, place_metadata
from rewake.log.files.descriptor import Descriptor
from rewake.log.files.layout import DESCRIPTOR
from rewake.log.frame import Frame, TurnRecord
from rewake.log.retention import KEEP_NOTHING
from rewake.log.writing.flight import Limits
from rewake.model.errors import (
    Fenced,
    HistoryMismatch,
    LogExists,
    OtherShard,
    RewakeError,
    StorageFull,
    UsageError,
)
from rewake.model.stream_event import StreamEvent, no_tuples
from rewake.net.shards.folder import ShardFolder
from rewake.net.shards.histories import check_histories
from rewake.node.micro_batches.shard_batches import BatchRecord, Decision, ShardBatches
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.aggregate.spec_json import spec_from_json
from rewake.operators.columns.arrays import arrow_array
from rewake.operators.keyed.described import process_from_json
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.stateful import KeyedOperator
from rewake.recovery.approach import RESULTS_OUTPUT, Turn
from rewake.recovery.promises.rates import RecoveryRates
from rewake.recovery.self_contained.engine import SelfContained, repeat
from rewake.recovery.self_contained.replaced import Replaced, replaced
from rewake.stores import create_log, open_log_reader, open_log_writer

__all__ = ["Description", "ShardState", "check_place", "rehearse"]

# Small segments: a log is trimmed by whole ones.
_LIMITS: Final = Limits(segment_bytes=16 << 20, window_bytes=512 << 20)
_TRIM_BYTES: Final = 16 << 20
_PATIENCE_SECONDS: Final = 120.0
_REHEARSED_ROWS: Final = 4
_FAR: Final = 1000
# Results up to this size are kept for a repeat, which would else compute them again.
_KEPT_BYTES: Final = 64 << 20


def imported(path: str) -> Callable[..., Any]:
    """A user's function by "module:name"."""
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"function {path!r} cannot be imported where the shard is ({error}): give its module "
            "to Spark with --py-files, or install it on the executors"
        ) from error
    if not callable(found):
        raise UsageError(f"{path!r} is not a function")
    function: Callable[..., Any] = found
    return function


def columns_read(spec: AggregateSpec | ProcessSpec, schema: pa.Schema) -> pa.Schema:
    """The columns that the operator reads; others only say in which order it does."""
    if isinstance(spec, ProcessSpec):
        return schema
    read = {*spec.by, *(each.column for each in spec.aggregates), spec.time}
    return pa.schema([each for each in schema if each.name in read])


class Description:
    """What a request says of the operator: how to build it, and how its tuples are ordered."""

    def __init__(
        self,
        operator: dict[str, Any],
        schema: pa.Schema,
        order_by: Sequence[str] = (),
        shards: int = 1,
    ) -> None:
        self.operator = operator
        self.shards = shards
        by_name = operator.get("kind") == ProcessSpec.kind
        self.spec = process_from_json(operator, imported) if by_name else spec_from_json(operator)
        self.schema = schema
        self.order_by = tuple(order_by)
        self.rows_schema = columns_read(self.spec, schema)
        self.output_schema = self.build().output_schema

    @classmethod
    def of_log(cls, descriptor: Descriptor, path: Path) -> Self:
        """What the log of a shard says that its operator is."""
        contents = Contents(descriptor)
        if contents.operator is None or contents.rows is None:
            raise UsageError(f"{path} is not the log of an operator inside Structured Streaming")
        return cls(contents.operator, contents.rows)

    @property
    def identity(self) -> dict[str, Any]:
        """What `operator.json` says: all that must not change while there is state."""
        columns = [[each.name, str(each.type)] for each in self.rows_schema]
        return {"operator": self.operator, "columns": columns, "shards": self.shards}

    def build(self) -> KeyedOperator:
        """A new operator."""
        return self.spec.operator(self.rows_schema)

    def ordered(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """All tuples of a batch as one, in order; ties go by the other columns."""
        if not batches:
            return no_tuples(self.rows_schema)
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        if self.order_by:
            rest = [each.name for each in self.schema if each.name not in self.order_by]
            keys = [(name, "ascending") for name in (*self.order_by, *rest)]
            whole = whole.take(pc.sort_indices(whole, sort_keys=keys))
        return whole.select(self.rows_schema.names)


def rehearse(folder: ShardFolder) -> None:
    """Rebuild the first shard from its log, as its next owner will, take a turn, and forget it.

    Compiled kernels are in memory afterwards, which takes longer than all the rest of a recovery.
    The tuples of the turn are made up, so a function of the user's own is not called with them.
    """
    path = folder.shard(0)
    if not (path / DESCRIPTOR).exists():
        return
    with open_log_reader(path) as reader:
        description = Description.of_log(reader.descriptor, path)
        if description.spec.code():
            return
        schema = description.rows_schema
        state = SelfContained.recover(description.build, reader.frames_backwards())
    # Keys that lie close together are put in order by another kernel than those that do not.
    for distance in (1, _FAR):
        falling = arrow_array(distance * np.arange(_REHEARSED_ROWS)[::-1], pa.int64())
        columns = [falling.cast(each.type, safe=False) for each in schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        state.turn(StreamEvent(state.position, rows), b"rehearsal")


def check_place(descriptor: Descriptor, folder: ShardFolder, number: int, shards: int) -> None:
    """Raise when the log in a shard's folder is not the one that was made there."""
    place, found = place_metadata(folder.identity(), number, shards), Contents(descriptor).place
    if found != place:
        whose = "of this `at`" if found["at"] == place["at"] else "of another `at`"
        raise OtherShard(
            f"{folder.shard(number)} holds the log of shard {found['shard']} of {found['shards']} "
            f"{whose}, not of shard {number} of {shards} of this one. Nothing was changed: put "
            "each shard's folder, and operator.json, back where they were, or restore the copy of "
            "`at` that was made with the checkpoint"
        )


class ShardState:
    """A shard that this process owns under `epoch`."""

    def __init__(
        self,
        folder: ShardFolder,
        number: int,
        description: Description,
        epoch: int,
        holder: str,
        rates: RecoveryRates,
    ) -> None:
        self.folder = folder.shard(number)
        self._operator_folder = folder
        self._number = number
        self.epoch = epoch
        self.description = description
        self.broken = False
        # The run for which this log was last compared with those of other shards.
        self._compared: bytes | None = None
        self._rates = rates
        self._since_trim = 0
        self._kept: list[pa.RecordBatch] | None = None
        self._record_bytes = 0
        # What opening the shard took in this life, and was expected to; nothing of a new one.
        self._recovery_seconds = self._foretold_seconds = 0.0
        started = time.monotonic()
        self._create()
        self._folder_opened = os.stat(self.folder)
        self._writer = open_log_writer(self.folder, epoch=epoch, holder=holder, limits=_LIMITS)
        try:
            self._load(started)
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        folder, shards = self._operator_folder, self.description.shards
        if not (self.folder / DESCRIPTOR).exists():
            said = self.description
            metadata = metadata_of(
                [said.output_schema], operator=said.operator, rows=said.rows_schema
            )
            place = place_metadata(folder.identity(), self._number, shards)
            with suppress(LogExists):  # an earlier attempt came this far
                create_log(self.folder, self.folder.name, metadata | place)
        with open_log_reader(self.folder) as reader:
            check_place(reader.descriptor, folder, self._number, shards)

    def _load(self, started: float) -> None:
        opened = time.monotonic()
        self._state = self._with_frames(
            lambda frames: SelfContained.recover(self.description.build, frames)
        )
        identity = self._state.identity
        last = None if identity is None else BatchRecord.decode(identity)
        self._batches = ShardBatches(str(self.folder), last)
        progress = self._state.progress()
        if last is not None:
            foretold = self._predicted_seconds(progress)  # before this recovery is learnt from
            self._recovery_seconds, self._foretold_seconds = time.monotonic() - started, foretold
        replay_us = float(progress["replay_tuples"]) * self._rates.replay_us
        self._rates.recovered(
            records=int(progress["extent_records"]),
            load_us=max(0.0, (time.monotonic() - opened) * 1e6 - replay_us),
            tuples=0,
            replay_us=0.0,
            fixed_ms=(opened - started) * 1e3,
        )

    def _predicted_seconds(self, progress: Mapping[str, Any]) -> float:
        records, tuples = float(progress["extent_records"]), float(progress["replay_tuples"])
        return self._rates.predicted_ms(records, tuples) / 1e3

    def _with_frames(self, use: Callable[[Iterator[Frame]], Any]) -> Any:
        reader = open_log_reader(self.folder)
        try:
            return use(reader.frames_backwards())
        finally:
            reader.close()

    # --- batches -----------------------------------------------------------------------------

    @property
    def last(self) -> BatchRecord | None:
        """The record of the newest batch."""
        return self._batches.last

    def decide(self, request: BatchRecord, gaps: str) -> Decision:
        """What becomes of a batch; raises when it does not continue what is here."""
        self._batches = ShardBatches(str(self.folder), self.last, gaps)
        return self._batches.decide(request)

    def process(
        self, request: BatchRecord, batches: Sequence[pa.RecordBatch], gaps: str
    ) -> list[pa.RecordBatch]:
        """The results of the next batch, durable; or of the last one, again or anew."""
        self._check_folder()
        try:
            decision = self.decide(request, gaps)
            self._compare(request)
        except (UsageError, HistoryMismatch):
            self._check_owner()
            raise
        if decision is Decision.REPEAT:
            return self._again()
        request = self._batches.linked(request)
        rows = self.description.ordered(batches)
        instead = self._replaced(request, rows) if decision is Decision.REPLACE else None
        try:
            if instead is None:
                return self._recorded(request, self._turn(request, rows))
            self._state = instead.state
            return self._recorded(request, instead.turn)
        except BaseException:
            # The operator may have seen the batch and the log not, or the other way round.
            self.broken = True
            raise

    def _compare(self, request: BatchRecord) -> None:
        """Raise when other shards have another past; once for a log that was opened, and a run."""
        if request.run != self._compared and self.last is not None:
            check_histories(
                self._operator_folder, self._number, self.description.shards, self.last, request
            )
        self._compared = request.run

    def _check_folder(self) -> None:
        """Raise when another folder has been put in the place of the one that is held open."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.folder), self._folder_opened):
                return
        self.broken = True
        raise Fenced(f"{self.folder} is not the folder any more that was opened")

    def _check_owner(self) -> None:
        """Raise when a successor owns the shard: what it knows, this one cannot refuse."""
        if self._operator_folder.owner(self._number).epoch != self.epoch:
            self.broken = True
            raise Fenced(f"a successor owns {self.folder}; epoch {self.epoch} is over")

    def _turn(self, request: BatchRecord, rows: pa.RecordBatch) -> Turn:
        started = time.monotonic()
        event = StreamEvent(self._state.position, rows)
        turn: Turn = self._state.turn(event, request.encode())
        self._rates.processed(rows.num_rows, (time.monotonic() - started) * 1e6)
        return turn

    def _replaced(self, request: BatchRecord, rows: pa.RecordBatch) -> Replaced:
        """The batch of the newest record computed anew, from the state before it in the log."""
        runs: set[bytes] = set()

        def same_batch(section: bytes) -> bool:
            record = BatchRecord.decode(section)
            runs.add(record.run)
            return record.batch == request.batch

        found: Replaced | None = self._with_frames(
            lambda frames: replaced(
                self.description.build, frames, same_batch, rows, request.encode()
            )
        )
        # Of those that took this batch and the one before, the newest alone still makes plans.
        if request.run in runs:
            raise self._batches.superseded(request)
        if found is None:
            raise self._batches.without_state_before(request)
        return found

    def _recorded(self, request: BatchRecord, turn: Turn) -> list[pa.RecordBatch]:
        assert turn.record is not None, "every batch leaves a record"
        self._append(turn.record)
        self._batches.recorded(request)
        results = turn.on(RESULTS_OUTPUT)
        found = [] if results is None else [results]
        self._kept = found if sum(each.nbytes for each in found) <= _KEPT_BYTES else None
        self._trim()
        return found

    def _append(self, record: TurnRecord) -> None:
        sequence = self._writer.append(record, timeout=_PATIENCE_SECONDS)
        self._record_bytes = sum(len(each.payload) for each in record.sections)
        self._since_trim += self._record_bytes
        if not self._writer.wait(sequence, timeout=_PATIENCE_SECONDS):
            raise StorageFull(
                f"the record of a batch could not be written to {self.folder} within "
                f"{_PATIENCE_SECONDS:g} s; free space, and the batch is tried again"
            )

    def _again(self) -> list[pa.RecordBatch]:
        if self._kept is None:
            emissions = self._with_frames(lambda frames: repeat(self.description.build, frames))
            self._kept = [batch for output, batch in emissions if output == RESULTS_OUTPUT]
        return self._kept

    def _trim(self) -> None:
        if self._since_trim >= _TRIM_BYTES:
            needed = self._writer.next_sequence - self._state.frames_needed
            if self._writer.trim(needed, KEEP_NOTHING) is not None:
                self._since_trim = 0

    # --- for people --------------------------------------------------------------------------

    def figures(self) -> dict[str, Any]:
        """What the progress of Spark's query shows of this shard."""
        progress = self._state.progress()
        return {
            "open_windows": int(progress["open_windows"]),
            "extent_records": int(progress["extent_records"]),
            "replay_tuples": int(progress["replay_tuples"]),
            "replay_bytes": int(progress["replay_bytes"]),
            "extent_bytes": int(progress["extent_bytes"]),
            "checkpoint_bytes": self._record_bytes,
            "predicted_recovery_seconds": self._predicted_seconds(progress),
            "last_recovery_seconds": self._recovery_seconds,
            "last_recovery_predicted_seconds": self._foretold_seconds,
            "way": str(progress["way"]),
            "late_tuples": int(self._state.operator.late_tuples),
            "epoch": self.epoch,
        }

    def close(self) -> None:
        """Give the log back; what is durable stays."""
        with suppress(RewakeError):
            self._writer.close(timeout=1.0)
