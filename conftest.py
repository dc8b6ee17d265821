"""What every test shares: how hypothesis behaves, and how long random tests run.

`REWAKE_SCALE` multiplies the examples of property tests (`make soak` sets 20).
"""

import os
import signal

from hypothesis import HealthCheck, settings

_SCALE = int(os.environ.get("REWAKE_SCALE", "1"))

# A shell that runs the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first example of a kernel compiles it.  The blob replays a failure exactly.
settings.register_profile(
    "rewake",
    deadline=None,
    max_examples=100 * _SCALE,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rewake")


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
