"""A run is a function of its seed."""

import json
import os
import subprocess
import sys

from rewake.drill.simulation import simulate

SEEDS = (1, 7, 9, 11, 30, 53, 68)
PROGRAM = f"""
import json
from rewake.drill.simulation import simulate
print(json.dumps([simulate(seed).trace_hash for seed in {SEEDS}]))
"""


def _hashes(hash_seed: str) -> list[str]:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    """Neither the order of sets nor anything else that the interpreter chooses plays a part."""
    first, second = _hashes("1"), _hashes("4242")
    assert first == second
    assert len(set(first)) == len(SEEDS)


def test_a_failing_seed_tells_its_story_and_how_to_replay_it() -> None:
    """One command shows the same run again."""
    outcome = simulate(7)
    assert not outcome.failure
    report = outcome.report()
    assert report.endswith("rewake simulate --seed 7 --story")
    assert 1 < len(outcome.story) <= 200
