"""Queries on a cluster of several executors: copies of nodes, and the loss of an executor."""

from pathlib import Path

import pytest
from query_vocabulary import run_program
from standalone import standalone_cluster
from task_vocabulary import require_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

_CLUSTER = """
from pathlib import Path
from query_vocabulary import assert_right, run_on, small
from task_vocabulary import kill, parent, until
from rewake.drill.run import Watcher
from rewake.drill.starting_gun import fire
from rewake.net.queries.running import RunningQuery
from rewake.spark import local_session
from rewake.spark.job import SparkNodes
from rewake.spark.slots import slots

folder, master = Path(sys.argv[1]), sys.argv[2]
session = local_session(cores=1, nodes=3, conf={
    "spark.master": master,
    "spark.cores.max": "8",
    "spark.executor.cores": "4",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "100",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "2s",
})
assert slots(session) == 8
for name in ("copies", "loss"):
    (folder / name).mkdir()
try:
    copies = run_on(session, small(folder / "copies", seconds=10.0), folder / "copies")
    assert_right(copies)
    epochs = [status["epoch"] for status in copies.status.values()]
    print("epochs", min(epochs) > 1)

    drill = small(folder / "loss", seconds=6.0)
    plan = drill.build().plan()
    with RunningQuery(plan, folder / "loss" / "query", SparkNodes(session)) as query:
        query.await_start()
        watcher = Watcher(query, "averages", 0)
        fire(Path(drill.gun))
        until(lambda: watcher.arrivals and query._host.pid_of("averages"))
        kill(parent(parent(query._host.pid_of("averages"))))
        assert query.await_end(120.0)
        watcher.thread.join(30.0)
        watcher.leave()
        lost = {each.node for each in query.history if each.what == "lost"}
    verdict = drill.check([watcher.table()])
    assert verdict.right, verdict
    print("lost", "averages" in lost)
finally:
    session.stop()
"""


def test_copies_supersede_each_other_and_executors_die(tmp_path: Path) -> None:
    """Speculation starts second attempts of nodes that are well; then a whole executor is lost."""
    require_spark()
    with standalone_cluster(tmp_path) as master:
        code, out, err = run_program(_CLUSTER, tmp_path, str(tmp_path), master)
    assert (code, out, err) == (0, "epochs True\nlost True\n", "")
