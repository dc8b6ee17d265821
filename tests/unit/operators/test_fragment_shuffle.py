"""Hash shuffle: the same parts everywhere and for ever, disjoint, complete, in order."""

import datetime as dt
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from rewake.model.errors import SchemaMismatch
from rewake.operators.shuffle import Shuffle

NOON = dt.datetime(2020, 2, 29, 12)

# Part of 1000 for each value, computed from the definition by other code: it must never change.
GOLDEN = {
    "integers": (pa.int64(), [0, 1, -1, 7, 2**63 - 1, None], [479, 742, 234, 429, 332, 550]),
    "strings": (pa.string(), ["", "a", "ab", "é", None], [280, 736, 107, 363, 550]),
    "floats": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), None], [479, 479, 693, 494, 550]),
    "times": (pa.timestamp("us"), [dt.datetime(1970, 1, 1), NOON, None], [479, 546, 550]),
    "booleans": (pa.bool_(), [False, True, None], [479, 742, 550]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0"], [280, 87, 84]),
}


def parts_of(array, parts=1000):
    batch = pa.record_batch([array], ["k"])
    return Shuffle(batch.schema, ["k"], parts).part_numbers(batch).tolist()


@pytest.mark.parametrize("kind", GOLDEN)
def test_the_part_of_a_key_never_changes(kind):
    """Logs and shards of a query rely on it across versions of everything."""
    type_, values, parts = GOLDEN[kind]
    assert parts_of(pa.array(values, type_)) == parts


def test_the_part_of_a_composite_key_never_changes():
    """Columns count in their order; a null is one of the values."""
    arrays = [pa.array([1, 1, None, 2]), pa.array(["a", None, "a", "a"])]
    batch = pa.record_batch(arrays, ["n", "s"])
    found = [Shuffle(batch.schema, keys, 1000).part_numbers(batch) for keys in ("ns", "sn")]
    assert [each.tolist() for each in found] == [[904, 649, 169, 376], [27, 673, 721, 169]]


def test_another_process_with_another_hash_seed_computes_the_same_parts():
    """Python's own hash, which differs from process to process, has no part in it."""
    program = (
        "import pyarrow as pa; from rewake.operators.shuffle import Shuffle; "
        "b = pa.record_batch([pa.array(['x', 'y', 'z', None])], ['k']); "
        "print(Shuffle(b.schema, ['k'], 1000).part_numbers(b).tolist())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{parts_of(pa.array(['x', 'y', 'z', None]))}\n"}


def test_equal_keys_of_different_column_types_go_to_the_same_part():
    """A join of an int32 and an int64 column must find its partner."""
    numbers = [0, 1, 5, 100, None]
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64()):
        assert parts_of(pa.array(numbers, kind)) == parts_of(pa.array(numbers, pa.int64()))
    texts = ["", "a", "long enough", None]
    for kind in (pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        assert parts_of(pa.array(texts, kind)) == parts_of(pa.array(texts, pa.string()))
    floats = [0.0, 1.5, None]
    assert parts_of(pa.array(floats, pa.float32())) == parts_of(pa.array(floats, pa.float64()))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.string()])
def test_parts_are_disjoint_complete_and_in_order(kind):
    """Every tuple is in exactly one part, and within it where it was among its neighbours."""
    keys = np.random.default_rng(1).integers(0, 300, 5000)
    batch = pa.record_batch([pa.array(keys).cast(kind), pa.array(np.arange(5000))], ["k", "row"])
    sliced = batch.slice(17, 4000)
    parts = Shuffle(batch.schema, ["k"], 3).split(sliced)
    rows = [part.column("row").to_numpy() for part in parts]
    assert sorted(np.concatenate(rows)) == list(range(17, 4017))
    for part, found in zip(parts, rows, strict=True):
        assert np.all(np.diff(found) > 0)
        assert part.schema == batch.schema
        assert part.column("k").to_pylist() == batch.column("k").take(pa.array(found)).to_pylist()
    keys_of = [set(part.column("k").to_pylist()) for part in parts]
    assert len(set.union(*keys_of)) == sum(map(len, keys_of))


@pytest.mark.parametrize("step", [1, 2, 1024, 10**9])
def test_keys_spread_evenly_whatever_their_pattern(step):
    """No part gets more than 5% more or less than its share of 100,000 regular keys."""
    counts = np.bincount(parts_of(pa.array(np.arange(100_000) * step), 8), minlength=8)
    assert counts.min() > 0.95 * 12_500
    assert counts.max() < 1.05 * 12_500


def test_one_part_is_the_batch_itself():
    """No shuffle, no cost."""
    batch = pa.record_batch([pa.array([1, 2])], ["k"])
    assert Shuffle(batch.schema, ["k"], 1).split(batch)[0] is batch


def test_an_empty_batch_and_one_of_a_single_key_are_divided_too():
    """All parts are there, also those without tuples."""
    batch = pa.record_batch([pa.array([5, 5, 5])], ["k"])
    shuffle = Shuffle(batch.schema, ["k"], 4)
    assert sorted(part.num_rows for part in shuffle.split(batch)) == [0, 0, 0, 3]
    assert [part.num_rows for part in shuffle.split(batch.slice(0, 0))] == [0] * 4


def test_a_column_that_is_missing_or_cannot_be_a_key_is_refused():
    """The error names it."""
    schema = pa.schema([("k", pa.list_(pa.int64()))])
    with pytest.raises(SchemaMismatch, match="partition by: no column 'x'"):
        Shuffle(schema, ["x"], 2)
    with pytest.raises(SchemaMismatch, match="'k' of type list"):
        Shuffle(schema, ["k"], 2)
