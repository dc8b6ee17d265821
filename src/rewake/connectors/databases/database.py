"""Databases as values: where they are, and how long a query waits when they are away.

Passwords never become part of a query, its plan, its fingerprint or a message.  An address with a
password in it is refused; give the name of an environment variable that holds the address, which
each node reads when it connects, or leave the password to PostgreSQL's own means (`PGPASSWORD`, a
password file, a service).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rewake.connectors.databases.lookup import SqlLookup, sql_lookup
from rewake.connectors.databases.postgres import PostgresSession, the_driver
from rewake.connectors.databases.sqlite import SqliteSession
from rewake.model.errors import UsageError
from rewake.model.units import duration_ns
from rewake.stores.places import local_path

__all__ = ["Postgres", "Sqlite"]

_SECRETS = ("password", "sslpassword")


@dataclass(frozen=True)
class Sqlite:
    """A file of SQLite, which must be there; every node that uses it must see the same file.

    When it is locked, or its disk is full, a query waits; after `give_up_after` it ends.
    """

    path: str | os.PathLike[str]
    give_up_after: str = "1m"

    def __post_init__(self) -> None:
        # A node may have another current folder.
        object.__setattr__(self, "path", os.path.abspath(local_path(self.path)))
        duration_ns(self.give_up_after)

    @property
    def give_up_seconds(self) -> float:
        """How long it may be away."""
        return duration_ns(self.give_up_after) / 1e9

    def describe(self) -> dict[str, Any]:
        """Which file."""
        return {"kind": "sqlite", "path": str(self.path)}

    def connect(self) -> SqliteSession:
        """A new connection."""
        return SqliteSession(str(self.path))

    def lookup(self, statement: str, schema: pa.Schema) -> SqlLookup:
        """A SELECT about tuples of these columns; the database checks it now."""
        return sql_lookup(self, statement, schema)

    def __str__(self) -> str:
        return f"the SQLite database {self.path}"


@dataclass(frozen=True)
class Postgres:
    """A database of PostgreSQL, by its address or by the environment variable that holds it.

    The address has no password; the one in the environment may.  When the database does not answer,
    a query waits; after `give_up_after` it ends.
    """

    address: str = ""
    environment: str = ""
    give_up_after: str = "1m"

    def __post_init__(self) -> None:
        duration_ns(self.give_up_after)
        if bool(self.address) == bool(self.environment):
            raise UsageError(
                "say where PostgreSQL is: by an address such as "
                '"postgresql://user@host/database", or by environment="NAME" of a variable that '
                "holds one"
            )
        if self.address:
            _check_address(self.address)

    @property
    def give_up_seconds(self) -> float:
        """How long it may be away."""
        return duration_ns(self.give_up_after) / 1e9

    def describe(self) -> dict[str, Any]:
        """Where it is, as far as that was said openly."""
        if self.environment:
            return {"kind": "postgres", "environment": self.environment}
        return {"kind": "postgres", "address": self.address}

    def connect(self) -> PostgresSession:
        """A new connection."""
        address = self.address or os.environ.get(self.environment, "")
        if not address:
            raise UsageError(
                f"the environment variable {self.environment} holds no address of PostgreSQL; set "
                "it where the query is made and where its nodes run"
            )
        return PostgresSession(address, str(self))

    def lookup(self, statement: str, schema: pa.Schema) -> SqlLookup:
        """A SELECT about tuples of these columns; the database checks it now."""
        return sql_lookup(self, statement, schema)

    def __str__(self) -> str:
        return f"PostgreSQL at {self.address or self.environment}"


def _check_address(address: str) -> None:
    """Refuse a password, and what cannot be read; neither is repeated in the message."""
    driver = the_driver()
    try:
        parts = driver.conninfo.conninfo_to_dict(address)
    except driver.Error:
        raise UsageError(
            "this is not an address of PostgreSQL; write for example "
            '"postgresql://user@host:5432/database"'
        ) from None
    if any(name in parts for name in _SECRETS):
        raise UsageError(
            "the address of PostgreSQL holds a password, which would become part of the query; "
            'put the address into an environment variable and give environment="NAME", or let '
            "PGPASSWORD or a password file hold the password"
        )
