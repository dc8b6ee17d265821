"""SQLite as lookups and sinks see it: Python's own sqlite3, in this process.

How a lookup asks for many rows at once: the parameters are put into a temporary table, and the
statement becomes a subquery of a SELECT over it, with the table's columns in place of parameters.
An aggregate function of our own takes what each subquery finds, as the values that they are.  So
any SELECT will do, with whatever it holds, and it is one statement.

SQLite has the types of values, not of columns: the type of a found column is the declared one, or
what a CAST says.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from rewake.connectors.databases.session import (
    check_types,
    found_column,
    in_order,
    on_conflict,
    plain_column,
    type_key,
)
from rewake.connectors.databases.text import listed, quoted, quoted_table, replaced
from rewake.model.errors import DamagedData, SchemaMismatch, Unavailable, UsageError

__all__ = ["SqliteSession"]

# How long sqlite3 waits for a lock by itself; whoever calls us waits longer.
_BUSY_SECONDS: Final = 0.1
_PARAMETERS: Final = "rewake_parameters"
_LATER: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SECOND: Final = re.compile(r":\d+$")
_AS_TEXT: Final = ("date32[day]", "timestamp", "timestamptz", "decimal")
# What is in a declared type, in this order, and the type of the column and of its values then.
_DECLARED: Final = (
    ("BOOL", pa.bool_(), pa.int64()),
    ("TIMESTAMP", pa.timestamp("us"), pa.string()),
    ("DATETIME", pa.timestamp("us"), pa.string()),
    ("DATE", pa.date32(), pa.string()),
    ("INT", pa.int64(), pa.int64()),
    ("CHAR", pa.string(), pa.string()),
    ("CLOB", pa.string(), pa.string()),
    ("TEXT", pa.string(), pa.string()),
    ("BLOB", pa.binary(), pa.binary()),
    ("REAL", pa.float64(), pa.float64()),
    ("FLOA", pa.float64(), pa.float64()),
    ("DOUB", pa.float64(), pa.float64()),
    ("NUM", pa.float64(), pa.float64()),
    ("DEC", pa.float64(), pa.float64()),
)
_THROUGH: Final = {str(kind): through for _, kind, through in _DECLARED}


class SqliteSession:
    """One connection to a file, which must be there."""

    for_update = ""

    def __init__(self, path: str) -> None:
        self._path = path
        self._asked: set[int] = set()
        self._found: list[tuple[Any, ...]] = []
        with self._translated():
            self._connection = sqlite3.connect(
                f"file:{quote(path)}?mode=rw",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with self._translated():
                # What is committed must survive a power cut: the stream is trimmed up to there.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.create_aggregate("rewake_found", -1, self._collector())
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> Any:
        """The driver's own connection."""
        return self._connection

    def close(self) -> None:
        """Release the file; what is not committed is undone."""
        with suppress(sqlite3.Error):
            self._connection.close()

    # --- lookups -----------------------------------------------------------------------------

    def found_schema(self, statement: str, parameters: pa.Schema) -> pa.Schema:
        """The columns that a SELECT gives, by their declared types."""
        check_types(parameters, "parameter")
        text = replaced(statement, lambda _: "NULL")
        with self._translated(), self._undone():
            # A view knows declared types, a table made of a SELECT the types of casts.
            self._connection.execute(f"CREATE TEMP VIEW rewake_view AS {text}")
            self._connection.execute(
                f"CREATE TEMP TABLE rewake_table AS SELECT * FROM (\n{text}\n) LIMIT 0"
            )
            views = self._connection.execute("PRAGMA temp.table_info(rewake_view)").fetchall()
            tables = self._connection.execute("PRAGMA temp.table_info(rewake_table)").fetchall()
        declared = [
            (view[1], view[2] or table[2]) for view, table in zip(views, tables, strict=True)
        ]
        # SQLite calls the second of two columns `a` in a view `a:1`.
        names = [_SECOND.sub("", name) for name, _ in declared]
        kinds = [_type_of(name, kind) for name, (_, kind) in zip(names, declared, strict=True)]
        return pa.schema(list(zip(names, kinds, strict=True)))

    def find(self, statement: str, parameters: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The answers of a SELECT for each row of parameters."""
        names = parameters.schema.names
        table = f"{_PARAMETERS}_{len(names)}"
        places = {name: f"(+{_PARAMETERS}.p{place})" for place, name in enumerate(names)}
        rows = zip(range(parameters.num_rows), *_values(parameters), strict=True)
        self._found.clear()
        answer = listed(schema.names, "rewake_answer.")
        with self._translated(), self.transaction_of("BEGIN"):
            self._fill(table, len(names), rows)
            self._connection.execute(
                f"SELECT (SELECT rewake_found({_PARAMETERS}.place, {answer}) "
                f"FROM (\n{replaced(statement, places.__getitem__)}\n) AS rewake_answer) "
                f"FROM temp.{table} AS {_PARAMETERS}"
            ).fetchall()
        columns = list(zip(*self._found, strict=True)) or [()] * (len(schema) + 1)
        arrays = [
            found_column(values, each, _THROUGH[str(each.type)])
            for values, each in zip(columns[1:], schema, strict=True)
        ]
        return in_order(pa.array(columns[0], pa.int64()), arrays, schema)

    def _fill(self, table: str, count: int, rows: Iterator[tuple[Any, ...]]) -> None:
        columns = ", ".join(f"p{place}" for place in range(count))
        self._connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {table} (place INTEGER PRIMARY KEY, {columns})"
        )
        self._connection.execute(f"DELETE FROM temp.{table}")
        marks = ", ".join("?" * (count + 1))
        self._connection.executemany(f"INSERT INTO temp.{table} VALUES ({marks})", rows)

    def _collector(self) -> type:
        found = self._found

        class Collector:
            """Takes the rows of one answer; its value means nothing."""

            def step(self, *values: Any) -> None:
                found.append(values)

            def finalize(self) -> None:
                return None

        return Collector

    # --- transactions ------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; nobody else writes meanwhile."""
        with self._translated(), self.transaction_of("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def transaction_of(self, begin: str) -> Iterator[None]:
        """A transaction that begins in this way."""
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _undone(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement with `:name` parameters; its rows."""
        with self._translated():
            return self._connection.execute(statement, values).fetchall()

    def has_table(self, name: str) -> bool:
        """Whether there is one of that name."""
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE name = :name", name=name))

    def lock_out(self) -> None:
        """A transaction of SQLite is alone anyway."""

    def tag(self, tag: str) -> None:
        """SQLite knows nothing of sessions."""

    def end_others(self, tag: str) -> None:
        """SQLite has no way to; whoever holds a lock is waited for."""

    # --- sinks -------------------------------------------------------------------------------

    def check_statement(self, statement: str, schema: pa.Schema) -> None:
        """Have the database look at a statement, without running it."""
        check_types(schema, "column")
        self.run(f"EXPLAIN {statement}", **dict.fromkeys(schema.names))

    def check_table(self, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
        """Have the database look at what would be done, without doing it."""
        with self._translated():
            empty = [None] * len(columns)
            self._connection.execute(f"EXPLAIN {_insertion(table, columns, key)}", empty)

    def run_for_each(self, statement: str, rows: pa.Table) -> None:
        """Run a statement for each row, in order."""
        names = rows.schema.names
        values = zip(*_values(rows), strict=True)
        with self._translated():
            self._connection.executemany(
                statement, (dict(zip(names, row, strict=True)) for row in values)
            )

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows."""
        self.upsert(table, (), rows)

    def upsert(self, table: str, key: Sequence[str], rows: pa.Table) -> None:
        """Add rows, or change those with the same key."""
        self._run_many(_insertion(table, rows.schema.names, key), rows)

    def delete(self, table: str, rows: pa.Table) -> None:
        """Remove the rows with these keys."""
        condition = " AND ".join(f"{quoted(name)} = ?" for name in rows.schema.names)
        self._run_many(f"DELETE FROM {quoted_table(table)} WHERE {condition}", rows)

    def _run_many(self, statement: str, rows: pa.Table) -> None:
        with self._translated():
            self._connection.executemany(statement, zip(*_values(rows), strict=True))

    # --- errors ------------------------------------------------------------------------------

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translation(error) from error
        except OverflowError as error:
            raise UsageError(f"SQLite keeps integers of 64 bits: {error}") from error

    def _translation(self, error: sqlite3.Error) -> Exception:
        # The lower byte is the kind; the rest says more than is needed here.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        what = f"the SQLite database {self._path}: {error}"
        if code == sqlite3.SQLITE_CANTOPEN and not Path(self._path).exists():
            what += "; there is no such file"
        if code in _LATER:
            return Unavailable(what)
        return DamagedData(what) if code in _DAMAGED else UsageError(what)


def _insertion(table: str, columns: Sequence[str], key: Sequence[str]) -> str:
    marks = ", ".join("?" * len(columns))
    text = f"INSERT INTO {quoted_table(table)} ({listed(columns)}) VALUES ({marks})"
    return text + (on_conflict(columns, key) if key else "")


def _type_of(name: str, declared: str) -> pa.DataType:
    for word, kind, _ in _DECLARED:
        if word in declared.upper():
            return kind
    raise SchemaMismatch(
        f"the type of the found column {name!r} cannot be known"
        + (f" from {declared!r}" if declared else "")
        + f"; say it in the statement: CAST(... AS INTEGER) AS {name}"
    )


def _values(rows: pa.RecordBatch | pa.Table) -> Iterator[list[Any]]:
    """The values of each column, as sqlite3 takes them."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        plain = plain_column(column, name)
        as_text = type_key(plain.type) in _AS_TEXT
        yield (plain.cast(pa.string()) if as_text else plain).to_pylist()
