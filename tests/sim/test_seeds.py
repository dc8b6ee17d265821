"""Random queries under random faults, in virtual time, against an oracle.

Half of the seeds are the same in every run; the others grow from the commit, so that every change
is met by seeds that nobody has tried.  `REWAKE_SCALE` multiplies them (20 makes 10,000).
"""

import os
import subprocess
from pathlib import Path

import pytest

from rewake.drill.simulation import simulate

SCALE = int(os.environ.get("REWAKE_SCALE", "1"))
CHUNKS, PER_CHUNK = 50, 5 * SCALE
# Beyond all that are the same in every run.
FIRST_NEW = 1_000_000


def grown() -> int:
    """The first of the seeds that grow from the commit; without git, the same ones."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return FIRST_NEW
    return FIRST_NEW + int(found.stdout, 16) * 1_000


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("first", [0, grown()], ids=["the same", "new"])
def test_nothing_is_lost_repeated_reordered_or_wrong_whatever_fails(first: int, chunk: int) -> None:
    """Output after any faults is the output without them, and the run comes to its end."""
    for seed in range(first + chunk * PER_CHUNK, first + (chunk + 1) * PER_CHUNK):
        outcome = simulate(seed)
        assert not outcome.failure, outcome.report()
