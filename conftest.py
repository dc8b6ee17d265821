"""What every test shares: how hypothesis behaves, how much is tried, and what comes first.

How much one run tries, and what it leaves to others, is decided in `tests/support/strength.py`.
"""

import signal
from pathlib import Path

import strength
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent / "tests"

# A shell that runs the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first example of a kernel compiles it.  The blob replays a failure exactly.
# Never the same examples again, also where hypothesis sees that it runs in a CI service.
settings.register_profile(
    "rewake",
    deadline=None,
    max_examples=strength.examples(100),
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rewake")


# What is long comes first, so that no worker begins with it when the others are done.  First what
# computes, then what kills and waits: workers take over what is last, and then one of each runs.
_LONG = ["properties", "sim", "crash", "papers", "drill", "nemesis", "examples"]


def pytest_collection_modifyitems(items):
    """Put folders of long tests before the others; within them the order stays."""
    ranks = {str(TESTS / name): rank for rank, name in enumerate(_LONG)}
    items.sort(key=lambda item: ranks.get(str(item.path.parent), len(ranks)))


# What tests have counted, and the heading under which it is told at the end of a run.  It is done
# here because a parallel run loads no other conftest in the process that writes the summary.
_COUNTED = {"enumeration": "enumerations", "cases": "random cases"}


def pytest_terminal_summary(terminalreporter):
    """Print how many cases the enumerations and the random tests went through."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    for key, heading in _COUNTED.items():
        sentences = [
            text for report in reports for name, text in report.user_properties if name == key
        ]
        if sentences:
            terminalreporter.section(heading)
            for sentence in sorted(sentences):
                terminalreporter.write_line(sentence)
