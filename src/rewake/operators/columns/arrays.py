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
