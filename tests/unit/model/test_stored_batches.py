"""Stored values and batches: which numpy type a column has, and what is no batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rewake.model.batches import read_batch
from rewake.model.errors import BadPeer, DamagedFrame
from rewake.operators.columns.arrays import dtype_of, values_view

SCHEMA = pa.schema([("text", pa.string())])


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint16(), pa.float32(), pa.date32(), pa.date64(), pa.time32("s"),
     pa.time64("us"), pa.timestamp("ms", "UTC"), pa.duration("ns"), pa.uint64(), pa.float64()],
)  # fmt: skip
def test_values_of_one_width_are_viewed_as_they_are(kind: pa.DataType) -> None:
    """The type in numpy is as wide as the type in Arrow."""
    dtype = dtype_of(kind)
    assert dtype is not None
    assert dtype.itemsize * 8 == kind.bit_width
    array = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(np.array([0, 7], dtype))])
    assert values_view(array, dtype).tolist() == [0, 7]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.float16(), pa.decimal128(9), pa.month_day_nano_interval(), pa.null()]
)
def test_other_columns_have_no_type_in_numpy(kind: pa.DataType) -> None:
    """Who wants their values asks otherwise."""
    assert dtype_of(kind) is None


def test_a_batch_comes_back_from_its_bytes() -> None:
    """As an array, as bytes or as a buffer."""
    batch = pa.RecordBatch.from_pydict({"text": ["a", None]}, schema=SCHEMA)
    content = batch.serialize()
    for data in (content, content.to_pybytes(), np.frombuffer(content, np.uint8)):
        assert read_batch(data, SCHEMA, "wrong").equals(batch)


@pytest.mark.parametrize("error", [DamagedFrame, BadPeer])
def test_bytes_that_are_no_batch_are_the_error_that_was_asked_for(
    error: type[DamagedFrame] | type[BadPeer],
) -> None:
    """Cut short, of other columns, or with a text that is none."""
    batch = pa.RecordBatch.from_pydict({"text": ["abcd"]}, schema=SCHEMA)
    content = batch.serialize().to_pybytes()
    for data in (b"", content[:40], content.replace(b"abcd", b"\xff\xff\xff\xff")):
        with pytest.raises(error, match=r"^these rows are wrong: "):
            read_batch(data, SCHEMA, "these rows are wrong", error)
