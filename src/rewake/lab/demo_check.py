"""Whether a log holds exactly what it should: nothing lost, repeated, reordered or wrong.

The oracle is given the stream item by item: windows are per item, so that is the same question, and
the oracle, which goes through all open windows for every tuple, then answers in seconds.  The time
of a window's last tuple identifies its result, and gives the order of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rewake.connectors.item_stream import ItemStream
from rewake.lab import oracle

__all__ = ["ItemResult", "Verdict", "compare", "expected_results"]

_CHUNK = 50_000


class ItemResult(NamedTuple):
    """The average price of an item over a window that its tuple at `closed_at` closed."""

    item_id: int
    closed_at: int
    average: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a sequence of results; all zero when it is what it should be."""

    expected: int
    lost: int
    duplicated: int
    reordered: int
    wrong: int

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.duplicated or self.reordered or self.wrong)


def expected_results(
    stream: ItemStream, tuples: int, window: int, on_progress: Callable[[int], None]
) -> list[ItemResult]:
    """All results of the stream's first `tuples` tuples, in order, by the oracle."""
    purchases: dict[int, list[oracle.Row]] = {}
    for start in range(0, tuples, _CHUNK):
        for row in stream.rows(start, min(start + _CHUNK, tuples)):
            purchases.setdefault(row["item_id"], []).append(row)
    results: list[ItemResult] = []
    done = 0
    for rows in purchases.values():
        results += [ItemResult(**row) for row in _oracle(rows, window)]
        done += len(rows)
        on_progress(done)
    return sorted(results, key=lambda result: result.closed_at)


def _oracle(rows: Iterable[oracle.Row], window: int) -> list[dict[str, Any]]:
    return oracle.aggregate(
        rows,
        by=["item_id"],
        window=("count", window, window),
        functions=[("avg", "item_price", "average"), ("last", "item_time", "closed_at")],
    )


def compare(actual: Iterable[ItemResult], expected: Sequence[ItemResult]) -> Verdict:
    """Judge results in the order in which they were emitted.

    A result is known by its item and the time it closed.  Known but with another average, or not
    known at all: wrong.  Known and seen before: duplicated.  After one that should follow it:
    reordered.
    """
    ranks = {(each.item_id, each.closed_at): rank for rank, each in enumerate(expected)}
    seen: set[int] = set()
    duplicated = reordered = wrong = 0
    latest = -1
    for result in actual:
        rank = ranks.get((result.item_id, result.closed_at))
        if rank is None:
            wrong += 1
            continue
        if rank in seen:
            duplicated += 1
            continue
        seen.add(rank)
        wrong += result.average != expected[rank].average
        reordered += rank < latest
        latest = max(latest, rank)
    return Verdict(len(expected), len(expected) - len(seen), duplicated, reordered, wrong)
