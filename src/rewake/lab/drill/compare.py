"""Two tables that should hold the same tuples: what is lost, repeated, out of order or wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.lab.drill.drill import Verdict

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def compare(expected: pa.Table, found: pa.Table, *, in_order: bool) -> Verdict:
    """Judge `found`; `in_order`: its tuples must also come in the order of `expected`.

    A tuple that is there more often than expected is a duplicate; one that is not expected at all
    is wrong; one that is there less often is lost.
    """
    rows = _numbered(pa.concat_tables([expected, found]))
    wanted, came = rows[: expected.num_rows], rows[expected.num_rows :]
    kinds = int(rows.max()) + 1 if rows.size else 0
    often, seen = (np.bincount(each, minlength=kinds) for each in (wanted, came))
    extra = np.maximum(seen - often, 0)
    return Verdict(
        expected=expected.num_rows,
        lost=int(np.maximum(often - seen, 0).sum()),
        duplicated=int(extra[often > 0].sum()),
        reordered=_reordered(wanted, came) if in_order else 0,
        wrong=int(extra[often == 0].sum()),
    )


def _numbered(table: pa.Table) -> Numbers:
    """A number for each tuple, the same for equal ones (null equals null)."""
    codes = [_codes(column) for column in table.columns]
    if not codes or not table.num_rows:
        return np.zeros(table.num_rows, np.int64)
    _, numbers = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
    return np.asarray(numbers, np.int64).reshape(-1)


def _codes(column: pa.ChunkedArray) -> Numbers:
    if pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array([repr(each) for each in column.to_pylist()])])
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    indices = pc.fill_null(coded.indices.cast(pa.int64()), -1)
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def _reordered(wanted: Numbers, came: Numbers) -> int:
    """How often a tuple follows one that it should have preceded, among those that are in both."""
    ranked = _by_row_and_occurrence(wanted)
    found = _by_row_and_occurrence(came)
    both, places, at = np.intersect1d(ranked, found, assume_unique=True, return_indices=True)
    if not both.size:
        return 0
    in_arrival = places[np.argsort(at)]
    return int(np.count_nonzero(in_arrival[1:] < in_arrival[:-1]))


def _by_row_and_occurrence(rows: Numbers) -> Numbers:
    """Each row's number made unique by how often it was there before."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty_like(rows)
    rank[order] = np.arange(rows.size) - first
    return rows * np.int64(1 << 32) + rank
