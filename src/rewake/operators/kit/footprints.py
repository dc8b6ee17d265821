"""Reading footprints back: which columns they have, whose keys they name, which times they tell.

What an operator writes of no parts shows which columns its footprints have.  Compiled code must see
no others, so all that is read of a log goes through here; what is not as it was written raises
`DamagedFrame`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rewake.model.errors import DamagedFrame
from rewake.model.stream_event import NO_TIME, TIME_LIMIT
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.keys import KeyTable
from rewake.operators.stateful import NO_SLOTS, StoredParts

__all__ = [
    "StoredFrame",
    "check_clocks",
    "frames_of",
    "key_ids_of",
    "other_operator",
    "seen_by_slot",
]


class StoredFrame(NamedTuple):
    """The footprints of one frame: their columns, the rows to choose, and how many parts."""

    columns: list[Array]
    rows: Array
    total: int


def frames_of(
    parts: StoredParts, layout: Sequence[Array], of_parts: slice = slice(0)
) -> Iterator[StoredFrame]:
    """The frames of stored parts, each with the columns of `layout`.

    The columns `of_parts` have a value for each part; the length of the others is not looked at.
    """
    kinds = [column.dtype for column in layout]
    for columns, rows, total in zip(parts.columns, parts.rows, parts.totals, strict=True):
        if [column.dtype for column in columns] != kinds:
            raise other_operator()
        if any(column.size != total for column in columns[of_parts]):
            raise DamagedFrame(f"the columns of a footprint are not all {total} rows long")
        yield StoredFrame(columns, rows, total)


def key_ids_of(table: KeyTable, stored: Iterable[StoredParts]) -> Int32s:
    """Ids of the keys that stored parts begin with, whatever follows."""
    layout = table.pack(NO_SLOTS)
    ids = [NO_SLOTS]
    for parts in stored:
        cut = parts._replace(columns=[columns[: len(layout)] for columns in parts.columns])
        ids += [table.unpack(*frame) for frame in frames_of(cut, layout)]
    return np.concatenate(ids)


def other_operator() -> DamagedFrame:
    """What a footprint is that this operator has not left."""
    return DamagedFrame(
        "a footprint has other columns than the log's operator writes; the log belongs to another "
        "operator, or to another version of it"
    )


def check_clocks(clocks: npt.ArrayLike) -> None:
    """Refuse event times that no clock has shown."""
    told = np.atleast_1d(np.asarray(clocks, np.int64))
    wrong = told[(told != NO_TIME) & ((told > TIME_LIMIT) | (told <= -TIME_LIMIT))]
    if wrong.size:
        raise DamagedFrame(f"the log's event time {wrong[0]} is out of range")


def seen_by_slot(
    openings: StoredParts, snapshots: StoredParts, slots: Int32s, capacity: int
) -> Int64s:
    """By slot: the last position that a restored part has seen; slots of openings come first."""
    seen = np.zeros(capacity, np.int64)
    seen[slots] = np.concatenate([openings.applied, snapshots.applied])
    return seen
