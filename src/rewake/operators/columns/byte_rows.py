"""Values of any length as rows of bytes, and where state columns hold them.

A state column of bytes stands behind the column of its lengths, where a negative length says that
there is no value.  No other state column is of single bytes, so columns can be told by their type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from rewake.model.errors import DamagedFrame
from rewake.operators.columns.arrays import Array, Bytes, Int64s

__all__ = ["check_state", "chosen_state", "copy_rows", "gathered", "holds_bytes", "offsets_of"]


@njit(cache=True, nogil=True)
def copy_rows(starts, offsets, source, target):  # type: ignore[no-untyped-def]
    """Copy the rows that start there in `source` to where `offsets` says in `target`."""
    for i in range(starts.size):
        start, length = starts[i], offsets[i + 1] - offsets[i]
        target[offsets[i] : offsets[i + 1]] = source[start : start + length]


def offsets_of(lengths: Array) -> Int64s:
    """Where rows of these lengths start, one behind the other, and where the last one ends."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def gathered(starts: Int64s, lengths: Array, source: Bytes) -> tuple[Int64s, Bytes]:
    """Offsets and bytes of the rows that start there; a negative length is that of no bytes."""
    offsets = offsets_of(np.maximum(lengths, 0))
    data = np.empty(int(offsets[-1]), np.uint8)
    copy_rows(starts, offsets, source, data)
    return offsets, data


def holds_bytes(column: Array) -> bool:
    """Whether a state column holds the bytes of values whose lengths are in the one before."""
    return column.dtype == np.uint8


def check_state(columns: Sequence[Array], total: int) -> None:
    """Refuse state columns of a footprint that are not those of `total` parts."""
    for place, column in enumerate(columns):
        if not holds_bytes(column):
            if column.size != total:
                raise DamagedFrame(f"the columns of a footprint are not all {total} rows long")
            continue
        lengths = columns[max(place - 1, 0)]
        filled = np.maximum(lengths, 0).sum(dtype=np.int64)
        if lengths.dtype != np.int32 or np.any(lengths < -1) or int(filled) != column.size:
            raise DamagedFrame(f"the texts of {total} parts do not fill their {column.size} bytes")


def chosen_state(columns: Sequence[Array], rows: Array) -> list[Array]:
    """The state of the parts in these rows; `check_state` has nothing against the columns."""
    chosen = []
    for place, column in enumerate(columns):
        if holds_bytes(column):
            lengths = columns[place - 1]
            starts = offsets_of(np.maximum(lengths, 0))[:-1]
            chosen.append(gathered(starts[rows], lengths[rows], column)[1])
        else:
            chosen.append(column[rows])
    return chosen
