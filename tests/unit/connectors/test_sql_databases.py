"""Databases as values: what they say of themselves, and what they never say."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from sql_vocabulary import new_postgres, opened

from rewake.connectors.databases.database import Postgres, Sqlite
from rewake.connectors.databases.sink import SqlSink
from rewake.connectors.memory import Batches
from rewake.graph.lookups import lookup
from rewake.graph.query import Query
from rewake.model.errors import InvalidWindow, Unavailable, UsageError

if TYPE_CHECKING:
    from postgres_vocabulary import Server

SECRET = "hunter2-and-more"


def test_databases_travel(tmp_path: Path, valued: Callable[[Any], None]) -> None:
    """And describe themselves."""
    for database in (
        Sqlite(tmp_path / "a.db"),
        Postgres("postgresql://me@host/shop"),
        Postgres("host=there dbname=shop", give_up_after="5s"),
        Postgres(environment="SHOP"),
    ):
        valued(database)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET}@host/shop",
        f"postgresql://me@host/shop?password={SECRET}",
        f"host=there user=me password={SECRET}",
        f"host=there password = '{SECRET}",
        f"postgresql://me:{SECRET}@host:no/shop?nonsense=1",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(address: str) -> None:
    """A query is written down in many places."""
    with pytest.raises(UsageError) as caught:
        Postgres(address)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_password_in_the_environment_is_seen_by_the_database_alone(
    postgres: "Server", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by descriptions, plans, fingerprints, pickles, nor in what is stored or said."""
    outside = new_postgres(postgres)
    outside.run("CREATE TABLE persons (id bigint PRIMARY KEY, name text)")
    address = outside.database.address.replace("postgres@", f"postgres:{SECRET}@")
    monkeypatch.setenv("SHOP", address)
    database = Postgres(environment="SHOP")
    query = Query("secretive")
    people = query.source("people", Batches(pa.table({"id": [1]})))
    named = lookup(people, database, "SELECT name FROM persons WHERE id = :id", name="named")
    sink = SqlSink(database, table="persons", key="id", name="persons")
    named.to(sink)
    plan = query.plan()
    said = [repr(plan), repr(sink), plan.fingerprint, query.explain(), str(database)]
    said += [json.dumps(each.describe()) for each in (database, sink)]
    assert not any(SECRET in text for text in said)
    assert SECRET.encode() not in pickle.dumps((plan, sink, database))
    opened(sink, pa.schema([("id", pa.int64()), ("name", pa.string())])).close()
    stored = outside.run("SELECT * FROM rewake_sinks")
    assert SECRET not in repr(stored)
    assert outside.run(
        f"SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%{SECRET[:7]}%'"
    ) == [(0,)]


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET}@/shop?host=/nowhere/at/all",
        f"postgresql://me:{SECRET}@host/shop?nonsense=1",
        f"host=there password='{SECRET}",
    ],
)
def test_no_error_repeats_the_password_of_an_address(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Whether the address is wrong, or nobody answers there."""
    monkeypatch.setenv("SHOP", address)
    with pytest.raises((UsageError, Unavailable), match="PostgreSQL at SHOP") as caught:
        Postgres(environment="SHOP").connect()
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do."""
    monkeypatch.delenv("SHOP", raising=False)
    with pytest.raises(UsageError, match=r"variable SHOP holds no address.*set it where"):
        Postgres(environment="SHOP").connect()


def test_a_database_says_one_thing() -> None:
    """An address or a variable, and a duration."""
    for given in ({}, {"address": "host=a", "environment": "A"}):
        with pytest.raises(UsageError, match="say where PostgreSQL is"):
            Postgres(**given)
    with pytest.raises(InvalidWindow, match="'soon' is not a duration"):
        Sqlite("a.db", give_up_after="soon")


def test_how_long_one_waits_is_no_part_of_a_query() -> None:
    """It may be changed when the query is started again."""
    assert Sqlite("a.db").describe() == Sqlite("a.db", give_up_after="1h").describe()
