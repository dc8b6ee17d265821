"""A process beside what is measured takes what it is told to, and goes when that ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rewake.model.errors import UsageError
from rewake_lab.bench.beside import pace, taking

# More than an interpreter needs to begin.
START_SECONDS = 2.0


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_it_works_for_its_share_of_every_period(share: float) -> None:
    """And rests for what is left: whoever watches for one period has seen all."""
    worked: list[float] = []
    rested: list[float] = []
    pace(share, lambda: len(rested) == 3, worked.append, rested.append)
    periods = [work + rest for work, rest in zip(worked, rested, strict=True)]
    assert worked == pytest.approx([share * period for period in periods])
    assert periods == pytest.approx([periods[0]] * 3)
    assert 0 < periods[0] < 0.1, "shorter than anything that is measured beside it"


def test_it_takes_processor_time_until_it_is_told_to_end_and_is_gone_afterwards() -> None:
    """A second of it, however long that takes here; to start takes far less."""
    with taking(1.0):
        (child,) = children()
        while cpu_seconds(child) < START_SECONDS + 1.0:
            time.sleep(0.05)
    assert child not in children()


def children() -> list[int]:
    """The processes that take a share, of those this one has started."""
    found = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in found.stdout.splitlines() if "lab.bench.beside" in line]
    return [int(line.split()[0]) for line in lines]


def cpu_seconds(pid: int) -> float:
    """What a process has used of processors so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_nothing_is_started_for_nothing() -> None:
    """A share of zero has no process."""
    with taking(0):
        assert children() == []


def test_it_ends_with_whoever_started_it() -> None:
    """When its input ends, it does."""
    command = [sys.executable, "-m", "rewake_lab.bench.beside", "0.1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_more_than_a_processor_is_refused() -> None:
    """One process has no more than one."""
    with pytest.raises(UsageError, match="share of one processor"), taking(1.5):
        pass
