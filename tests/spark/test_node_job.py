"""Nodes as Spark tasks: started together, killed alone, cancelled without a trace."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from task_vocabulary import alive, all_started, attempts, kill, living_entry, require_spark, until

from rewake.model.errors import OperatingFault
from rewake.net.wire.authentication import Token
from rewake.net.wire.listener import Listener
from rewake.spark.job import NodeJob
from rewake.spark.probe import DriverUnreachable, WorkersUnfit, probe, together
from rewake.spark.slots import TooFewSlots, slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def failures() -> list[str]:
    """What a job has reported."""
    return []


@pytest.fixture
def job(node_session: "SparkSession", tmp_path: Path, failures: list[str]) -> Iterator[NodeJob]:
    """A job of three nodes that runs."""
    running = NodeJob(node_session, 3, living_entry(str(tmp_path)), failures.append)
    running.start()
    until(lambda: all_started(tmp_path, 3))
    yield running
    running.cancel()


def test_nodes_run_at_once_and_end_when_told(job: NodeJob, tmp_path: Path) -> None:
    """Each in a process of its own; the job says why they ended."""
    assert len({attempts(tmp_path, number)[0] for number in range(3)}) == 3
    assert job.running
    (tmp_path / "stop").touch()
    assert job.wait(60.0)
    assert job.reasons == {number: f"node {number} was told to stop" for number in range(3)}
    job.stop()


def test_a_killed_node_is_started_again_and_no_other(
    job: NodeJob, tmp_path: Path, failures: list[str]
) -> None:
    """Ten times in a row: a session for nodes allows hundreds."""
    for life in range(10):
        kill(attempts(tmp_path, 1)[-1])
        until(lambda life=life: len(attempts(tmp_path, 1)) == life + 2)
    assert len(attempts(tmp_path, 0)) == len(attempts(tmp_path, 2)) == 1
    assert job.submitted == 1
    assert failures == []


def test_tasks_that_return_before_their_query_is_over_are_started_again(
    node_session: "SparkSession", tmp_path: Path, failures: list[str]
) -> None:
    """Spark takes them for done; with a query that is never over they are given up in the end."""
    over = tmp_path / "over"
    job = NodeJob(node_session, 1, _returning(over, 2), failures.append, over=over.exists)
    job.start()
    assert job.wait(60.0)
    assert (job.submitted, failures) == (2, [])
    never = NodeJob(
        node_session, 1, _returning(tmp_path / "never", 99), failures.append, over=lambda: False
    )
    never.start()
    assert never.wait(60.0)
    assert never.submitted == 3
    assert "returned before the query was over (they say: life 3)" in failures[0]


def _returning(over: Path, lives: int) -> Callable[[int], str]:
    """A node that returns; the query is over after so many of its lives."""
    lived = over.with_suffix(".lives")

    def entry(_number: int) -> str:
        with lived.open("a") as file:
            file.write(".")
        life = lived.stat().st_size
        if life == lives:
            over.touch()
        return f"life {life}"

    return entry


def test_other_work_goes_on_beside_the_nodes(job: NodeJob, node_session: "SparkSession") -> None:
    """There are more slots than nodes."""
    assert node_session.range(1000).count() == 1000
    assert job.running


def test_cancelling_leaves_no_process_and_reports_no_failure(
    job: NodeJob, tmp_path: Path, failures: list[str]
) -> None:
    """As if the machine had been switched off, except that it is tidy."""
    pids = [attempts(tmp_path, number)[-1] for number in range(3)]
    assert all(map(alive, pids))
    job.cancel()
    assert not job.running
    until(lambda: not any(map(alive, pids)))
    assert failures == []
    job.cancel()


def test_nodes_that_do_not_leave_are_cancelled(
    job: NodeJob, tmp_path: Path, failures: list[str]
) -> None:
    """Stopping ends, whatever the nodes do."""
    job.stop(leaving_seconds=0.2)
    assert not job.running
    until(lambda: not alive(attempts(tmp_path, 0)[-1]))
    assert failures == []


def test_too_few_slots_are_an_error_at_the_start(node_session: "SparkSession") -> None:
    """With what to do; never a hang."""
    assert slots(node_session) == 7
    job = NodeJob(node_session, 8, living_entry("unused"), [].append)
    with pytest.raises(TooFewSlots, match=r"8 servers at once but Spark has 7 slots.*local\[10\]"):
        job.start()
    job.stop()


def test_a_probe_counts_what_runs_at_once(node_session: "SparkSession") -> None:
    """For sessions whose settings do not tell."""
    assert together(probe(node_session, 9, None, hold=True)) == 7


def test_a_coordinator_out_of_reach_is_an_error_at_the_start(
    node_session: "SparkSession",
) -> None:
    """It names the address, and nobody waits for a query that cannot start."""
    listener = Listener(Token(bytes(32)))
    address = listener.address
    probe(node_session, 1, address)
    listener.close()
    job = NodeJob(node_session, 1, living_entry("unused"), [].append, coordinator=address)
    with pytest.raises(DriverUnreachable, match=f"coordinator at 127.0.0.1:{address[1]}"):
        job.start()


def test_another_rewake_on_the_workers_is_an_error_at_the_start(
    node_session: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of two versions would not understand each other."""
    monkeypatch.setattr("rewake.spark.probe.__version__", "99.0")
    with pytest.raises(WorkersUnfit, match=r"the driver has 99\.0; install rewake==99\.0"):
        probe(node_session, 1, None)


def test_another_python_on_the_workers_is_an_error_at_the_start(
    node_session: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the worker itself reports it."""
    monkeypatch.setattr(
        "rewake.spark.probe.sys", type("Other", (), {"version_info": sys.version_info})
    )
    monkeypatch.setattr(
        "rewake.spark.probe.sys.version_info", type("Version", (), {"major": 3, "minor": 99})
    )
    with pytest.raises(WorkersUnfit, match=r"the driver is 3\.99; set PYSPARK_PYTHON"):
        probe(node_session, 1, None)


def test_a_probe_that_gets_no_slot_is_given_up(job: NodeJob, node_session: "SparkSession") -> None:
    """All slots are taken: three by nodes, four by tasks that wait."""
    other = NodeJob(node_session, 4, _sleeper(), [].append)
    other.submit()
    until(lambda: other.submitted == 1)
    until(lambda: len(node_session.sparkContext.statusTracker().getActiveStageIds()) == 2)
    with pytest.raises(OperatingFault, match="did not run a trivial job within 1 s"):
        probe(node_session, 1, None, timeout_seconds=1.0)
    other.cancel()
    assert job.running


def _sleeper():
    def entry(_number: int) -> str:
        import time

        time.sleep(600)
        return ""

    return entry


def test_a_job_that_cannot_live_is_reported_once(
    node_session: "SparkSession", failures: list[str]
) -> None:
    """After three submissions that ended at once; the callback says what Spark said."""
    job = NodeJob(_Impatient(node_session), 1, living_entry("unused"), failures.append)
    job.submit()
    assert job.wait(120.0)
    assert job.submitted == 3
    assert len(failures) == 1
    assert "Spark gave the query's job up" in failures[0]
    job.stop()


class _Impatient:
    """A session whose jobs fail when they are planned, not after two hundred failures of a task."""

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def range(self, nodes: int, numPartitions: int):  # noqa: N803 (Spark's name)
        return self._session.range(nodes, numPartitions=numPartitions).select("no_such_column")

    def __getattr__(self, name: str):
        return getattr(self._session, name)


# --- in processes of their own -------------------------------------------------------------------

_SILENT = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from task_vocabulary import all_started, attempts, kill, living_entry, require_spark, until
from rewake.spark import local_session
from rewake.spark.job import NodeJob

folder = Path({folder!r})
session = local_session(cores=1, nodes=2)
job = NodeJob(session, 2, living_entry(str(folder)), print)
job.start()
until(lambda: all_started(folder, 2))
for life in range(3):
    kill(attempts(folder, 0)[-1])
    until(lambda: len(attempts(folder, 0)) == life + 2)
job.cancel()
session.stop()
print("done")
"""


def _run(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    require_spark()
    script = tmp_path / "program.py"
    script.write_text(program)
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    if "JAVA_HOME" in os.environ:
        environ["JAVA_HOME"] = os.environ["JAVA_HOME"]
    return subprocess.run(
        [sys.executable, script],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_killed_nodes_print_nothing(tmp_path: Path) -> None:
    """No stack trace of Spark's at the user: a killed node is nothing special."""
    folder = tmp_path / "nodes"
    folder.mkdir()
    tests = str(Path(__file__).parent)
    result = _run(_SILENT.format(tests=tests, folder=str(folder)), tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


_CLUSTER = """
import shutil, sys, pyspark
sys.path.insert(0, {tests!r})
from pathlib import Path
from task_vocabulary import all_started, attempts, kill, living_entry, parent, until
from rewake.spark import local_session
from rewake.spark.job import NodeJob
from rewake.spark.slots import slots

folder = Path({folder!r})
conf = {{
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "50",
}}
session = local_session(cores=1, nodes=1, conf=conf)
try:
    assert slots(session) == 2
    failures = []
    job = NodeJob(session, 2, living_entry(str(folder)), failures.append)
    job.start()
    until(lambda: all_started(folder, 2))
    kill(attempts(folder, 0)[-1])
    until(lambda: len(attempts(folder, 0)) == 2)
    # The whole executor: its JVM, the daemon, the workers.
    kill(parent(parent(attempts(folder, 1)[-1])))
    until(lambda: len(attempts(folder, 1)) == 2)
    assert len(attempts(folder, 0)) == 2
    (folder / "stop").touch()
    assert job.wait(60.0) and not failures, failures
    print(sorted(job.reasons))
finally:
    application = session.sparkContext.applicationId
    session.stop()
    # Executors of such a cluster work beside Spark's own files.
    shutil.rmtree(Path(pyspark.__path__[0]) / "work" / application, ignore_errors=True)
"""


@pytest.mark.soak
def test_nodes_survive_the_loss_of_an_executor(tmp_path: Path) -> None:
    """On a cluster of two executors with a slot each."""
    folder = tmp_path / "nodes"
    folder.mkdir()
    tests = str(Path(__file__).parent)
    result = _run(_CLUSTER.format(tests=tests, folder=str(folder)), tmp_path)
    assert (result.returncode, result.stdout) == (0, "[0, 1]\n"), result.stderr[-3000:]
