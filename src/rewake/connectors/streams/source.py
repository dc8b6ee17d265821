"""Any stream of Rewake as a source, by the folder of its log (Thesis 3.1: a PSO is a stream too).

A stream has one log, or one for each shard.  One frame is one stream event.  Positions are those of
the log, which number the tuples over all outputs of its fragment; a stream event of one output
covers those that went to the others.  Watermarks are the frames' punctuations and hold for every
output.

Where the stream begins, and where it ends unless it is followed, is settled when the value is made:
it travels with the query, so every attempt of every node reads the same stretch.  What has been
trimmed meanwhile raises `OutOfRange`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from rewake.connectors.cutting import check_shard, schema_json
from rewake.connectors.streams.begin import Begin, place_in, place_of_shard, settled
from rewake.connectors.streams.commit_logs import check_for_reading
from rewake.connectors.streams.ended import has_ended
from rewake.connectors.streams.folder import open_stream
from rewake.log.contents import Contents
from rewake.log.files.layout import DESCRIPTOR
from rewake.log.frame import Frame
from rewake.log.reading.reader import LogReader, Tail
from rewake.log.results import result_batch
from rewake.model.errors import (
    OutOfRange,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)
from rewake.model.given import shown
from rewake.model.schemas import difference
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.packets import punctuation_in
from rewake.stores import open_log_reader
from rewake.stores.places import local_path

__all__ = ["LogStretch", "StreamReader", "StreamSource"]

# Frames are read some at a time: enough to spare looks at the log, few enough to hold in memory.
_FRAMES: Final = 16
# How often it is asked whether the query has come to its end, when its log says nothing new.
_LOOK_MS: Final = 500.0

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class LogStretch:
    """What is read of one shard: its log, the position it begins at and the frame it ends before.

    It ends never when `end_sequence` is None.
    """

    paths: tuple[str, ...]
    log_id: int
    first_position: int
    end_sequence: int | None

    def describe(self) -> dict[str, Any]:
        """Which log, and which stretch of it."""
        return {
            "log_id": f"{self.log_id:016x}",
            "first_position": self.first_position,
            "end_sequence": self.end_sequence,
        }


@dataclass(frozen=True, slots=True)
class StreamSource:
    """The stream at `path`: the folder of a stream, or a log (a list of paths when it is striped).

    It has as many shards as the stream, and is read in as many.

    `begin` is "earliest" (what is still there), "latest" (what comes from now on), a position, one
    for each shard, or a time (see `begin`).  Earlier positions are covered by the first stream
    event, as if their tuples went elsewhere.  With `follow` the stream goes on as the log does, and
    ends when the query that writes it has come to its end; without, it ends where the log ends now.
    `output` is for the log of a fragment with several.  `schema` is taken from the log's metadata
    unless given.
    """

    path: PathLike | Sequence[PathLike]
    begin: Begin = 0
    output: int = 0
    follow: bool = True
    schema: pa.Schema | None = None
    shards: tuple[LogStretch, ...] = field(init=False)
    # Whether the query that writes it says how far time has come.
    watermarks: bool = field(init=False)
    # The type of the times that these tell; None when nobody says.
    times: pa.DataType | None = field(init=False)

    def __post_init__(self) -> None:
        logs = _logs_at(self.path)
        place = place_in("begin", self.begin)
        begins = [place_of_shard("begin", place, shard, len(logs)) for shard in range(len(logs))]
        schemas: list[pa.Schema] = []
        shards: list[LogStretch] = []
        marked, times = True, set()
        for paths, begin in zip(logs, begins, strict=True):
            with open_log_reader(paths) as reader:
                contents = Contents(reader.descriptor)
                schemas.append(_schema_of(contents, self.output, self.schema))
                marked &= contents.carries_watermarks(self.output)
                times.add(contents.times)
                end = None if self.follow else reader.end_sequence
                log_id = reader.descriptor.log_id
                kind = _time_type(contents, schemas[-1])
                first = settled("begin", begin, reader, kind, live=self.follow)
                shards.append(LogStretch(paths, log_id, first, end))
        if any(not schema.equals(schemas[0]) for schema in schemas):
            raise SchemaMismatch(f"the shards of the stream at {self.path} differ in their columns")
        known: dict[str, Any] = {"path": _settled_path(self.path), "schema": schemas[0]}
        known |= {"shards": tuple(shards), "watermarks": marked}
        known["times"] = times.pop() if marked and len(times) == 1 else None
        if isinstance(place, dict):
            known["begin"] = tuple(begins)
        for name, value in known.items():
            object.__setattr__(self, name, value)

    def describe(self) -> dict[str, Any]:
        """Which log, and which stretch of which output."""
        common = {"kind": "stream", "output": self.output, "schema": schema_json(self.schema)}
        if len(self.shards) == 1:
            return common | self.shards[0].describe()
        return common | {"shards": [shard.describe() for shard in self.shards]}

    def open(self, shard: int, shards: int) -> StreamReader:
        """Open the log of one shard; there are as many as the stream has."""
        check_shard(shard, shards)
        if shards != len(self.shards):
            raise _other_shards(self.shards, shards)
        stretch = self.shards[shard]
        reader = open_log_reader(stretch.paths)
        if reader.descriptor.log_id != stretch.log_id:
            reader.close()
            raise ReplayMismatch(
                f"the log at {stretch.paths[0]} is another one than when the query began; restore "
                "it, or start a new query in a new folder"
            )
        assert self.schema is not None
        return StreamReader(stretch, self.schema, self.output, reader)


class StreamReader:
    """A log, open for reading along."""

    def __init__(
        self, stretch: LogStretch, schema: pa.Schema, output: int, reader: LogReader
    ) -> None:
        self._stretch = stretch
        self._output = output
        self._reader = reader
        self._empty = pa.RecordBatch.from_pylist([], schema)
        self._tail: Tail | None = None
        self._frames: deque[Frame] = deque()
        self._wanted = self._next_sequence = 0
        self._begun = False
        # Whether nothing will follow, for ever; and when that is looked for again.
        self._over = False
        self._look_ms = float("-inf")

    def seek(self, position: int) -> None:
        """Go on with the stream event that holds `position`, and with punctuations from there on.

        Raises OutOfRange when the position has been trimmed, or is beyond the end.
        """
        self._reader.reload()
        view = self._reader.view
        begin = max(position, self._stretch.first_position)
        if not view.first_position <= begin <= view.frontier.position:
            raise OutOfRange(
                f"position {begin} is not in the log at {self._stretch.paths[0]}: it has "
                f"{view.first_position} to {view.frontier.position}"
            )
        self._wanted = position
        self._begun = self._over = False
        self._frames.clear()
        # A frame without tuples holds no position, so it can only be found by its neighbour.
        if begin == view.first_position:
            self._tail = self._reader.tail()
        else:
            self._tail = self._reader.tail(from_position=begin - 1)
        self._next_sequence = self._tail.sequence

    def read(self, now_ms: float) -> StreamEvent | None:
        """The next stream event, or None when there is none yet."""
        event = self._next()
        if event is None and self._follows and now_ms >= self._look_ms:
            self._look_ms = now_ms + _LOOK_MS
            if has_ended(self._stretch.paths):
                # What was there when it ended may have come since this log was looked at.
                event = self._next()
                self._over = event is None
        return event

    def _next(self) -> StreamEvent | None:
        while (frame := self._peek()) is not None:
            event = None if self._is_before(frame) else self._event(frame)
            # Only now: a frame that cannot be read must not be passed over by reading again.
            self._frames.popleft()
            self._next_sequence = frame.sequence + 1
            if event is not None:
                self._begun = True
                return event
        return None

    @property
    def ended(self) -> bool:
        """Whether all up to the end has been read; of a log that is followed, when it has one."""
        end = self._stretch.end_sequence
        return self._over if end is None else self._next_sequence >= end

    @property
    def _follows(self) -> bool:
        return self._stretch.end_sequence is None and not self._over

    def close(self) -> None:
        """Release the log."""
        self._reader.close()

    def _peek(self) -> Frame | None:
        if self.ended:
            return None
        if not self._frames:
            if self._tail is None:
                self.seek(0)
            assert self._tail is not None
            self._frames.extend(self._tail.poll(max_frames=_FRAMES))
        return self._frames[0] if self._frames else None

    def _is_before(self, frame: Frame) -> bool:
        """Whether a frame lies before what is wanted; not so one without tuples right there."""
        begin = max(self._wanted, self._stretch.first_position)
        return frame.position < begin and frame.position + frame.tuples <= begin

    def _event(self, frame: Frame) -> StreamEvent | None:
        """What a frame sends on the output; None when it sends nothing at all."""
        watermark = punctuation_in(frame)
        if not frame.tuples and watermark is None:
            return None
        batch = self._batch(frame)
        start, end = frame.position, frame.position + frame.tuples
        first = self._stretch.first_position
        if start <= first and not self._begun:
            # The first stream event covers all that lies before the beginning.
            batch = batch.slice(max(batch.num_rows - (end - first), 0))
            start = 0
        return StreamEvent(end - batch.num_rows, batch, watermark, start)

    def _batch(self, frame: Frame) -> pa.RecordBatch:
        batch = result_batch(frame, self._empty.schema, self._output, log=self._stretch.paths[0])
        return self._empty if batch is None else batch


def _schema_of(contents: Contents, output: int, given: pa.Schema | None) -> pa.Schema:
    """The columns of an output: as the log says, or as given.

    Where the log says which they are, nobody else's word counts: bytes would be read as others.
    """
    schema, name = contents.schema(output), contents.descriptor.name
    if schema is None:
        if given is not None:
            return given
        raise UsageError(
            f"log {name!r} does not say which columns output {output} has; give schema="
        )
    if wrong := difference(given or schema, schema, "the schema that was given", "the log"):
        raise SchemaMismatch(f"log {name!r}: {wrong}; leave schema= out")
    return given or schema


def _time_type(contents: Contents, schema: pa.Schema) -> pa.DataType | None:
    """The type of the times of a log's frames: that of the column that gives them, if one does."""
    if contents.time is not None and contents.time in schema.names:
        return schema.field(contents.time).type
    return contents.times


def _other_shards(shards: Sequence[LogStretch], asked: int) -> UsageError:
    where, has = shards[0].paths[0], len(shards)
    if has == 1:
        return UsageError(
            f"the log at {where} is one partition and cannot be read in {asked} shards; use one "
            "shard for this source, and more for the steps after it"
        )
    return UsageError(
        f"the stream at {os.path.dirname(where)} has {has} shards and cannot be read in {asked}; "
        f"give shards={has} to this source, and any number to the steps after it"
    )


def _logs_at(path: PathLike | Sequence[PathLike]) -> list[tuple[str, ...]]:
    """The paths of each shard's log; those of one log with several are its stripes."""
    if not isinstance(path, str | os.PathLike):
        if not isinstance(path, Sequence) or not path:
            raise UsageError(
                f"{shown(path)} is where no stream is: give the folder of a stream, the path of a "
                "log, or the paths of a striped log's parts"
            )
        return [tuple(os.path.abspath(local_path(each)) for each in path)]
    path = local_path(path)
    if os.path.exists(os.path.join(path, DESCRIPTOR)):
        return [(os.path.abspath(path),)]
    shards = open_stream(path).shards
    check_for_reading(shards)
    return [(os.path.abspath(shard),) for shard in shards]


def _settled_path(path: PathLike | Sequence[PathLike]) -> str | tuple[str, ...]:
    """The same from wherever the query is run."""
    if isinstance(path, str | os.PathLike):
        return os.path.abspath(local_path(path))
    paths = tuple(os.path.abspath(local_path(each)) for each in path)
    return paths[0] if len(paths) == 1 else paths
