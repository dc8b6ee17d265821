"""Sinks of one query: none may share with another the record of how far it is."""

from pathlib import Path

import pyarrow as pa
import pytest

from rewake.connectors.databases.database import Sqlite
from rewake.connectors.databases.sink import SqlSink
from rewake.connectors.files.sink import FileSink
from rewake.connectors.memory import Batches
from rewake.graph.query import Query
from rewake.model.connectors import Sink
from rewake.model.errors import UsageError


def two(first: Sink, second: Sink) -> Query:
    """One source, and two filters of it that are written."""
    query = Query("q")
    items = query.source("items", Batches(pa.table({"v": [1, 2]})))
    items.filter("v < 2", name="low").to(first, name="low-rows")
    items.filter("v >= 2", name="high").to(second, name="high-rows")
    return query


def files(path: Path) -> FileSink:
    return FileSink(path)


def rows(path: Path, name: str) -> SqlSink:
    return SqlSink(Sqlite(path), table="t", name=name)


def test_two_sinks_into_one_folder_are_refused(tmp_path: Path) -> None:
    """Also when it goes by two names: each would skip what the other has written."""
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    for other in (tmp_path / "rows", tmp_path / "link"):
        with pytest.raises(UsageError, match=r"'low-rows' and 'high-rows' write to one place"):
            two(files(tmp_path / "rows"), files(other)).plan()
    two(files(tmp_path / "rows"), files(tmp_path / "others")).plan()


def test_two_sinks_with_one_name_in_one_database_are_refused(tmp_path: Path) -> None:
    """It is the name under which positions are recorded, whichever the table."""
    path = tmp_path / "shop.db"
    with pytest.raises(UsageError, match=r"one place \(name 'rows' in the SQLite database"):
        two(rows(path, "rows"), rows(path, "rows")).plan()
    two(rows(path, "low"), rows(path, "high")).plan()
    two(rows(path, "rows"), rows(tmp_path / "other.db", "rows")).plan()
