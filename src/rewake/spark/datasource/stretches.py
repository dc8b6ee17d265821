"""A stretch of a log: planned on the driver, read by a task, from frames to Arrow batches.

A stretch is a range of positions of one shard.  Positions never change, so the stretches of a plan
are disjoint and complete whatever the index says of where they are in the file, and a stretch that
is read again gives the same rows.  An end inside a frame cuts the frame.

The rows of an output are at the last of the positions of their frame: those before went to other
outputs of the same log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rewake.log.files.index import read_index
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.reading.reader import LogReader
from rewake.log.results import result_batch
from rewake.model.errors import NotALog, OutOfRange, ReplayMismatch
from rewake.model.stream_event import told_by
from rewake.spark.datasource.columns import METADATA, Projection, constant
from rewake.spark.datasource.streams import Shard
from rewake.stores import open_log_reader
from rewake.stores.edge import local_stores

__all__ = ["Cutting", "Part", "Places", "Stretch", "opened", "read_stretch"]

# As Spark cuts files: tasks that are much smaller cost more to start than they share.
PARTITION_BYTES: Final = 64 << 20
_MOST_PARTITIONS: Final = 1024
_CHUNK_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 1 << 17
_BATCH_BYTES: Final = 32 << 20


@dataclass
class Stretch(InputPartition):
    """The positions from `first` up to but not including `end` of one shard."""

    shard: Shard
    log_id: int
    first: int
    end: int


# --- planning --------------------------------------------------------------------------------


class Places:
    """How many bytes of a log lie before a position: exact at places of the index."""

    def __init__(self, shard: Shard, reader: LogReader) -> None:
        positions: list[int] = []
        sizes: list[int] = []
        before = 0
        log_id, view = reader.descriptor.log_id, reader.view
        with ExitStack() as stack:
            (store,) = local_stores(shard.path, stack=stack)
            for segment in view.visible(0) if view.frontier.ends else ():
                assert segment.end is not None
                entries = read_index(store, segment.id, log_id=log_id, end=segment.end)
                positions += [segment.header.position, *(each.position for each in entries)]
                sizes += [before, *(before + each.offset - SEGMENT_HEADER_SIZE for each in entries)]
                before += segment.end - SEGMENT_HEADER_SIZE
        self.positions: npt.NDArray[np.int64] = np.array([*positions, reader.end_position])
        # An index may lie: what it says is taken as far as it rises.
        self.sizes: npt.NDArray[np.int64] = np.maximum.accumulate(np.array([*sizes, before]))
        self.positions = np.maximum.accumulate(self.positions)

    def bytes_between(self, first: int, end: int) -> float:
        """About how many bytes a stretch takes."""
        low, high = np.interp([first, end], self.positions, self.sizes)
        return float(high - low)

    def position_after(self, first: int, size: float) -> int:
        """About the position that lies `size` bytes behind another."""
        begin = float(np.interp(first, self.positions, self.sizes))
        return int(np.interp(begin + size, self.sizes, self.positions))

    def cuts(self, first: int, end: int, pieces: int, *, anywhere: bool) -> list[int]:
        """Positions that cut a stretch into pieces of about the same size.

        Unless it may be `anywhere`, only where a frame begins, so that none is read twice.
        """
        if pieces <= 1:
            return []
        low, high = np.interp([first, end], self.positions, self.sizes)
        marks = np.linspace(low, high, pieces + 1)[1:-1]
        if anywhere:
            cuts = np.interp(marks, self.sizes, self.positions).astype(np.int64)
        else:
            cuts = self.positions[np.searchsorted(self.sizes, marks)]
        return [int(each) for each in np.unique(cuts) if first < each < end]


class Part(NamedTuple):
    """What is to be read of a shard, before it is cut for tasks."""

    shard: Shard
    log_id: int
    first: int
    end: int
    places: Places


@dataclass(frozen=True, slots=True)
class Cutting:
    """How large the stretches are that tasks get."""

    min_partitions: int | None = None
    rows_per_partition: int | None = None

    def stretches(self, parts: Sequence[Part]) -> list[Stretch]:
        """All parts, cut."""
        wanted = [part for part in parts if part.first < part.end]
        sizes = [part.places.bytes_between(part.first, part.end) for part in wanted]
        share = max(PARTITION_BYTES, sum(sizes) / _MOST_PARTITIONS)
        if self.min_partitions is not None:
            share = min(share, sum(sizes) / self.min_partitions)
        found = []
        for part, size in zip(wanted, sizes, strict=True):
            ends = [*self._cuts(part, size, share), part.end]
            for first, end in zip([part.first, *ends], ends, strict=False):
                found.append(Stretch(part.shard, part.log_id, first, end))
        return found

    def _cuts(self, part: Part, size: float, share: float) -> list[int]:
        if self.rows_per_partition is not None:
            return list(range(part.first, part.end, self.rows_per_partition))[1:]
        pieces = -int(-size // share) if share else 1
        anywhere = self.min_partitions is not None
        return part.places.cuts(part.first, part.end, pieces, anywhere=anywhere)


# --- reading ---------------------------------------------------------------------------------


@contextmanager
def opened(shard: Shard, log_id: int | None = None) -> Iterator[LogReader]:
    """The log of a shard, if it is the one that was planned for; errors say which log it was."""
    try:
        with open_log_reader(shard.path) as reader:
            if log_id is not None and reader.descriptor.log_id != log_id:
                raise ReplayMismatch(
                    f"the log at {shard.path} was replaced by another one since the read was "
                    "planned; read it again"
                )
            yield reader
    except OutOfRange as error:
        raise OutOfRange(f"shard {shard.number}, {shard.path}: {error}") from None
    except NotALog as error:
        raise NotALog(f"shard {shard.number}, {shard.path}: {error}") from None


class _Piece(NamedTuple):
    """Rows of one frame: at which position they begin, and the frame's time."""

    batch: pa.RecordBatch
    position: int
    time: int


def read_stretch(
    stretch: Stretch, stored: pa.Schema, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """The rows of a stretch, in batches that suit Spark."""
    pieces: list[_Piece] = []
    rows = size = 0
    for piece in _pieces(stretch, stored):
        pieces.append(piece)
        rows += piece.batch.num_rows
        size += piece.batch.nbytes
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield from _batches(stretch.shard.number, pieces, projection)
            pieces, rows, size = [], 0, 0
    if pieces:
        yield from _batches(stretch.shard.number, pieces, projection)


def _pieces(stretch: Stretch, stored: pa.Schema) -> Iterator[_Piece]:
    """What frames hold of a stretch; no piece has more rows than a batch."""
    with opened(stretch.shard, stretch.log_id) as reader:
        for frame in reader.frames(from_position=stretch.first, chunk_bytes=_CHUNK_BYTES):
            if frame.position >= stretch.end:
                return
            batch = result_batch(frame, stored, stretch.shard.output, log=stretch.shard.path)
            if batch is None:
                continue
            start = frame.position + frame.tuples - batch.num_rows
            first, end = max(start, stretch.first), min(start + batch.num_rows, stretch.end)
            for begin in range(first, end, _BATCH_ROWS):
                rows = min(_BATCH_ROWS, end - begin)
                yield _Piece(batch.slice(begin - start, rows), begin, frame.timestamp)


def _batches(
    shard: int, pieces: Sequence[_Piece], projection: Projection
) -> Iterator[pa.RecordBatch]:
    """The pieces as one batch; as several only where Arrow cannot join them."""
    stored = [name for name in projection.target.names if name not in METADATA]
    table = pa.Table.from_batches([piece.batch.select(stored) for piece in pieces])
    rows = [piece.batch.num_rows for piece in pieces]
    places = _places(shard, pieces, rows, projection)
    if not stored:
        yield from projection.batch(places)
        return
    done = 0
    for batch in table.combine_chunks().to_batches():
        arrays = dict(zip(stored, batch.columns, strict=True))
        arrays |= {name: each.slice(done, batch.num_rows) for name, each in places.items()}
        yield from projection.batch(arrays)
        done += batch.num_rows


def _places(
    shard: int, pieces: Sequence[_Piece], rows: Sequence[int], projection: Projection
) -> dict[str, pa.Array]:
    """The columns that tell of a row's place, as far as they are asked for."""
    shard_name, position, time = METADATA
    found: dict[str, pa.Array] = {}
    names = projection.target.names
    if shard_name in names:
        found[shard_name] = constant(shard, pa.int32(), sum(rows))
    if position in names:
        # Each row's number, moved to where its piece begins.
        behind = np.cumsum([0, *rows[:-1]])
        starts = np.array([piece.position for piece in pieces]) - behind
        found[position] = pa.array(np.arange(sum(rows)) + np.repeat(starts, rows))
    if time in names:
        kind = projection.source.field(time).type
        shown = pa.array([shown_time(piece.time, kind) for piece in pieces], pa.int64())
        found[time] = shown.take(pa.array(np.repeat(np.arange(len(pieces)), rows))).cast(kind)
    return found


def shown_time(clock: int, kind: pa.DataType | None) -> int | None:
    """A frame's time in the stream's unit; None where its clock showed none."""
    fine = kind is not None and pa.types.is_timestamp(kind) and kind.unit == "ns"
    return told_by(clock, nanoseconds=fine)
