"""The demo's judgement: every way for results to be wrong is seen, and none is invented."""

import pytest

from rewake.connectors.item_stream import ItemStream
from rewake.lab.demo_check import ItemResult, Verdict, compare, expected_results

EXPECTED = [ItemResult(number % 3, 100 + number, number / 2) for number in range(9)]


def verdict(**faults: int) -> Verdict:
    """A verdict with these faults only."""
    none = {"lost": 0, "duplicated": 0, "reordered": 0, "wrong": 0}
    return Verdict(expected=len(EXPECTED), **(none | faults))


def test_the_expected_results_are_right() -> None:
    """In their order, each once."""
    judged = compare(EXPECTED, EXPECTED)
    assert judged == verdict()
    assert judged.right


@pytest.mark.parametrize(
    ("actual", "faults"),
    [
        (EXPECTED[:4] + EXPECTED[5:], {"lost": 1}),
        ([], {"lost": 9}),
        ([*EXPECTED[:5], EXPECTED[4], *EXPECTED[5:]], {"duplicated": 1}),
        (EXPECTED + EXPECTED, {"duplicated": 9}),
        ([EXPECTED[1], EXPECTED[0], *EXPECTED[2:]], {"reordered": 1}),
        ([EXPECTED[0]._replace(average=7.5), *EXPECTED[1:]], {"wrong": 1}),
        ([*EXPECTED, ItemResult(1, 999, 0.0)], {"wrong": 1}),
        ([EXPECTED[0]._replace(closed_at=99), *EXPECTED[1:]], {"wrong": 1, "lost": 1}),
    ],
)
def test_each_fault_is_counted_as_what_it_is(
    actual: list[ItemResult], faults: dict[str, int]
) -> None:
    """Lost, duplicated, reordered or wrong."""
    judged = compare(actual, EXPECTED)
    assert judged == verdict(**faults)
    assert not judged.right


def test_asking_the_oracle_item_by_item_gives_the_order_of_closing() -> None:
    """Windows are per item, so the answer is that for the whole stream."""
    stream = ItemStream(3, 7)
    seen: list[int] = []
    results = expected_results(stream, 500, 10, seen.append)
    counts: dict[int, list[int]] = {}
    plain = []
    for row in stream.rows(0, 500):
        prices = counts.setdefault(row["item_id"], [])
        prices.append(row["item_price"])
        if len(prices) == 10:
            plain.append(ItemResult(row["item_id"], row["item_time"], sum(prices) / 10))
            prices.clear()
    assert results == plain
    assert seen[-1] == 500
