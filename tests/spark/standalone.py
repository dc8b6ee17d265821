"""A standalone Spark cluster on loopback: a master, and workers that believe to be two machines.

with standalone_cluster(folder) as url:     # spark://127.0.0.1:<port>
    ...

Each worker has a loopback address of its own, so Spark takes them for different hosts: only then
does it start speculative copies.  Ports are those that the system gives; all files are in `folder`;
every process is gone at the end.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from query_vocabulary import clean_environment, end_offspring, offspring
from task_vocabulary import until

from rewake.spark import require_java
from rewake.spark.java_shim import shim_home

_MASTER_URL = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_REGISTERED = "Successfully registered with master"
WORKERS = ("127.0.0.2", "127.0.0.3")


@contextmanager
def standalone_cluster(folder: Path, cores: int = 4) -> Iterator[str]:
    """Start a master and two workers with `cores` slots each; the address of the master."""
    with ExitStack() as stack:
        log = stack.enter_context(
            _daemon(folder, "master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        )
        until(lambda: _MASTER_URL.search(log.read_text()))
        found = _MASTER_URL.search(log.read_text())
        assert found is not None
        logs = [stack.enter_context(_worker(folder, host, cores, found[1])) for host in WORKERS]
        until(lambda: all(_REGISTERED in each.read_text() for each in logs))
        yield found[1]


def _worker(folder: Path, host: str, cores: int, master: str) -> AbstractContextManager[Path]:
    place = str(folder / f"work-{host}")
    return _daemon(
        folder, "worker", "--host", host, "--port", "0", "--webui-port", "0",
        "--cores", str(cores), "--memory", "1g", "--work-dir", place, master,
    )  # fmt: skip


@contextmanager
def _daemon(folder: Path, kind: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's daemons, started as its scripts do; the file with what it says."""
    import pyspark

    script = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    name = f"org.apache.spark.deploy.{kind}.{kind.title()}"
    log = folder / f"{kind}-{len(list(folder.glob(f'{kind}-*.log')))}.log"
    environ = clean_environment(folder) | {
        "JAVA_HOME": str(shim_home(require_java(), {"HOME": str(folder)})),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [script, name, *arguments],
            env=environ,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20.0)
            until(lambda: not offspring(process.pid), 20.0)
        finally:
            end_offspring(process.pid)
            process.wait()
