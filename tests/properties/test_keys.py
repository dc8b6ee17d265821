"""Key tables behave as dictionaries do, through growth, eviction and the reuse of ids."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from aggregate_cases import KEYS, examples
from aggregate_runs import TRIED
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rewake.operators.columns.key_tables import BytesTable, IntegerTable
from rewake.operators.columns.keys import GroupBy

SETS = [["int64"], ["string"], ["int64", "string"], ["uint64"], ["float32"], ["bool", "binary"]]
SETS += [
    ["dictionary"],
    ["timestamp", "int8"],
    ["large_string", "uint32"],
    ["decimal"],
    ["decimal", "bool"],
]


class GroupByAgainstDict(RuleBasedStateMachine):
    """A model of `GroupBy`: a dict from key to id, and the set of keys a router holds on to."""

    @initialize(kinds=st.sampled_from(SETS))
    def start(self, kinds: list[str]) -> None:
        """An empty table for keys of these types."""
        TRIED["cases"] += 1
        self.kinds = kinds
        names = [f"k{i}" for i in range(len(kinds))]
        fields = zip(names, [KEYS[kind][0] for kind in kinds], strict=True)
        self.schema = pa.schema(list(fields))
        self.keys = GroupBy(self.schema, names, refuse_nulls=False)
        self.known: dict[tuple[Any, ...], int] = {}

    def _batch(self, picks: list[int]) -> tuple[pa.RecordBatch, list[tuple[Any, ...]]]:
        rows = [
            tuple(KEYS[kind][1][pick % len(KEYS[kind][1])] for kind in self.kinds) for pick in picks
        ]
        columns = list(zip(*rows, strict=True)) or [()] * len(self.kinds)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return batch.slice(len(rows) // 3), rows[len(rows) // 3 :]

    @rule(picks=st.lists(st.integers(0, 60), max_size=12))
    def intern(self, picks: list[int]) -> None:
        """Known keys keep their id; new ones get one that nobody has."""
        batch, rows = self._batch(picks)
        for row, found in zip(rows, self.keys.intern(batch, 0).tolist(), strict=True):
            if row not in self.known:
                assert found not in self.known.values()
                self.known[row] = found
            assert found == self.known[row]

    @rule(picks=st.lists(st.integers(0, 60), max_size=12))
    def find(self, picks: list[int]) -> None:
        """Unknown keys are -1, and stay unknown; null alone may be known in advance."""
        batch, rows = self._batch(picks)
        for row, found in zip(rows, self.keys.find(batch, 0).tolist(), strict=True):
            if row != (None,):
                assert found == self.known.get(row, -1)

    @rule(mask=st.integers(0, 2**12 - 1))
    def keep(self, mask: int) -> None:
        """Keys that are not kept are forgotten; the others keep their ids."""
        live = np.zeros(self.keys.table.id_limit, np.bool_)
        kept = {}
        for number, (row, key) in enumerate(self.known.items()):
            if mask >> (number % 12) & 1 or row == (None,):
                live[key] = True
                kept[row] = key
        self.keys.table.keep(live)
        self.known = kept

    @rule()
    def pack_and_unpack(self) -> None:
        """Footprint columns, read by another table, give the same keys back."""
        ids = np.array(list(self.known.values()), np.int32)
        other = GroupBy(self.schema, list(self.schema.names), refuse_nulls=False)
        rows = np.arange(ids.size)[::2]
        unpacked = other.table.unpack(self.keys.table.pack(ids), rows, ids.size)
        columns = [column.to_pylist() for column in other.table.columns(unpacked)]
        assert list(zip(*columns, strict=True)) == list(self.known)[::2]

    @invariant()
    def columns_give_the_keys_back(self) -> None:
        """Ids lead back to the keys, and are below the limit."""
        if not hasattr(self, "known"):
            return
        ids = np.array(list(self.known.values()), np.int32)
        assert not ids.size or ids.max() < self.keys.table.id_limit
        columns = [column.to_pylist() for column in self.keys.table.columns(ids)]
        assert list(zip(*columns, strict=True)) == list(self.known)


TestGroupByAgainstDict = GroupByAgainstDict.TestCase
TestGroupByAgainstDict.settings = settings(examples(60), stateful_step_count=25)


def _colliding(count: int) -> list[int]:
    """Integers that all want the same place in a table: multiples of the inverse of its hash."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    values = [(number * inverse) % 2**64 for number in range(count)]
    return [value - 2**64 if value >= 2**63 else value for value in values]


@examples(40)
@given(st.integers(1, 3000), st.integers(0, 2999), st.booleans())
def test_integer_tables_survive_collisions_growth_and_eviction(
    count: int, dropped: int, colliding: bool
) -> None:
    """Ids are unique, found again, and given out again only after their key was forgotten."""
    TRIED["cases"] += 1
    table = IntegerTable()
    keys = np.array(_colliding(count) if colliding else range(-count, 0), np.int64)
    ids = table.intern(keys)
    assert np.unique(ids).size == count
    assert ids.min() >= 1
    assert np.array_equal(table.find(keys), ids)
    live = np.ones(table.id_limit, np.bool_)
    live[ids[:dropped]] = False
    table.keep(live)
    assert table.size == max(count - dropped, 0)
    assert np.array_equal(table.find(keys[dropped:]), ids[dropped:])
    assert (table.find(keys[:dropped]) == -1).all()
    again = table.intern(keys)
    assert np.array_equal(again[dropped:], ids[dropped:])
    assert np.unique(again).size == count
    assert table.id_limit <= count + 1, "forgotten ids are used again"


@examples(60)
@given(st.lists(st.binary(max_size=6), unique=True, max_size=300), st.integers(0, 300))
def test_bytes_tables_tell_prefixes_and_zeros_apart(rows: list[bytes], dropped: int) -> None:
    """Rows of bytes are equal only if they are; eviction moves bytes without mixing them up."""
    TRIED["cases"] += 1
    table = BytesTable()
    offsets = np.cumsum([0, *map(len, rows)])
    data = np.frombuffer(b"".join(rows), np.uint8)
    ids = table.intern(offsets, data)
    assert np.unique(ids).size == len(rows)
    live = np.ones(table.id_limit, np.bool_)
    live[ids[:dropped]] = False
    table.keep(live)
    found = table.find(offsets, data)
    assert (found[:dropped] == -1).all()
    assert np.array_equal(found[dropped:], ids[dropped:])
    again = table.intern(offsets, data)
    ends, stored = table.rows(again)
    assert [bytes(stored[a:b]) for a, b in pairwise(ends)] == rows
