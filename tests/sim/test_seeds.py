"""Random queries under random faults, in virtual time, against an oracle.

Half of the seeds are the same in every run; the others grow from the commit, so that every change
is met by seeds that nobody has tried.  With all the time in the world (`make soak`) it is 20,000.
"""

import pytest
import strength

from rewake.drill.simulation import simulate

CHUNKS, PER_CHUNK = (100, 100) if strength.WHOLE else (25, 4)
# Beyond all that are the same in every run.
FIRST_NEW = 1_000_000


def grown() -> int:
    """The first of the seeds that grow from the commit; without git, always the same ones."""
    return FIRST_NEW + strength.commit() * 1_000


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("first", [0, grown()], ids=["the same", "new"])
def test_nothing_is_lost_repeated_reordered_or_wrong_whatever_fails(first: int, chunk: int) -> None:
    """Output after any faults is the output without them, and the run comes to its end."""
    for seed in range(first + chunk * PER_CHUNK, first + (chunk + 1) * PER_CHUNK):
        outcome = simulate(seed)
        assert not outcome.failure, outcome.report()
