"""Two tables that should hold the same tuples: what is lost, repeated, out of order or wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.oracle.verdict import Verdict

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
        # Of tuples that are equal and not all there, nobody can tell which are.
        reordered=_reordered(wanted[(often == seen)[wanted]], came[(often == seen)[came]])
        if in_order
        else 0,
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
    """How often a tuple follows one that it should have preceded; both hold the same tuples."""
    places = np.empty_like(came)
    # Stable: the first of several equal tuples stands for the first, the second for the second.
    places[np.argsort(came, kind="stable")] = np.argsort(wanted, kind="stable")
    return int(np.count_nonzero(places[1:] < places[:-1]))
