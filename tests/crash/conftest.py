"""The enumerations tell at the end of a run how many cases they went through."""

import pytest


@pytest.fixture
def tally(record_property):
    """Call it with a sentence; it is printed in the summary, also when tests run in parallel."""
    return lambda sentence: record_property("enumeration", sentence)
