"""What drills of parts from different times are made of: small queries whose order is chance.

A replayable source would hide what is asked here: it would just be read again.  So tuples come
from producers, of whom nobody asks for anything twice, and two of them meet in a union.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from drill_vocabulary import PATIENCE_SECONDS, until

import rewake
from rewake import FileSink
from rewake.connectors.databases.database import Sqlite
from rewake.connectors.databases.sink import SqlSink
from rewake.graph.query import Query
from rewake.model.errors import HistoryMismatch, OperatingFault
from rewake.net.queries.running import RunningQuery

TABLES = "tables.db"
SCHEMA = pa.schema([("number", pa.int64())])


def entered(out: Path) -> Query:
    """One entry and a sink."""
    query = Query("entered")
    query.entry("one", SCHEMA).to(FileSink(out), name="sink")
    return query


def united(out: Path) -> Query:
    """Two entries, a union of what comes when it comes, a sink."""
    query = Query("united")
    one, two = query.entry("one", SCHEMA), query.entry("two", SCHEMA)
    one.union(two, name="union").to(FileSink(out), name="sink")
    return query


def filtered(out: Path) -> Query:
    """One entry, a filter that keeps nothing of its own, a sink."""
    query = Query("filtered")
    odd = query.entry("one", SCHEMA).filter("number >= 0", name="odd", fragment="odd")
    odd.to(FileSink(out), name="sink")
    return query


def stored(out: Path) -> Query:
    """One entry, and a table of a database."""
    query = Query("stored")
    sink = SqlSink(Sqlite(str(out / TABLES)), table="numbers", name="numbers")
    query.entry("one", SCHEMA).to(sink, name="sink")
    return query


def listed(folder: Path) -> dict[str, bytes]:
    """All that is in a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class History:
    """A query's folder and its sink, through several runs."""

    def __init__(
        self,
        folder: Path,
        entries: tuple[str, ...] = ("one",),
        query: Callable[[Path], Query] | None = None,
    ) -> None:
        self._query = query or (entered if len(entries) == 1 else united)
        self.base = folder
        self.folder = folder / "query"
        self.out = folder / "out"
        self.entries = entries
        self.sent: list[int] = []

    @property
    def where(self) -> str:
        """The sink's place, in the words of errors."""
        return str(self.out)

    def query(self) -> Query:
        """As it is begun every time."""
        return self._query(self.out)

    @contextmanager
    def running(self) -> Iterator[RunningQuery]:
        """One run."""
        with rewake.start_processes(self.query(), self.folder) as query:
            yield query

    def send(self, query: RunningQuery, count: int) -> None:
        """Numbers that were never sent before, by turns to every entry; acknowledged all."""
        for entry in self.entries:
            first = len(self.sent)
            with query.produce(entry) as producer:
                producer.send(pa.record_batch([range(first, first + count)], schema=SCHEMA))
                producer.flush()
            self.sent += range(first, first + count)

    def run(self, count: int) -> None:
        """Send so many to each entry, wait until the sink has them, stop."""
        with self.running() as query:
            # Nobody can send to a query that is about to be refused.
            until(lambda: query.await_end(0.0) or self._begun(query))
            try:
                self.send(query, count)
            except OperatingFault:
                query.await_end(0.0)  # raises why it is over, if it is
                raise
            until(lambda: query.await_end(0.0) or len(self.delivered()) >= len(self.sent))

    def _begun(self, query: RunningQuery) -> bool:
        """Whether every node has opened what it has, and the sink has all that there was."""
        told = all("tuples_in" in each for each in query.status().values())
        return told and len(self.delivered()) >= len(self.sent)

    def fails(self) -> str:
        """Start it: the error with which it ends."""
        with pytest.raises(HistoryMismatch) as refused, self.running() as query:
            query.await_end(PATIENCE_SECONDS)
        return str(refused.value)

    def delivered(self) -> list[int]:
        """What the sink has, in any order."""
        if not (self.out / "_rewake.json").exists():
            return []
        return [int(each) for each in rewake.read_parts(self.out)["number"].to_pylist()]

    def sink(self) -> object:
        """All that is in the sink, to the last byte or row."""
        return listed(self.out)

    def check(self) -> None:
        """All that was acknowledged, once each."""
        assert sorted(self.delivered()) == sorted(self.sent)

    # --- times -----------------------------------------------------------------------------------

    def keep(self, time: str) -> None:
        """Copy all parts as they are now."""
        shutil.copytree(self.folder, self.base / time / "query")
        if self.out.exists():
            shutil.copytree(self.out, self.base / time / "out")

    def put_back(self, part: str, time: str) -> None:
        """Bring one part back as it was; `part` is a path in the query's folder, or `out`."""
        where = self.out if part == "out" else self.folder / part
        then = self.base / time / ("out" if part == "out" else f"query/{part}")
        if where.is_dir():
            shutil.rmtree(where)
        else:
            where.unlink(missing_ok=True)
        if then.is_dir():
            shutil.copytree(then, where)
        elif then.exists():
            shutil.copy2(then, where)


class StoredHistory(History):
    """The same with a database at its end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, query=stored)
        self.out.mkdir(parents=True)
        with closing(sqlite3.connect(self.out / TABLES)) as connection:
            connection.execute("CREATE TABLE numbers (number bigint)")

    @property
    def where(self) -> str:
        """The sink's place, in the words of errors."""
        return f"the SQLite database {self.out / TABLES}"

    def delivered(self) -> list[int]:
        """What the table has."""
        with closing(sqlite3.connect(self.out / TABLES)) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM numbers")]

    def sink(self) -> object:
        """All that is in the sink, to the last byte or row."""
        with closing(sqlite3.connect(self.out / TABLES)) as connection:
            return list(connection.iterdump())
