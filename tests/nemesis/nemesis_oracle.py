"""What the sinks must hold after everything: lists and sums, and no code of the engine."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa


def check_tuples(found: pa.Table, totals: dict[int, int]) -> None:
    """Each producer's tuples are there once, in the order in which it sent them."""
    rows = list(zip(found["producer"].to_pylist(), found["number"].to_pylist(), strict=True))
    repeated = [row for row, times in Counter(rows).items() if times > 1]
    assert not repeated, f"{len(repeated)} tuples are there twice, as {repeated[:3]}"
    for producer, total in totals.items():
        numbers = [number for sender, number in rows if sender == producer]
        lost = sorted(set(range(total)) - set(numbers))
        assert not lost, f"{len(lost)} tuples of producer {producer} are lost, as {lost[:3]}"
        assert numbers == list(range(total)), f"those of producer {producer} are out of order"
    assert {sender for sender, _ in rows} <= set(totals), "somebody else's tuples are there"


def expected_sums(found: pa.Table, window: int) -> list[tuple[int, int]]:
    """Key and sum of every window that is full, in the order in which they become so."""
    waiting: dict[int, list[int]] = {}
    sums = []
    for key, number in zip(found["key"].to_pylist(), found["number"].to_pylist(), strict=True):
        numbers = waiting.setdefault(key, [])
        numbers.append(number)
        if len(numbers) == window:
            sums.append((key, sum(numbers)))
            numbers.clear()
    return sums
