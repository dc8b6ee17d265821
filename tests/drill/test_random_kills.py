"""SIGKILL to nodes at random, again and again, over one run.

A failure prints its seed; `REWAKE_DRILL_SEED` runs with that one.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from drill_vocabulary import Drill

from rewake.model.errors import UsageError


def seed() -> int:
    """A new one for every run, unless one is asked for."""
    return int(os.environ.get("REWAKE_DRILL_SEED", int.from_bytes(os.urandom(4), "big")))


@pytest.mark.parametrize(
    ("kills", "tuples", "options"),
    [
        pytest.param(20, 200_000, {}, id="20"),
        pytest.param(200, 1_000_000, {"shards": 2}, id="200-sharded", marks=pytest.mark.soak),
        pytest.param(
            200, 1_000_000, {"approach": "instant"}, id="200-instant", marks=pytest.mark.soak
        ),
        pytest.param(1_000, 4_000_000, {}, id="1000", marks=pytest.mark.soak),
    ],
)
def test_random_kills_leave_no_mark_on_the_output(
    tmp_path: Path, kills: int, tuples: int, options: dict[str, object]
) -> None:
    """Whoever dies, in whatever state the others are."""
    chosen = seed()
    random = Random(chosen)
    with Drill(tmp_path, tuples=tuples, **options) as drill:
        drill.running.await_start()
        dead: set[int] = set()
        while len(dead) < kills:
            # The input flows all the while, so that kills meet nodes that work.
            drill.let(0.9 * (len(dead) + 1) / kills)
            kill_one(drill, random, dead)
            time.sleep(random.choice((0.0, 0.01, 0.1)))
        drill.finish()
    try:
        drill.check()
    except AssertionError as error:
        raise AssertionError(f"{error}; REWAKE_DRILL_SEED={chosen}") from error


def kill_one(drill: Drill, random: Random, dead: set[int]) -> None:
    """One of those that run now; it joins the dead."""
    running = drill.running.running
    if running:
        # One that has just died is still said to run; to be hit again does not count.
        with suppress(UsageError, ProcessLookupError):
            dead.add(drill.running.signal_node(random.choice(running)))
