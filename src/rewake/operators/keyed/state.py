"""Typed state of keys: a column for each name, a row for each slot.

Columns of fixed width are arrays; strings, binaries and lists of numbers are bytes in an arena,
where a new value goes behind the others and what it replaces is swept away when it is most of it.

A footprint has, for each column of fixed width: values, and the rows that are null (u32); for each
other column: lengths in bytes (u32), the bytes, and the rows that are null.  Whatever bytes are
given to `unpack`, it raises `DamagedFrame` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import DamagedFrame, SchemaMismatch, UsageError
from rewake.operators.columns.arrays import (
    Array,
    Bytes,
    Int64s,
    arrow_array,
    dtype_of,
    grown,
    spared,
    values_view,
    with_room,
)
from rewake.operators.columns.byte_rows import copy_rows, offsets_of

_NO_ROWS = np.zeros(0, np.uint32)
# An arena is not swept for less than this.
SPARE_BYTES = 1 << 20


class StateField(NamedTuple):
    """A column of state, and what it holds for a key that is new."""

    name: str
    kind: pa.DataType
    default: Any = None

    @property
    def words(self) -> str:
        """For people and plans."""
        return f"{self.kind}" + ("" if self.default is None else f" = {self.default!r}")


def state_fields(state: Mapping[str, Any]) -> tuple[StateField, ...]:
    """What a user means by `{"total": pa.float64(), "seen": (pa.int64(), 0)}`, if it can be."""
    fields = []
    whole: object = state  # by callers whose types nobody checks
    if not isinstance(whole, Mapping):
        raise UsageError(f"state names its columns, as in {{'total': pa.float64()}}, not {whole!r}")
    for name, given in state.items():
        field = StateField(name, *(given if isinstance(given, tuple) else (given,)))
        if not isinstance(field.kind, pa.DataType):
            raise SchemaMismatch(
                f"state {name!r}: {given!r} is not an Arrow type, nor a type and a default"
            )
        _column_of(field)
        fields.append(field)
    return tuple(fields)


def _valid(array: pa.Array) -> Array | None:
    if array.null_count == 0:
        return None
    flags: Array = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return flags


def _null_rows(valid: Array) -> Array:
    return _NO_ROWS if valid.all() else np.flatnonzero(~valid).astype(np.uint32)


def _check_nulls(nulls: Array, total: int) -> None:
    if nulls.size and int(nulls.max()) >= total:
        raise DamagedFrame(f"a null of a state of {total} keys is beyond them")


class _Column(Protocol):
    """The values of one name, by slot."""

    def ensure(self, capacity: int) -> None: ...

    def take(self, slots: Array) -> pa.Array: ...

    def put(self, slots: Array, values: pa.Array) -> None: ...

    def clear(self, slots: Array) -> None: ...

    def pack(self, slots: Array) -> list[Array]: ...

    def unpack(self, columns: Sequence[Array], rows: Array, total: int) -> pa.Array: ...


class _FixedColumn:
    """Values of one width."""

    def __init__(self, kind: pa.DataType, dtype: np.dtype[Any]) -> None:
        self._kind = kind
        self._values = np.zeros(0, dtype)
        self._valid = np.zeros(0, np.bool_)

    def ensure(self, capacity: int) -> None:
        self._values = grown(self._values, capacity)
        self._valid = grown(self._valid, capacity)

    def _arrow(self, values: Array, valid: Array) -> pa.Array:
        flags = None if valid.all() else valid
        if pa.types.is_boolean(self._kind):
            return arrow_array(values, pa.int8(), flags).cast(pa.bool_())
        return arrow_array(values, self._kind, flags)

    def take(self, slots: Array) -> pa.Array:
        return self._arrow(self._values[slots], self._valid[slots])

    def put(self, slots: Array, values: pa.Array) -> None:
        valid = _valid(values)
        if pa.types.is_boolean(self._kind):
            values = values.cast(pa.int8())
        view = values_view(values, self._values.dtype)
        # What lies behind a null is nobody's business; a footprint must not depend on it.
        self._values[slots] = view if valid is None else np.where(valid, view, 0)
        self._valid[slots] = True if valid is None else valid

    def clear(self, slots: Array) -> None:
        """Nothing to give back."""

    def pack(self, slots: Array) -> list[Array]:
        return [self._values[slots], _null_rows(self._valid[slots])]

    def unpack(self, columns: Sequence[Array], rows: Array, total: int) -> pa.Array:
        values, nulls = columns
        if values.size != total:
            raise DamagedFrame(f"a state of {total} keys has {values.size} values in a column")
        _check_nulls(nulls, total)
        if pa.types.is_boolean(self._kind) and np.any((values != 0) & (values != 1)):
            raise DamagedFrame("a truth value in a state is neither true nor false")
        valid = np.ones(total, np.bool_)
        valid[nulls] = False
        return self._arrow(values[rows], valid[rows])


class _BytesColumn:
    """Values of any length: text, binary, or a list of numbers of `width` bytes each."""

    def __init__(self, field: StateField, item: np.dtype[Any]) -> None:
        self._field = field
        self._kind = field.kind
        self._item = item
        self._starts = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int64)
        self._valid = np.zeros(0, np.bool_)
        self._arena = np.zeros(0, np.uint8)
        self._used = self._live = 0

    def ensure(self, capacity: int) -> None:
        self._starts = grown(self._starts, capacity)
        self._lengths = grown(self._lengths, capacity)
        self._valid = grown(self._valid, capacity)

    def _gathered(self, slots: Array) -> tuple[Int64s, Bytes]:
        offsets = offsets_of(self._lengths[slots])
        data = np.empty(int(offsets[-1]), np.uint8)
        copy_rows(self._starts[slots], offsets, self._arena, data)
        return offsets, data

    def take(self, slots: Array) -> pa.Array:
        return self._arrow(*self._gathered(slots), self._valid[slots])

    def _arrow(self, offsets: Int64s, data: Bytes, valid: Array) -> pa.Array:
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        ends = offsets // self._item.itemsize
        types = pa.types
        wide = types.is_large_string(self._kind) or types.is_large_binary(self._kind)
        places = pa.py_buffer(ends if wide else ends.astype(np.int32))
        count = offsets.size - 1
        if not wide and int(ends[-1]) > np.iinfo(np.int32).max:
            raise SchemaMismatch(
                f"state {self._field.name!r}: the values of a turn's keys are too long for "
                f"{self._kind}; use its large form, or smaller stream events"
            )
        if types.is_list(self._kind):
            values = arrow_array(data.view(self._item), self._kind.value_type)
            return pa.Array.from_buffers(self._kind, count, [bits, places], children=[values])
        return pa.Array.from_buffers(self._kind, count, [bits, places, pa.py_buffer(data)])

    def _bytes_of(self, array: pa.Array) -> tuple[Int64s, Bytes]:
        """Where values start and end in which bytes."""
        if pa.types.is_list(self._kind):
            if array.values.null_count:
                raise SchemaMismatch(f"state {self._field.name!r}: a list must not hold nulls")
            data = values_view(array.values, self._item).view(np.uint8)
            return array.offsets.to_numpy().astype(np.int64) * self._item.itemsize, data
        types = pa.types
        wide = types.is_large_string(self._kind) or types.is_large_binary(self._kind)
        dtype = np.dtype(np.int64 if wide else np.int32)
        _, places, values = array.buffers()
        ends = np.frombuffer(places, dtype, len(array) + 1, array.offset * dtype.itemsize)
        found = np.zeros(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)
        return ends.astype(np.int64), found

    def put(self, slots: Array, values: pa.Array) -> None:
        if not len(values):
            return
        ends, data = self._bytes_of(values)
        valid = _valid(values)
        lengths = np.diff(ends) if valid is None else np.where(valid, np.diff(ends), 0)
        offsets = offsets_of(lengths)
        added = int(offsets[-1])
        self._make_room(added)
        copy_rows(ends[:-1], offsets, data, self._arena[self._used :])
        self._live += added - int(self._lengths[slots].sum())
        self._starts[slots] = self._used + offsets[:-1]
        self._lengths[slots] = lengths
        self._valid[slots] = True if valid is None else valid
        self._used += added

    def _make_room(self, added: int) -> None:
        if self._used > spared(self._live, SPARE_BYTES):
            slots = np.flatnonzero(self._lengths)
            offsets, self._arena = self._gathered(slots)
            self._starts[slots] = offsets[:-1]
            self._used = self._live
        self._arena = with_room(self._arena, self._used + added)

    def clear(self, slots: Array) -> None:
        self._live -= int(self._lengths[slots].sum())
        self._lengths[slots] = 0
        self._valid[slots] = False

    def pack(self, slots: Array) -> list[Array]:
        offsets, data = self._gathered(slots)
        return [np.diff(offsets).astype(np.uint32), data, _null_rows(self._valid[slots])]

    def unpack(self, columns: Sequence[Array], rows: Array, total: int) -> pa.Array:
        lengths, data, nulls = columns
        if lengths.size != total or int(lengths.sum(dtype=np.int64)) != data.size:
            raise DamagedFrame(f"the texts of a state of {total} keys do not fill their bytes")
        if np.any(lengths % self._item.itemsize):
            raise DamagedFrame(f"a list of a state is not a whole number of {self._item}")
        _check_nulls(nulls, total)
        valid = np.ones(total, np.bool_)
        valid[nulls] = False
        starts = offsets_of(lengths)[:-1][rows]
        offsets = offsets_of(lengths[rows])
        taken = np.empty(int(offsets[-1]), np.uint8)
        copy_rows(starts, offsets, data, taken)
        return _checked(self._arrow(offsets, taken, valid[rows]))


def _checked(array: pa.Array) -> pa.Array:
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        raise DamagedFrame(f"a state holds what its type cannot be: {error}") from error
    return array


def _column_of(field: StateField) -> _Column:
    kind = field.kind
    dtype, types = dtype_of(kind), pa.types
    if dtype is not None:
        return _FixedColumn(kind, dtype)
    if types.is_list(kind):
        item = dtype_of(kind.value_type)
        if item is not None and not types.is_boolean(kind.value_type):
            return _BytesColumn(field, item)
    text = types.is_string(kind) or types.is_large_string(kind)
    if text or types.is_binary(kind) or types.is_large_binary(kind):
        return _BytesColumn(field, np.dtype(np.uint8))
    raise SchemaMismatch(
        f"state {field.name!r} cannot be of type {kind}; numbers, booleans, dates, times, strings, "
        "binaries and lists of numbers can"
    )


class StateColumns:
    """The state of all keys.  Invariant: a slot that was opened holds a value of every column."""

    def __init__(self, fields: Sequence[StateField]) -> None:
        self._columns = [_column_of(field) for field in fields]
        self._defaults = [_default_of(field) for field in fields]
        self.schema = pa.schema([pa.field(field.name, field.kind) for field in fields])

    def ensure(self, capacity: int) -> None:
        """Make room for slots below `capacity`."""
        for column in self._columns:
            column.ensure(capacity)

    def open(self, slots: Array) -> None:
        """Give these slots the defaults."""
        if not slots.size:
            return
        for column, default in zip(self._columns, self._defaults, strict=True):
            column.put(slots, pa.repeat(default, slots.size))

    def clear(self, slots: Array) -> None:
        """These slots have no state any more."""
        for column in self._columns:
            column.clear(slots)

    def take(self, slots: Array) -> pa.RecordBatch:
        """The state of these slots, a row for each."""
        if not self._columns:
            return rows_without_columns(slots.size)
        arrays = [column.take(slots) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def put(self, slots: Array, state: pa.RecordBatch) -> None:
        """Set the state of different slots."""
        for column, values in zip(self._columns, state.columns, strict=True):
            column.put(slots, values)

    def pack(self, slots: Array) -> list[Array]:
        """The footprint columns of these slots."""
        return [array for column in self._columns for array in column.pack(slots)]

    def unpack(self, columns: Sequence[Array], rows: Array, total: int) -> pa.RecordBatch:
        """The state in the chosen rows of footprint columns (whose types are right)."""
        nothing = np.zeros(0, np.int64)
        rest, arrays = list(columns), []
        for column in self._columns:
            width = len(column.pack(nothing))
            arrays.append(column.unpack(rest[:width], rows, total))
            rest = rest[width:]
        if not arrays:
            return rows_without_columns(rows.size)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def rows_without_columns(rows: int) -> pa.RecordBatch:
    """A batch of so many rows and no column."""
    struct = pa.array([{}] * rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(struct)


def _default_of(field: StateField) -> pa.Scalar:
    try:
        return pa.scalar(field.default, field.kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatch(
            f"state {field.name!r}: the default {field.default!r} is no {field.kind}: {error}"
        ) from error
