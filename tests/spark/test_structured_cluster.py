"""`rewake.aggregate` on several executors: they die, and tasks run twice."""

from pathlib import Path

import pytest
from query_vocabulary import run_program
from standalone import standalone_cluster
from structured_vocabulary import attempts, expected, host_pids, results, write_input
from task_vocabulary import alive, require_spark, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

_CLUSTER = """
from pathlib import Path
from types import SimpleNamespace
from rewake.spark import local_session
from spark_streams import EAGER_COPIES
from structured_vocabulary import died, dying, run_query

folder, master = Path(sys.argv[1]), sys.argv[2]
deaths = {"1.before": "sleep", "2.during": "executor", "3.after": "executor", "4.during": "host"}
dying(SimpleNamespace(setattr=setattr), folder, deaths)
conf = {"spark.master": master, "spark.task.maxFailures": "20", **EAGER_COPIES}
session = local_session(cores=2, conf=conf)
try:
    run_query(session, folder)
    print(died(folder) == deaths.keys())
finally:
    session.stop()
"""


def _run(folder: Path, master: str) -> None:
    write_input(folder, 6)
    code, out, err = run_program(_CLUSTER, folder, str(folder), master)
    assert (code, out) == (0, "True\n"), err
    # A host that was killed cannot take its registration back; no process is left.
    until(lambda: not any(alive(pid) for pid in host_pids(folder)), 30.0)
    assert results(folder) == expected(6)


def test_executors_of_one_machine_die(tmp_path: Path) -> None:
    """The shards move to the other executor, or to a new one, and nothing is counted twice."""
    require_spark()
    _run(tmp_path, "local-cluster[2,1,1024]")


def test_workers_of_a_cluster_lose_executors_and_tasks_run_twice(tmp_path: Path) -> None:
    """A master with two workers, as on two machines that share a disk.

    In batch 1 nobody dies, but a task sleeps: only speculation begins it a second time.
    """
    require_spark()
    with standalone_cluster(tmp_path, cores=1) as master:
        _run(tmp_path, master)
    assert sorted(attempts(tmp_path, 1).values()) == [1, 2]
