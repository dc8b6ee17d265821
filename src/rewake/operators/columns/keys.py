"""Group-by keys: any columns to dense ids, and back, a stream event at a time.

One column of at most 64 bits goes through an `IntegerTable`; strings, binaries, decimals and
several columns are laid out as rows of bytes and go through a `BytesTable`.  Nulls are keys like
others: SQL groups them together.

Row layout, per column: one byte 0 (null) or 1; then 8 bytes of value, or a 4-byte length and the
bytes (of a decimal 16: a column has one scale, so equal decimals are equal bytes).  The same
layouts are what footprints store, so a log is read back without Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from rewake.model.errors import DamagedFrame, NullKey, SchemaMismatch, UsageError
from rewake.operators.columns.arrays import (
    Array,
    Bytes,
    Int32s,
    Int64s,
    arrow_array,
    dtype_of,
    spared,
    values_view,
)
from rewake.operators.columns.key_tables import BytesTable, IntegerTable

_DECIMAL_BYTES = 16
# Keys that nobody needs are forgotten once there are this many more of them than of the others.
SPARE_KEYS = 65_536


def _is_variable(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_decimal128(kind)
    )


class KeyColumn:
    """One key column: its values as 64-bit integers, or as bytes."""

    def __init__(self, field: pa.Field) -> None:
        self.name: str = field.name
        self.kind: pa.DataType = field.type
        # Dictionaries are a transport encoding; their values are the keys.
        if pa.types.is_dictionary(self.kind):
            self.kind = self.kind.value_type
        self.dtype = dtype_of(self.kind)
        if self.dtype is None and not _is_variable(self.kind):
            raise SchemaMismatch(
                f"column {self.name!r} of type {field.type} cannot be a key; integers, floats, "
                "decimals of up to 38 digits, booleans, dates, times, timestamps, strings and "
                "binaries can"
            )

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The type in which footprints keep the integers that stand for the values."""
        narrow = self.dtype is not None and self.dtype.kind in "iu" and self.dtype.itemsize <= 4
        return self.dtype if narrow and self.dtype is not None else np.dtype(np.int64)

    def plain(self, array: pa.Array) -> pa.Array:
        """The column without a dictionary."""
        return array.cast(self.kind) if array.type != self.kind else array

    def integers(self, array: pa.Array) -> Array:
        """The values of a fixed-width column; equal keys give equal integers, nulls anything."""
        if pa.types.is_boolean(self.kind):
            return values_view(array.cast(pa.int8()), np.int8)
        assert self.dtype is not None
        values = values_view(array, self.dtype)
        if self.dtype.kind == "f":
            return _float_keys(values.astype(np.float64))
        return values.view(np.int64) if self.dtype == np.uint64 else values

    def from_integers(self, values: Array, valid: Array | None) -> pa.Array:
        """The Arrow column that `integers` came from."""
        assert self.dtype is not None
        if pa.types.is_boolean(self.kind):
            return arrow_array(values.astype(np.int8), pa.int8(), valid).cast(pa.bool_())
        if self.dtype.kind == "f":
            return arrow_array(values.view(np.float64).astype(self.dtype), self.kind, valid)
        return arrow_array(values.astype(self.dtype, copy=False), self.kind, valid)

    def bytes(self, array: pa.Array) -> tuple[Array, Bytes]:
        """Offsets and data of a variable-width column, or of decimals."""
        if pa.types.is_decimal128(self.kind):
            values = values_view(array, f"V{_DECIMAL_BYTES}")
            return np.arange(len(array) + 1) * _DECIMAL_BYTES, values.view(np.uint8)
        wide = pa.types.is_large_string(self.kind) or pa.types.is_large_binary(self.kind)
        kind = np.dtype(np.int64 if wide else np.int32)
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, kind, len(array) + 1, array.offset * kind.itemsize)
        values = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return ends, values

    def from_bytes(self, offsets: Int64s, data: Bytes, valid: Array | None) -> pa.Array:
        """The Arrow column of these values; a null has no bytes."""
        if pa.types.is_decimal128(self.kind):
            return self._decimals(offsets, data, valid)
        wide = pa.types.is_large_string(self.kind) or pa.types.is_large_binary(self.kind)
        ends = pa.py_buffer(offsets if wide else offsets.astype(np.int32))
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(self.kind, offsets.size - 1, [bits, ends, pa.py_buffer(data)])

    def _decimals(self, offsets: Int64s, data: Bytes, valid: Array | None) -> pa.Array:
        present = np.ones(offsets.size - 1, np.bool_) if valid is None else valid
        if np.any(np.diff(offsets) != _DECIMAL_BYTES * present):
            raise DamagedFrame(f"a footprint's key bytes are no decimal of column {self.name!r}")
        values = np.zeros((present.size, _DECIMAL_BYTES), np.uint8)
        values[present] = data.reshape(-1, _DECIMAL_BYTES)
        return arrow_array(values.reshape(-1).view(f"V{_DECIMAL_BYTES}"), self.kind, valid)


def _float_keys(values: Array) -> Int64s:
    """Bits of floats, with one zero and one NaN, as grouping in SQL has it."""
    canonical = values + 0.0
    canonical[np.isnan(canonical)] = np.nan
    return canonical.view(np.int64)


@njit(cache=True, nogil=True)
def _row_ends(ends, valid, rows):  # type: ignore[no-untyped-def]
    """Add one variable-width column's share to the row lengths in `rows[1:]`."""
    for i in range(rows.size - 1):
        rows[i + 1] += 5
        if valid.size == 0 or valid[i]:
            rows[i + 1] += ends[i + 1] - ends[i]


@njit(cache=True, nogil=True)
def _put_fixed(values, valid, places, data):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        place = places[i]
        present = valid.size == 0 or valid[i]
        data[place] = present
        rest = np.uint64(np.int64(values[i])) if present else np.uint64(0)
        for j in range(8):
            data[place + 1 + j] = (rest >> np.uint64(8 * j)) & np.uint64(255)
        places[i] = place + 9


@njit(cache=True, nogil=True)
def _put_variable(ends, values, valid, places, data):  # type: ignore[no-untyped-def]
    for i in range(ends.size - 1):
        place = places[i]
        present = valid.size == 0 or valid[i]
        data[place] = present
        length = np.int64(ends[i + 1]) - ends[i] if present else 0
        for j in range(4):
            data[place + 1 + j] = (length >> (8 * j)) & 255
        # Unsigned, no place can be meant from the end, and many bytes are copied at once.
        source, target = np.uint64(ends[i]), np.uint64(place + 5)
        for j in range(np.uint64(length)):
            data[target + j] = values[source + j]
        places[i] = place + 5 + length


@njit(cache=True, nogil=True)
def _take_fixed(data, places, limits, values, valid):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        place = places[i]
        if place + 9 > limits[i]:
            return False
        valid[i] = data[place]
        rest = np.uint64(0)
        for j in range(8):
            rest |= np.uint64(data[place + 1 + j]) << np.uint64(8 * j)
        values[i] = np.int64(rest)
        places[i] = place + 9
    return True


@njit(cache=True, nogil=True)
def _take_lengths(data, places, limits, offsets, valid):  # type: ignore[no-untyped-def]
    for i in range(places.size):
        place = places[i]
        if place + 5 > limits[i]:
            return False
        valid[i] = data[place]
        length = np.int64(0)
        for j in range(4):
            length |= np.int64(data[place + 1 + j]) << (8 * j)
        if place + 5 + length > limits[i]:
            return False
        offsets[i + 1] = offsets[i] + length
    return True


@njit(cache=True, nogil=True)
def _take_variable(data, places, offsets, values):  # type: ignore[no-untyped-def]
    for i in range(places.size):
        length = offsets[i + 1] - offsets[i]
        values[offsets[i] : offsets[i + 1]] = data[places[i] + 5 : places[i] + 5 + length]
        places[i] += 5 + length


def _validity(array: pa.Array) -> Array:
    """One flag per value, or nothing when there are no nulls."""
    if array.null_count == 0:
        return np.zeros(0, np.bool_)
    flags: Array = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return flags


class InternedKeys:
    """Keys with the ids that a table has given them."""

    _table: IntegerTable | BytesTable

    @property
    def size(self) -> int:
        """How many keys are known; a null that is a key by itself is always, and does not count."""
        return self._table.size

    @property
    def id_limit(self) -> int:
        """All ids are below this."""
        return self._table.id_limit

    def reserve(self, keys: int) -> None:
        """Make room for so many keys at once."""
        self._table.reserve(keys)

    def keep(self, live: Array) -> None:
        """Forget the keys whose id is not marked in `live`; their ids are given again."""
        self._table.keep(live)

    def forget_idle(self, needed: int, live: Callable[[int], Array]) -> None:
        """Forget all keys but the `needed` ones, if that are many.

        `live` says of each id below a limit whether it is one of them.
        """
        if self.size > spared(needed, SPARE_KEYS):
            self.keep(live(self.id_limit))


class IntegerKeys(InternedKeys):
    """Keys of one fixed-width column.  Footprint columns: values, rows that are null.

    The id of null is always 0.
    """

    footprint_columns = 2

    def __init__(self, column: KeyColumn) -> None:
        self._column = column
        dtype = column.stored_dtype
        self._table: IntegerTable = IntegerTable(narrow=dtype.kind == "i" and dtype.itemsize <= 4)

    def intern(self, columns: Sequence[pa.Array]) -> Int32s:
        """Ids of the keys in these columns; unknown keys get one."""
        return self._ids(columns[0], self._table.intern)

    def find(self, columns: Sequence[pa.Array]) -> Int32s:
        """Ids of the keys in these columns, -1 for unknown ones."""
        return self._ids(columns[0], self._table.find)

    def _ids(self, array: pa.Array, look_up: Callable[[Array], Int32s]) -> Int32s:
        values = self._column.integers(array)
        if array.null_count == 0:
            return look_up(values)
        valid = _validity(array)
        ids = np.zeros(values.size, np.int32)
        ids[valid] = look_up(values[valid])
        return ids

    def columns(self, ids: Array) -> list[pa.Array]:
        """The key columns of these ids."""
        values, null_rows = self._table.keys(ids, self._column.stored_dtype)
        valid = None
        if null_rows.size:
            valid = np.ones(ids.size, np.bool_)
            valid[null_rows] = False
        return [self._column.from_integers(values, valid)]

    def pack(self, ids: Array) -> list[Array]:
        """The footprint columns of these ids."""
        return list(self._table.keys(ids, self._column.stored_dtype))

    def unpack(self, columns: Sequence[Array], rows: Array, total: int) -> Int32s:
        """Ids of the keys in the chosen rows of footprint columns of `total` rows."""
        return self.unpack_all([columns], [rows], [total])

    def unpack_all(
        self, frames: Sequence[Sequence[Array]], rows: Sequence[Array], totals: Sequence[int]
    ) -> Int32s:
        """Ids of the keys in the chosen rows of the footprint columns of many frames."""
        taken: list[Array] = [np.zeros(0, self._column.stored_dtype)]
        absent: list[Array] = []
        place = 0
        for (values, nulls), chosen, total in zip(frames, rows, totals, strict=True):
            if values.size != total or (nulls.size and int(nulls.max()) >= total):
                raise DamagedFrame(f"the keys of a footprint are not {total} rows long")
            taken.append(values[chosen])
            if nulls.size:
                is_null = np.zeros(total, np.bool_)
                is_null[nulls] = True
                absent.append(np.flatnonzero(is_null[chosen]) + place)
            place += chosen.size
        keys = np.concatenate(taken).astype(np.int64)
        if not absent:
            return self._table.intern(keys)
        valid = np.ones(keys.size, np.bool_)
        valid[np.concatenate(absent)] = False
        ids = np.zeros(keys.size, np.int32)
        ids[valid] = self._table.intern(keys[valid])
        return ids


class RowKeys(InternedKeys):
    """Keys of several columns, or of a variable-width one.  Footprint columns: offsets, bytes."""

    footprint_columns = 2

    def __init__(self, columns: Sequence[KeyColumn]) -> None:
        self._columns = list(columns)
        self._table: BytesTable = BytesTable()

    def intern(self, columns: Sequence[pa.Array]) -> Int32s:
        """Ids of the keys in these columns; unknown keys get one."""
        return self._table.intern(*self._rows(columns))

    def find(self, columns: Sequence[pa.Array]) -> Int32s:
        """Ids of the keys in these columns, -1 for unknown ones."""
        return self._table.find(*self._rows(columns))

    def _rows(self, arrays: Sequence[pa.Array]) -> tuple[Int64s, Bytes]:
        count = len(arrays[0])
        lengths = np.zeros(count + 1, np.int64)
        parts: list[tuple[Array, Array, Bytes | None]] = []
        for column, array in zip(self._columns, arrays, strict=True):
            valid = _validity(array)
            if column.dtype is not None:
                lengths[1:] += 9
                parts.append((valid, column.integers(array), None))
            else:
                ends, values = column.bytes(array)
                _row_ends(ends, valid, lengths)
                parts.append((valid, ends, values))
        offsets = np.cumsum(lengths)
        data = np.empty(int(offsets[-1]), np.uint8)
        places = offsets[:-1].copy()
        for valid, first, variable in parts:
            if variable is None:
                _put_fixed(first, valid, places, data)
            else:
                _put_variable(first, variable, valid, places, data)
        return offsets, data

    def columns(self, ids: Array) -> list[pa.Array]:
        """The key columns of these ids."""
        offsets, data = self._table.rows(ids)
        places = offsets[:-1].copy()
        return [self._take(column, places, offsets[1:], data) for column in self._columns]

    @staticmethod
    def _take(column: KeyColumn, places: Int64s, limits: Int64s, data: Bytes) -> pa.Array:
        valid = np.ones(places.size, np.bool_)
        if column.dtype is not None:
            values = np.empty(places.size, np.int64)
            whole = _take_fixed(data, places, limits, values, valid)
            _check_row(whole, column)
            return column.from_integers(values, None if valid.all() else valid)
        ends = np.zeros(places.size + 1, np.int64)
        _check_row(_take_lengths(data, places, limits, ends, valid), column)
        taken = np.empty(int(ends[-1]), np.uint8)
        _take_variable(data, places, ends, taken)
        return column.from_bytes(ends, taken, None if valid.all() else valid)

    def pack(self, ids: Array) -> list[Array]:
        """The footprint columns of these ids."""
        offsets, data = self._table.rows(ids)
        return [offsets, data]

    def unpack(self, columns: Sequence[Array], rows: Array, total: int) -> Int32s:
        """Ids of the keys in the chosen rows of footprint columns of `total` rows."""
        offsets, data = columns
        if offsets.size != total + 1 or offsets[0] != 0 or offsets[-1] != data.size:
            raise DamagedFrame(f"the key offsets of a footprint do not cover {total} keys")
        # Compared, not subtracted: a difference could wrap around.
        if np.any(offsets[1:] < offsets[:-1]):
            raise DamagedFrame("the key offsets of a footprint run backwards")
        ids = self._table.intern(offsets, data)[rows]
        self.columns(ids)  # refuses bytes that are no key now, not when the window closes
        return ids

    def unpack_all(
        self, frames: Sequence[Sequence[Array]], rows: Sequence[Array], totals: Sequence[int]
    ) -> Int32s:
        """Ids of the keys in the chosen rows of the footprint columns of many frames."""
        found = [self.unpack(*each) for each in zip(frames, rows, totals, strict=True)]
        return np.concatenate([np.zeros(0, np.int32), *found])


def _check_row(whole: bool, column: KeyColumn) -> None:
    if not whole:
        raise DamagedFrame(f"a footprint's key bytes end before column {column.name!r}")


KeyTable = IntegerKeys | RowKeys


def check_null_keys(null_keys: str) -> None:
    """Refuse what is neither to group nor to refuse."""
    if null_keys not in ("group", "refuse"):
        raise UsageError(
            "null_keys is 'group' or 'refuse' (or 'drop', which steps make a filter of), not "
            f"{null_keys!r}"
        )


class GroupBy:
    """The key columns of a stream: finds them in stream events and maps them to ids."""

    def __init__(self, schema: pa.Schema, by: Sequence[str], *, refuse_nulls: bool) -> None:
        self._names = list(by)
        self._refuse_nulls = refuse_nulls
        self._places = [schema.get_field_index(name) for name in by]
        columns = self._columns = [KeyColumn(schema.field(name)) for name in by]
        self.fields = [pa.field(column.name, column.kind) for column in columns]
        one_integer = len(columns) == 1 and columns[0].dtype is not None
        self.table: KeyTable = IntegerKeys(columns[0]) if one_integer else RowKeys(columns)

    def _arrays(self, batch: pa.RecordBatch, position: int) -> list[pa.Array]:
        # Dictionaries are decoded first: their values may hold nulls that the indices do not show.
        arrays = [
            column.plain(batch.column(place))
            for column, place in zip(self._columns, self._places, strict=True)
        ]
        if self._refuse_nulls:
            for name, array in zip(self._names, arrays, strict=True):
                if array.null_count:
                    row = int(np.flatnonzero(~_validity(array))[0])
                    raise NullKey(
                        f"key column {name!r} is null in the tuple at position {position + row}; "
                        "leave such tuples out with null_keys='drop', or group them with 'group'"
                    )
        return arrays

    def intern(self, batch: pa.RecordBatch, position: int) -> Int32s:
        """Ids of a stream event's keys; unknown keys get one."""
        return self.table.intern(self._arrays(batch, position))

    def find(self, batch: pa.RecordBatch, position: int) -> Int32s:
        """Ids of a stream event's keys, -1 for unknown ones."""
        return self.table.find(self._arrays(batch, position))
