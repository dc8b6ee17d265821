"""The process that Python workers are forked from: what it leaves unsaid."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

SECRET = b"a secret of Spark's"
_RESET = struct.pack("ii", 1, 0)  # to close is then to reset


class Spark:
    """Spark's end of a daemon: it asks for workers, and hangs up on them."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        assert process.stdout is not None
        (self._port,) = struct.unpack(">i", process.stdout.read(4))

    def worker(self) -> socket.socket:
        """Have a worker forked; the connection to it."""
        connected = socket.create_connection(("127.0.0.1", self._port), timeout=60.0)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return connected

    @staticmethod
    def number(connected: socket.socket) -> int:
        """The worker says which process it is, first of all."""
        (pid,) = struct.unpack(">i", connected.recv(4, socket.MSG_WAITALL))
        return int(pid)

    @staticmethod
    def authenticated(connected: socket.socket, secret: bytes = SECRET) -> bytes:
        """Tell the worker the secret; what it answers."""
        connected.sendall(struct.pack(">i", len(secret)) + secret)
        (size,) = struct.unpack(">i", connected.recv(4, socket.MSG_WAITALL))
        return connected.recv(size, socket.MSG_WAITALL)


@contextmanager
def daemon(
    module: str = "rewake.spark.task_daemon", worker: str = "pyspark.worker", **variables: str
) -> Iterator[Spark]:
    """A daemon as Spark starts it; afterwards it has been told to leave, and has."""
    environment = os.environ | {
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", module, worker],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    # A daemon that stays would hold its pipes open, and the test with them.
    patience = threading.Timer(100.0, process.kill)
    patience.start()
    try:
        yield Spark(process)
    finally:
        patience.cancel()
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        process.wait()


def said_after(hang_up: Callable[[Spark, socket.socket], None], module: str) -> str:
    """What is on stderr when Spark has hung up on a worker in this way, and all have left."""
    with daemon(module) as spark:
        connected = spark.worker()
        hang_up(spark, connected)
        connected.close()
        # Another worker, so that the daemon has come to the first one; it is told nothing.
        other = spark.worker()
        spark.number(other)
        assert spark.process.stdin is not None
        assert spark.process.stderr is not None
        spark.process.stdin.close()
        other.close()
        # Closed when the last of them is gone.
        return spark.process.stderr.read().decode()


def _at_once(spark: Spark, connected: socket.socket) -> None:
    """Before it has said its number."""


def _before_the_secret(spark: Spark, connected: socket.socket) -> None:
    spark.number(connected)


def _within_the_secret(spark: Spark, connected: socket.socket) -> None:
    spark.number(connected)
    connected.sendall(struct.pack(">i", len(SECRET)) + SECRET[:3])


def _before_the_task(spark: Spark, connected: socket.socket) -> None:
    spark.number(connected)
    assert spark.authenticated(connected) == b"ok"


def _in_the_task(spark: Spark, connected: socket.socket) -> None:
    _before_the_task(spark, connected)
    connected.sendall(struct.pack(">i", 0))


def _politely(hang_up: Callable[[Spark, socket.socket], None]) -> Callable[..., None]:
    """The same, with a connection that ends instead of being reset."""

    def ending(spark: Spark, connected: socket.socket) -> None:
        hang_up(spark, connected)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        connected.shutdown(socket.SHUT_WR)
        while connected.recv(1024):
            pass

    return ending


_PLACES = [_at_once, _before_the_secret, _within_the_secret, _before_the_task, _in_the_task]


@pytest.mark.parametrize("place", _PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("polite", [False, True], ids=["reset", "ended"])
def test_a_worker_that_spark_hangs_up_on_ends_without_a_word(
    place: Callable[[Spark, socket.socket], None], polite: bool
) -> None:
    """Wherever it is: it has done nothing wrong, and nor has anybody."""
    hang_up = _politely(place) if polite else place
    assert said_after(hang_up, "rewake.spark.task_daemon") == ""


def test_a_daemon_that_is_told_to_leave_says_nothing() -> None:
    """Nor do workers that wait; and Ctrl-C in a terminal does not reach its group."""
    with daemon() as spark, spark.worker() as connected:
        spark.number(connected)
        assert os.getpgid(spark.process.pid) == spark.process.pid
        assert spark.process.stdin is not None
        assert spark.process.stderr is not None
        # Spark does both; a signal alone may come where Python cannot raise.
        spark.process.send_signal(signal.SIGTERM)
        spark.process.stdin.close()
        connected.close()
        assert spark.process.stderr.read() == b""


@pytest.mark.parametrize("module", ["rewake.spark.task_daemon", "rewake.spark.daemon"])
def test_a_daemon_whose_spark_left_while_it_began_says_nothing(module: str) -> None:
    """Nobody is there to hear its port: a driver that was killed, a session that was stopped."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", module, "pyspark.worker"],
            stdin=subprocess.DEVNULL, stdout=writes, stderr=subprocess.PIPE, timeout=100,
            check=False,
        )  # fmt: skip
    finally:
        os.close(writes)
    assert ended.stderr.decode() == ""


def wait_for_the_end_of(pid: int) -> None:
    """Whatever it has to say, it has said then."""
    deadline = time.monotonic() + 60.0
    status = Path(f"/proc/{pid}/stat")
    with suppress(OSError):
        while status.read_text().rpartition(")")[2].split()[0] not in "ZX":
            assert time.monotonic() < deadline, "it does not end"
            time.sleep(0.01)


_PLANS = """
def main(infile, outfile):
    import {imported}

    outfile.write(b"planning")
    outfile.flush()
    infile.read(1)
    outfile.write(b"plan")
"""


@pytest.mark.parametrize(
    ("imported", "silent"), [("json", False), ("rewake.spark.datasource.source", True)]
)
def test_a_worker_that_plans_in_pysparks_own_daemon_ends_without_a_word(
    tmp_path: Path, imported: str, silent: bool
) -> None:
    """Spark reads as much as it needs of a plan, and hangs up; others are none of ours."""
    # Only modules of this beginning are workers.
    (tmp_path / "pyspark_plans.py").write_text(_PLANS.format(imported=imported))
    with daemon("pyspark.daemon", "pyspark_plans", PYTHONPATH=str(tmp_path)) as spark:
        connected = spark.worker()
        pid = spark.number(connected)
        assert spark.authenticated(connected) == b"ok"
        assert connected.recv(8, socket.MSG_WAITALL) == b"planning"
        connected.close()
        wait_for_the_end_of(pid)
        assert spark.process.stdin is not None
        assert spark.process.stderr is not None
        spark.process.stdin.close()
        said = spark.process.stderr.read().decode()
    assert ("ConnectionResetError" in said) != silent, said
    assert silent == (said == "")


def test_a_stranger_is_still_turned_away() -> None:
    """With another secret."""
    with daemon() as spark, spark.worker() as connected:
        spark.number(connected)
        assert spark.authenticated(connected, b"guessed") == b"err"


# pyspark's own worker, with a task that ends in this way.
_ENDING = """
import os, socket, sys
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
try:
    print(daemon.worker(here, True))
except BaseException:
    daemon.traceback.print_exc()
"""


def _said(then: str) -> str:
    """What the daemon says of a worker that ended so."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDING.format(then=then)],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"},
    )  # fmt: skip
    return ended.stderr


# A daemon that is told something while it forks, where Python cannot raise.
_FORKING = """
import os
from pyspark import daemon
from rewake.spark.daemon import leave_quietly


def told():
    {then}


leave_quietly(daemon)
os.register_at_fork(after_in_parent=told)
if not os.fork():
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    ("then", "told"), [("raise SystemExit(1)", ""), ("raise ValueError('a bug')", "a bug")]
)
def test_a_daemon_that_is_told_to_leave_while_it_forks_says_nothing(then: str, told: str) -> None:
    """The exit is lost there, and the daemon leaves because its input ends; the rest is told."""
    ended = subprocess.run(
        [sys.executable, "-c", _FORKING.format(then=then)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0
    assert (ended.stderr == "") == (told == "")
    assert told in ended.stderr


def test_last_words_that_nobody_hears_are_no_matter() -> None:
    """Spark is gone when the worker sends what it had gathered."""
    assert _said("there.close()") == ""


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("os.close(outfile.fileno())", "OSError"),
        ("raise ValueError('a bug')", "ValueError: a bug"),
        ("raise TimeoutError('of something else')", "TimeoutError"),
    ],
)
def test_every_other_trouble_of_a_worker_is_still_told(then: str, told: str) -> None:
    """With its traceback."""
    assert told in _said(then)
