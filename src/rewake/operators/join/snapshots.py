"""Footprints of a join's parts, as columns.

    opening     kind (i8), number of the pane (i64)
    snapshot    kind, number, tuples (i32); then for each input positions (i64) and bytes (u8)

The bytes are an Arrow batch: whether a tuple is settled, and the input's columns.  A mark has no
tuples.  What is read back is checked against what the part must be: tuples of that pane, at rising
positions from the one that opened it up to the last it has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import DamagedFrame, RewakeError
from rewake.operators.columns.arrays import Array, Int64s
from rewake.operators.columns.values import TimeColumn
from rewake.operators.join.parts import KINDS, MARK
from rewake.operators.join.tuples import HeldTuples
from rewake.operators.kit.footprints import check_layout
from rewake.operators.kit.tuples import StoredTuples, pack_tuples, tuples_of
from rewake.operators.stateful import StoredParts

_SETTLED = pa.field("settled", pa.bool_())


class PartTuples(NamedTuple):
    """Tuples of an input that were read back, or replayed."""

    batch: pa.RecordBatch
    positions: Int64s
    settled: Array


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_SETTLED, *schema])


def snapshots(kinds: Array, numbers: Int64s, slots: Array, held: list[HeldTuples]) -> list[Array]:
    """The snapshot columns of parts: what they are, and the tuples of those that are panes."""
    lengths = np.zeros(slots.size, np.int32)
    columns: list[Array] = []
    for side, tuples in enumerate(held):
        own = kinds == side
        rows, lengths[own] = tuples.rows_of(slots[own])
        arrays = [pa.array(tuples.settled[rows]), *tuples.batch(rows).columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=_stored_schema(tuples.schema))
        columns += [tuples.positions[rows], pack_tuples(batch)]
    return [kinds, numbers, lengths, *columns]


# --- reading back ----------------------------------------------------------------------------


class ReadParts(NamedTuple):
    """What each stored part is."""

    kinds: Array
    numbers: Int64s


def read_parts(parts: StoredParts, layout: list[Array]) -> ReadParts:
    """The parts in openings or snapshots, whose columns are those of `layout`."""
    check_layout(parts, layout, slice(3))
    chosen = [
        np.concatenate([layout[place], *(columns[place] for columns in parts.columns)])
        for place in range(2)
    ]
    rows = parts.rows_of_all()
    found = ReadParts(chosen[0][rows], chosen[1][rows])
    if np.any((found.kinds < 0) | (found.kinds >= KINDS)):
        raise DamagedFrame("a footprint is of neither a pane nor a mark of a join")
    if any(np.any(columns[2][columns[0] >= MARK]) for columns in parts.columns if columns[2:]):
        raise DamagedFrame("the mark of a sealed pane has tuples")
    return found


def tuples_read(
    parts: StoredParts,
    found: ReadParts,
    side: int,
    schema: pa.Schema,
    time: TimeColumn,
    within: int,
) -> Iterator[PartTuples]:
    """The tuples of an input's panes that were read back from snapshots."""
    own = np.flatnonzero(found.kinds == side)
    first = np.full(found.kinds.size, -1, np.int64)
    lengths = [np.where(columns[0] == side, columns[2], 0) for columns in parts.columns]
    for stored in tuples_of(parts, _stored_schema(schema), lengths, 3 + 2 * side):
        _check_positions(stored, first)
        batch = pa.RecordBatch.from_arrays(stored.batch.columns[1:], schema=schema)
        settled = stored.batch.column(0)
        if settled.null_count:
            raise DamagedFrame("a tuple of a join is neither settled nor not")
        if stored.positions.size:
            numbers = found.numbers[stored.parts]
            _check_times(batch, int(stored.positions[0]), numbers, time, within)
            yield PartTuples(batch, stored.positions, settled.to_numpy(zero_copy_only=False))
    if np.any(first[own] != parts.ids[own]):
        raise DamagedFrame("a pane of a join does not begin with the tuple that opened it")


def _check_positions(stored: StoredTuples, first: Int64s) -> None:
    """Refuse positions that do not rise within a part; note the first of each."""
    positions, owners = stored.positions, stored.parts
    same = owners[1:] == owners[:-1]
    if np.any(same & (positions[1:] <= positions[:-1])):
        raise DamagedFrame("the tuples of a pane of a join are not in order")
    begins = np.append(True, ~same) if owners.size else np.zeros(0, np.bool_)
    first[owners[begins]] = positions[begins]


def _check_times(
    batch: pa.RecordBatch, position: int, numbers: Int64s, time: TimeColumn, within: int
) -> None:
    try:
        times = time.times(batch, position)
    except RewakeError as error:
        raise DamagedFrame(f"a pane of a join has no event times: {error}") from error
    if np.any(times // within != numbers):
        raise DamagedFrame("a pane of a join has tuples of other panes")
