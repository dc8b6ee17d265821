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


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(75, id="75: ticks without their time in a replay"),
        pytest.param(3869, id="3869: a step that went back says a log shorter than it is"),
        pytest.param(4523, id="4523: a zombie looks for what its successor wrote"),
        pytest.param(11584, id="11584: a step goes back, though not to where a slow consumer is"),
        pytest.param(12256, id="12256: watermarks that meet elsewhere in a replay"),
    ],
)
def test_what_a_seed_found_once_stays_mended(seed: int) -> None:
    """Seeds beyond those of every run; what they found is in their names."""
    outcome = simulate(seed)
    assert not outcome.failure, outcome.report()
