"""PostgreSQL as lookups and sinks see it, through psycopg 3 (`pip install 'rewake[postgres]'`).

How a lookup asks for many rows at once: the parameters come as arrays, `unnest` makes a table of
them, and the statement is joined to it LATERAL, with the table's columns in place of parameters.
So any SELECT will do, and it is one statement.  Rows are written with COPY, where a key decides
through a temporary table.

Passwords: an address is never part of a message of ours, because it may hold one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as arrow_csv

from rewake.connectors.databases.session import (
    TYPES,
    check_types,
    found_column,
    in_order,
    on_conflict,
    plain_column,
    type_key,
)
from rewake.connectors.databases.text import listed, parameters_of, quoted, quoted_table, replaced
from rewake.model.errors import SchemaMismatch, Unavailable, UsageError

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresSession", "the_driver"]

_PARAMETERS: Final = "rewake_parameters"
# A connection whose other end is gone without a word is noticed after about 10 s.
_CONNECTING: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
_SETTINGS: Final = (
    "SELECT set_config('TimeZone', 'UTC', false),"
    # A writer that stands still in a transaction must not hold its locks for ever.
    " set_config('idle_in_transaction_session_timeout', '30s', false),"
    # What is committed must survive a power cut: the stream is trimmed up to there.
    " set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
    " WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"
)
# Classes of SQLSTATE that another attempt may fare better with: connection lost, serialization
# failure or deadlock, too few resources, intervention of an operator, system error.
_LATER: Final = ("08", "40", "53", "57", "58")
# Also: the lock is not available, the transaction stood still for too long.
_LATER_STATES: Final = ("55P03", "25P03")
# By the number of a type: as what it is found.
_FOUND: Final = {
    16: pa.bool_(),
    17: pa.binary(),
    19: pa.string(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    25: pa.string(),
    114: pa.string(),
    700: pa.float32(),
    701: pa.float64(),
    1042: pa.string(),
    1043: pa.string(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
    2950: pa.string(),
    3802: pa.string(),
}
_NUMERIC: Final = 1700


def the_driver() -> Any:
    """Psycopg, if it is there."""
    try:
        import psycopg  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise UsageError("psycopg is not installed; pip install 'rewake[postgres]'") from error
    return psycopg


class PostgresSession:
    """One connection; `name` stands for the database in messages."""

    for_update = " FOR UPDATE"

    def __init__(self, address: str, name: str) -> None:
        self._driver = the_driver()
        self._name = name
        self._tag = ""
        self._staging: set[str] = set()
        settings: dict[str, Any] = {
            name: value for name, value in _CONNECTING.items() if name not in address
        }
        with self._translated(hide=True):
            self._connection: psycopg.Connection[Any] = self._driver.connect(
                address, autocommit=True, **settings
            )
        try:
            self.run(_SETTINGS)
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> Any:
        """The driver's own connection."""
        return self._connection

    def close(self) -> None:
        """Hang up; what is not committed is undone."""
        with suppress(Exception):
            self._connection.close()

    # --- lookups -----------------------------------------------------------------------------

    def found_schema(self, statement: str, parameters: pa.Schema) -> pa.Schema:
        """The columns that a SELECT gives."""
        check_types(parameters, "parameter")
        nulls = ", ".join(
            f"NULL::{TYPES[type_key(each.type)]} AS rewake_{place}"
            for place, each in enumerate(parameters)
        )
        text = (
            f"SELECT rewake_answer.* FROM (SELECT {nulls}) AS {_PARAMETERS} "
            f"CROSS JOIN {_lateral(statement, parameters.names)} LIMIT 0"
        )
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(text.replace("%", "%%"), {})
            return pa.schema([_found_field(each) for each in cursor.description or ()])

    def find(self, statement: str, parameters: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The answers of a SELECT for each row of parameters."""
        names = parameters.schema.names
        kinds = [TYPES[type_key(each.type)] for each in parameters.schema]
        arrays = ", ".join(f"%s::{kind}[]" for kind in kinds)
        places = ", ".join(f"rewake_{place}" for place in range(len(names)))
        answers = ", ".join(f"rewake_answer.{_as_found(each)}" for each in schema)
        text = (
            f"SELECT {_PARAMETERS}.rewake_place - 1, {answers} FROM unnest({arrays}) "
            f"WITH ORDINALITY AS {_PARAMETERS} ({places}, rewake_place) "
            f"CROSS JOIN {_lateral(statement, names).replace('%', '%%')}"
        )
        with self._translated(), self._connection.cursor(binary=True) as cursor:
            cursor.execute(text, list(_values(parameters)))
            rows = cursor.fetchall()
        columns = list(zip(*rows, strict=True)) or [()] * (len(schema) + 1)
        found = [
            found_column(values, each, each.type)
            for values, each in zip(columns[1:], schema, strict=True)
        ]
        return in_order(pa.array(columns[0], pa.int64()), found, schema)

    # --- transactions ------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        with self._translated(), self._connection.transaction():
            yield

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement with `:name` parameters; its rows."""
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(_named(statement), values)
            return cursor.fetchall() if cursor.description else []

    def has_table(self, name: str) -> bool:
        """Whether there is one of that name, where names are looked for."""
        return self.run("SELECT to_regclass(:name) IS NOT NULL", name=name) == [(True,)]

    def lock_out(self) -> None:
        """Until the transaction ends, wait for others who do this, and have them wait."""
        self.run("SELECT pg_advisory_xact_lock(hashtext('rewake'))")

    def tag(self, tag: str) -> None:
        """Mark this session, for `end_others` of another one."""
        if self._tag != tag:
            self.run("SELECT set_config('application_name', :tag, false)", tag=tag)
            self._tag = tag

    def end_others(self, tag: str) -> None:
        """End other sessions of the same user that have this tag."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user "
            "AND datname = current_database() AND application_name = :tag "
            "AND pid <> pg_backend_pid()",
            tag=tag,
        )

    # --- sinks -------------------------------------------------------------------------------

    def check_statement(self, statement: str, schema: pa.Schema) -> None:
        """Have the database look at a statement, without running it."""
        check_types(schema, "column")
        text = replaced(statement, lambda name: _null(schema.field(name).type))
        self.run(f"EXPLAIN {text}")

    def check_table(self, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
        """Have the database look at what would be done, without doing it."""
        nulls = ", ".join(["NULL"] * len(columns))
        text = f"INSERT INTO {quoted_table(table)} ({listed(columns)}) SELECT {nulls}"
        self.run(f"EXPLAIN {text}{on_conflict(columns, key) if key else ''}")

    def run_for_each(self, statement: str, rows: pa.Table) -> None:
        """Run a statement for each row, in order, without waiting for each."""
        names = parameters_of(statement)
        values = zip(*_values(rows.select(list(names))), strict=True)
        with self._translated(), self._connection.cursor() as cursor:
            cursor.executemany(
                _named(statement), [dict(zip(names, row, strict=True)) for row in values]
            )

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows."""
        self._copy(quoted_table(table), rows)

    def upsert(self, table: str, key: Sequence[str], rows: pa.Table) -> None:
        """Add rows, or change those with the same key."""
        names = rows.schema.names
        staged = self._staged("rewake_rows", table, rows)
        text = f"INSERT INTO {quoted_table(table)} ({listed(names)}) SELECT {listed(names)}"
        self.run(f"{text} FROM {staged}{on_conflict(names, key)}")

    def delete(self, table: str, rows: pa.Table) -> None:
        """Remove the rows with these keys."""
        staged = self._staged("rewake_gone", table, rows)
        same = " AND ".join(
            f"target.{quoted(name)} = gone.{quoted(name)}" for name in rows.schema.names
        )
        self.run(f"DELETE FROM {quoted_table(table)} AS target USING {staged} AS gone WHERE {same}")

    def _staged(self, staging: str, table: str, rows: pa.Table) -> str:
        """A temporary table with these rows, whose columns have the types of the real one's."""
        place = f"pg_temp.{staging}"
        if staging not in self._staging:
            self.run(
                f"CREATE TEMP TABLE {staging} ON COMMIT DELETE ROWS AS "
                f"SELECT {listed(rows.schema.names)} FROM {quoted_table(table)} WITH NO DATA"
            )
            # If this transaction is undone, so is the table; but then the session is closed.
            self._staging.add(staging)
        self._copy(place, rows)
        return place

    def _copy(self, target: str, rows: pa.Table) -> None:
        check_types(rows.schema, "column")
        text = f"COPY {target} ({listed(rows.schema.names)}) FROM STDIN (FORMAT csv)"
        with self._translated(), self._connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.write(_csv(rows))

    # --- errors ------------------------------------------------------------------------------

    @contextmanager
    def _translated(self, *, hide: bool = False) -> Iterator[None]:
        """Errors of the driver as ours; `hide` what it says of an address it does not like."""
        try:
            yield
        except self._driver.OperationalError as error:
            raise self._translation(error) from (None if hide else error)
        except self._driver.Error as error:
            if hide:
                raise UsageError(f"{self._name} has an address that cannot be read") from None
            raise self._translation(error) from error

    def _translation(self, error: Any) -> Exception:
        text = " ".join(str(error).split())
        what = f"{self._name}: {text}"
        state = error.sqlstate or ""
        lost = not state and isinstance(error, self._driver.OperationalError)
        if lost or state.startswith(_LATER) or state in _LATER_STATES:
            return Unavailable(what)
        return UsageError(what)


def _lateral(statement: str, names: Sequence[str]) -> str:
    """The statement as a table that depends on the row of parameters it is joined to."""
    places = {name: f"{_PARAMETERS}.rewake_{place}" for place, name in enumerate(names)}
    # On a line of its own: the statement may end with a comment.
    return f"LATERAL (\n{replaced(statement, places.__getitem__)}\n) AS rewake_answer"


def _named(statement: str) -> str:
    """The statement with parameters as psycopg has them."""
    return replaced(statement, lambda name: f"%({name})s", lambda text: text.replace("%", "%%"))


def _null(kind: pa.DataType) -> str:
    # A text takes the type that is wanted of it; other values come with theirs.
    return "NULL" if type_key(kind) == "string" else f"NULL::{TYPES[type_key(kind)]}"


def _found_field(column: Any) -> pa.Field:
    number = column.type_code
    if number == _NUMERIC and column.precision is not None:
        return pa.field(column.name, pa.decimal128(column.precision, column.scale))
    if number not in _FOUND:
        hint = "numeric(20, 4), double precision" if number == _NUMERIC else "text"
        raise SchemaMismatch(
            f"the found column {column.name!r} is of a type that streams do not have; cast it in "
            f"the statement, for example to {hint}"
        )
    return pa.field(column.name, _FOUND[number])


def _as_found(field: pa.Field) -> str:
    """A column as it is asked for: what is a text here may be something else there."""
    return f"{quoted(field.name)}::text" if field.type == pa.string() else quoted(field.name)


def _values(rows: pa.RecordBatch | pa.Table) -> Iterator[list[Any]]:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        yield plain_column(column, name).to_pylist()


def _csv(rows: pa.Table) -> bytes:
    """Rows as COPY reads them: a null is nothing, a text is in quotes."""
    columns = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        plain = plain_column(column, name)
        if type_key(plain.type) == "binary":
            values = (None if each is None else f"\\x{each.hex()}" for each in plain.to_pylist())
            plain = pa.array(values, pa.string())
        columns.append(plain)
    output = pa.BufferOutputStream()
    options = arrow_csv.WriteOptions(include_header=False)
    table = pa.Table.from_arrays(columns, names=rows.schema.names)
    arrow_csv.write_csv(table, output, options)
    return bytes(output.getvalue())
