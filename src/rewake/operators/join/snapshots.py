"""Footprints of a join's parts, as columns.

    opening     kind (i8), number of the pane (i64)
    snapshot    kind, number, bytes (i64); then the bytes of all parts, one behind the other (u8)

The bytes of a pane are one Arrow record batch: positions, whether a tuple is settled, and the
input's columns.  Those of a mark are none.  What is read back is checked against what the part must
be: tuples of that pane, at rising positions from the one that opened it up to the last it has seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.batches import read_batch
from rewake.model.errors import DamagedFrame, RewakeError
from rewake.operators.columns.arrays import Array, Int64s
from rewake.operators.columns.values import TimeColumn
from rewake.operators.join.parts import KINDS, MARK
from rewake.operators.join.tuples import HeldTuples
from rewake.operators.kit.footprints import frames_of
from rewake.operators.stateful import StoredParts

_FLAGS = [pa.field("position", pa.int64()), pa.field("settled", pa.bool_())]


class PartTuples(NamedTuple):
    """Tuples of an input that were read back, or replayed."""

    batch: pa.RecordBatch
    positions: Int64s
    settled: Array


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*_FLAGS, *schema])


def packed(held: HeldTuples, slots: Array) -> list[pa.Buffer]:
    """The bytes of panes of one input."""
    rows, counts = held.rows_of(slots)
    arrays = [pa.array(held.positions[rows]), pa.array(held.settled[rows])]
    arrays += held.batch(rows).columns
    batch = pa.RecordBatch.from_arrays(arrays, schema=_stored_schema(held.schema))
    starts = np.cumsum(counts) - counts
    return [
        batch.slice(start, count).serialize()
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]


def snapshots(kinds: Array, numbers: Int64s, slots: Array, held: list[HeldTuples]) -> list[Array]:
    """The snapshot columns of parts: what they are, and the tuples of those that are panes."""
    sizes = np.zeros(slots.size, np.int64)
    pieces: list[pa.Buffer | bytes] = [b""] * slots.size
    for side, tuples in enumerate(held):
        own = np.flatnonzero(kinds == side)
        if own.size:
            for place, piece in zip(own.tolist(), packed(tuples, slots[own]), strict=True):
                pieces[place] = piece
                sizes[place] = len(piece)
    data = np.frombuffer(b"".join(memoryview(piece) for piece in pieces), np.uint8)
    return [kinds, numbers, sizes, data]


# --- reading back ----------------------------------------------------------------------------


class ReadBack(NamedTuple):
    """Stored parts: what each is, and for those that are snapshots of panes, their bytes."""

    ids: Int64s
    applied: Int64s
    kinds: Array
    numbers: Int64s
    pieces: list[memoryview]


def read_back(parts: StoredParts, layout: list[Array]) -> ReadBack:
    """The parts in openings or snapshots, whose columns are those of `layout`."""
    kinds, numbers = [layout[0]], [layout[1]]
    pieces: list[memoryview] = []
    for columns, rows, _ in frames_of(parts, layout, slice(3)):
        kinds.append(columns[0][rows])
        numbers.append(columns[1][rows])
        if len(columns) > 2:
            pieces += _pieces(columns[2], columns[3], rows)
    found = ReadBack(
        parts.ids, parts.applied, np.concatenate(kinds), np.concatenate(numbers), pieces
    )
    if np.any((found.kinds < 0) | (found.kinds >= KINDS)):
        raise DamagedFrame("a footprint is of neither a pane nor a mark of a join")
    return found


def _pieces(sizes: Int64s, data: Array, rows: Array) -> list[memoryview]:
    """The bytes of chosen parts."""
    # Bounded one by one before they are added, so that the sum cannot wrap around.
    if np.any((sizes < 0) | (sizes > data.size)) or int(sizes.sum(dtype=object)) != data.size:
        raise DamagedFrame(f"the parts of a footprint do not fill its {data.size} bytes")
    ends = np.cumsum(sizes)
    view = memoryview(data.tobytes())
    return [view[ends[row] - sizes[row] : ends[row]] for row in rows.tolist()]


def tuples_of(
    parts: ReadBack, place: int, schema: pa.Schema, time: TimeColumn, within: int
) -> PartTuples | None:
    """The tuples of a part that was read back from a snapshot; a mark has none."""
    piece = parts.pieces[place]
    if parts.kinds[place] >= MARK:
        if len(piece):
            raise DamagedFrame("the mark of a sealed pane has tuples")
        return None
    # A copy: what is in a frame is not aligned.
    wrong = "a pane of a join is not a batch of its input"
    batch = read_batch(bytes(piece), _stored_schema(schema), wrong)
    if batch.num_rows == 0 or batch.column(0).null_count or batch.column(1).null_count:
        raise DamagedFrame("a pane of a join without tuples, or with tuples without positions")
    positions = batch.column(0).to_numpy()
    settled = batch.column(1).to_numpy(zero_copy_only=False)
    rising = bool(np.all(positions[1:] > positions[:-1]))
    if not rising or positions[0] != parts.ids[place] or positions[-1] > parts.applied[place]:
        raise DamagedFrame(
            f"a pane that opened at position {parts.ids[place]} and was stored at "
            f"{parts.applied[place]} cannot have tuples at the positions that it says"
        )
    tuples = pa.RecordBatch.from_arrays(batch.columns[2:], schema=schema)
    _check_times(tuples, int(positions[0]), int(parts.numbers[place]), time, within)
    return PartTuples(tuples, positions, settled)


def _check_times(
    batch: pa.RecordBatch, position: int, number: int, time: TimeColumn, within: int
) -> None:
    try:
        times = time.times(batch, position)
    except RewakeError as error:
        raise DamagedFrame(f"a pane of a join has no event times: {error}") from error
    if np.any(times // within != number):
        raise DamagedFrame(f"pane {number} of a join has tuples of other panes")
