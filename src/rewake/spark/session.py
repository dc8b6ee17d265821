"""A Spark session on this machine that starts the same way everywhere.

What always holds for a session from `local_session`: its Python workers run this interpreter, it
listens on loopback alone, it serves no web page, and it writes nothing but errors on stderr.
The process's environment is as before once the session is up; only the JVM keeps the settings.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rewake.model.errors import UsageError
from rewake.spark.java import Java, require_java
from rewake.spark.java_shim import shim_home
from rewake.spark.requirements import MissingRequirement
from rewake.spark.settings import FAST_PYTHON, SOCKET_FOLDER, SOCKETS_ENABLED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# A socket's whole path may have 107 bytes; Spark's names for them have 42, and a slash.
_LONGEST_SOCKET_FOLDER = 64
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Enough for a drill; and a task of somebody's own that fails every time still ends within a minute.
_TASK_FAILURES = 200
# These would send the session elsewhere than to this machine, or to another Spark.
_MISLEADING = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "MASTER")


def local_session(
    *,
    cores: int | None = None,
    nodes: int = 0,
    app_name: str = "rewake",
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Start Spark in this process's own JVM with `cores` task slots (default: all cores).

    With `nodes`, there are as many slots more, for tasks that live as long as a query and may be
    killed hundreds of times.  `conf` is added last and wins.  Raises `MissingRequirement` without
    pyspark or Java, and `UsageError` when this process already has a session, whose settings could
    not be changed.
    """
    if cores is not None and cores < 1:
        raise UsageError(f"cores is {cores}; give 1 or more")
    if nodes < 0:
        raise UsageError(f"nodes is {nodes}; give 0 or more")
    if find_spec("pyspark") is None:
        raise MissingRequirement("pyspark is not installed; pip install 'rewake[spark]'")
    _refuse_a_second_session()
    settings = session_settings(cores or available_cores(), conf or {}, nodes, socket_settings())
    with environment_with(launch_environment(require_java())):
        return _start(app_name, settings)


def _refuse_a_second_session() -> None:
    """Raise when this process has a session, also when another thread started it."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 (optional, slow to import)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    # Asking for the active session raises when there is none.
    with suppress(PySparkRuntimeError):
        SparkSession.active()
        raise UsageError("this process already has a Spark session; use that one, or stop it first")


def _start(app_name: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 (optional, slow to import)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        # The JVM has already said on stderr what it could not do.
        raise MissingRequirement(f"Spark did not start: {error}; see what it printed") from error


def available_cores() -> int:
    """Return how many cores this process may use, which in a container is not all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def session_settings(
    cores: int, conf: Mapping[str, str], nodes: int = 0, sockets: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return Spark's settings for a quiet session on loopback, with the caller's put on top."""
    # A URI: the options are split at spaces, which a path may have.
    quiet = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.python.daemon.module": "rewake.spark.task_daemon",
        **FAST_PYTHON,
        **(sockets or {}),
    }
    if nodes:
        settings |= _settings_for_nodes(cores + nodes)
    settings |= conf
    settings[_JAVA_OPTIONS] = f"{quiet} {conf.get(_JAVA_OPTIONS, '')}".strip()
    return settings


def socket_settings() -> dict[str, str]:
    """Return where Spark makes the sockets of its Python workers: a folder of this process's own.

    It is gone when the process ends; Spark itself would leave the sockets of every session behind.
    """
    folder = tempfile.mkdtemp(prefix="rewake-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        return {SOCKETS_ENABLED: "false"}  # the system would refuse their names
    return {SOCKET_FOLDER: folder}


def _settings_for_nodes(slots: int) -> dict[str, str]:
    """Return what tasks need that live as long as a query and are killed now and then."""
    return {
        # Without the second number, Spark gives a local job up when the first process dies.
        "spark.master": f"local[{slots},{_TASK_FAILURES}]",
        "spark.python.daemon.module": "rewake.spark.daemon",
        "spark.python.worker.reuse": "true",
        # From the end of a task to the end of a process that does not notice it.
        "spark.python.task.killTimeout": "200ms",
        # A second attempt of a node would supersede the first, which is well.
        "spark.speculation": "false",
    }


def launch_environment(java: Java) -> dict[str, str | None]:
    """Return the variables the JVM is started with; None means that one is removed."""
    variables: dict[str, str | None] = dict.fromkeys(_MISLEADING)
    variables["JAVA_HOME"] = str(shim_home(java))
    variables["PYSPARK_PYTHON"] = sys.executable
    variables["PYSPARK_DRIVER_PYTHON"] = sys.executable
    variables["SPARK_LOCAL_IP"] = _LOOPBACK
    return variables


@contextmanager
def environment_with(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set the variables, and put back what was there."""
    before = {name: os.environ.get(name) for name in variables}
    _set_environment(variables)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
