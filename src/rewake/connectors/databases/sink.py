"""Tables as the end of a stream, exactly once (Hwang 2.2: SQL-write).

A commit is one transaction of the database: the tuples, and with them the position up to which each
channel is written, and from which logs (`positions`).  So the database itself records what has been
committed, and whose it is.

A commit, case by case.  Died before the transaction ended: the database undoes it, and the position
is the old one.  Died after: the position is the new one.  The connection broke and nobody knows:
the next attempt reads the positions first, and finds out.  A predecessor that still lives: opening
a sink raises its epoch, and a commit under another epoch is refused (`Fenced`); PostgreSQL also
ends the predecessor's session, so that it holds no locks.  The database is away: `commit` raises
`Unavailable`, what was written is kept in memory, and commit can be called again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.connectors.channels import ChannelWriter
from rewake.connectors.cutting import check_shard, schema_json
from rewake.connectors.databases.calls import WAIT_SECONDS, Answer, Call, Caller
from rewake.connectors.databases.positions import SinkRecord
from rewake.connectors.databases.session import SqlDatabase, SqlSession, check_types
from rewake.connectors.databases.text import parameters_of, single_statement
from rewake.model.connectors import SinkLook
from rewake.model.errors import (
    SchemaMismatch,
    Unavailable,
    UsageError,
)
from rewake.model.names import checked_name
from rewake.model.near import no_column
from rewake.operators.aggregate.functions import listed
from rewake.operators.lookups import distinct_rows

__all__ = ["SqlSink", "SqlSinkWriter"]

# An attempt that is starting may be silent for longer than this; its other nodes wait, too.
_OPEN_SECONDS: Final = 20.0
# After so long whoever opens may as well ask again, if the database says that it cannot now.
_REFUSED_SECONDS: Final = 2.0


@dataclass(frozen=True)
class SqlSink:
    """A statement for each tuple, or a table that tuples are added to or kept up to date in.

    `SqlSink(database, "UPDATE ... SET price = :price WHERE id = :id", name=...)` runs a statement
    for each tuple, in order.  `SqlSink(database, table="prices", name=...)` adds rows; with `key`,
    a unique key of the table, it changes the row that is there; with `deleted`, a truth value that
    is not stored, it removes the row where that is true.

    `name` is that under which positions are recorded: another stream must have another one.
    """

    database: SqlDatabase
    statement: str | None = None
    name: str = ""
    table: str | None = None
    key: str | tuple[str, ...] = ()
    deleted: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", listed(self.key))
        if not self.name:
            raise UsageError(
                'a sink into a database needs a name, such as name="prices", under which it '
                "records how far it has written"
            )
        checked_name(self.name)
        if (self.statement is None) == (self.table is None):
            raise UsageError(f"sink {self.name!r}: give a statement or a table, and not both")
        if self.statement is not None:
            object.__setattr__(self, "statement", single_statement(self.statement))
        if self.statement is not None and (self.key or self.deleted):
            raise UsageError(f"sink {self.name!r}: a key goes with a table, not with a statement")
        if self.deleted and not self.key:
            raise UsageError(f"sink {self.name!r}: rows are removed by their key; give key=")

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return listed(self.key)

    def describe(self) -> dict[str, Any]:
        """Where the tuples go, and how."""
        return {**self.identity(), "database": self.database.describe()}

    def identity(self) -> dict[str, Any]:
        """How the tuples go, wherever."""
        return {"kind": "sql", **self.writes()}

    @property
    def where(self) -> str:
        """The database."""
        return str(self.database)

    @property
    def recorded_at(self) -> str:
        """The row of its name."""
        return f"name {self.name!r} in {self.database}"

    def writes(self) -> dict[str, Any]:
        """What it does with a tuple, as JSON values."""
        if self.statement is not None:
            return {"name": self.name, "statement": self.statement}
        return {
            "name": self.name,
            "table": self.table,
            "key": list(self.keys),
            "deleted": self.deleted,
        }

    def look(self, shard: int, shards: int) -> SinkLook:
        """What one shard has committed, and from which logs; nothing is changed."""
        check_shard(shard, shards)
        caller = self._caller()
        try:
            return _answer_of(caller.start(SinkRecord(self.name, shard).look))
        finally:
            caller.close()

    def open(self, shard: int, shards: int, schema: pa.Schema) -> SqlSinkWriter:
        """Open one shard's end: from now on, earlier writers of it are fenced."""
        check_shard(shard, shards)
        self._check_columns(schema)
        return SqlSinkWriter(self, self._caller(), shard, shards, schema)

    def _caller(self) -> Caller[SqlSession]:
        database = self.database
        return Caller(database.connect, str(database), database.give_up_seconds)

    def _check_columns(self, schema: pa.Schema) -> None:
        wanted = parameters_of(self.statement) if self.statement is not None else self.keys
        for each in (*wanted, *([self.deleted] if self.deleted else [])):
            if each not in schema.names:
                raise SchemaMismatch(f"sink {self.name!r}: {no_column(each, schema.names)}")
        if self.deleted and not pa.types.is_boolean(schema.field(self.deleted).type):
            raise SchemaMismatch(
                f"sink {self.name!r}: column {self.deleted!r} says which rows are removed, but is "
                f"of type {schema.field(self.deleted).type}; make it a truth value"
            )
        try:
            check_types(schema, "column")
        except SchemaMismatch as error:
            raise SchemaMismatch(f"sink {self.name!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Sealed:
    """What one commit writes: tuples, and where each channel then is, from where."""

    rows: pa.Table
    moves: dict[int, tuple[int, int]] = field(default_factory=dict)
    # From which logs these are, where that is news.
    origins: Mapping[str, Any] | None = None


class SqlSinkWriter(ChannelWriter):
    """One shard's end of a sink into a database."""

    def __init__(
        self, sink: SqlSink, caller: Caller[SqlSession], shard: int, shards: int, schema: pa.Schema
    ) -> None:
        super().__init__(f"sink {sink.name!r}", schema)
        self._sink = sink
        self._shards = shards
        self._record = SinkRecord(sink.name, shard)
        self._caller = caller
        self._waiting: list[pa.RecordBatch] = []
        self._sealed: _Sealed | None = None
        self._call: Call[None] | None = None
        try:
            self._epoch, found = _answer_of(self._caller.start(self._claim))
        except BaseException:
            self._caller.close()
            raise
        self._found(found)

    def commit(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """Make all that was written durable and visible, in one transaction.

        `Unavailable` when the database has not done so yet: call it again after a while.
        """
        self._commit(lambda: self._publish(wait_seconds))

    def close(self) -> None:
        """Hang up; what was not committed is forgotten."""
        self._caller.close()

    # --- one commit --------------------------------------------------------------------------

    def _hold(self, channel: int, batch: pa.RecordBatch) -> None:  # noqa: ARG002 - all as one
        self._waiting.append(batch)

    def _seal(self) -> bool:
        if self._sealed is not None:
            return True
        moves = {
            channel: (each.committed, each.taken)
            for channel, each in self._channels.items()
            if each.taken > each.committed
        }
        if not moves:
            return False
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._sealed = _Sealed(rows, moves, self._news)
        self._waiting = []
        return True

    def _publish(self, wait_seconds: float) -> None:
        assert self._sealed is not None, "there is something to publish"
        sealed = self._sealed
        if self._call is None:
            self._call = self._caller.start(lambda session: self._written(session, sealed))
        self._call.result(wait_seconds)
        self._call = self._sealed = None
        for channel, (_, end) in sealed.moves.items():
            self._channels[channel].committed = end
        self._origins = sealed.origins or self._origins

    def _written(self, session: SqlSession, sealed: _Sealed) -> None:
        """The transaction; made again after a failure, it finds out what became of the last."""
        record = self._record
        session.tag(record.tag)
        with session.transaction():
            record.check_epoch(session, self._epoch)
            positions = record.positions(session)
            if all(positions.get(channel) == end for channel, (_, end) in sealed.moves.items()):
                return
            record.check_positions(positions, sealed.moves)
            if sealed.rows.num_rows:
                self.apply_rows(session, sealed.rows)
            for channel, (_, end) in sealed.moves.items():
                record.move(session, channel, end)
            if sealed.origins is not None:
                record.bind(session, sealed.origins)

    def apply_rows(self, session: SqlSession, rows: pa.Table) -> None:
        """Carry out what the sink does with these rows, within the session's transaction."""
        sink = self._sink
        if sink.statement is not None:
            session.run_for_each(sink.statement, rows)
            return
        assert sink.table is not None, "without a statement there is a table"
        if not sink.keys:
            session.insert(sink.table, rows)
            return
        rows = _last_of_each(rows, sink.keys, sink.name)
        if not sink.deleted:
            session.upsert(sink.table, sink.keys, rows)
            return
        gone = pc.fill_null(rows.column(sink.deleted), False)
        for run, removed in _runs(rows.drop_columns([sink.deleted]), gone):
            if removed:
                session.delete(sink.table, run.select(list(sink.keys)))
            else:
                session.upsert(sink.table, sink.keys, run)

    # --- opening -----------------------------------------------------------------------------

    def _claim(self, session: SqlSession) -> tuple[int, SinkLook]:
        """Become the only writer; the epoch of that, and what predecessors have left."""
        self._check_target(session)
        columns = schema_json(self._schema)
        writes = json.dumps({**self._sink.writes(), "columns": columns}, sort_keys=True)
        return self._record.claim(session, self._shards, writes)

    def _check_target(self, session: SqlSession) -> None:
        """Have the database say now what is wrong with the statement or the table."""
        sink = self._sink
        try:
            if sink.statement is not None:
                session.check_statement(sink.statement, self._schema)
            else:
                assert sink.table is not None, "without a statement there is a table"
                columns = [name for name in self._schema.names if name != sink.deleted]
                session.check_table(sink.table, columns, sink.keys)
        except UsageError as error:
            raise type(error)(f"sink {sink.name!r}: {error}") from error


def _answer_of(call: Call[Answer]) -> Answer:
    """Wait for the first answer: without it a node cannot begin."""
    started = time.monotonic()
    while True:
        try:
            return call.result(WAIT_SECONDS)
        except Unavailable:
            waited = time.monotonic() - started
            if waited >= (_REFUSED_SECONDS if call.refused else _OPEN_SECONDS):
                raise


def _runs(rows: pa.Table, gone: pa.ChunkedArray) -> Iterator[tuple[pa.Table, bool]]:
    """Rows that are removed, and rows that are not, by turns, in the order in which they came.

    The database may take keys for one that are several here ("A" and "a" in some columns): what
    becomes of them must not depend on which of them are in one commit.
    """
    removed = gone.to_numpy()
    borders = [0, *(np.flatnonzero(removed[1:] != removed[:-1]) + 1).tolist(), len(removed)]
    for start, end in pairwise(borders):
        if end > start:
            yield rows.slice(start, end - start), bool(removed[start])


def _last_of_each(rows: pa.Table, key: tuple[str, ...], sink: str) -> pa.Table:
    """The last row of each key, in the order in which they came."""
    keys = rows.select(list(key)).combine_chunks()
    for name, column in zip(key, keys.columns, strict=True):
        if column.null_count:
            raise UsageError(
                f"sink {sink!r}: column {name!r} is part of the key and is null in "
                f"{column.null_count} tuples; filter them out before"
            )
    (batch,) = keys.to_batches()
    backwards = pa.array(range(rows.num_rows - 1, -1, -1), pa.int64())
    firsts, _ = distinct_rows(batch.take(backwards))
    return rows.take(pa.array(sorted((rows.num_rows - 1 - firsts).tolist()), pa.int64()))
