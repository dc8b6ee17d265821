"""Columns of fixed width in few bytes: for logs in which bytes count more than time.

The same columns as `rewake.log.columns` keeps, and told from those by their first two bytes, which
there would be an impossible number of columns.  Every column is a column of integers here (floats
by their bits), stored as what they are above the smallest, or above the neighbour plus the smallest
step where that seems to take fewer bytes.  What is left is cut into planes: the lowest bytes of all
values, then the second lowest, and so on, as many as the largest value has.  A plane is compressed
with zstd where that makes it smaller: the upper bytes of values seldom fill their range, the lower
ones mostly do and are stored as they are.

    offset  size  field
         0     2  mark       0xFFFF
         2     1  version    1
         3     2  count      of columns
         .     .  heads      per column: dtype code u8, planes u8 (+ 16 with steps), length u32;
                             unless it is empty, the smallest value or step i64;
                             with steps, the first value i64; per plane, its stored bytes u32
         .     .  planes     each column's, lowest first

What always holds: columns come back as they were, bit by bit.  Hostile bytes raise `DamagedFrame`,
and nothing is allocated for them beyond what the caller says that there may be, or 64 times what
is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from rewake.log.columns import MAX_COLUMNS, Column, unpack_columns
from rewake.log.frame import MAX_FRAME_BYTES, Buffer
from rewake.model.errors import DamagedFrame, SchemaMismatch, UsageError

__all__ = ["estimated_bytes", "pack_tightly", "unpack_any"]

_MARK: Final = b"\xff\xff"
_VERSION: Final = 1
_NAMES: Final = ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f4", "<f8", "?")
_DTYPES: Final = tuple(np.dtype(name) for name in _NAMES)
_CODES: Final = {dtype: code for code, dtype in enumerate(_DTYPES)}
_HEAD: Final = Struct("<2sBH")
_COLUMN: Final = Struct("<BBI")
_STEPS: Final = 16
_I64: Final = Struct("<q")
_MOST_BYTES: Final = 4 * MAX_FRAME_BYTES
# A column that nobody has counted may be so many times larger than what is stored, or so large.
_MOST_RATIO: Final = 64
_ALWAYS: Final = 65_536
# What a compressed plane takes beyond its entropy, and the share of itself that it has to save.
_OVERHEAD: Final = 24
_WORTH: Final = 0.97
_LEVEL: Final = 1
_SAMPLE: Final = 4096
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError)


@njit(cache=True, nogil=True)
def _ranges(values):  # type: ignore[no-untyped-def]
    """Smallest and largest value, smallest and largest step; steps may wrap around."""
    smallest = largest = values[0]
    least = np.int64(2**63 - 1)
    most = np.int64(-(2**63))
    for i in range(1, values.size):
        smallest = min(smallest, values[i])
        largest = max(largest, values[i])
        step = values[i] - values[i - 1]
        least = min(least, step)
        most = max(most, step)
    return smallest, largest, least, most


@njit(cache=True, nogil=True)
def _entropy(plane):  # type: ignore[no-untyped-def]
    """How many bytes a plane would take if every value took as many bits as it is rare."""
    counts = np.zeros(256, np.int64)
    for i in range(plane.size):
        counts[plane[i]] += 1
    bits = 0.0
    for count in counts:
        if count:
            bits -= count * np.log2(count / plane.size)
    return bits / 8


# --- packing ---------------------------------------------------------------------------------


class _Cut(NamedTuple):
    """A column as planes above a base."""

    base: int
    first: int
    steps: bool
    planes: Column


def _as_integers(column: Column) -> Column:
    if column.dtype.kind in "fb":
        column = np.ascontiguousarray(column).view(f"i{column.dtype.itemsize}")
    return np.ascontiguousarray(column).astype(np.int64, copy=False)


def _cut_column(column: Column) -> _Cut:
    values = _as_integers(column)
    smallest, largest, least, most = (int(each) for each in _ranges(values))
    width, step_width = _bytes(largest - smallest), _bytes(most - least)
    steps = False
    # Steps within such a range cannot have wrapped around.
    if values.size > 1 and largest - smallest < 2**62:
        start = (values.size - min(values.size, _SAMPLE)) // 2
        some = values[start : start + _SAMPLE]
        above = _cut_above(some, smallest, width, steps=False)
        by_steps = _cut_above(some, least, step_width, steps=True)
        steps = _entropies(by_steps) < _entropies(above)
    base = least if steps else smallest
    planes = _cut_above(values, base, step_width if steps else width, steps=steps)
    return _Cut(base, int(values[0]), steps, planes)


def _bytes(number: int) -> int:
    return -(-number.bit_length() // 8)


def _cut_above(values: Column, base: int, width: int, *, steps: bool) -> Column:
    """Planes of what values, or their steps, are above the base; the first step is it."""
    above = values - base
    if steps:
        above[0] = 0
        np.subtract(values[1:], values[:-1], out=above[1:])
        above[1:] -= base
    return np.ascontiguousarray(above.view(np.uint8).reshape(-1, 8)[:, :width].T)


def _entropies(planes: Column) -> float:
    return sum(float(_entropy(plane)) for plane in planes)


def _zstd() -> pa.Codec:
    """One for each use: shards pack on threads of their own."""
    return pa.Codec("zstd", compression_level=_LEVEL)


def _stored(plane: Column) -> bytes:
    """A plane as it is, or compressed where that is worth it."""
    if float(_entropy(plane)) + _OVERHEAD < _WORTH * plane.size:
        packed: bytes = _zstd().compress(plane, asbytes=True)
        if len(packed) < plane.size:
            return packed
    return plane.tobytes()


def pack_tightly(columns: Sequence[Column]) -> bytes:
    """The columns as bytes, in a form that `unpack_any` knows."""
    if len(columns) > MAX_COLUMNS:
        raise SchemaMismatch(f"{len(columns)} columns; at most {MAX_COLUMNS} fit one section")
    size = sum(8 * column.size for column in columns)
    if size > _MOST_BYTES:
        raise UsageError(
            f"a section of a turn would hold {size} bytes before packing; the limit is "
            f"{_MOST_BYTES}: deliver smaller stream events"
        )
    heads = [_HEAD.pack(_MARK, _VERSION, len(columns))]
    stored: list[bytes] = []
    for column in columns:
        code = _CODES.get(column.dtype)
        if code is None or column.ndim != 1:
            raise SchemaMismatch(
                f"a column of dtype {column.dtype} and shape {column.shape} cannot be stored; use "
                "one-dimensional little-endian integers, floats or booleans"
            )
        if column.size == 0:
            heads.append(_COLUMN.pack(code, 0, 0))
            continue
        base, first, steps, planes = _cut_column(column)
        heads.append(_COLUMN.pack(code, len(planes) + _STEPS * steps, column.size))
        heads.append(_I64.pack(base) + (_I64.pack(first) if steps else b""))
        packed = [_stored(plane) for plane in planes]
        heads.append(np.array([len(plane) for plane in packed], "<u4").tobytes())
        stored += packed
    packed_bytes = b"".join(heads + stored)
    longest = max((column.size for column in columns), default=0)
    # Readers believe no length that so few bytes cannot stand for.
    if longest > max(_ALWAYS, _MOST_RATIO * len(packed_bytes)):
        packed_bytes = packed_bytes.ljust(-(-longest // _MOST_RATIO), b"\0")
    return packed_bytes


def estimated_bytes(columns: Sequence[Column], rows: int) -> float:
    """About how many bytes columns of `rows` values take, of which these are samples."""
    return sum(_estimated(column[:: -(-column.size // _SAMPLE) or 1], rows) for column in columns)


def _estimated(sample: Column, rows: int) -> float:
    if sample.size == 0:
        return 0.0
    return _entropies(_cut_column(sample).planes) / sample.size * rows


# --- unpacking -------------------------------------------------------------------------------


class _Head(NamedTuple):
    """What is said of a column before its planes."""

    code: int
    length: int
    base: int = 0
    first: int = 0
    steps: bool = False
    sizes: tuple[int, ...] = ()


def unpack_any(payload: Buffer, most: int | None = None) -> list[Column]:
    """The columns in a section, whichever way it was packed, read-only.

    With `most`, the first column has at most so many values, and one more: one for each part.  What
    follows may have several of a part, and no more than the bytes can hold.
    """
    view = memoryview(payload)
    if bytes(view[:2]) != _MARK:
        return unpack_columns(view)
    try:
        heads, place = _heads(view)
    except StructError as error:
        raise DamagedFrame(f"a packed section of {len(view)} bytes ends early: {error}") from error
    _check_lengths(heads, place, len(view), most)
    columns = []
    for head in heads:
        columns.append(_column(head, view[place : place + sum(head.sizes)]))
        place += sum(head.sizes)
    return columns


def _heads(view: memoryview) -> tuple[list[_Head], int]:
    _, version, count = _HEAD.unpack_from(view)
    if version != _VERSION:
        raise DamagedFrame(f"a section was packed by version {version}; this is {_VERSION}")
    if count > MAX_COLUMNS:
        raise DamagedFrame(f"a packed section of {len(view)} bytes cannot hold {count} columns")
    place = _HEAD.size
    heads = []
    for _ in range(count):
        code, planes, length = _COLUMN.unpack_from(view, place)
        place += _COLUMN.size
        steps, planes = divmod(planes, _STEPS)
        if code >= len(_DTYPES) or steps > 1 or planes > 8 or (not length and (steps or planes)):
            raise DamagedFrame(f"a packed column (code {code}, {planes} planes) cannot be")
        if not length:
            heads.append(_Head(code, 0))
            continue
        fields = Struct(f"<q{steps}q{planes}I")
        base, *rest = fields.unpack_from(view, place)
        place += fields.size
        first = rest.pop(0) if steps else 0
        heads.append(_Head(code, length, base, first, bool(steps), tuple(rest)))
    return heads, place


def _check_lengths(heads: list[_Head], place: int, size: int, most: int | None) -> None:
    """Before anything is allocated: lengths are possible, and planes fill the section."""
    credible = max(_ALWAYS, _MOST_RATIO * size)
    stored = total = 0
    for number, head in enumerate(heads):
        limit = min(credible, most + 1) if most is not None and number == 0 else credible
        if head.length > limit or any(not 0 < each <= head.length for each in head.sizes):
            raise DamagedFrame(f"a packed column of {head.length} values does not fit")
        stored += sum(head.sizes)
        total += 8 * head.length
    longest = max((head.length for head in heads), default=0)
    padded = longest > max(_ALWAYS, _MOST_RATIO * (place + stored))
    end = -(-longest // _MOST_RATIO) if padded else place + stored
    if total > _MOST_BYTES or end != size:
        raise DamagedFrame(f"packed columns end at byte {end} of a section of {size} bytes")


def _column(head: _Head, view: memoryview) -> Column:
    dtype = _DTYPES[head.code]
    planes = np.zeros((head.length, 8), np.uint8)
    place = 0
    for number, size in enumerate(head.sizes):
        planes[:, number] = _plane(view[place : place + size], head.length)
        place += size
    values = planes.view(np.int64).reshape(-1)
    values += head.base
    if head.steps:
        values[0] = head.first
        np.cumsum(values, out=values)
    if dtype.kind == "b" and values.size and not 0 <= int(values.min()) <= int(values.max()) <= 1:
        raise DamagedFrame("a packed boolean column holds a number that is no boolean")
    column: Column = values.astype(
        dtype if dtype.kind in "iub" else f"i{dtype.itemsize}", copy=False
    )
    column = column.view(dtype)
    column.flags.writeable = False
    return column


def _plane(view: memoryview, length: int) -> Any:
    if len(view) == length:
        return np.frombuffer(view, np.uint8)
    try:
        plane = np.frombuffer(_zstd().decompress(view, decompressed_size=length), np.uint8)
    except _ARROW_ERRORS as error:
        raise DamagedFrame(f"a plane of a packed column cannot be unpacked: {error}") from error
    if plane.size != length:
        raise DamagedFrame(f"a plane of a packed column holds {plane.size} values, not {length}")
    return plane
