"""SQL-read and SQL-write in `rewake bench operators`: SQLite, in a file on the same disk."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from rewake.connectors.databases.database import Sqlite
from rewake.connectors.databases.sink import SqlSink
from rewake.model.errors import Unavailable
from rewake.model.stream_event import StreamEvent
from rewake.operators.fragment import FragmentProgram
from rewake.operators.lookups import LookupStep
from rewake_lab.bench.core import item_batches
from rewake_lab.bench.operators.cases import Case

__all__ = ["LookupCase", "SinkWriting", "WritingCase", "database_cases"]

_KEYS = 100_000
_ITEMS = pa.schema([("item_id", pa.int32()), ("item_price", pa.int32())])
# Stream events of a commit: a node commits when it has something and the last commit is done.
_TOGETHER = 10


@dataclass(frozen=True)
class LookupCase(Case):
    """A lookup in a table of all items, made where the case runs."""

    def at(self, folder: Path) -> LookupCase:
        """The same, with a program that asks a database in this folder."""
        path = folder / "items.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, weight INTEGER)")
            rows = ((item, item % 1000) for item in range(_KEYS))
            connection.executemany("INSERT INTO items VALUES (?, ?)", rows)
            connection.commit()
        statement = "SELECT weight FROM items WHERE id = :item_id"
        step = LookupStep(Sqlite(path).lookup(statement, _ITEMS))
        return replace(self, program=FragmentProgram((step,)))


@dataclass(frozen=True)
class WritingCase(Case):
    """Rows into a table, exactly once; there is no program."""


class SinkWriting:
    """A sink as a node drives it: stream events are written, and committed some at a time."""

    def __init__(self, folder: Path) -> None:
        path = folder / "written.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE written (item_id INTEGER, item_price INTEGER)")
            connection.commit()
        self._writer = SqlSink(Sqlite(path), table="written", name="bench").open(0, 1, _ITEMS)

    def run(self, events: Iterable[StreamEvent]) -> float:
        """Until the last of them is committed."""
        start = time.perf_counter()
        for number, event in enumerate(events, 1):
            self._writer.write(0, event)
            if number % _TOGETHER == 0:
                self._commit()
        self._commit()
        return time.perf_counter() - start

    def _commit(self) -> None:
        while True:
            try:
                return self._writer.commit()
            except Unavailable:
                continue  # it waited a moment; the database has not answered yet

    def close(self) -> None:
        """Leave the database."""
        self._writer.close()


def database_cases() -> Iterator[Case]:
    """Reading, then writing."""
    batches = item_batches(_KEYS, 20)

    def items(turn: int) -> tuple[int, pa.RecordBatch]:
        return 0, batches[turn % len(batches)]

    note = "SQLite, 100,000 rows; the distinct items of a stream event are one question"
    yield LookupCase("lookup", FragmentProgram(), [_ITEMS], items, note=note, warm=5, measured=20)
    note = f"SQLite; a transaction of {_TOGETHER} stream events and their position"
    yield WritingCase("write", FragmentProgram(), [_ITEMS], items, note=note, warm=5, measured=20)
