"""Names that become file names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.model.errors import InvalidName
from rewake.model.names import checked_name

SAFE = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


@pytest.mark.parametrize("name", ["a", "LOG", "segment-0.log", "_x", "-", "a..b", "a" * 200])
def test_a_safe_name_is_returned(name):
    """The small alphabet, up to 200 characters."""
    assert checked_name(name) == name


@given(st.text(max_size=210))
def test_exactly_the_safe_names_pass(name):
    """An independent statement of the rule."""
    safe = 1 <= len(name) <= 200 and set(name) <= SAFE and not name.startswith(".")
    if safe:
        assert checked_name(name) == name
    else:
        with pytest.raises(InvalidName):
            checked_name(name)


@pytest.mark.parametrize("name", [None, b"a", 3])
def test_what_is_no_text_is_no_name(name):
    """InvalidName, not TypeError."""
    with pytest.raises(InvalidName):
        checked_name(name)
