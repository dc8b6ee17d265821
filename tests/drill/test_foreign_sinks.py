"""Sinks that another query has written, where no log is between source and sink."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

import rewake


def query(name: str, folder: Path, values: range, *, mapped: bool = False) -> rewake.Query:
    """Numbers into files and into a database, with at most a map between."""
    made = rewake.Query(name)
    numbers = made.source("numbers", rewake.Batches(pa.table({"v": list(values)})))
    numbers = numbers.map(v="v + 0", name="same") if mapped else numbers
    numbers.to(rewake.FileSink(folder / "files"), name="files")
    database = rewake.Sqlite(folder / "numbers.db")
    numbers.to(rewake.SqlSink(database, table="numbers", name="numbers"), name="rows")
    return made


def written(folder: Path) -> tuple[list[int], list[int]]:
    """What is in the two sinks."""
    with sqlite3.connect(folder / "numbers.db") as session:
        rows = [row for (row,) in session.execute("SELECT v FROM numbers ORDER BY v")]
    return sorted(rewake.read_parts(folder / "files").column("v").to_pylist()), rows


def test_another_querys_sink_is_refused_though_no_log_says_whose_it_is(tmp_path: Path) -> None:
    """Its first tuples would be taken for written; the query itself goes on in any folder."""
    with sqlite3.connect(tmp_path / "numbers.db") as session:
        session.execute("CREATE TABLE numbers (v INT)")
    first = query("first", tmp_path, range(3))
    with rewake.start_processes(first, tmp_path / "a") as running:
        assert running.await_end(60.0)
    others = (
        query("first", tmp_path, range(1000, 1005)),
        query("second", tmp_path, range(3)),
        query("first", tmp_path, range(3), mapped=True),
    )
    for number, other in enumerate(others):
        with (
            pytest.raises(rewake.RewakeError, match=r"was written by another query \(the one in"),
            rewake.start_processes(other, tmp_path / f"b{number}") as running,
        ):
            running.await_end(60.0)
    with rewake.start_processes(first, tmp_path / "c") as running:
        assert running.await_end(60.0)
    assert written(tmp_path) == ([0, 1, 2], [0, 1, 2])
