"""Columns: round trips without copies, and hostile bytes."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rewake.log.columns import MAX_COLUMNS, pack_columns, unpack_columns
from rewake.model.errors import DamagedFrame, SchemaMismatch

DTYPES = ["i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f4", "<f8", "?"]
COLUMN = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, st.integers(0, 20), elements=None)
)


@given(st.lists(COLUMN, max_size=40))
def test_columns_read_back_bit_for_bit(columns):
    """Any number of columns, of any dtype, of different lengths."""
    packed = pack_columns(columns)
    assert len(packed) % 8 == 0
    found = unpack_columns(memoryview(packed))
    assert [c.dtype for c in found] == [c.dtype for c in columns]
    assert [c.tobytes() for c in found] == [c.tobytes() for c in columns]


def test_unpacked_columns_are_read_only_views():
    """Nothing is copied, and nothing can be changed, even when the buffer could."""
    for buffer in (pack_columns([np.arange(5)]), bytearray(pack_columns([np.arange(5)]))):
        column = unpack_columns(buffer)[0]
        assert column.base is not None
        assert not column.flags.writeable


def test_a_column_that_is_not_contiguous_is_copied():
    """A slice with a step, and a reversed view."""
    column = np.arange(20)[::-3]
    assert unpack_columns(pack_columns([column]))[0].tolist() == column.tolist()


@pytest.mark.parametrize(
    "column",
    [np.zeros((2, 2)), np.array(1), np.array(["a"]), np.array([1], ">i8"), np.array([1j])],
    ids=["matrix", "scalar", "text", "big-endian", "complex"],
)
def test_what_is_no_fixed_width_column_is_refused(column):
    """SchemaMismatch says what to use instead."""
    with pytest.raises(SchemaMismatch, match="one-dimensional little-endian"):
        pack_columns([column])


def test_too_many_columns_are_refused():
    """A cap, so that a reader can have one too."""
    with pytest.raises(SchemaMismatch):
        pack_columns([np.zeros(0)] * (MAX_COLUMNS + 1))


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_or_harmless(data):
    """Never another error than DamagedFrame, never more memory than was given."""
    try:
        columns = unpack_columns(data)
    except DamagedFrame:
        return
    assert sum(column.nbytes for column in columns) <= len(data)


@given(st.lists(COLUMN, min_size=1, max_size=3), st.data())
def test_a_cut_or_changed_container_is_refused_or_harmless(columns, data):
    """Every prefix is refused; a changed byte raises nothing but DamagedFrame."""
    packed = pack_columns(columns)
    with pytest.raises(DamagedFrame):
        unpack_columns(packed[: data.draw(st.integers(0, len(packed) - 1))])
    changed = bytearray(packed)
    changed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(DamagedFrame):
        unpack_columns(bytes(changed))


def test_a_byte_that_is_no_boolean_is_refused():
    """Such a byte would be carried along as an undefined truth value."""
    packed = bytearray(pack_columns([np.array([True, False])]))
    packed[8] = 2
    with pytest.raises(DamagedFrame, match="boolean"):
        unpack_columns(bytes(packed))
