"""Makes the folder's own modules importable, and counts the cases that were tried."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from aggregate_runs import TRIED, share_compiled_functions

share_compiled_functions()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    TRIED.clear()
    try:
        return (yield)
    finally:
        # A state machine's test is named for its class.
        name = item.parent.name if item.name == "runTest" else item.name
        if tried := TRIED.total():
            item.user_properties.append(("cases", f"{tried:>7,} cases: {name}"))
