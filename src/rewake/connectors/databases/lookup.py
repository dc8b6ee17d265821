"""A SELECT with parameters as a lookup (Hwang 2.2: SQL-read).

The columns that it finds are asked of the database when the value is made, and travel with it.
The database is asked in a thread of its own (`database_calls`): when it goes away, a node waits for
it without standing still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rewake.connectors.databases.calls import WAIT_SECONDS, Call, Caller
from rewake.connectors.databases.session import SqlDatabase, SqlSession
from rewake.connectors.databases.text import parameters_of, single_statement
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.near import no_column

__all__ = ["SqlLookup", "SqlLookupReader", "sql_lookup"]


@dataclass(frozen=True, slots=True)
class SqlLookup:
    """A SELECT whose parameters and found columns are known; made by `sql_lookup`."""

    database: SqlDatabase
    statement: str
    parameters: tuple[str, ...]
    schema: pa.Schema

    def describe(self) -> dict[str, Any]:
        """Where is asked for what."""
        return {"kind": "sql", "database": self.database.describe(), "statement": self.statement}

    def open(self) -> SqlLookupReader:
        """Open it; the database is connected to when it is asked."""
        return SqlLookupReader(self)


def sql_lookup(database: SqlDatabase, statement: str, schema: pa.Schema) -> SqlLookup:
    """A SELECT about tuples of these columns; the database checks it now."""
    statement = single_statement(statement)
    parameters = parameters_of(statement)
    if not parameters:
        raise UsageError(
            f"{statement!r} has no parameter; name a column of the tuples, for example WHERE id = "
            f":{schema.names[0] if schema.names else 'id'}"
        )
    for each in parameters:
        if each not in schema.names:
            raise SchemaMismatch(f"parameter :{each}: {no_column(each, schema.names)}")
    session = database.connect()
    try:
        asked = pa.schema([schema.field(each) for each in parameters])
        found = session.found_schema(statement, asked)
    finally:
        session.close()
    twice = next((each for each in found.names if found.names.count(each) > 1), None)
    if twice is not None:
        raise SchemaMismatch(f"{statement!r} finds two columns {twice!r}; name one with AS")
    return SqlLookup(database, statement, parameters, found)


class SqlLookupReader:
    """Asks the database; one question at a time."""

    def __init__(self, lookup: SqlLookup) -> None:
        self._lookup = lookup
        database = lookup.database
        self._caller = Caller(database.connect, str(database), database.give_up_seconds)
        self._asked: tuple[pa.RecordBatch, Call[pa.RecordBatch]] | None = None

    def rows(
        self, parameters: pa.RecordBatch, wait_seconds: float = WAIT_SECONDS
    ) -> pa.RecordBatch:
        """What is found for each row of parameters; `Unavailable`: ask the same again."""
        asked = _comparable(parameters)
        if self._asked is None or not self._asked[0].equals(asked):
            self._asked = (asked, self._caller.start(self._question(parameters)))
        found = self._asked[1].result(wait_seconds)
        self._asked = None
        return found

    @property
    def under_way(self) -> Call[pa.RecordBatch] | None:
        """What the database is being asked, while it has not answered."""
        return None if self._asked is None else self._asked[1]

    def _question(self, parameters: pa.RecordBatch) -> Callable[[SqlSession], pa.RecordBatch]:
        lookup = self._lookup
        return lambda session: session.find(lookup.statement, parameters, lookup.schema)

    def close(self) -> None:
        """Hang up."""
        self._caller.close()


def _comparable(parameters: pa.RecordBatch) -> pa.RecordBatch:
    """Floats by their bits: a question with not-a-number in it is the same when it comes again."""
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    columns = [each.view(bits.get(each.type, each.type)) for each in parameters.columns]
    return pa.RecordBatch.from_arrays(columns, parameters.schema.names)
