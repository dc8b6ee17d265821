"""Arrow arrays of bytes and texts, made without pandas (of numbers: `operators.columns.arrays`).

`pa.array` asks whether what it is given is a pandas Series, and imports pandas to find out: some
0.3 s of a processor in every Python worker of Spark's that has no other use for it.

What always holds: the arrays have no nulls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

__all__ = ["bytes_of", "text"]


def bytes_of(values: Sequence[pa.Buffer]) -> pa.Array:
    """A value of each buffer's bytes."""
    return _variable(pa.binary(), values)


def text(value: str) -> pa.Array:
    """One text."""
    return _variable(pa.string(), [pa.py_buffer(value.encode())])


def _variable(kind: pa.DataType, values: Sequence[pa.Buffer]) -> pa.Array:
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([each.size for each in values], out=ends[1:])
    data = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), data])
