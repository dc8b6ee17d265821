"""Rows on their way to shards: blocks before the shuffle, and what tasks make of them behind it."""

import gc
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec, module_from_spec

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.model.errors import OperatingFault, SchemaMismatch
from rewake.net.shards import wire as shard_wire
from rewake.operators.row_digest import RowDigest, digest_of
from rewake.spark.structured import divide
from rewake.spark.structured.divide import BLOCKS, Divider, blocks_of
from rewake.spark.structured.task import ShardRows

SCHEMA = pa.schema([("item", pa.int64()), ("text", pa.string())])
FROM_SPARK = pa.schema([*SCHEMA, ("shard", pa.int32())])

Row = tuple[int | None, str | None]


def batch(rows: Sequence[Row], numbers: Sequence[int]) -> pa.RecordBatch:
    """Rows as Spark hands them over: with the number of each one's shard behind its columns."""
    items, texts = [row[0] for row in rows], [row[1] for row in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(items, pa.int64()), pa.array(texts, pa.string()), pa.array(numbers, pa.int32())],
        schema=FROM_SPARK,
    )


def divider_of(shards: int) -> Divider:
    """A divider; outside of Spark it wakes nobody."""
    return Divider(SCHEMA.serialize().to_pybytes(), shards, at="nowhere", listen="127.0.0.1")


def divided(batches: Iterator[pa.RecordBatch], shards: int) -> list[tuple[int, list[Row]]]:
    """Shard and tuples of each block."""
    found, told = [], {}
    for block in blocks_of(divider_of(shards).run(batches)):
        if block.digest.size:
            assert block.shard not in told
            told[block.shard] = RowDigest.decode(block.digest.to_pybytes())
            continue
        tuples = pa.ipc.read_record_batch(block.tuples, SCHEMA)
        tuples.validate(full=True)
        found.append((block.shard, [tuple(row.values()) for row in tuples.to_pylist()]))
    everything = [row for _, rows in found for row in rows]
    digest = digest_of(batch(everything, [0] * len(everything)).select(SCHEMA.names))
    assert told == dict.fromkeys(range(shards), digest), "each shard is told of all rows, once"
    return found


rows_of_a_batch = st.lists(
    st.tuples(
        st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text(max_size=3)),
        st.integers(0, 255),
    ),
    max_size=30,
)


shard_counts = st.integers(1, 10) | st.integers(1, 256)


@given(st.lists(rows_of_a_batch, max_size=5), shard_counts, st.integers(1, 400))
def test_every_row_is_in_one_block_of_its_shard_and_in_order(
    given_batches: list[list[tuple[Row, int]]], shards: int, gathered_bytes: int
) -> None:
    """Whatever is gathered at a time."""
    parts = [
        ([row for row, _ in each], [number % shards for _, number in each])
        for each in given_batches
    ]
    expected: dict[int, list[Row]] = {}
    for rows, numbers in parts:
        for row, number in zip(rows, numbers, strict=True):
            expected.setdefault(number, []).append(row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divide, "GATHERED_BYTES", gathered_bytes)
        found = divided((batch(*part) for part in parts), shards)
    together: dict[int, list[Row]] = {}
    for shard, rows in found:
        assert rows, "a block without tuples"
        together.setdefault(shard, []).extend(rows)
    assert together == expected


def test_blocks_are_few_and_those_of_one_stretch_are_one_batch() -> None:
    """Many small batches of Spark's make one block for each shard."""
    numbers = np.arange(1000) % 4
    batches = [batch([(n, "x")], [int(numbers[n])]) for n in range(1000)]
    assert [shard for shard, _ in divided(iter(batches), 4)] == [0, 1, 2, 3]


def test_no_block_is_larger_than_what_a_host_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard with much gets several."""
    monkeypatch.setattr(shard_wire, "MAX_TUPLES_BYTES", 4096)
    rows: list[Row] = [(n, "x" * 20) for n in range(1000)]
    divider = divider_of(1)
    blocks = list(blocks_of(divider.run(iter([batch(rows, [0] * 1000)]))))
    assert len(blocks) > 2
    assert all(block.tuples.size <= 4096 for block in blocks)


def test_a_partition_without_rows_has_no_blocks() -> None:
    """Spark may hand over nothing, or batches of nothing."""
    assert divided(iter([]), 2) == []
    assert divided(iter([batch([], []), batch([], [])]), 2) == []


def test_columns_become_those_of_the_operator_or_are_refused_by_name() -> None:
    """Spark's differ in width or time zone; what cannot be cast is another schema."""
    divider = divider_of(1)
    narrow = pa.RecordBatch.from_arrays(
        [pa.array([7], pa.int32()), pa.array(["x"]), pa.array([0], pa.int32())],
        names=["a", "b", "shard"],
    )
    block, _ = blocks_of(divider.run(iter([narrow])))
    assert pa.ipc.read_record_batch(block.tuples, SCHEMA).to_pylist() == [{"item": 7, "text": "x"}]
    other = narrow.set_column(0, "a", pa.array(["seven"]))
    with pytest.raises(SchemaMismatch, match="'item' came as string but was int64"):
        list(divider.run(iter([other])))


def test_a_task_refuses_blocks_of_two_shards() -> None:
    """One shard's host must never be given another's tuples."""
    columns = [
        pa.array([3, 3, 1], pa.int32()),
        pa.array([b"a", b"b", b"c"], pa.binary()),
        pa.array([b"", b"", b""], pa.binary()),
    ]
    mixed = pa.RecordBatch.from_arrays(columns, schema=BLOCKS)
    tuples = ShardRows(blocks_of(iter([mixed]))).messages()
    assert [next(tuples).to_pybytes(), next(tuples).to_pybytes()] == [b"a", b"b"]
    with pytest.raises(OperatingFault, match="shards 3 and 1"):
        next(tuples)


def test_dividing_does_not_import_pandas() -> None:
    """Spark starts workers often, and pandas takes longer than all the rest."""
    program = """
import sys
import numpy as np, pyarrow as pa
from rewake.operators.columns.arrays import arrow_array
from rewake.spark.structured import plain
from rewake.spark.structured.divide import Divider, blocks_of
schema = pa.schema([("n", pa.int64())])
divider = Divider(schema.serialize().to_pybytes(), 2, "nowhere", "127.0.0.1")
shards = arrow_array(np.array([0, 1, 0, 1], np.int32), pa.int32())
columns = [arrow_array(np.arange(4), pa.int64()), shards]
blocks = list(blocks_of(divider.run(iter([pa.RecordBatch.from_arrays(columns, ["n", "shard"])]))))
assert [block.shard for block in blocks] == [0, 1, 0, 1]
assert plain.text("words").to_pylist() == ["words"]
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_worker_settles_once_at_the_end_of_its_first_task() -> None:
    """What is imported by then is left out of the collections that follow every task."""
    spec = find_spec("rewake.spark.structured.worker")
    assert spec is not None
    assert spec.loader is not None
    worker = module_from_spec(spec)  # as in a process of its own, which has settled nothing
    spec.loader.exec_module(worker)
    frozen: list[int] = []

    class Counting:
        def run(self, batches: Iterator[int]) -> Iterator[int]:
            yield from batches

    try:
        for _ in range(2):
            assert list(worker.entry_of(Counting())(iter([1, 2]))) == [1, 2]
            frozen.append(gc.get_freeze_count())
    finally:
        gc.unfreeze()
    assert frozen[0] > 0
    assert frozen[1] <= frozen[0], "only the first task freezes"
