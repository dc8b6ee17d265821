"""Random queries under random faults, in virtual time, against an oracle.

500 seeds by default; `REWAKE_SCALE` multiplies them, and doubles them when it is set (20 makes
20,000).
"""

import os

import pytest

from rewake.drill.simulation import simulate

SCALE = int(os.environ.get("REWAKE_SCALE", "1"))
SEEDS, CHUNKS = 500, 50
PER_CHUNK = SEEDS // CHUNKS * (1 if SCALE == 1 else 2 * SCALE)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_is_lost_repeated_reordered_or_wrong_whatever_fails(chunk: int) -> None:
    """Output after any faults is the output without them, and the run comes to its end."""
    for seed in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK):
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
