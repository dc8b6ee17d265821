"""Makes the folder's own modules importable; enumerations tell how many cases they went through."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def tally(record_property):
    """Call it with a sentence; it is printed in the summary, also when tests run in parallel."""
    return lambda sentence: record_property("enumeration", sentence)
