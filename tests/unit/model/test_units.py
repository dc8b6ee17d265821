"""Durations as people write them."""

import pytest

from rewake.model.errors import InvalidWindow
from rewake.model.units import duration_in_unit, duration_ns


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1ns", 1),
        ("250ms", 250 * 10**6),
        ("1.5s", 1_500_000_000),
        (" 2 min ", 120 * 10**9),
        ("2m", 120 * 10**9),
        ("1h", 3600 * 10**9),
        ("365d", 365 * 86400 * 10**9),
        ("0.000000001s", 1),
        ("0s", 0),
        ("10 minutes", 600 * 10**9),
        ("1 hour 30 minutes", 5400 * 10**9),
        ("1 HOUR", 3600 * 10**9),
        ("1s 2ms", 1_002_000_000),
        ("2 weeks", 14 * 86400 * 10**9),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, nanoseconds):
    """Exact to the nanosecond, also where a float would not be."""
    assert duration_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-1s", "1 fortnight", "1e3s", ".5s", "1S", "1 month", None, 7]
)
def test_anything_else_is_refused_with_an_example(text):
    """The message shows the units and how to write it."""
    with pytest.raises(InvalidWindow, match=r'is not a duration.*"250ms"'):
        duration_ns(text)


def test_a_duration_is_turned_into_the_unit_of_the_time_column():
    """Integers are in that unit already."""
    assert duration_in_unit("3s", 10**6) == 3000
    assert duration_in_unit(17, 10**6) == 17


def test_a_duration_finer_than_the_time_column_is_refused():
    """Rounding would misplace window borders."""
    with pytest.raises(InvalidWindow, match=r"'1500us' is not a whole number.*finer time column"):
        duration_in_unit("1500us", 10**6)
