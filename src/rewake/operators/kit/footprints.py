"""Reading footprints back: which columns they have, their keys, and what they say of parts.

What an operator writes of no parts shows which columns its footprints have: first those of keys,
where parts have one; then columns with a value for each part; then, if the last of these are
lengths, columns with so many values for each part.  Bytes stand behind their lengths.  Compiled
code must see no others, so all that is read of a log goes through here; what is not as it was
written raises `DamagedFrame`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rewake.model.errors import DamagedFrame
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.byte_rows import check_state, chosen_state
from rewake.operators.columns.keys import KeyTable
from rewake.operators.stateful import NO_SLOTS, StoredParts

__all__ = ["ReadBack", "check_layout", "key_ids_of", "other_operator", "read_back", "rows_of_parts"]


class ReadBack(NamedTuple):
    """Stored parts: ids of their keys, and of the columns behind those the chosen rows."""

    keys: Int32s
    columns: list[Array]


def check_layout(parts: StoredParts, layout: Sequence[Array], of_parts: slice = slice(0)) -> None:
    """Refuse frames whose columns are not those of `layout`.

    The columns `of_parts` must have a value for each part; the length of others is not looked at.
    """
    kinds = [column.dtype for column in layout]
    for columns, total in zip(parts.columns, parts.totals, strict=True):
        if [column.dtype for column in columns] != kinds:
            raise other_operator()
        if any(column.size != total for column in columns[of_parts]):
            raise DamagedFrame(f"the columns of a footprint are not all {total} rows long")


def other_operator() -> DamagedFrame:
    """What a footprint is that this operator has not left."""
    return DamagedFrame(
        "a footprint has other columns than the log's operator writes; the log belongs to another "
        "operator, or to another version of it"
    )


def read_back(
    parts: StoredParts,
    layout: Sequence[Array],
    table: KeyTable | None = None,
    of_parts: int | None = None,
) -> ReadBack:
    """Stored parts, whose columns must be those of `layout`; their keys get ids of `table`.

    `of_parts` says how many of the columns behind the keys have a value for each part, if not all:
    the last of them says how many values the others have for it.
    """
    check_layout(parts, layout)
    width = 0 if table is None else table.footprint_columns
    border = len(layout) if of_parts is None else width + of_parts
    for columns, total in zip(parts.columns, parts.totals, strict=True):
        check_state(columns[width:border], total)
        if border < len(layout):
            check_state(columns[border:], _total(columns[border - 1]))
    keys = NO_SLOTS
    if table is not None:
        frames = [columns[:width] for columns in parts.columns]
        keys = table.unpack_all(frames, parts.rows, parts.totals)
    whole = [
        np.concatenate([layout[place], *(columns[place] for columns in parts.columns)])
        for place in range(width, len(layout))
    ]
    rows = parts.rows_of_all()
    own, others = whole[: border - width], whole[border - width :]
    chosen = chosen_state(own, rows)
    if others:
        chosen += chosen_state(others, rows_of_parts(own[-1], rows))
    return ReadBack(keys, chosen)


def rows_of_parts(lengths: Array, parts: Array) -> Int64s:
    """Which rows belong to the chosen parts, where each part has so many, one behind the other."""
    counts = lengths[parts].astype(np.int64)
    starts = np.cumsum(lengths, dtype=np.int64)[parts] - counts
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + within


def _total(lengths: Array) -> int:
    if lengths.size and int(lengths.min()) < 0:
        raise DamagedFrame("a part of a footprint has less than nothing")
    return int(lengths.sum(dtype=np.int64))


def key_ids_of(table: KeyTable, stored: Iterable[StoredParts]) -> Int32s:
    """Ids of the keys that stored parts begin with, whatever follows."""
    layout = table.pack(NO_SLOTS)
    ids = [NO_SLOTS]
    for parts in stored:
        cut = parts._replace(columns=[columns[: len(layout)] for columns in parts.columns])
        ids.append(read_back(cut, layout, table).keys)
    return np.concatenate(ids)
