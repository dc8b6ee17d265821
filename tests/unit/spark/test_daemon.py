"""The process that Python workers are forked from: what it leaves unsaid."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

# pyspark's own worker, with a task that writes and ends: its buffered words go out when it leaves.
_LEAVING = """
import socket, sys
import pyspark.worker
from pyspark import daemon
from rewake.spark.daemon import leave_quietly

leave_quietly(daemon)
sys.argv[1:] = ["pyspark.worker"]
here, there = socket.socketpair()


def task(infile, outfile):
    outfile.write(b"last words")
    {then}


pyspark.worker.main = task
print(daemon.worker(here, True))
"""


# What a worker could not send is raised.
_AS_SPARK_SETS_IT = {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}


def _left(then: str) -> tuple[str, str]:
    """With what a worker ended after this, and what it printed on stderr."""
    ended = subprocess.run(
        [sys.executable, "-c", _LEAVING.format(then=then)],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | _AS_SPARK_SETS_IT,
    )  # fmt: skip
    return ended.stdout.strip(), ended.stderr


def test_a_worker_that_spark_hung_up_on_ends_without_a_word() -> None:
    assert _left("there.close()") == ("1", "")


def test_every_other_trouble_of_a_worker_is_still_told() -> None:
    code, told = _left("import os; os.close(outfile.fileno())")
    assert not code
    assert "OSError" in told
