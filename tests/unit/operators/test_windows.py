"""Window specifications: what is refused, and what follows from size and advance."""

import pytest

from rewake.model.errors import InvalidWindow
from rewake.operators.windows.specs import CountWindow, count_window, time_window


@pytest.mark.parametrize("size", [0, -1, 1.5, "3", True, None])
def test_a_count_window_has_a_positive_whole_size(size):
    """Anything else is refused by name and value."""
    with pytest.raises(InvalidWindow, match="size must be a positive whole number"):
        CountWindow(size, 1)


@pytest.mark.parametrize("advance", [0, -3])
def test_a_window_advances(advance):
    """Windows that do not move are refused."""
    with pytest.raises(InvalidWindow, match="advance must be a positive whole number"):
        count_window(3, advance)


def test_a_window_beyond_64_bits_is_refused():
    """Times would wrap around."""
    with pytest.raises(InvalidWindow, match="beyond what 64-bit times can hold"):
        time_window(2**62).in_unit(1)
    with pytest.raises(InvalidWindow, match="too long"):
        count_window(2**31)


@pytest.mark.parametrize("size", ["0s", "soon"])
def test_a_time_window_needs_a_duration(size):
    """Zero and words that are no durations are refused when the unit is known."""
    with pytest.raises(InvalidWindow):
        time_window(size).in_unit(10**6)


def test_without_an_advance_a_window_tumbles():
    """Each tuple belongs to exactly one window."""
    assert count_window(5).tumbling
    assert not count_window(5, 2).tumbling
    assert time_window("5s").in_unit(10**9) == (5, 5)


@pytest.mark.parametrize(
    ("size", "advance", "pane"), [(6, 6, 6), (6, 4, 2), (6, 1, 1), (6, 9, 9), (5, 3, 1)]
)
def test_panes_lie_between_neighbouring_borders(size, advance, pane):
    """A window, and the gap behind it, where there is one, is one pane."""
    assert count_window(size, advance).pane == pane
