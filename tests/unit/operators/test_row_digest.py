"""Digests of rows: the same for the same rows in any order, and for no others."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.model.errors import DamagedFrame
from rewake.operators.row_digest import NO_ROWS, RowDigest, digest_of

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int16()),
        ("x", pa.float64()),
        ("yes", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.large_binary()),
        ("price", pa.decimal128(20, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("many", pa.list_(pa.int32())),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("named", pa.map_(pa.string(), pa.int64())),
        ("nothing", pa.null()),
    ]
)
_TEXTS = st.text(max_size=20)
_VALUES = {
    "n": st.integers(-3, 3),
    "small": st.integers(-3, 3),
    "x": st.sampled_from([0.0, 1.5, -2.0]),
    "yes": st.booleans(),
    "text": _TEXTS,
    "raw": st.binary(max_size=20),
    "price": st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100),
    "at": st.integers(0, 3),
    "many": st.lists(st.none() | st.integers(0, 2), max_size=3),
    "pair": st.fixed_dictionaries({"a": st.none() | st.integers(0, 2), "b": st.none() | _TEXTS}),
    "named": st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)).map(
        lambda found: list(found.items())
    ),
    "nothing": st.none(),
}
_ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | each for name, each in _VALUES.items()}), max_size=8
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@given(_ROWS, st.randoms(use_true_random=False), st.integers(0, 8))
def test_neither_order_nor_division_shows(
    rows: list[dict[str, Any]], chance: Any, cut: int
) -> None:
    """Digests of two parts of the rows in another order add up to that of all."""
    shuffled = list(rows)
    chance.shuffle(shuffled)
    whole = batch_of(shuffled)
    parts = [digest_of(whole.slice(0, cut)), digest_of(whole.slice(cut))]
    assert parts[0].plus(parts[1]) == digest_of(batch_of(rows))
    assert digest_of(batch_of(rows)).rows == len(rows)


@given(_ROWS, _ROWS)
def test_other_rows_have_another_digest(
    some: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    """By any value, by a null, or by their number."""
    same = sorted(map(repr, some)) == sorted(map(repr, others))
    assert (digest_of(batch_of(some)) == digest_of(batch_of(others))) == same


@pytest.mark.parametrize(
    ("some", "others"),
    [
        ({"n": [1, 2], "m": [1, 2]}, {"n": [1, 2], "m": [2, 1]}),
        ({"n": [1], "m": [2]}, {"n": [2], "m": [1]}),
        ({"n": [1], "m": [None]}, {"n": [None], "m": [1]}),
        ({"n": [1, 4], "m": [0, 0]}, {"n": [2, 3], "m": [0, 0]}),
        ({"n": ["ab", ""]}, {"n": ["a", "b"]}),
        ({"n": ["\0"]}, {"n": ["\0\0"]}),
        ({"n": [""]}, {"n": [None]}),
        ({"n": ["12345678", "abcdefghX"]}, {"n": ["12345678X", "abcdefgh"]}),
        ({"n": [[1, 2], [3]]}, {"n": [[1], [2, 3]]}),
        ({"n": [[1, 2]]}, {"n": [[2, 1]]}),
        ({"n": [[]]}, {"n": [None]}),
        ({"n": [0.0]}, {"n": [-0.0]}),
    ],
)
def test_rows_that_are_nearly_the_same_are_told_apart(
    some: dict[str, list[Any]], others: dict[str, list[Any]]
) -> None:
    """Values that have changed places, sums that are equal, empty and absent values."""
    kinds = pa.RecordBatch.from_pydict({name: [*some[name], *others[name]] for name in some}).schema
    first, second = (pa.RecordBatch.from_pydict(each, schema=kinds) for each in (some, others))
    assert digest_of(first) != digest_of(second)


def test_what_lies_under_a_null_does_not_count() -> None:
    """It is whatever was there before."""
    valid = pa.py_buffer(bytes([0b01]))
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.Array.from_buffers(pa.int8(), 2, [valid, pa.py_buffer(bytes([7, under]))])], ["n"]
        )
        for under in (1, 2)
    ]
    assert digest_of(batches[0]) == digest_of(batches[1])


def test_a_digest_is_read_as_it_was_written_and_other_bytes_are_damage() -> None:
    """24 bytes."""
    digest = RowDigest(3, 2**64 - 1, 17)
    assert RowDigest.decode(digest.encode()) == digest
    assert digest.plus(NO_ROWS) == digest
    with pytest.raises(DamagedFrame):
        RowDigest.decode(b"short")
