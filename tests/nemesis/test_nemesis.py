"""A nemesis over a query whose order is chance: nothing acknowledged is lost, nothing is repeated.

A failure prints its seed; `REWAKE_DRILL_SEED` runs with that one (chance in the machine remains).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nemesis_world import World

RecordProperty = Callable[[str, object], None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def seed_of(number: int) -> int:
    """That of the environment, or one that is new every time."""
    return int(os.environ.get("REWAKE_DRILL_SEED", int.from_bytes(os.urandom(3), "big") + number))


def run(folder: Path, seed: int, accidents: int, **options: bool) -> str:
    """Strike so often, then let it end, and look at what came out."""
    try:
        with World(folder, seed, total=accidents * 100, **options) as world:
            for _ in range(accidents):
                world.strike()
            world.finish()
            world.check()
            return ", ".join(f"{name} {times}" for name, times in sorted(world.counted.items()))
    except BaseException as error:
        error.add_note(f"run it again with REWAKE_DRILL_SEED={seed}")
        raise


def test_a_few_accidents_of_all_kinds(tmp_path: Path, record_property: RecordProperty) -> None:
    """Kills, pauses, floods, restarts and parts from older copies, in one run."""
    folder = tmp_path / "world"
    folder.mkdir()
    record_property("cases", f"nemesis: {run(folder, seed_of(0), 8)}")


@pytest.mark.soak
@pytest.mark.parametrize("number", range(4))
def test_many_accidents(tmp_path: Path, record_property: RecordProperty, number: int) -> None:
    """The same for longer."""
    folder = tmp_path / "world"
    folder.mkdir()
    record_property("cases", f"nemesis: {run(folder, seed_of(number), 40)}")


@pytest.mark.soak
@pytest.mark.parametrize("number", range(4))
def test_many_accidents_on_a_disk_that_fills(
    small_disk: Path, record_property: RecordProperty, number: int
) -> None:
    """Where there is no room now and then, too."""
    folder = small_disk / "world"
    folder.mkdir()
    record_property("cases", f"nemesis: {run(folder, seed_of(number), 40, small_disk=True)}")
