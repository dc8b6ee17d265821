"""A tiny self-describing container for one-dimensional columns of fixed width.

    offset  size  field
         0     2  count      of columns
         2    5n  per column: dtype code u8, length u32 (values, not bytes)
         .     .  zeros up to a multiple of 8
         .     .  the values of each column, little-endian, each zero-padded to 8

Columns may differ in length.  Unpacking copies nothing: the arrays are read-only views of the
buffer.  Integrity is the frame's business (its checksum covers the payload); this module only
promises that hostile bytes raise `DamagedFrame`, and nothing else, before anything is allocated.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np

from rewake.log.frame import Buffer
from rewake.model.errors import DamagedFrame, SchemaMismatch

__all__ = ["MAX_COLUMNS", "Column", "pack_columns", "unpack_columns"]

Column: TypeAlias = np.ndarray[Any, np.dtype[Any]]

MAX_COLUMNS: Final = 4096

# A dtype's code on disk is its place here: add new ones at the end only.
_NAMES: Final = ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f4", "<f8", "?")
_DTYPES: Final = tuple(np.dtype(name) for name in _NAMES)
_CODES: Final = {dtype: code for code, dtype in enumerate(_DTYPES)}
_WIDTHS: Final = tuple(dtype.itemsize for dtype in _DTYPES)
_BOOL: Final = _CODES[np.dtype("?")]
_COUNT: Final = Struct("<H")
_PADDING: Final = tuple(b"\0" * size for size in range(8))


def _head(count: int) -> Struct:
    size = 2 + 5 * count
    return Struct("<H" + "BI" * count + f"{-size & 7}x")


_HEADS: Final = tuple(_head(count) for count in range(33))


def pack_columns(columns: Sequence[Column]) -> bytes:
    """The columns as bytes.  Raises SchemaMismatch for a shape or dtype that cannot be kept."""
    count = len(columns)
    if count > MAX_COLUMNS:
        raise SchemaMismatch(f"{count} columns; at most {MAX_COLUMNS} fit one section")
    fields = [count]
    parts: list[Any] = [b""]
    for column in columns:
        code = _CODES.get(column.dtype)
        if code is None or column.ndim != 1 or column.shape[0] > 0xFFFFFFFF:
            raise _unfit(column)
        fields += (code, column.shape[0])
        parts.append(column if column.flags.c_contiguous else np.ascontiguousarray(column))
        padding = -column.nbytes & 7
        if padding:
            parts.append(_PADDING[padding])
    head = _HEADS[count] if count < len(_HEADS) else _head(count)
    parts[0] = head.pack(*fields)
    return b"".join(parts)


def unpack_columns(payload: Buffer) -> list[Column]:
    """The columns in `payload`, as read-only views of it."""
    view = memoryview(payload)
    if len(view) < _COUNT.size:
        raise DamagedFrame(f"a column section of {len(view)} bytes holds no column count")
    count = _COUNT.unpack_from(view)[0]
    head = _HEADS[count] if count < len(_HEADS) else _head(min(count, MAX_COLUMNS + 1))
    if count > MAX_COLUMNS or head.size > len(view):
        raise DamagedFrame(f"a column section of {len(view)} bytes cannot hold {count} columns")
    fields = head.unpack_from(view)
    start = head.size
    columns: list[Column] = []
    for code, length in zip(fields[1::2], fields[2::2], strict=True):
        if code >= len(_DTYPES) or start + length * _WIDTHS[code] > len(view):
            raise DamagedFrame(f"column {len(columns)} (code {code}, length {length}) does not fit")
        columns.append(_view(view, code, length, start))
        size = length * _WIDTHS[code]
        start += size + (-size & 7)
    if start != len(view):
        raise DamagedFrame(f"the columns end at byte {start} of a section of {len(view)} bytes")
    return columns


def _view(view: memoryview, code: int, length: int, start: int) -> Column:
    if code != _BOOL:
        column: Column = np.frombuffer(view, _DTYPES[code], length, start)
    else:
        column = _bools(view, length, start)
    if not view.readonly:
        column.flags.writeable = False
    return column


def _bools(view: memoryview, length: int, start: int) -> Column:
    """Any byte but 0 and 1 in a boolean array is undefined behaviour in numpy: refuse it."""
    column = np.frombuffer(view, np.uint8, length, start)
    if length and column.max() > 1:
        raise DamagedFrame(f"the boolean column at byte {start} holds a byte that is no boolean")
    return column.view(np.bool_)


def _unfit(column: Column) -> SchemaMismatch:
    return SchemaMismatch(
        f"a column of dtype {column.dtype} and shape {column.shape} cannot be stored; use "
        "one-dimensional little-endian integers, floats or booleans"
    )
