"""Spark's daemons on loopback: a master with two workers, or a Connect server.

with standalone_cluster(folder) as url:     # spark://127.0.0.1:<port>
with connect_server(folder) as url:         # sc://127.0.0.1:<port>

Each worker has a loopback address of its own, so Spark takes them for different hosts: only then
does it start speculative copies.  Ports are those that the system gives; all files are in `folder`;
every process is gone at the end.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from query_vocabulary import clean_environment, end_offspring, offspring
from task_vocabulary import require_spark, until

from rewake.spark import require_java
from rewake.spark.java_shim import shim_home

_WORKERS = ("127.0.0.2", "127.0.0.3")
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def standalone_cluster(folder: Path, cores: int = 4) -> Iterator[str]:
    """Start a master and two workers with `cores` slots each; the address of the master."""
    ports = ("--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = _daemon(
            folder, "deploy.master.Master", r"Starting Spark master at (spark://[\d.]+:\d+)",
            "--host", "127.0.0.1", *ports,
        )  # fmt: skip
        url = stack.enter_context(master)
        for host in _WORKERS:
            worker = _daemon(
                folder, "deploy.worker.Worker", "(Successfully registered) with master",
                "--host", host, *ports, "--cores", str(cores), "--memory", "1g",
                "--work-dir", str(folder / f"work-{host}"), url,
            )  # fmt: skip
            stack.enter_context(worker)
        yield url


@contextmanager
def connect_server(folder: Path, slots: int = 4) -> Iterator[str]:
    """Start a server for Spark Connect with a local Spark; where clients connect to it."""
    settings = {
        "spark.master": f"local[{slots},200]",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.python.daemon.module": "rewake.spark.daemon",
    }
    options = [each for name in settings for each in ("--conf", f"{name}={settings[name]}")]
    started = r"Spark Connect server started at: \S*?:(\d+)"
    arguments = ("--class", _CONNECT_SERVER, *options, "spark-internal")
    with _daemon(folder, "deploy.SparkSubmit", started, *arguments) as port:
        yield f"sc://127.0.0.1:{port}"


def require_connect() -> None:
    """Skip a test where Spark, or what Spark Connect needs besides, is missing."""
    require_spark()
    missing = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]
    if missing:
        pytest.skip(f"Spark Connect needs packages: no {', '.join(missing)}")


@contextmanager
def _daemon(folder: Path, program: str, started: str, *arguments: str) -> Iterator[str]:
    """One of Spark's programs, run as its scripts do; what it says when it has started."""
    import pyspark

    script = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    log = folder / f"{program}-{len(list(folder.glob(f'{program}-*.log')))}.log"
    environ = clean_environment(folder) | {
        "JAVA_HOME": str(shim_home(require_java(), {"HOME": str(folder)})),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "512m",
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [script, f"org.apache.spark.{program}", *arguments],
            env=environ,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: re.search(started, log.read_text()) or process.poll() is not None)
        found = re.search(started, log.read_text())
        assert found is not None, log.read_text()[-4000:]
        yield found[1]
    finally:
        process.terminate()
        try:
            process.wait(20.0)
            until(lambda: not offspring(process.pid), 20.0)
        finally:
            end_offspring(process.pid)
            process.wait()
