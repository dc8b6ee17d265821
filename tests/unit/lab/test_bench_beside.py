"""A process beside what is measured takes what it is told to, and goes when that ends."""

import os
import subprocess
import sys
import time

import pytest

from rewake.lab.bench.beside import taking
from rewake.model.errors import UsageError


def test_it_takes_a_processor_while_it_lasts_and_is_gone_afterwards() -> None:
    """Its work is seen in what ended children have used."""
    before = os.times().children_user
    with taking(1.0):
        time.sleep(0.5)
    assert os.times().children_user > before


def test_nothing_is_started_for_nothing() -> None:
    """A share of zero has no process."""
    with taking(0):
        found = subprocess.run(
            ["ps", "--ppid", str(os.getpid()), "-o", "args="],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "lab.bench.beside" not in found.stdout


def test_it_ends_with_whoever_started_it() -> None:
    """When its input ends, it does."""
    command = [sys.executable, "-m", "rewake.lab.bench.beside", "0.1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_more_than_a_processor_is_refused() -> None:
    """One process has no more than one."""
    with pytest.raises(UsageError, match="share of one processor"), taking(1.5):
        pass
