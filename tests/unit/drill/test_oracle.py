"""The oracle, on cases small enough to check by hand."""

import pytest

from rewake.oracle.aggregates import Punctuation, aggregate, aggregate_with_late, running


def rows(keys, times=None):
    """Rows with the values 0, 1, 2, ..."""
    times = times or [0] * len(keys)
    return [{"k": key, "v": i, "t": t} for i, (key, t) in enumerate(zip(keys, times, strict=True))]


def sums(stream, window, **more):
    """Sums as (key, sum) in order."""
    found = aggregate(stream, by=["k"], window=window, functions=[("sum", "v", "s")], **more)
    return [(row["k"], row["s"]) for row in found]


def test_count_windows_tumble_slide_and_leave_gaps():
    """Per key, by arrival."""
    assert sums(rows("aabab"), ("count", 2, 2)) == [("a", 1), ("b", 6)]
    assert sums(rows("aaaa"), ("count", 3, 1)) == [("a", 3), ("a", 6)]
    assert sums(rows("aaaaa"), ("count", 1, 3)) == [("a", 0), ("a", 3)]


def test_a_timeout_closes_all_windows_of_a_key_with_what_they_have():
    """When its oldest has been open that long; the key then starts anew."""
    stream = rows("aaba", [0, 1, 5, 5])
    assert sums(stream, ("count", 3, 1), time="t", timeout=5) == [("a", 1), ("a", 1)]
    assert sums([*stream, Punctuation(10)], ("count", 9, 9), time="t", timeout=5) == [
        ("a", 1),
        ("b", 2),
        ("a", 3),
    ]


def test_time_windows_close_in_the_order_of_their_ends_then_of_their_first_tuples():
    """When the watermark reaches the end."""
    stream = [*rows("bac", [2, 1, 12]), Punctuation(20)]
    assert sums(stream, ("time", 10, 10), time="t") == [("b", 0), ("a", 1), ("c", 2)]


def test_slack_delays_the_watermark_and_late_tuples_are_told():
    """A tuple is late when all its windows have closed; a tuple in a gap is not late."""
    stream = rows("aaa", [0, 12, 3])
    window, functions = ("time", 10, 10), [("count", "", "n")]
    found, late = aggregate_with_late(
        stream, by=["k"], window=window, functions=functions, time="t"
    )
    assert ([row["n"] for row in found], late) == ([1], [stream[2]])
    found, late = aggregate_with_late(
        [*stream, Punctuation(10)], by=["k"], window=window, functions=functions, time="t", slack=5
    )
    assert ([row["n"] for row in found], late) == ([2], [])
    assert aggregate_with_late(
        rows("aa", [50, 5]), by=["k"], window=("time", 1, 10), functions=functions, time="t"
    ) == ([], [])


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("count", 2), ("sum", 6), ("avg", 3.0), ("min", 2), ("max", 4), ("first", 4), ("last", 2)],
)
def test_functions_pass_over_nulls(kind, wanted):
    """And are null (a count: 0) where there is nothing else."""
    stream = [{"k": 1, "v": value} for value in (4, None, 2)]
    one = {"by": ["k"], "window": ("count", 3, 3), "functions": [(kind, "v", "x")]}
    assert aggregate(stream, **one) == [{"k": 1, "x": wanted}]
    nothing = [{"k": 1, "v": None}] * 3
    assert aggregate(nothing, **one) == [{"k": 1, "x": 0 if kind == "count" else None}]


def test_a_user_function_sees_the_values_in_order():
    """As a list."""
    found = aggregate(
        rows("aaa"),
        by=["k"],
        window=("count", 3, 3),
        functions=[("mine", "v", "x")],
        user={"mine": list},
    )
    assert found == [{"k": "a", "x": [0, 1, 2]}]


def test_running_windows_tell_a_batchs_keys_over_all_their_tuples():
    """In the order in which they come in the batch; nothing for a batch without rows."""
    batches = [rows("bab"), [], rows("a")]
    found = running(batches, by=["k"], functions=[("count", "", "n"), ("sum", "v", "s")])
    assert [[tuple(row.values()) for row in batch] for batch in found] == [
        [("b", 2, 2), ("a", 1, 1)],
        [],
        [("a", 2, 1)],
    ]
