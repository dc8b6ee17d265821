"""The state of an operator as a DataFrame: its eventual checkpoint (CEC II.B), a row for each part.

A log tells by itself what its operator had open: the footprints that a recovery would load.  As of
an earlier time or position the same is read from the frames up to there.  In every row:

    the key's columns
    window           the position of the tuple that opened it
    footprint        'open' or 'check'
    footprint_time   the last input position that the state has seen
    ...              what the operator keeps: see `windows`, `sessions`, `keyed`
    shard            the shard that holds it

What always holds: nothing is replayed, so a part's state is as of its footprint, not as of the end.
A log that no longer has all footprints of a moment says so with `OutOfRange`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rewake.log.contents import Contents
from rewake.log.files.descriptor import Descriptor
from rewake.log.frame import Frame
from rewake.log.reading.reader import LogReader
from rewake.model.errors import DamagedLog, OutOfRange, UsageError
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.windows.specs import SessionWindow
from rewake.recovery.eventual.reading import EventualCheckpoint, construct
from rewake.spark.datasource.batch_read import Reader, at_shard, last_time
from rewake.spark.datasource.options import ReadOptions, time_in
from rewake.spark.datasource.plainly import plainly
from rewake.spark.datasource.state.keyed import KeyedLayout
from rewake.spark.datasource.state.layout import StateLayout
from rewake.spark.datasource.state.sessions import SessionLayout
from rewake.spark.datasource.state.windows import WindowLayout
from rewake.spark.datasource.streams import Shard, time_type
from rewake.spark.datasource.stretches import opened, shown_time

__all__ = ["StateReader", "state_schema"]


def _layout(descriptor: Descriptor) -> StateLayout:
    """Which columns the footprints of an operator have, from what its log says of it."""
    contents = Contents(descriptor)
    described, given = contents.operator, contents.rows
    if described is None:
        raise UsageError(
            f"log {descriptor.name!r} does not say which operator made it, so it has no state to "
            "show; kind=control shows its frames"
        )
    if described.get("kind") == ProcessSpec.kind:
        return KeyedLayout(descriptor, described, given)
    window = described.get("window")
    if isinstance(window, dict) and window.get("kind") == SessionWindow.kind:
        return SessionLayout(descriptor, described, given)
    return WindowLayout(descriptor, described, given)


def state_schema(descriptor: Descriptor) -> pa.Schema:
    """The columns of the state of the operator that made a log."""
    return _layout(descriptor).schema


# --- reading ---------------------------------------------------------------------------------


@dataclass
class _Moment(InputPartition):
    """A shard's state before the frame `end`, as of an input position or an event time."""

    shard: Shard
    log_id: int
    end: int
    position: int | None
    time: int | None

    def is_after(self, frame: Frame) -> bool:
        """Whether a frame came later."""
        return (
            frame.sequence >= self.end
            or (self.position is not None and frame.t_end >= self.position)
            or (self.time is not None and frame.timestamp > self.time)
        )

    @property
    def words(self) -> str:
        """The moment, for people."""
        if self.position is not None:
            return f"as of position {self.position}"
        return "now" if self.time is None else f"as of time {self.time}"


class StateReader(Reader):
    """The eventual checkpoint of every shard."""

    def __init__(
        self, shards: tuple[Shard, ...], options: ReadOptions, descriptor: Descriptor
    ) -> None:
        self._layout = _layout(descriptor)
        super().__init__(shards, options, self._layout.schema)
        self._time = time_type(descriptor, shards[0].output)

    @plainly
    def partitions(self) -> list[InputPartition]:
        """One per shard, as its log is now."""
        found: list[InputPartition] = []
        for shard in self.chosen_shards():
            with opened(shard) as reader:
                position = at_shard(self.options.as_of_position, shard.number)
                time = self._as_of(reader)
                log_id, end = reader.descriptor.log_id, reader.end_sequence
                found.append(_Moment(shard, log_id, end, position, time))
        return found

    def _as_of(self, reader: LogReader) -> int | None:
        """The moment as a time; None, which is now, when the stream has ended before it."""
        if self.options.as_of is None:
            return None
        last, ended = last_time(reader), reader.end_timestamp >= TIME_LIMIT
        timeless = shown_time(last, self._time) is None
        if reader.end_sequence and timeless and (self._time is None or not ended):
            raise UsageError(
                "asOf: the operator has no event time; ask as of an input position with "
                "asOfPosition"
            )
        moment = time_in("asOf", self.options.as_of, self._time, up=False)
        return None if ended and moment >= last else moment

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The windows of one shard."""
        if not isinstance(partition, _Moment):
            return
        with opened(partition.shard, partition.log_id) as reader:
            checkpoint = _checkpoint(partition, reader)
        if checkpoint is not None and checkpoint.windows:
            columns = self._layout.arrays(checkpoint, partition.shard.number)
            yield from self.projection().batch(columns)


def _checkpoint(moment: _Moment, reader: LogReader) -> EventualCheckpoint | None:
    """The checkpoint as of a moment; None before the first frame."""
    frames = dropwhile(moment.is_after, reader.frames_backwards())
    try:
        checkpoint = construct(frames)
    except DamagedLog:
        # A moment whose windows have footprints in frames that were trimmed looks like damage.
        if reader.first_sequence and _was_asked(moment):
            raise _out_of_range(moment, reader) from None
        raise
    if checkpoint is None and reader.first_sequence:
        raise _out_of_range(moment, reader)
    return checkpoint


def _was_asked(moment: _Moment) -> bool:
    return moment.position is not None or moment.time is not None


def _out_of_range(moment: _Moment, reader: LogReader) -> OutOfRange:
    first = next(reader.frames(), None)
    last = next(reader.frames_backwards(), None)
    kept = "no frames"
    if first is not None and last is not None:
        kept = f"frames of input positions {first.t_end + 1} to {last.t_end + 1}"
        if last.timestamp != NO_TIME:
            end = "the end" if last.timestamp >= TIME_LIMIT else last.timestamp
            kept += f" and times {first.timestamp} to {end}"
    return OutOfRange(
        f"the state {moment.words} cannot be told any more: the log has {kept}, and what was open "
        "then left footprints before those; ask for a later moment"
    )
