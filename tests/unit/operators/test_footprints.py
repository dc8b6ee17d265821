"""Footprints are read back with the columns that were written, or not at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.columns.arrays import Array
from rewake.operators.columns.keys import GroupBy
from rewake.operators.columns.values import check_clocks
from rewake.operators.kit.footprints import check_layout, key_ids_of, read_back, rows_of_parts
from rewake.operators.stateful import StoredParts

LAYOUT = [np.zeros(0, np.int64), np.zeros(0, np.uint8)]


def stored(*columns: Array, rows: list[int], total: int) -> StoredParts:
    """The footprints of one frame, of which some rows are chosen."""
    ids = np.arange(len(rows))
    return StoredParts(ids, ids + 100, [list(columns)], [np.array(rows)], [total])


def test_of_frames_with_the_columns_of_the_layout_the_chosen_rows_are_given() -> None:
    """Behind lengths there are columns with so many values for each part."""
    layout = [np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.int16)]
    one = stored(np.array([5, 6]), np.array([1, 2], np.uint32), np.arange(3, dtype=np.int16),
                 rows=[1], total=2)  # fmt: skip
    other = one._replace(columns=[*one.columns, *one.columns], rows=[np.array([1]), np.array([0])])
    found = read_back(other._replace(totals=[2, 2]), layout, of_parts=2)
    assert [column.tolist() for column in found.columns] == [[6, 5], [2, 1], [1, 2, 0]]


def test_columns_beside_those_of_parts_may_be_of_any_length() -> None:
    """Who wrote them knows what they are."""
    check_layout(stored(np.array([5, 6]), np.zeros(9, np.uint8), rows=[1], total=2), LAYOUT)


def test_rows_of_parts_are_one_behind_the_other() -> None:
    """A part may have none."""
    assert rows_of_parts(np.array([2, 0, 3]), np.array([2, 1, 0])).tolist() == [2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([np.zeros(2, np.int64)], "other columns"),
        ([np.zeros(2, np.int32), np.zeros(9, np.uint8)], "other columns"),
        ([np.zeros(3, np.int64), np.zeros(9, np.uint8)], "not all 2 rows long"),
    ],
)
def test_other_columns_are_damage(columns: list[Array], said: str) -> None:
    """Whether one is missing, of another type, or of another length."""
    with pytest.raises(DamagedFrame, match=said):
        check_layout(stored(*columns, rows=[0], total=2), LAYOUT, slice(1))


def test_keys_are_read_whatever_follows_them() -> None:
    """Who reads only keys need not know the operator."""
    keys = GroupBy(pa.schema([("k", pa.int64())]), ["k"], refuse_nulls=False).table
    packed = keys.pack(keys.intern([pa.array([7, None, 9])]))
    one = stored(*packed, np.zeros(1, np.float32), rows=[2, 1], total=3)
    other = stored(*packed, rows=[0], total=3)
    assert keys.columns(key_ids_of(keys, [one, other]))[0].to_pylist() == [9, None, 7]


@pytest.mark.parametrize("clock", [TIME_LIMIT + 1, -TIME_LIMIT])
def test_a_time_that_no_clock_shows_is_damage(clock: int) -> None:
    """Durations are added to times: one beyond the limit would wrap around."""
    check_clocks([NO_TIME, TIME_LIMIT, 1 - TIME_LIMIT])
    with pytest.raises(DamagedFrame, match=f"{clock} is out of range"):
        check_clocks([0, clock])
