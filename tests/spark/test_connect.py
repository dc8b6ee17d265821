"""A query through Spark Connect: there is no SparkContext, only a session far away."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from query_vocabulary import run_program
from task_vocabulary import require_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_CONNECT = """
import os
from pathlib import Path
from rewake.spark import require_java
from rewake.spark.java_shim import shim_home
os.environ["JAVA_HOME"] = str(shim_home(require_java()))
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
from query_vocabulary import assert_right, kills, run_on, small

folder = Path(sys.argv[1])
session = (
    SparkSession.builder.remote("local[4,200]")
    .config("spark.ui.enabled", "false")
    .config("spark.connect.grpc.binding.port", "0")
    .config("spark.connect.grpc.binding.address", "127.0.0.1")
    .config("spark.python.daemon.module", "rewake.spark.daemon")
    .getOrCreate()
)
print(type(session).__module__)
try:
    assert_right(run_on(session, small(folder), folder, kills("averages")))
finally:
    session.stop()
print("right")
"""


def test_a_query_runs_through_connect_and_survives_a_kill(tmp_path: Path) -> None:
    """The same launcher: nothing in it needs a SparkContext."""
    require_spark()
    missing = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]
    if missing:
        pytest.skip(f"Spark Connect needs packages: no {', '.join(missing)}")
    code, out, err = run_program(_CONNECT, tmp_path, str(tmp_path))
    assert (code, out) == (0, "pyspark.sql.connect.session\nright\n"), err[-4000:]
