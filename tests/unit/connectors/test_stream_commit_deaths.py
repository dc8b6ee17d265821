"""Committers that die, sleep or meet: every row once, and nothing of the dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import (
    OTHER,
    QUERY,
    batch,
    commit_numbers,
    content,
    expected,
    stage_numbers,
    staged,
)

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.commit_logs import read_concluded
from rewake.connectors.streams.folder import StreamFolder
from rewake.log.frame import TurnRecord
from rewake.model.errors import (
    CheckpointBehindLog,
    DamagedLog,
    Fenced,
    LogInUse,
)
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.stores import open_log_writer

# Every point of a commit, and how often it may be passed before the process dies.
POINTS = [
    ("locked", 1),
    ("claimed", 1),
    ("settled", 1),
    ("verified", 1),
    ("published", 1),
    ("appended", 1),
    ("appended", 2),
    ("appended", 4),
    ("appended", 6),
    ("durable", 1),
    ("concluded", 1),
    ("cleared", 1),
    ("swept", 1),
]
CHILD = str(Path(__file__).with_name("commit_child.py"))


# --- crashes -------------------------------------------------------------------------------------


def run_child(stream: StreamFolder, first: int, point: str, count: int) -> int:
    """Commit three batches in a process that dies on the way."""
    command = [sys.executable, CHILD, str(stream.path), str(first), point, str(count)]
    return subprocess.run(command, check=False, timeout=120).returncode


def last_batch(stream: StreamFolder) -> int:
    return read_concluded(stream.shards).writers.last[QUERY].batch


def finish(stream: StreamFolder, until: int) -> None:
    """All batches again: the last one is there already, those before are refused, the rest new."""
    after = StreamCommit(stream)
    for number in range(until):
        try:
            commit_numbers(after, batch(number))
        except CheckpointBehindLog:
            assert number < last_batch(stream)
        else:
            assert number == last_batch(stream)
    after.close()
    assert content(stream.path) == expected(*range(until))
    assert staged(stream) == set()


@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_driver_that_is_killed_anywhere_leaves_every_row_once(
    plain_stream: StreamFolder, point: str, count: int
) -> None:
    """A real SIGKILL at each point of a commit; the next one completes what was begun."""
    assert run_child(plain_stream, 0, point, count) == -signal.SIGKILL
    assert set(content(plain_stream.path).values()) <= {1}
    finish(plain_stream, 4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_driver_that_is_killed_while_it_completes_leaves_every_row_once(
    plain_stream: StreamFolder, count: int
) -> None:
    """The recovery of a commit may be cut off, too; and so may the recovery of that."""
    assert run_child(plain_stream, 0, "appended", 1) == -signal.SIGKILL
    assert run_child(plain_stream, 0, "appended", count) == -signal.SIGKILL
    assert run_child(plain_stream, 0, "durable", 1) == -signal.SIGKILL
    assert set(content(plain_stream.path).values()) <= {1}
    finish(plain_stream, 4)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_driver_that_is_killed_fifty_times_leaves_every_row_once(
    plain_stream: StreamFolder, point: str, count: int
) -> None:
    """In each window; every process finds what the one before it has left."""
    for number in range(50):
        run_child(plain_stream, max(0, number - 1), point, count)
        assert set(content(plain_stream.path).values()) <= {1}
    finish(plain_stream, 52)


# --- zombies -------------------------------------------------------------------------------------

# Where a driver sleeps, and what it is told when it wakes.  Before it looks into the stream, it
# finds what its successor wrote; afterwards its epoch is over, unless its batch was committed.
FOUND, OVER, DONE = "found", "over", "done"
SLEEPS = [
    ("locked", 1, FOUND),
    ("claimed", 1, FOUND),
    ("settled", 1, OVER),
    ("verified", 1, OVER),
    ("published", 1, OVER),
    ("appended", 1, OVER),
    ("appended", 3, OVER),
    ("durable", 1, OVER),
    ("concluded", 1, DONE),
    ("cleared", 1, DONE),
    ("swept", 1, DONE),
]


def sleeper(stream: StreamFolder, point: str, count: int, meanwhile: list[BatchIdentity]):
    """A driver that sleeps at a point, while a successor commits some batches without its lock."""
    left = count

    def sleep(passed: str) -> None:
        nonlocal left
        left -= passed == point
        if left or passed != point:
            return
        left = -1
        successor = StreamCommit(stream, patience_seconds=0.0)
        for identity in meanwhile:
            commit_numbers(successor, identity)
        successor.close()

    return StreamCommit(stream, patience_seconds=0.0, crash_after=sleep)


@pytest.mark.parametrize(("point", "count", "told"), SLEEPS)
@pytest.mark.parametrize("meanwhile", [[0], [0, 1], [0, 1, 2]])
def test_a_driver_that_slept_writes_nothing_when_it_wakes(
    stream: StreamFolder, point: str, count: int, told: str, meanwhile: list[int]
) -> None:
    """Its successor did not wait for its lock; what both had in hand is there once."""
    zombie = sleeper(stream, point, count, [batch(number) for number in meanwhile])
    if told == OVER:
        with pytest.raises(Fenced):
            commit_numbers(zombie, batch(0))
    elif told == FOUND and len(meanwhile) > 1:
        with pytest.raises(CheckpointBehindLog, match=f"has come to batch {meanwhile[-1]}"):
            commit_numbers(zombie, batch(0))
    else:
        assert commit_numbers(zombie, batch(0)) is (told == DONE)
    zombie.close()
    assert content(stream.path) == expected(*meanwhile)
    finish(stream, 5)


def test_a_manifest_that_was_published_too_late_is_dropped(stream: StreamFolder) -> None:
    """Others have written where its frames would be."""
    job = bytes([1] * 16)
    zombie = sleeper(stream, "verified", 1, [batch(0)])
    files = stage_numbers(stream, batch(0), 9)
    with pytest.raises(Fenced):
        zombie.commit(batch(0), files)
    assert any(name.startswith("commit-") for name in staged(stream))
    after = StreamCommit(stream)
    after.commit(batch(0, job), [], streaming=False)
    after.close()
    assert content(stream.path) == expected(0)
    assert not any(name.startswith("commit-") for name in staged(stream))


def test_two_queries_at_once_are_refused(stream: StreamFolder) -> None:
    """The second is told who is writing."""
    told = []

    def meet(point: str) -> None:
        if point == "published":
            rival = StreamCommit(stream, patience_seconds=0.05)
            with pytest.raises(LogInUse, match=r"03020100|00010203.*One query writes") as error:
                rival.commit(batch(0, OTHER), [])
            told.append(str(error.value))

    first = StreamCommit(stream, crash_after=meet)
    assert commit_numbers(first, batch(0))
    first.close()
    assert len(told) == 1
    assert f"process {os.getpid()}" in told[0]


def test_a_stranger_in_the_logs_is_noticed(plain_stream: StreamFolder) -> None:
    """A commit that is half there, and frames of somebody else behind it: nobody can tell."""
    assert run_child(plain_stream, 0, "durable", 1) == -signal.SIGKILL
    with open_log_writer(plain_stream.shards[1]) as writer:
        writer.append(TurnRecord(0, 0, 0, 0, 0, []))
    after = StreamCommit(plain_stream)
    with pytest.raises(DamagedLog, match=r"half in the stream.*shards \[1\]"):
        commit_numbers(after, batch(0))
