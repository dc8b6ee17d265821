"""Reading a stream in micro-batches.

An offset is a position for every shard: {"0": 1200, "1": 980}.  Rows from the start offset up to
but not including the end offset are a batch, however often it is planned and read: a restarted
query continues exactly where its checkpoint says.

Where a query begins is settled once.  Spark does not store the first offset: before the first batch
is done, a restart asks for it again, when "latest" means something else.  So the first offset says
of itself `from`, the end of the first batch repeats it, and a batch that has been planned begins
where its end says.

What has been trimmed before it was read is an error, never a gap.  `commit` trims nothing: a stream
has other readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rewake.connectors.streams.begin import EARLIEST, place_of_shard, settled
from rewake.log.reading.reader import LogReader
from rewake.model.errors import OutOfRange, ReplayMismatch, UsageError
from rewake.spark.datasource.columns import Projection, offered
from rewake.spark.datasource.filters import Predicate
from rewake.spark.datasource.options import ReadOptions
from rewake.spark.datasource.plainly import plainly
from rewake.spark.datasource.streams import Shard
from rewake.spark.datasource.stretches import Cutting, Part, Places, Stretch, opened, read_stretch
from rewake.stores import open_log_reader

__all__ = ["StreamReader", "shared_out"]

_FROM: Final = "from"
# A batch that begins nowhere would never end: one row is always allowed.
_LEAST_ROWS: Final = 1

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All shards of a stream, batch by batch."""

    def __init__(
        self,
        shards: tuple[Shard, ...],
        options: ReadOptions,
        stored: pa.Schema,
        time: pa.DataType | None,
        target: pa.Schema,
    ) -> None:
        self.shards = shards
        self.options = options
        self.stored = stored
        self.time = time
        self.projection = Projection(offered(stored, time), target, Predicate())
        # The logs are opened where offsets are asked for; a reader that travels has none.
        self._logs: dict[int, LogReader] = {}
        self._target: dict[int, int] | None = None

    # --- offsets -----------------------------------------------------------------------------

    @plainly
    def initialOffset(self) -> Offset:  # noqa: N802
        """Where the option `begin` says, as the stream is now."""
        begins = _written({shard.number: self._begin(shard) for shard in self.shards})
        return {**begins, _FROM: begins}

    def _begin(self, shard: Shard) -> int:
        said = EARLIEST if self.options.begin is None else self.options.begin
        begin = said
        if isinstance(said, dict):
            begin = place_of_shard("begin", said, shard.number, len(self.shards))
        assert not isinstance(begin, dict)
        with opened(shard) as log:
            first, end = log.view.first_position, log.end_position
            position = settled("begin", begin, log, self.time, live=True)
            if not first <= position <= end:
                raise OutOfRange(f"begin={position} is not in the log: it has {first} to {end}")
            return position

    @plainly
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes."""
        begins = self._read(start)
        ends = self._ends()
        for shard in self.shards:
            self._check_there(shard, begins[shard.number], ends[shard.number])
        if self._target is not None:
            # Rows that came later are for the next run.
            ends = {number: min(ends[number], self._target[number]) for number in ends}
        ends = {number: max(ends[number], begins[number]) for number in ends}
        ends = self._limited(begins, ends, limit)
        if ends == begins:
            return start
        if _is_first(start):
            return {**_written(ends), _FROM: start[_FROM]}
        return _written(ends)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say; of two limits the rows, and both are kept."""
        if self.options.max_rows_per_trigger is not None:
            return ReadMaxRows(self.options.max_rows_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @plainly
    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Where the stream ends now: the lag is what lies between."""
        return _written(self._ends())

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on the stream ends where it ends now."""
        self._target = self._ends()

    def stop(self) -> None:
        """Release the logs."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def _ends(self) -> dict[int, int]:
        found = {}
        for shard in self.shards:
            log = self._logs.get(shard.number)
            if log is None:
                log = self._logs[shard.number] = open_log_reader(shard.path)
            log.refresh()
            found[shard.number] = log.end_position
        return found

    def _read(self, offset: Mapping[str, Any]) -> dict[int, int]:
        """The positions of an offset; `UsageError` when it is one of another stream."""
        with suppress(ValueError, TypeError):
            found = {int(name): int(offset[name]) for name in offset if name != _FROM}
            if found.keys() == {shard.number for shard in self.shards}:
                return found
        raise UsageError(
            f"the checkpoint has offset {dict(offset)}, but the stream at {self.options.path} has "
            f"{len(self.shards)} shards; it was written for another stream: give this query a "
            "checkpointLocation of its own"
        )

    @staticmethod
    def _check_there(shard: Shard, position: int, end: int) -> None:
        if position > end:
            raise ReplayMismatch(
                f"the checkpoint is at position {position} of shard {shard.number}, but the log "
                f"at {shard.path} ends at {end}: it is another stream than before; restore "
                "it, or give this query a new checkpointLocation"
            )

    # --- limits ------------------------------------------------------------------------------

    def _limited(
        self, begins: dict[int, int], ends: dict[int, int], limit: ReadLimit
    ) -> dict[int, int]:
        """The ends that a limit allows; what the options say holds unless all is asked for."""
        if isinstance(limit, ReadAllAvailable):
            return ends
        if isinstance(limit, ReadMinRows):
            # When nothing more will come there is nothing to wait for.
            waiting = self._target is None and _rows(begins, ends) < limit.min_rows
            return begins if waiting else ends
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = self.options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        if rows is not None:
            ends = _after(begins, shared_out(_lags(begins, ends), rows))
        if size is not None:
            ends = self._within(begins, ends, size)
        return ends

    def _within(self, begins: dict[int, int], ends: dict[int, int], size: int) -> dict[int, int]:
        """The ends up to which a batch takes so many bytes of the logs, as the index tells."""
        places = {
            shard.number: Places(shard, self._logs[shard.number])
            for shard in self.shards
            if begins[shard.number] < ends[shard.number]
        }
        sizes = {
            number: max(1, round(each.bytes_between(begins[number], ends[number])))
            for number, each in places.items()
        }
        if sum(sizes.values()) <= size:
            return ends
        limited = dict(begins)
        for number, share in shared_out(sizes, size).items():
            behind = places[number].position_after(begins[number], share)
            limited[number] = min(max(behind, begins[number]), ends[number])
        if limited == begins:
            return _after(begins, shared_out(_lags(begins, ends), _LEAST_ROWS))
        return limited

    # --- batches -----------------------------------------------------------------------------

    @plainly
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The stretches of a batch."""
        begins, ends = self._read(start), self._read(end)
        if _is_first(start) and _FROM in end:
            begins = self._read(end[_FROM])
        parts = []
        for shard in self.shards:
            first, stop = begins[shard.number], ends[shard.number]
            if first >= stop:
                continue
            with opened(shard) as log:
                self._check_kept(shard, log, first, stop)
                parts.append(Part(shard, log.descriptor.log_id, first, stop, Places(shard, log)))
        cutting = Cutting(self.options.min_partitions, self.options.rows_per_partition)
        return list(cutting.stretches(parts))

    def _check_kept(self, shard: Shard, log: LogReader, first: int, stop: int) -> None:
        kept, end = log.view.first_position, log.end_position
        if first < kept:
            raise OutOfRange(
                f"the query is to go on at position {first}, which was trimmed: the log has {kept} "
                f"to {end}; to go on without the rows between, give this query a new "
                'checkpointLocation and option("begin", "earliest")'
            )
        self._check_there(shard, stop, end)

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one stretch."""
        if isinstance(partition, Stretch):
            yield from read_stretch(partition, self.stored, self.projection)


def _written(positions: Mapping[int, int]) -> Offset:
    return {str(number): positions[number] for number in sorted(positions)}


def _is_first(offset: Mapping[str, Any]) -> bool:
    """Whether an offset is where a query began."""
    here = {name: value for name, value in offset.items() if name != _FROM}
    return offset.get(_FROM) == here


def _lags(begins: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    return {number: ends[number] - begins[number] for number in begins}


def _rows(begins: Mapping[int, int], ends: Mapping[int, int]) -> int:
    return sum(_lags(begins, ends).values())


def _after(begins: Mapping[int, int], rows: Mapping[int, int]) -> dict[int, int]:
    return {number: begins[number] + rows[number] for number in begins}


def shared_out(wanted: Mapping[int, int], most: int) -> dict[int, int]:
    """Shares of `most`, each in proportion to what is wanted and never above it.

    All of `most` is given out if there is need for it, so every call makes progress.
    """
    total = sum(wanted.values())
    if total <= most:
        return dict(wanted)
    shares = {number: each * most // total for number, each in wanted.items()}
    left = most - sum(shares.values())
    by_rest = sorted(wanted, key=lambda number: (-(wanted[number] * most % total), number))
    for number in by_rest[:left]:
        shares[number] += 1
    return shares
