"""SIGKILL to nodes at random, again and again, over one run.

A failure prints its seed; `REWAKE_DRILL_SEED` runs with that one (chance in the machine remains).
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from drill_queries import ITEMS, WINDOW, files_to_files, united
from drill_vocabulary import Drill, verdict

from rewake import ItemStream, read_parts
from rewake.model.errors import UsageError


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
    with Drill(tmp_path, tuples=tuples, **options) as drill, telling_seed() as random:
        storm(drill, random, kills)
        drill.finish()
        drill.check()


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(5))
def test_random_kills_and_pauses_of_a_union(tmp_path: Path, turn: int) -> None:
    """Whatever order of the two sources was recorded, every tuple is in one window."""
    tuples, query = 400_000, united(tmp_path / "gate", 400_000)
    with Drill(tmp_path, query, tuples=tuples) as drill, telling_seed() as random:
        storm(drill, random, 40, pauses=0.15)
        drill.finish()
        found = np.bincount(drill.results().column("item_id").to_numpy(), minlength=2 * ITEMS)
        for source in range(2):
            items = ItemStream(source + 1, ITEMS).batch(0, tuples).column(0).to_numpy()
            windows = np.bincount(items, minlength=ITEMS) // WINDOW
            assert np.array_equal(found[source * ITEMS : (source + 1) * ITEMS], windows)


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(5))
def test_random_kills_and_pauses_between_files(tmp_path: Path, turn: int) -> None:
    """What the files hold is what it should be, each result once, in order."""
    tuples, query = 400_000, files_to_files(tmp_path, 400_000)
    with (
        Drill(tmp_path, query, tuples=tuples, reading=False) as drill,
        telling_seed() as random,
    ):
        storm(drill, random, 40, pauses=0.15)
        drill.finish()
        found = verdict(read_parts(tmp_path / "out"), tuples)
        assert found.right, found


@contextmanager
def telling_seed() -> Iterator[Random]:
    """A generator of chance; when the test fails, the error says which."""
    seed = int(os.environ.get("REWAKE_DRILL_SEED", int.from_bytes(os.urandom(4), "big")))
    try:
        yield Random(seed)
    except Exception as error:
        error.add_note(f"run it again with REWAKE_DRILL_SEED={seed}")
        raise


def storm(drill: Drill, random: Random, kills: int, pauses: float = 0.0) -> None:
    """Strike so many times while 90% of the input flows; some strikes only put to sleep."""
    drill.running.await_start()
    struck: set[int] = set()
    while len(struck) < kills:
        # The input flows all the while, so that strikes meet nodes that work.
        drill.let(0.9 * (len(struck) + 1) / kills)
        sign = signal.SIGSTOP if random.random() < pauses else signal.SIGKILL
        strike(drill, random, sign, struck)
        time.sleep(random.choice((0.0, 0.01, 0.1)))


def strike(drill: Drill, random: Random, sign: signal.Signals, struck: set[int]) -> None:
    """One of the nodes that run now."""
    running = drill.running.running
    if running:
        # One that has just died is still said to run; to be hit again does not count.
        with suppress(UsageError, ProcessLookupError):
            struck.add(drill.running.signal_node(random.choice(running), sign))
