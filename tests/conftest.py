"""What every test shares: how hypothesis behaves, and how long random tests run.

`REWAKE_SCALE` multiplies the examples of property tests (`make soak` sets 20).
"""

import os

from hypothesis import HealthCheck, settings

_SCALE = int(os.environ.get("REWAKE_SCALE", "1"))

# No deadline: the first example of a kernel compiles it.  The blob replays a failure exactly.
settings.register_profile(
    "rewake",
    deadline=None,
    max_examples=100 * _SCALE,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rewake")
