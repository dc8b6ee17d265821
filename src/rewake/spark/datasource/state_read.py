"""The state of an operator as a DataFrame: its eventual checkpoint (CEC II.B), one row per window.

A log tells by itself what its operator had open: the footprints that a recovery would load.  As of
an earlier time or position the same is read from the frames up to there.  A row is a window (or a
pane of windows that overlap):

    the key's columns
    window           the position of the tuple that opened it
    footprint        'open' or 'check'
    footprint_time   the last input position that the state has seen
    pane, tuples     the pane's number where windows overlap or are of time; tuples seen so far
    nulls_x, ...     the aggregates' state; null where the footprint is an OPEN, which has none yet
    shard            the shard that holds the window

What always holds: nothing is replayed, so a window's state is as of its footprint, not as of the
end.  A log that no longer has all footprints of a moment says so with `OutOfRange`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rewake.log.descriptor import Descriptor
from rewake.log.frame import Frame
from rewake.log.reader import LogReader
from rewake.model.errors import DamagedFrame, DamagedLog, OutOfRange, SchemaMismatch, UsageError
from rewake.model.stream_event import NO_TIME
from rewake.operators.aggregate import AggregateSpec
from rewake.operators.arrays import Array
from rewake.operators.functions import (
    AggregateFunction,
    Avg,
    Count,
    First,
    Last,
    Max,
    Min,
    Stddev,
    Sum,
    UserDefined,
)
from rewake.operators.keys import GroupBy
from rewake.operators.spec_json import spec_from_json
from rewake.operators.stateful import StoredParts
from rewake.operators.windows import CountWindow, TimeWindow
from rewake.recovery.eventual_checkpoint import EventualCheckpoint, construct
from rewake.spark.datasource.batch_read import Reader, at_shard
from rewake.spark.datasource.columns import constant
from rewake.spark.datasource.options import ReadOptions, time_in
from rewake.spark.datasource.plainly import plainly
from rewake.spark.datasource.streams import Shard, operator_text, stored_schema, time_type
from rewake.spark.datasource.stretches import opened

__all__ = ["StateReader", "state_schema"]

_KEY_COLUMNS: Final = 2  # in every footprint, whatever the key is


class _Stored(NamedTuple):
    """A stored state column: its name and type, and how the stored numbers become values."""

    name: str
    kind: pa.DataType
    # The column that it is of: null where the window has seen no value of it.
    of: str | None = None
    # A position that is stored one higher, so that 0 says that there is none.
    arrival: bool = False


class _Layout:
    """Which columns the footprints of an operator have, from what its log says of it."""

    def __init__(self, descriptor: Descriptor) -> None:
        found = operator_text(descriptor)
        if found is None:
            raise UsageError(
                f"log {descriptor.name!r} does not say which aggregate made it, so it has no state "
                "to show; kind=control shows its frames"
            )
        described, given = found
        self.spec = spec_from_json(described)
        self._results = stored_schema(descriptor, 0) if given is None else given
        self._given = given
        self.keys = pa.schema([self._key(name) for name in self.spec.by])
        self.routing = _routing_columns(self.spec)
        self.state = self._state_columns()
        self.names = self._names()

    def _key(self, name: str) -> pa.Field:
        place = self._results.get_field_index(name)
        if place < 0:
            raise SchemaMismatch(
                f"the log does not say of which type the key column {name!r} is; keep the column "
                "in the stream"
            )
        kind = self._results.field(place).type
        return pa.field(name, kind.value_type if pa.types.is_dictionary(kind) else kind)

    def _kind(self, function: AggregateFunction) -> pa.DataType | None:
        """The type of the values that a function sees, if it can be known."""
        name = function.column if self._given is not None else function.result_name()
        place = self._results.get_field_index(name)
        return None if place < 0 else self._results.field(place).type

    def _state_columns(self) -> list[_Stored]:
        """The state columns of footprints, in the order in which `Aggregation` writes them."""
        functions = [each for each in self.spec.aggregates if each.column]
        columns = list(dict.fromkeys(each.column for each in functions))
        found = [_Stored(f"nulls_{name}", pa.int64()) for name in columns]
        shared: set[tuple[str, str]] = set()
        for number, function in enumerate(functions):
            if isinstance(function, Count):
                continue
            kind = "Sum" if isinstance(function, Avg) else type(function).__name__
            # Each user-defined function has a state of its own; the others share theirs.
            key = (
                f"{kind}{number}" if isinstance(function, UserDefined) else kind,
                function.column,
            )
            if key not in shared:
                shared.add(key)
                found += _accumulated(function, self._kind(function))
        return found

    def _names(self) -> list[str]:
        """The names of all columns, in order; one that is taken by a key gets an underscore."""
        fixed = ["window", "footprint", "footprint_time", *self.routing]
        fixed += [*(each.name for each in self.state), "shard"]
        names = list(self.keys.names)
        for name in fixed:
            free = name
            while free in names:
                free = f"_{free}"
            names.append(free)
        return names

    @property
    def schema(self) -> pa.Schema:
        """The columns of the DataFrame."""
        kinds = [*self.keys.types, pa.int64(), pa.string(), pa.int64()]
        kinds += [pa.int64() for _ in self.routing]
        kinds += [*(each.kind for each in self.state), pa.int32()]
        return pa.schema(list(zip(self.names, kinds, strict=True)))


def _routing_columns(spec: AggregateSpec) -> list[str]:
    if isinstance(spec.window, TimeWindow):
        return ["pane", "tuples"]
    if not isinstance(spec.window, CountWindow):
        return ["tuples"]
    if spec.timeout is not None:
        return ["pane", "opened_time", "tuples"]
    return ["tuples"] if spec.window.tumbling else ["pane", "tuples"]


def _accumulated(function: AggregateFunction, kind: pa.DataType | None) -> list[_Stored]:
    """The state columns of one function over values of a type."""
    column, whole, real = function.column, pa.int64(), pa.float64()
    match function:
        case Sum() | Avg():
            exact = kind is not None and pa.types.is_integer(kind)
            return [_Stored(f"sum_{column}", whole if exact else real, column)]
        case Min() | Max():
            return [_Stored(f"{type(function).__name__.lower()}_{column}", kind or real, column)]
        case First() | Last():
            name = f"{type(function).__name__.lower()}_{column}"
            return [
                _Stored(name, kind or real, column),
                _Stored(f"{name}_at", whole, arrival=True),
            ]
        case Stddev():
            names = (("count", whole), ("mean", real), ("squares", real))
            return [_Stored(f"{name}_{column}", each) for name, each in names]
        case UserDefined():
            name = function.result_name()
            return [_Stored(f"{name}_{place}", real) for place in range(len(function.initial))]
    raise UsageError(f"the state of {function!r} is not known to this version")


def state_schema(descriptor: Descriptor) -> pa.Schema:
    """The columns of the state of the operator that made a log."""
    return _Layout(descriptor).schema


# --- reading ---------------------------------------------------------------------------------


class _Moment(InputPartition):
    """A shard's state before the frame `end`, as of an input position or an event time."""

    def __init__(
        self, shard: Shard, log_id: int, end: int, position: int | None, time: int | None
    ) -> None:
        super().__init__((shard, log_id, end, position, time))
        self.shard = shard
        self.log_id = log_id
        self.end = end
        self.position = position
        self.time = time

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
        self._layout = _Layout(descriptor)
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
        if self.options.as_of is None:
            return None
        if reader.end_sequence and reader.end_timestamp == NO_TIME:
            raise UsageError(
                "asOf: the operator has no event time; ask as of an input position with "
                "asOfPosition"
            )
        return time_in("asOf", self.options.as_of, self._time, up=False)

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The windows of one shard."""
        if not isinstance(partition, _Moment):
            return
        with opened(partition.shard, partition.log_id) as reader:
            checkpoint = _checkpoint(partition, reader)
        if checkpoint is not None and checkpoint.windows:
            arrays = _columns(checkpoint, self._layout, partition.shard)
            yield from self.projection().batch(dict(zip(self._layout.names, arrays, strict=True)))


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
            kept += f" and times {first.timestamp} to {last.timestamp}"
    return OutOfRange(
        f"the state {moment.words} cannot be told any more: the log has {kept}, and what was open "
        "then left footprints before those; ask for a later moment"
    )


# --- columns ---------------------------------------------------------------------------------


def _columns(checkpoint: EventualCheckpoint, layout: _Layout, shard: Shard) -> list[pa.Array]:
    openings, snapshots = checkpoint.openings, checkpoint.snapshots
    opens, checks = openings.ids.size, snapshots.ids.size
    routing = len(layout.routing)
    opened_columns = _joined(openings, None)
    checked_columns = _joined(snapshots, routing + len(layout.state))
    arrays = _keys(checkpoint, layout)
    arrays.append(pa.array(np.concatenate([openings.ids, snapshots.ids])))
    arrays.append(
        pa.concat_arrays(
            [constant("open", pa.string(), opens), constant("check", pa.string(), checks)]
        )
    )
    arrays.append(pa.array(np.concatenate([openings.applied, snapshots.applied])))
    for place in range(routing):
        # An opening has all but the number of tuples, which is none.
        before = (
            opened_columns[place].astype(np.int64)
            if place < min(routing - 1, len(opened_columns))
            else np.zeros(opens, np.int64)
        )
        after = checked_columns[place] if checks else np.zeros(0, np.int64)
        arrays.append(pa.array(np.concatenate([before, after.astype(np.int64)])))
    arrays += _state(layout, opens, checks, checked_columns, routing)
    arrays.append(constant(shard.number, pa.int32(), opens + checks))
    return arrays


def _joined(parts: StoredParts, wanted: int | None) -> list[Array]:
    """The columns behind the key of chosen footprints, of all frames together."""
    found: list[list[Array]] = []
    for columns, rows, total in zip(parts.columns, parts.rows, parts.totals, strict=True):
        rest = columns[_KEY_COLUMNS:]
        width = len(rest) if wanted is None else wanted
        if len(rest) != width or any(column.size != total for column in rest):
            raise _other_operator()
        found.append([column[rows] for column in rest])
    if len({len(each) for each in found}) > 1:
        raise _other_operator()
    return [np.concatenate(each) for each in zip(*found, strict=True)]


def _keys(checkpoint: EventualCheckpoint, layout: _Layout) -> list[pa.Array]:
    """The key columns of openings, then of snapshots."""
    table = GroupBy(layout.keys, layout.spec.by, refuse_nulls=False).table
    expected = [column.dtype for column in table.pack(np.zeros(0, np.int32))]
    ids = [np.zeros(0, np.int32)]
    for parts in (checkpoint.openings, checkpoint.snapshots):
        for columns, rows, total in zip(parts.columns, parts.rows, parts.totals, strict=True):
            packed = columns[:_KEY_COLUMNS]
            if [column.dtype for column in packed] != expected:
                raise _other_operator()  # compiled code must see no other columns
            ids.append(table.unpack(packed, rows, total))
    return table.columns(np.concatenate(ids))


def _state(
    layout: _Layout, opens: int, checks: int, columns: Sequence[Array], routing: int
) -> list[pa.Array]:
    """The state columns: null for openings."""
    nothing: list[pa.Array] = [pa.nulls(opens, each.kind) for each in layout.state]
    if not checks:
        return nothing
    by_name = {each.name: columns[routing + n] for n, each in enumerate(layout.state)}
    tuples = columns[routing - 1]
    return [
        pa.concat_arrays([before, _values(each, by_name, tuples)])
        for each, before in zip(layout.state, nothing, strict=True)
    ]


def _values(stored: _Stored, by_name: dict[str, Array], tuples: Array) -> pa.Array:
    values = np.ascontiguousarray(by_name[stored.name])
    if stored.arrival:
        return pa.array(values - 1, mask=values == 0)
    mask: Any = None
    if stored.of is not None:
        mask = by_name[f"nulls_{stored.of}"] >= tuples
    return _as(pa.array(values, mask=mask), stored.kind)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The stored numbers in the column's own type; times and truths are stored as integers."""
    if array.type == kind:
        return array
    try:
        if pa.types.is_boolean(kind):
            return array.cast(pa.int8()).cast(kind)
        if pa.types.is_date32(kind) or pa.types.is_time32(kind):
            return array.cast(pa.int32()).cast(kind)
        return array.cast(kind, safe=pa.types.is_temporal(kind))
    except pa.ArrowException as error:
        raise _other_operator() from error


def _other_operator() -> DamagedFrame:
    return DamagedFrame(
        "a footprint has other columns than the log's operator writes; the log belongs to another "
        "operator, or to another version of it"
    )
