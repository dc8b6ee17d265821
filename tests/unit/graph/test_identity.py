"""A query is the same query wherever its functions were begun from, and however wide it is."""

import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from rewake.graph.query import Query
from rewake.model.stream_event import no_tuples

JOB = """
import pyarrow as pa
import pyarrow.compute as pc
import rewake

def double(batch):
    return pc.multiply(batch.column("v"), 2)

def build():
    query = rewake.Query("job")
    entry = query.entry("entry", pa.schema([("v", pa.int64())]))
    entry.map({"twice": double}).to_stream("twice")
    return query

if __name__ == "__main__":
    print(build().plan().fingerprint)
"""


def fingerprint(folder: Path, *arguments: str) -> str:
    """What a Python program prints."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_query_begun_as_a_program_can_be_continued_from_its_module(tmp_path: Path) -> None:
    """`python job.py`, `python -m`, and `from job import build`: the functions are the same."""
    (tmp_path / "jobs").mkdir()
    for path in (tmp_path / "job.py", tmp_path / "jobs" / "job.py"):
        path.write_text(JOB)
    program = fingerprint(tmp_path, "job.py")
    assert len(program) > 20
    assert fingerprint(tmp_path, "-m", "job") == program
    show = "import build; print(build().plan().fingerprint)"
    assert fingerprint(tmp_path, "-c", f"from job {show}") == program
    assert fingerprint(tmp_path, "-m", "jobs.job") == program
    assert fingerprint(tmp_path, "-c", f"from jobs.job {show}") == program


def test_another_function_of_the_same_name_is_another_query(tmp_path: Path) -> None:
    """What it computes is part of what it is."""
    (tmp_path / "job.py").write_text(JOB)
    before = fingerprint(tmp_path, "job.py")
    (tmp_path / "job.py").write_text(JOB.replace("2)", "3)"))
    assert fingerprint(tmp_path, "job.py") != before


def times(batch: pa.RecordBatch) -> pa.Array:
    """A function for one column."""
    return batch.column(0)


@pytest.mark.parametrize("value", ["c0 + 1", times], ids=["text", "function"])
def test_a_wide_map_is_planned_in_time_that_grows_with_its_width(value: Any) -> None:
    """Batches of all columns are not made anew for each of them."""

    def made(width: int) -> int:
        count = 0

        def profile(frame: FrameType, event: str, _argument: Any) -> None:
            nonlocal count
            count += event == "call" and frame.f_code is no_tuples.__code__

        query = Query("wide")
        entry = query.entry("entry", pa.schema([(f"c{each}", pa.int64()) for each in range(width)]))
        sys.setprofile(profile)
        try:
            entry.map({f"d{each}": value for each in range(width)}).to_stream("wide")
            query.plan()
        finally:
            sys.setprofile(None)
        return count

    assert 0 < made(40) == made(4)
