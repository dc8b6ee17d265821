"""Databases to test against: empty, of their own, and looked at from beside."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewake.connectors.databases.database import Postgres, Sqlite
from rewake.connectors.databases.sink import SqlSink, SqlSinkWriter
from rewake.model.stream_event import StreamEvent

if TYPE_CHECKING:
    from postgres_vocabulary import Server

# Longer than anything here takes on a busy machine.
PATIENCE_SECONDS = 60.0

PRICES = pa.schema([("item", pa.int64()), ("price", pa.float64())])


@dataclass
class Outside:
    """A database, and a way to it that is not ours."""

    database: Any
    run: Callable[[str], list[tuple[Any, ...]]]
    is_postgres: bool

    def giving_up_after(self, duration: str) -> Any:
        """The same database, with another patience."""
        return replace(self.database, give_up_after=duration)


def new_sqlite(folder: Path) -> Outside:
    path = folder / "outside.db"

    def run(statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
            return connection.execute(statement).fetchall()

    run("PRAGMA user_version = 1")
    return Outside(Sqlite(path), run, is_postgres=False)


def new_postgres(server: Server) -> Outside:
    import psycopg

    name = f"db_{uuid.uuid4().hex}"
    server.run(f"CREATE DATABASE {name}")
    address = server.address.replace("/postgres?", f"/{name}?")

    def run(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return Outside(Postgres(address), run, is_postgres=True)


def prices(start: int, end: int, rows: int | None = None, items: int = 10) -> StreamEvent:
    """The stretch from start to end; its tuples, at the last positions, hold their position."""
    rows = end - start if rows is None else rows
    numbers = range(end - rows, end)
    columns = {"item": [each % items for each in numbers], "price": [float(n) for n in numbers]}
    return StreamEvent(end - rows, pa.RecordBatch.from_pydict(columns, PRICES), None, start)


def opened(sink: SqlSink, schema: pa.Schema = PRICES, shard: int = 0) -> SqlSinkWriter:
    return sink.open(shard, 1 if shard == 0 else 2, schema)


def committed(writer: SqlSinkWriter) -> None:
    """Commit, and wait for as long as it takes."""
    writer.commit(PATIENCE_SECONDS)
