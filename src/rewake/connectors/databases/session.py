"""What lookups and sinks need of a connection to a database, whichever it is.

A session is used by one thread.  Its methods raise `Unavailable` when the database is gone, busy or
full, so that the same may be tried again with another session; `UsageError` when the database
refuses what was asked; nothing of the driver's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from rewake.connectors.databases.text import listed, quoted
from rewake.model.errors import SchemaMismatch

__all__ = [
    "TYPES",
    "SqlDatabase",
    "SqlSession",
    "check_types",
    "found_column",
    "in_order",
    "on_conflict",
    "plain_column",
    "type_key",
]


class SqlSession(Protocol):
    """One connection."""

    # What makes a SELECT keep others from the rows that it reads, until the transaction ends.
    for_update: str

    def found_schema(self, statement: str, parameters: pa.Schema) -> pa.Schema:
        """The columns that a SELECT with these parameters gives, without running it."""

    def find(self, statement: str, parameters: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The answers of a SELECT for each row of parameters; first column: for which row."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing: undone when the block raises, durable when it ends."""

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement with `:name` parameters; its rows."""

    def has_table(self, name: str) -> bool:
        """Whether there is one of that name."""

    def lock_out(self) -> None:
        """Until the transaction ends, wait for others who do this, and have them wait."""

    def tag(self, tag: str) -> None:
        """Mark this session, for `end_others` of another one."""

    def end_others(self, tag: str) -> None:
        """End other sessions that have this tag: whoever holds locks there has been succeeded."""

    def check_statement(self, statement: str, schema: pa.Schema) -> None:
        """Have the database look at a statement for rows of these columns, without running it."""

    def check_table(self, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
        """Have the database look at what `insert`, or `upsert` if there is a key, would do."""

    def run_for_each(self, statement: str, rows: pa.Table) -> None:
        """Run a statement for each row, in order."""

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows."""

    def upsert(self, table: str, key: Sequence[str], rows: pa.Table) -> None:
        """Add rows, or change those with the same key; no key comes twice."""

    def delete(self, table: str, rows: pa.Table) -> None:
        """Remove the rows with these keys, which are all columns; no key comes twice."""

    def close(self) -> None:
        """Release it, whatever state it is in; what is not committed is undone."""


class SqlDatabase(Protocol):
    """A database as a value: where it is, and how long to wait for it.  It holds no password."""

    @property
    def give_up_seconds(self) -> float:
        """How long a database may be away before the query ends with an error."""

    def describe(self) -> dict[str, Any]:
        """Where it is, as JSON values; nothing secret."""

    def connect(self) -> SqlSession:
        """A new connection."""

    def __str__(self) -> str:
        """Its name in messages; nothing secret."""


# --- statements ----------------------------------------------------------------------------------


def on_conflict(columns: Sequence[str], key: Sequence[str]) -> str:
    """What an insertion does with a row whose key is there already: changes it."""
    changed = [name for name in columns if name not in key]
    assignments = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in changed)
    action = f"UPDATE SET {assignments}" if changed else "NOTHING"
    return f" ON CONFLICT ({listed(key)}) DO {action}"


# --- values on their way -------------------------------------------------------------------------


# The types that a database takes, and what PostgreSQL calls them.
TYPES: Final = {
    "bool": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "integer",
    "uint32": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date32[day]": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "decimal": "numeric",
}


def check_types(schema: pa.Schema, what: str) -> None:
    """Refuse columns whose type a database has no word for."""
    for each in schema:
        if type_key(each.type) not in TYPES:
            raise SchemaMismatch(
                f"{what} {each.name!r} is of type {each.type}, which a database does not take; "
                "map it to a number, a text, a truth value, bytes, a date or a timestamp before"
            )


def type_key(kind: pa.DataType) -> str:
    """The name of a type without its parameters."""
    if pa.types.is_dictionary(kind):
        return type_key(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_decimal(kind):
        return "decimal"
    return str(kind).removeprefix("large_")


def plain_column(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """Without dictionaries and with times in microseconds, which is what databases keep."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type) and column.type.unit != "us":
        try:
            return column.cast(pa.timestamp("us", column.type.tz))
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(
                f"column {name!r} has times that are no whole microseconds, and a database keeps "
                f"no finer ones ({error}); round them before"
            ) from error
    return column


def found_column(values: Sequence[Any], field: pa.Field, through: pa.DataType) -> pa.Array:
    """Values of a database as a column; `through` is the type as which they come."""
    try:
        return pa.array(values, through).cast(field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatch(
            f"the database's column {field.name!r} should hold {field.type}, but it has something "
            f"else ({error}); cast it in the statement, or correct the rows"
        ) from error


def in_order(places: pa.Array, arrays: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Answers by the row that they are for; those for one row stay in the order they came in."""
    names = ["", *schema.names]
    batch = pa.RecordBatch.from_arrays([places, *arrays], names)
    order = np.argsort(places.to_numpy(), kind="stable")
    return batch.take(pa.array(order)) if (order[1:] < order[:-1]).any() else batch
