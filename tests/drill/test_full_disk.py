"""A disk that is full, really: a small file system in memory, and a file that takes all of it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from drill_vocabulary import Drill, until


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of a few megabytes; skips where none can be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(place)]
    try:
        subprocess.run(mounting, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        pytest.skip(f"no file system can be mounted here: {said.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room there is; removing the file gives it back."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return ballast


def stalled(drill: Drill, node: str) -> bool:
    """Whether a node says that it waits for room."""
    assert drill.running.await_end(0.0) is False, "the query is over"
    return bool(drill.running.status()[node].get("stalled"))


@pytest.mark.parametrize("node", ["items", "cheap", "averages"])
def test_a_full_disk_and_a_restart_are_a_stall_that_ends_by_itself(
    tmp_path: Path, node: str
) -> None:
    """There is no room for the epoch of a node that died: it waits, and the query with it."""
    with small_disk(tmp_path / "query") as disk, Drill(tmp_path) as drill:
        drill.flow(0.3)
        ballast = fill(disk)
        drill.kill(node)
        until(lambda: stalled(drill, node))
        assert "coordinator.json" in drill.running.status()[node]["trouble"]
        drill.kill(*(set(drill.running.running) - {node}))  # all of them wait then
        drill.let(0.6)
        until(lambda: all(stalled(drill, each.name) for each in drill.plan.nodes))
        ballast.unlink()
        for each in drill.plan.nodes:
            drill.back(each.name)
        drill.finish()
        drill.check()


def test_a_full_disk_of_a_log_lets_its_node_wait_before_it_begins(tmp_path: Path) -> None:
    """The epoch is kept elsewhere; to claim the log there is no room."""
    with small_disk(tmp_path / "query" / "nodes") as disk, Drill(tmp_path) as drill:
        drill.flow(0.3)
        ballast = fill(disk)
        drill.kill("averages")
        until(lambda: stalled(drill, "averages"))
        until(lambda: drill.running.status()["averages"].get("starting"))
        waits_with = drill.epoch("averages")
        drill.let(0.6)
        assert drill.epoch("averages") == waits_with, "it was started again while it could wait"
        ballast.unlink()
        drill.finish()
        drill.check()
        replaced = drill.running.status()["averages"]["replaced"]
        assert replaced == {"died": 1, "failed": 1}


def test_a_query_that_is_stopped_while_the_disk_is_full_goes_on_later(tmp_path: Path) -> None:
    """Nodes that wait for room leave when they are told to; nothing was lost."""
    with small_disk(tmp_path / "query") as disk:
        with Drill(tmp_path) as drill:
            drill.flow(0.3)
            ballast = fill(disk)
            drill.kill("averages")
            until(lambda: stalled(drill, "averages"))
        ballast.unlink()
        with Drill(tmp_path) as again:
            again.finish()
            again.check()


def test_a_query_that_is_started_again_while_the_disk_is_full_waits_for_room(
    tmp_path: Path,
) -> None:
    """Not even where it listens can be written down; it goes on as soon as there is room."""
    with small_disk(tmp_path / "query") as disk:
        with Drill(tmp_path) as drill:
            drill.flow(0.3)
        ballast = fill(disk)
        with Drill(tmp_path) as again:
            until(lambda: stalled(again, "averages"))
            ballast.unlink()
            again.finish()
            again.check()
