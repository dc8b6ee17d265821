"""Packed columns: they come back bit by bit, in few bytes, and hostile ones cost nothing."""

import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rewake.log.columns import pack_columns
from rewake.model.errors import DamagedFrame, SchemaMismatch
from rewake.recovery.packing import estimated_bytes, pack_tightly, unpack_any

NAMES = ("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f4", "<f8", "?")
COLUMNS = st.sampled_from(NAMES).flatmap(
    lambda name: arrays.arrays(np.dtype(name), st.integers(0, 40))
)


def same(found, wanted):
    return [(each.dtype, each.tobytes()) for each in found] == [
        (each.dtype, each.tobytes()) for each in wanted
    ]


@given(st.lists(COLUMNS, max_size=4))
def test_columns_come_back_bit_by_bit(columns):
    """Of any type and length, with any values; steps may wrap around."""
    assert same(unpack_any(pack_tightly(columns)), columns)


@pytest.mark.parametrize("size", [1, 300, 70_000])
def test_long_columns_come_back_too(size):
    """Sorted or not, constant or not, strided or not; both ways of packing are told apart."""
    random = np.random.default_rng(size)
    columns = [
        np.arange(size),
        np.zeros(size, np.uint32),
        random.integers(0, 100_000, size).astype(np.int32),
        np.sort(random.integers(-(2**62), 2**62, size)),
        random.integers(-(2**63), 2**63 - 1, size),
        random.integers(0, 2**64, size, np.uint64),
        random.normal(size=size),
        np.round(random.normal(size=size) * 100),
        random.integers(0, 2, 2 * size).astype(np.bool_)[::2],
    ]
    assert same(unpack_any(pack_tightly(columns), size), columns)
    assert same(unpack_any(pack_columns(columns)), columns)
    assert not any(column.flags.writeable for column in unpack_any(pack_tightly(columns)))


def test_columns_take_about_as_many_bytes_as_there_is_in_them():
    """And the estimate from a sample is near."""
    random = np.random.default_rng(1)
    size = 50_000
    bits = {
        10: random.integers(0, 1000, size),
        17: random.integers(0, 2**17, size),
        5: np.cumsum(random.integers(0, 32, size)),
        0: np.full(size, -7),
    }
    for wanted, column in bits.items():
        packed = len(pack_tightly([column]))
        assert wanted * size / 8 * 0.95 <= packed <= wanted * size / 8 * 1.1 + 50
        if wanted != 5:  # neighbours in a sample are no neighbours
            assert estimated_bytes([column], size) == pytest.approx(packed, rel=0.1, abs=50)


def test_a_length_that_so_few_bytes_cannot_stand_for_is_not_believed():
    """Long constant columns are padded, so that nothing has to be."""
    packed = pack_tightly([np.zeros(10**6, np.int64)])
    assert 10**6 / 64 <= len(packed) <= 10**6 / 64 + 1
    assert unpack_any(packed)[0].size == 10**6
    for damaged in (packed[:-1], packed + b"\0", packed.rstrip(b"\0")):
        with pytest.raises(DamagedFrame):
            unpack_any(damaged)


def test_no_room_is_made_beyond_what_there_may_be():
    """A frame that counts ten footprints has no more of them; each may have several values."""
    packed = pack_tightly([np.zeros(60_000, np.int64)])
    assert unpack_any(packed, 60_000)[0].size == 60_000
    tracemalloc.start()
    with pytest.raises(DamagedFrame, match="60000 values"):
        unpack_any(packed, 10)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    ages = np.zeros(1, np.uint32)
    several = pack_tightly([ages, np.zeros(60_000, np.uint8), np.arange(3)])
    assert [column.size for column in unpack_any(several, 1)] == [1, 60_000, 3]


def test_hostile_bytes_raise_nothing_but_damage():
    """Changed, cut off, or made up."""
    random = np.random.default_rng(5)
    columns = [np.sort(random.integers(0, 10**6, 500)), random.integers(0, 5, 500) > 3]
    whole = pack_tightly([*columns, random.normal(size=500), np.zeros(0, np.int32)])
    for _ in range(2000):
        payload = bytearray(whole)
        # Heads are where most can go wrong.
        for place in random.integers(0, random.choice([80, len(payload)]), random.integers(1, 5)):
            payload[place] = random.choice([0, 1, 16, 127, 128, 255])
        if random.integers(4) == 0:
            del payload[random.integers(len(payload)) :]
        with suppress(DamagedFrame):
            unpack_any(bytes(payload), 500)


def test_what_cannot_be_stored_is_refused():
    """As in the other way of packing."""
    for column in (np.zeros((2, 2)), np.zeros(1, ">i4"), np.zeros(1, np.complex64)):
        with pytest.raises(SchemaMismatch):
            pack_tightly([column])
    with pytest.raises(SchemaMismatch):
        pack_tightly([np.zeros(1)] * 4097)
    with pytest.raises(DamagedFrame, match="version 9"):
        unpack_any(b"\xff\xff\x09\x00\x00")
