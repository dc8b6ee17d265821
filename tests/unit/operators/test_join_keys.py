"""The numbers that a join gives to keys."""

import numpy as np
import pyarrow as pa
import pytest

from rewake.operators.join.keys import NO_KEY, JoinKeys

LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}


def numbers_of(keys: JoinKeys, columns: list[pa.Array]) -> list[int]:
    valid = np.logical_and.reduce([column.is_valid().to_numpy(False) for column in columns])
    return keys.numbers(columns, None if valid.all() else valid).tolist()


@pytest.mark.parametrize(
    "kinds",
    [
        ("int32", "int32"),
        ("uint32", "int32"),
        ("int8", "uint16", "int8", "int32"),
        ("int32", "int32", "int8"),  # more than 64 bits
        ("int64", "int8"),
        ("uint64",),
    ],
)
def test_keys_are_equal_exactly_when_all_their_columns_are(kinds: tuple[str, ...]) -> None:
    """Every combination of extreme values and their neighbours has a number of its own."""
    values = [sorted({*LIMITS[kind], 0, 1, 100, LIMITS[kind][0] + 1}) for kind in kinds]
    rows = np.array(np.meshgrid(*[np.arange(len(each)) for each in values])).reshape(len(kinds), -1)
    columns = [
        pa.array([own[place] for place in places], getattr(pa, kind)())
        for own, places, kind in zip(values, rows, kinds, strict=True)
    ]
    keys = JoinKeys([pa.field("k", column.type) for column in columns])
    numbers = numbers_of(keys, columns)
    assert len(set(numbers)) == len(numbers) == keys.table.size
    assert max(numbers) < keys.table.id_limit
    assert numbers_of(keys, columns) == numbers


@pytest.mark.parametrize("kind", [pa.int32(), pa.string()])
def test_a_key_with_a_null_in_it_has_no_number_and_takes_none(kind: pa.DataType) -> None:
    keys = JoinKeys([pa.field("a", pa.int32()), pa.field("b", kind)])
    columns = [pa.array([1, None, 1, 2]), pa.array([None, 1, 1, None])]
    columns = [columns[0].cast(pa.int32()), columns[1].cast(kind)]
    numbers = numbers_of(keys, columns)
    assert [number == NO_KEY for number in numbers] == [True, True, False, True]
    assert keys.table.size == 1


def test_the_number_of_a_forgotten_key_is_given_again() -> None:
    keys = JoinKeys([pa.field("a", pa.int32()), pa.field("b", pa.int32())])
    first = numbers_of(keys, [pa.array([1, 2, 3], pa.int32())] * 2)
    live = np.zeros(keys.table.id_limit, np.bool_)
    live[first[1]] = True
    keys.table.keep(live)
    assert keys.table.size == 1
    again = numbers_of(keys, [pa.array([2, 7, 8], pa.int32())] * 2)
    assert again[0] == first[1]
    assert sorted(again[1:]) == sorted([first[0], first[2]])
