"""Growing numpy arrays, and numpy views of Arrow arrays without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


def capacity_for(needed: int, current: int) -> int:
    """A capacity of at least `needed`, growing by half so that appends cost O(1) each."""
    return max(needed, current + current // 2, 1024)


def grown(array: Array, capacity: int, fill: float | Array = 0) -> Array:
    """A copy of `array` with `capacity` elements, or rows, the new ones `fill`.

    Zero fill comes from untouched pages, so spare capacity takes no memory until it is used.
    """
    length = len(array)
    if capacity <= length:
        return array
    larger = np.zeros((capacity, *array.shape[1:]), array.dtype)
    larger[:length] = array
    if np.any(fill):
        larger[length:] = fill
    return larger


def with_room(array: Array, needed: int, fill: float | Array = 0) -> Array:
    """The array if it has `needed` elements, or rows; otherwise a larger copy."""
    if needed <= len(array):
        return array
    return grown(array, capacity_for(needed, len(array)), fill)


def spared(needed: int, spare: int) -> int:
    """How many may be kept where so many are needed.

    Looking for those that nobody needs costs what is kept; by then at least half can be forgotten.
    """
    return 2 * needed + spare


def dtype_of(kind: pa.DataType) -> np.dtype[Any] | None:
    """The numpy type of the values of a column of fixed width; None for others.

    Truth values, which Arrow keeps as bits, are bytes here: cast them before they are viewed.
    """
    types = pa.types
    if types.is_boolean(kind):
        return np.dtype(np.int8)
    if types.is_floating(kind) and not types.is_float16(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    if types.is_unsigned_integer(kind):
        return np.dtype(f"u{kind.bit_width // 8}")
    if types.is_integer(kind) or (types.is_temporal(kind) and not types.is_interval(kind)):
        return np.dtype(f"i{kind.bit_width // 8}")
    return None


def is_large(kind: pa.DataType) -> bool:
    """Whether texts or bytes of a type are counted in 64 bits."""
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is of texts or bytes of any length."""
    return bool(is_large(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))


def text_view(array: pa.Array) -> tuple[Array, Bytes]:
    """Where texts end (one before the first), and the bytes, without a copy."""
    dtype = np.dtype(np.int64 if is_large(array.type) else np.int32)
    _, places, data = array.buffers()
    if places is None or not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    ends = np.frombuffer(places, dtype, len(array) + 1, array.offset * dtype.itemsize)
    return ends, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def text_array(kind: pa.DataType, ends: Int64s, data: Bytes, valid: Array | None) -> pa.Array:
    """Texts of a type, from where they end and their bytes."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    places = pa.py_buffer(ends if is_large(kind) else ends.astype(np.int32))
    return pa.Array.from_buffers(kind, ends.size - 1, [bits, places, pa.py_buffer(data)])


def values_view(array: pa.Array, dtype: npt.DTypeLike) -> Array:
    """The value buffer of a fixed-width Arrow array as numpy, without a copy."""
    kind = np.dtype(dtype)
    start = array.offset * kind.itemsize
    return np.frombuffer(array.buffers()[1], kind, len(array), start)


def arrow_array(values: Array, kind: pa.DataType, valid: Array | None = None) -> pa.Array:
    """An Arrow array of type `kind` over numpy values of the same width, without a copy."""
    if valid is None:
        return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)])
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, values.size, [bits, pa.py_buffer(values)])
