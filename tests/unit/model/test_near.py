"""What a user may have meant."""

import pytest

from rewake.model.near import did_you_mean

NAMES = ("itemId", "price", "time")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("pirce", "; did you mean 'price'?"),
        ("ITEMID", "; did you mean 'itemId'?"),
        ("zzz", ""),
        (7, ""),
    ],
)
def test_a_near_name_is_said_as_it_is_written_and_a_far_one_is_not(
    given: object, said: str
) -> None:
    """Whatever was given for a name."""
    assert did_you_mean(given, NAMES) == said


def test_of_nothing_nothing_is_near() -> None:
    """A stream may have no columns."""
    assert did_you_mean("price", ()) == ""
