"""Reading a stream's history as a batch: its rows, or one row per frame (control tuples).

The plan is a snapshot: the driver settles where each shard begins and ends, so rows that are
appended while the tasks run are not in it, and a task that is repeated gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rewake.connectors.streams.begin import (
    Place,
    Positions,
    first_since,
    in_unit,
    position_at,
    settled,
    shown_time,
)
from rewake.log.frame import Frame, SectionKind
from rewake.log.reading.reader import LogReader
from rewake.log.results import result_batch
from rewake.model.errors import DamagedFrame, OutOfRange
from rewake.recovery.packing import unpack_any
from rewake.spark.datasource.columns import METADATA, Projection, constant, offered
from rewake.spark.datasource.filters import (
    EVERYTHING,
    Bounds,
    Predicate,
    bounds_of,
    is_handled,
)
from rewake.spark.datasource.options import ReadOptions
from rewake.spark.datasource.plainly import plainly
from rewake.spark.datasource.streams import Shard, stored_schema
from rewake.spark.datasource.stretches import (
    Cutting,
    Part,
    Places,
    Stretch,
    opened,
    read_stretch,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = [
    "ControlReader",
    "HistoryReader",
    "PushingReader",
    "Reader",
    "at_shard",
]

_CONTROL_ROWS: Final = 1 << 14
_SHARD, _POSITION, _TIME = METADATA


def at_shard(given: Positions | None, shard: int) -> int | None:
    """What is given for a shard; None when nothing is."""
    return given.get(shard) if isinstance(given, dict) else given


class Reader(DataSourceReader):
    """What all readers of batches have in common: they evaluate filters that they are given."""

    def __init__(self, shards: tuple[Shard, ...], options: ReadOptions, source: pa.Schema) -> None:
        self.shards = shards
        self.options = options
        self.source = source
        self.target = source
        self.predicate = Predicate()

    def asked_for(self, target: pa.Schema) -> None:
        """Which columns to give, as Spark wants them; `SchemaMismatch` when that cannot be."""
        self.target = target
        self.projection()

    def projection(self) -> Projection:
        """How batches are made of what is stored."""
        return Projection(self.source, self.target, self.predicate)

    def take_over(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that can be evaluated here; the others go back to Spark."""
        handled = [each for each in filters if is_handled(each, self.target)]
        self.predicate = Predicate(tuple(handled))
        # By identity: equal filters may be there twice, and Spark looks for the very objects.
        return [each for each in filters if not any(each is other for other in handled)]

    def chosen_shards(self) -> list[Shard]:
        """The shards of which any row may pass; `OutOfRange` names one that is not there."""
        options = self.options
        for given in (options.begin, options.end, options.as_of_position):
            for number in given if isinstance(given, dict) else ():
                if number >= len(self.shards):
                    raise OutOfRange(
                        f"there is no shard {number}; the stream has {len(self.shards)}, from 0"
                    )
        bounds = bounds_of(self.predicate.filters, _SHARD)
        return [
            shard
            for shard in self.shards
            if (bounds.first is None or shard.number >= bounds.first)
            and (bounds.end is None or shard.number < bounds.end)
        ]


class PushingReader(DataSourceReader):
    """A reader that takes over the filters that Spark offers."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """The filters that are left to Spark."""
        return self.reader.take_over(filters)

    def partitions(self) -> Sequence[InputPartition]:
        """Those of the reader, which knows the filters by now."""
        partitions: Sequence[InputPartition] = self.reader.partitions()
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows that pass the filters."""
        batches: Iterator[pa.RecordBatch] = self.reader.read(partition)
        return batches


# --- rows ------------------------------------------------------------------------------------


class HistoryReader(Reader):
    """The rows of a stream."""

    def __init__(
        self,
        shards: tuple[Shard, ...],
        options: ReadOptions,
        stored: pa.Schema,
        time: pa.DataType | None,
    ) -> None:
        super().__init__(shards, options, offered(stored, time))
        self.stored = stored
        self.time = time

    @plainly
    def partitions(self) -> list[InputPartition]:
        """The stretches of all shards as they are now."""
        parts = []
        for shard in self.chosen_shards():
            with opened(shard) as reader:
                first, end = self._range(shard, reader)
                places = Places(shard, reader)
                parts.append(Part(shard, reader.descriptor.log_id, first, end, places))
        cutting = Cutting(self.options.min_partitions, self.options.rows_per_partition)
        return list(cutting.stretches(parts))

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one stretch."""
        if isinstance(partition, Stretch):  # Spark makes one of its own when there is none
            yield from read_stretch(partition, self.stored, self.projection())

    def _range(self, shard: Shard, reader: LogReader) -> tuple[int, int]:
        """The positions to read: what the options say, narrowed by what the filters say."""
        first, end = stated_range(self.options, shard, reader, self.time)
        filters = self.predicate.filters
        positions = bounds_of(filters, _POSITION).within(first, end)
        times = bounds_of(filters, _TIME)
        if times != EVERYTHING:
            positions = positions.within(*_narrowed(self._in_stream_unit(times), reader))
        assert positions.first is not None
        assert positions.end is not None
        return positions.first, max(positions.first, positions.end)

    def _in_stream_unit(self, times: Bounds) -> Bounds:
        """Dates are compared in microseconds; asked for as numbers, times are what they are.

        Of what Spark rounds down, the same rows are within limits that are rounded up.
        """
        unit, shown = self.time, self.target.field(_TIME).type
        if unit is None or not (pa.types.is_timestamp(unit) and pa.types.is_timestamp(shown)):
            return times
        first, end = (None if each is None else in_unit(each, unit.unit) for each in times)
        if first is not None and unit.unit == "ns":
            first -= 999  # before 1970, what is cut off makes a time later
        return Bounds(first, end)


def stated_range(
    options: ReadOptions, shard: Shard, reader: LogReader, time: pa.DataType | None
) -> tuple[int, int]:
    """The positions of a shard that the options ask for and the log has.

    What was trimmed is refused with `OutOfRange`; what is not there yet is left out.
    """
    first, end = reader.view.first_position, reader.end_position
    start = _settled("begin", options.begin, shard, reader, time)
    stop = _settled("end", options.end, shard, reader, time)
    if stop is None:
        stop = at_shard(options.as_of_position, shard.number)
    if options.as_of is not None:
        stop = position_at(reader, "asOf", options.as_of, time, up=False)
    for given in (start, stop):
        if given is not None and given < first:
            raise OutOfRange(
                f"position {given} is no longer in the log: it has {first} to {end}; begin there, "
                "or keep more history"
            )
    begin = first if start is None else min(start, end)
    stop = max(begin, end if stop is None else min(stop, end))
    if options.last_rows is not None:
        begin = _before(reader, shard, stop, options.last_rows)
    return begin, stop


def _settled(
    name: str, place: Place | None, shard: Shard, reader: LogReader, time: pa.DataType | None
) -> int | None:
    """The position of a shard that an option says; None when it says nothing of this shard."""
    here = place.get(shard.number) if isinstance(place, dict) else place
    return None if here is None else settled(name, here, reader, time)


def _before(reader: LogReader, shard: Shard, stop: int, rows: int) -> int:
    """Where the last so many rows before a position begin; where the log does if it has fewer.

    Positions may be sparse, so rows are counted.
    """
    stored = stored_schema(reader.descriptor, shard.output)
    for frame in reader.frames_backwards():
        batch = None
        if frame.position < stop:
            batch = result_batch(frame, stored, shard.output, log=shard.path)
        if batch is None:
            continue
        start: int = frame.position + frame.tuples - batch.num_rows
        found: int = min(start + batch.num_rows, stop) - start
        if found >= rows:
            return start + found - rows
        rows -= max(0, found)
    return reader.view.first_position


def _narrowed(times: Bounds, reader: LogReader) -> tuple[int | None, int | None]:
    """The positions outside of which no frame's time is within bounds; never an error."""
    oldest = reader.view.first_timestamp if reader.view.floor else None

    def place(timestamp: int | None) -> int | None:
        if timestamp is None or (oldest is not None and timestamp <= oldest):
            return None
        return first_since(reader, timestamp)

    return place(times.first), place(times.end)


# --- control tuples --------------------------------------------------------------------------


@dataclass
class _Frames(InputPartition):
    """The frames from sequence `first` up to but not including `end`, cut to some positions."""

    shard: Shard
    log_id: int
    first: int
    end: int
    stop: int | None

    def has(self, frame: Frame) -> bool:
        """Whether a frame from the first on is one of them."""
        before = self.stop is None or frame.position < self.stop
        return frame.sequence < self.end and before


class ControlReader(Reader):
    """A row for each frame of a stream's logs: its header, and how many footprints it holds."""

    def __init__(
        self, shards: tuple[Shard, ...], options: ReadOptions, time: pa.DataType | None
    ) -> None:
        columns = [("shard", pa.int32()), *((name, pa.int64()) for name in _CONTROL)]
        super().__init__(shards, options, pa.schema(columns))
        self.time = time

    @plainly
    def partitions(self) -> list[InputPartition]:
        """The frames of every shard as they are now."""
        found: list[InputPartition] = []
        for shard in self.chosen_shards():
            with opened(shard) as reader:
                first, end = reader.first_sequence, reader.end_sequence
                start, stop = stated_range(self.options, shard, reader, self.time)
                if start > reader.view.first_position:
                    frame = next(reader.frames(from_position=start), None)
                    first = end if frame is None else frame.sequence
                whole = stop == reader.end_position
                pieces = max(1, (self.options.min_partitions or 1) // len(self.shards))
                log_id, size = reader.descriptor.log_id, -(-(end - first) // pieces)
                for begin in range(first, end, max(1, size)):
                    behind = min(begin + size, end)
                    found.append(_Frames(shard, log_id, begin, behind, None if whole else stop))
        return found

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The frames of one piece."""
        if not isinstance(partition, _Frames):
            return
        projection, shard = self.projection(), partition.shard.number
        with opened(partition.shard, partition.log_id) as reader:
            frames = takewhile(partition.has, reader.frames(from_sequence=partition.first))
            rows = ([tell(frame) for tell in _CONTROL.values()] for frame in frames)
            while some := list(islice(rows, _CONTROL_ROWS)):
                told = dict(zip(_CONTROL, map(list, zip(*some, strict=True)), strict=True))
                told["timestamp"] = [shown_time(each, self.time) for each in told["timestamp"]]
                columns = {name: pa.array(each, pa.int64()) for name, each in told.items()}
                columns["shard"] = constant(shard, pa.int32(), len(some))
                yield from projection.batch(columns)


def _footprints(frame: Frame, kind: SectionKind) -> int | None:
    """How many footprints of a kind; None when the section is not one of footprints."""
    payload = frame.section(kind)
    if payload is None:
        return 0
    try:
        columns = unpack_any(payload)
    except DamagedFrame:
        return None
    return int(columns[0].size) if columns else None


# The columns of control tuples; what frames say themselves is an int64.
_CONTROL: Final[Mapping[str, Callable[[Frame], int | None]]] = {
    "sequence": lambda frame: frame.sequence,
    "position": lambda frame: frame.position,
    "t_end": lambda frame: frame.t_end,
    "timestamp": lambda frame: frame.timestamp,
    "open_windows": lambda frame: frame.open_windows,
    "tuples": lambda frame: frame.tuples,
    "opens": lambda frame: _footprints(frame, SectionKind.OPENS),
    "checks": lambda frame: _footprints(frame, SectionKind.CHECKS),
    "closed": lambda frame: _footprints(frame, SectionKind.CLOSED),
    "bytes": lambda frame: frame.length,
    "epoch": lambda frame: frame.epoch,
}
