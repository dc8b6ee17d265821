"""Queries on Spark, watched from outside, and processes that must leave nothing behind."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from task_vocabulary import alive, until

from rewake.drill.queries import ItemDrill
from rewake.drill.run import DrillResult, run_drill
from rewake.drill.starting_gun import fire
from rewake.drill.when import Strike
from rewake.net.queries.running import RunningQuery
from rewake.spark.job import SparkNodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = str(Path(__file__).parent)


def small(folder: Path, seconds: float = 3.0, **settings: object) -> ItemDrill:
    """The item query: 300,000 tuples of 5,000 items, so slowly that kills meet flowing data."""
    drill = ItemDrill(tuples=300_000, items=5_000, event_tuples=2_048, rate=300_000 / seconds)
    return replace(drill, gun=str(folder / "gun"), **settings)  # type: ignore[arg-type]


def run_on(
    session: "SparkSession",
    drill: ItemDrill,
    folder: Path,
    strikes: Sequence[Strike] = (),
    servers: int | None = None,
) -> DrillResult:
    """Run a drill to its end on Spark; everything that was to be struck has been."""
    launcher = SparkNodes(session)
    result = run_drill(drill, folder / "query", launcher, strikes=strikes, servers=servers)
    assert result.missed == []
    return result


def assert_right(result: DrillResult) -> None:
    """Nothing lost, repeated, reordered or wrong."""
    assert result.verdict is not None
    assert result.verdict.right, result.verdict
    assert result.verdict.expected > 0


def kills(*nodes: str, action: str = "kill") -> list[Strike]:
    """Strike the nodes one after the other, spread over the input."""
    return [
        Strike(node, action, at_fraction=(number + 1) / (len(nodes) + 2))
        for number, node in enumerate(nodes)
    ]


def read_some(query: RunningQuery, drill: ItemDrill, rows: int, position: int = 0) -> pa.Table:
    """Start the source, and read the averages from a position on until there are enough."""
    query.await_start()
    fire(Path(str(drill.gun)))
    batches: list[pa.RecordBatch] = []
    with query.subscribe("averages", position=position) as averages:
        while sum(each.num_rows for each in batches) < rows:
            event = averages.read(30.0)
            if event is None:
                assert averages.ended, "nothing came for half a minute"
                break
            batches.append(event.batch)
    return pa.Table.from_batches(batches)


ALL = 1 << 60


# --- processes of their own ----------------------------------------------------------------------


def clean_environment(folder: Path) -> dict[str, str]:
    """An environment that nobody has touched, with temporary files of its own."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"], "TMPDIR": str(temporary)}
    if "JAVA_HOME" in os.environ:
        environ["JAVA_HOME"] = os.environ["JAVA_HOME"]
    # The JVM does not read TMPDIR.
    environ["SPARK_LOCAL_DIRS"] = str(temporary)
    return environ


def start_program(
    arguments: Sequence[str], folder: Path, **environ: str
) -> "subprocess.Popen[str]":
    """Start a program in a terminal session of its own, so that all its offspring can be found."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=clean_environment(folder) | environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_program(program: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run a Python program to its end: exit code, stdout, stderr.  It leaves no process behind."""
    script = folder / "program.py"
    script.write_text(f"import sys\nsys.path.insert(0, {TESTS!r})\n{program}")
    with start_program([str(script), *arguments], folder) as process:
        try:
            out, err = process.communicate(timeout=300.0)
        except subprocess.TimeoutExpired:
            end_offspring(process.pid)
            raise
    until(lambda: not offspring(process.pid), 30.0)
    return process.returncode, out, err


def offspring(session: int) -> list[int]:
    """The processes that live in the terminal session of a program that was started so."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and alive(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


def end_offspring(session: int) -> None:
    """Whatever a test has left, when it failed."""
    for pid in offspring(session):
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
