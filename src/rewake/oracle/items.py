"""What count windows over the item stream must yield, for streams too long for the plain oracle.

Sorts all tuples by item and cuts each item's tuples into windows: no state, no turns, nothing in
common with the engine but numpy.  A test compares it with the plain oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rewake.oracle.verdict import Verdict

Column = NDArray[Any]
# Pieces of a stream: (items, prices, times in microseconds).
Pieces = Iterator[tuple[Column, Column, Column]]


class Expected(NamedTuple):
    """Results in the order in which their windows close: item, sum of prices, time of the close."""

    items: Column
    totals: Column
    closed_at: Column


def expected_windows(
    pieces: Pieces, window: int, keep: Callable[[Column], Column] | None = None
) -> Expected:
    """The results of tumbling count windows per item; `keep` says which prices pass a filter."""
    kept: list[tuple[Column, Column, Column]] = []
    for items, prices, times in pieces:
        if keep is None:
            kept.append((items, prices, times))
        else:
            chosen = keep(prices)
            kept.append((items[chosen], prices[chosen], times[chosen]))
    items, prices, times = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.argsort(items, kind="stable")
    items, prices, times = items[order], prices[order], times[order]
    starts = np.flatnonzero(np.r_[True, items[1:] != items[:-1]])
    rank = np.arange(items.size) - np.repeat(starts, np.diff(np.r_[starts, items.size]))
    closing = np.flatnonzero(rank % window == window - 1)
    sums = np.r_[0, np.cumsum(prices, dtype=np.int64)]
    totals = sums[closing + 1] - sums[closing + 1 - window]
    found = Expected(items[closing], totals, times[closing])
    by_time = np.argsort(found.closed_at, kind="stable")
    return Expected(*(column[by_time] for column in found))


def judge(expected: Expected, items: Column, averages: Column, closed_at: Column, window: int,
          *, in_order: bool) -> Verdict:  # fmt: skip
    """Compare results as they came with what they should be.

    The time of its last tuple identifies a result.  `in_order`: results of all items must come in
    the order of their closing; otherwise (several shards) only those of one item.
    """
    if not expected.closed_at.size:
        return Verdict(0, 0, 0, 0, int(closed_at.size))
    places = np.searchsorted(expected.closed_at, closed_at)
    places[places == expected.closed_at.size] = 0
    known = expected.closed_at[places] == closed_at
    seen = np.bincount(places[known], minlength=expected.closed_at.size)
    same = (expected.items[places] == items) & (expected.totals[places] / window == averages)
    wrong = int(np.count_nonzero(~known)) + int(np.count_nonzero(known & ~same))
    return Verdict(
        expected=int(expected.closed_at.size),
        lost=int(np.count_nonzero(seen == 0)),
        duplicated=int(np.maximum(seen - 1, 0).sum()),
        reordered=_reordered(items[known], places[known], in_order=in_order),
        wrong=wrong,
    )


def _reordered(items: Column, places: Column, *, in_order: bool) -> int:
    if not in_order:
        order = np.argsort(items, kind="stable")
        items, places = items[order], places[order]
        return int(np.count_nonzero((places[1:] < places[:-1]) & (items[1:] == items[:-1])))
    return int(np.count_nonzero(places[1:] < places[:-1]))
