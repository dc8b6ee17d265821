"""A database that goes away and comes back: nothing is lost, nothing is there twice."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pytest
from sql_vocabulary import (
    PATIENCE_SECONDS,
    Outside,
    committed,
    new_postgres,
    new_sqlite,
    opened,
    prices,
)

from rewake.connectors.databases.calls import Caller
from rewake.connectors.databases.database import Sqlite
from rewake.connectors.databases.postgres import PostgresSession
from rewake.connectors.databases.sink import SqlSink, SqlSinkWriter
from rewake.model.errors import Fenced, GaveUp, Unavailable

if TYPE_CHECKING:
    from postgres_vocabulary import Server

Answer = TypeVar("Answer")
SCHEMA = pa.schema([("item", pa.int64())])


def asked_until_answered(ask: Callable[[], Answer]) -> Answer:
    """As a host does: again after a while, as long as it is told to."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except Unavailable:
            assert time.monotonic() < end, "it was never answered"


@contextmanager
def locked(outside: Outside) -> Iterator[None]:
    """While somebody else writes, for as long as it takes."""
    path = outside.database.path
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


@contextmanager
def stopped(server: "Server") -> Iterator[None]:
    """While the server is down."""
    server.stop()
    try:
        yield
    finally:
        server.start()


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Outside, Callable[[], Any]]:
    """A database with a log, and how to take it away for a while."""
    if request.param == "sqlite":
        outside = new_sqlite(tmp_path)
        away: Callable[[], Any] = lambda: locked(outside)  # noqa: E731
    else:
        server = request.getfixturevalue("postgres")
        outside = new_postgres(server)
        away = lambda: stopped(server)  # noqa: E731
    outside.run("CREATE TABLE log (item bigint, price double precision)")
    return outside, away


def logged(outside: Outside) -> list[float]:
    return [price for (price,) in outside.run("SELECT price FROM log ORDER BY price")]


def test_a_commit_waits_until_the_database_is_back(shop: tuple[Outside, Any]) -> None:
    """It is said that it waits; what was written since is committed, too."""
    outside, away = shop
    writer = opened(SqlSink(outside.database, table="log", name="log"))
    writer.write(0, prices(0, 10))
    committed(writer)
    with away():
        writer.write(0, prices(10, 20))
        with pytest.raises(Unavailable, match="trying again"):
            writer.commit()
        assert writer.position(0) == 10
        writer.write(0, prices(20, 25))
        with pytest.raises(Unavailable):
            writer.commit(0.3)
    asked_until_answered(writer.commit)
    assert writer.position(0) == 25
    writer.close()
    assert logged(outside) == list(map(float, range(25)))


def test_a_lookup_waits_until_the_database_is_back(shop: tuple[Outside, Any]) -> None:
    """The same question is asked again, and answered once."""
    outside, away = shop
    outside.run("INSERT INTO log VALUES (1, 1.5), (2, 2.5)")
    reader = outside.database.lookup("SELECT price FROM log WHERE item = :item", SCHEMA).open()
    question = pa.record_batch({"item": pa.array([2, 1])})
    first = reader.rows(question, PATIENCE_SECONDS)
    with away():
        with pytest.raises(Unavailable, match="trying again"):
            reader.rows(question)
        with pytest.raises(Unavailable):
            reader.rows(pa.record_batch({"item": pa.array([2, 1])}), 0.3)
    again = asked_until_answered(lambda: reader.rows(question))
    assert again == first
    assert again.column(1).to_pylist() == [2.5, 1.5]
    reader.close()


def test_a_question_with_not_a_number_is_the_same_question(tmp_path: Path) -> None:
    """It is not begun anew each time that it is asked."""
    outside = new_sqlite(tmp_path)
    schema = pa.schema([("price", pa.float64())])
    outside.run("CREATE TABLE log (item bigint, price double precision)")
    outside.run("INSERT INTO log VALUES (1, 1.0)")
    statement = "SELECT item FROM log WHERE price = :price"
    reader = outside.database.lookup(statement, schema).open()
    question = pa.record_batch({"price": pa.array([float("nan"), 1.0, None])})
    with locked(outside):
        calls = []
        for _ in range(2):
            with pytest.raises(Unavailable):
                reader.rows(question, 0.0)
            calls.append(reader.under_way)
    assert calls[0] is calls[1] is not None
    found = asked_until_answered(lambda: reader.rows(question))
    assert [column.to_pylist() for column in found.columns] == [[1], [1]]
    reader.close()


def test_after_the_given_time_it_is_given_up(shop: tuple[Outside, Any]) -> None:
    """With an error that says what was wrong and what to do; nothing is lost by it."""
    outside, away = shop
    sink = SqlSink(outside.giving_up_after("1s"), table="log", name="log")
    writer = opened(sink)
    writer.write(0, prices(0, 10))
    with away():
        match = r"(locked|connect|closed).*given up after 1 s: see to the database"
        with pytest.raises(GaveUp, match=match):
            asked_until_answered(writer.commit)
        writer.close()
    successor = opened(sink)
    assert successor.position(0) == 0
    successor.write(0, prices(0, 10))
    committed(successor)
    successor.close()
    assert logged(outside) == list(map(float, range(10)))


def test_a_call_that_hangs_is_given_up_as_well(tmp_path: Path) -> None:
    """Whoever waits for it is not stuck with it."""
    let_go = threading.Event()
    caller = Caller(new_sqlite(tmp_path).database.connect, "the database", 0.2)
    call = caller.start(lambda _: let_go.wait(PATIENCE_SECONDS))
    with pytest.raises(Unavailable, match="the database has not answered yet; trying again"):
        call.result(0.01)
    with pytest.raises(GaveUp, match=r"the database has not answered yet; given up after 0\.2 s"):
        call.result(0.3)
    let_go.set()
    caller.close()


def test_what_a_sink_that_cannot_be_opened_raises_says_for_how_long_to_try(
    tmp_path: Path,
) -> None:
    """Whoever opens it again and again ends by that; a refusal is not waited for long."""
    sink = SqlSink(Sqlite(tmp_path / "absent.db"), table="log", name="log")
    started = time.monotonic()
    with pytest.raises(Unavailable, match="there is no such file") as caught:
        sink.look(0, 1)
    assert time.monotonic() - started < PATIENCE_SECONDS / 4
    assert caught.value.patience_seconds == 60.0
    assert "given up after 60 s: see to the database" in str(caught.value.gave_up)


def test_opening_a_sink_waits_for_its_database(shop: tuple[Outside, Any]) -> None:
    """It cannot begin before it knows how far its predecessor came."""
    outside, away = shop
    found: list[SqlSinkWriter] = []
    sink = SqlSink(outside.database, table="log", name="log")
    with away():
        opening = lambda: found.append(asked_until_answered(lambda: opened(sink)))  # noqa: E731
        thread = threading.Thread(target=opening)
        thread.start()
        time.sleep(0.2)
        assert not found
    thread.join(PATIENCE_SECONDS)
    assert found[0].position(0) == 0
    found[0].close()


# --- PostgreSQL alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [True, False], ids=["done", "undone"])
def test_a_commit_nobody_heard_of_is_found_out(
    postgres: "Server", monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """The connection breaks when the transaction ends: it may have been done, or not."""
    outside = new_postgres(postgres)
    outside.run("CREATE TABLE log (item bigint, price double precision)")
    writer = opened(SqlSink(outside.database, table="log", name="log"))
    transaction, broken = PostgresSession.transaction, []

    @contextmanager
    def breaking(session: PostgresSession) -> Iterator[None]:
        if broken:
            with transaction(session):
                yield
            return
        broken.append(True)
        with transaction(session):
            yield
            if not answered:
                session.connection.close()
        raise Unavailable("the connection broke")

    monkeypatch.setattr(PostgresSession, "transaction", breaking)
    writer.write(0, prices(0, 10))
    committed(writer)
    writer.write(0, prices(10, 12))
    committed(writer)
    writer.close()
    assert broken
    assert logged(outside) == list(map(float, range(12)))


def test_sessions_that_are_ended_under_way_do_no_harm(postgres: "Server") -> None:
    """An operator ends our sessions again and again while we commit."""
    outside = new_postgres(postgres)
    outside.run("CREATE TABLE log (item bigint, price double precision)")
    writer = opened(SqlSink(outside.database, table="log", name="log"))
    ending = threading.Event()
    end_all = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name "
        "LIKE 'rewake-%' AND datname = current_database()"
    )

    def end_sessions() -> None:
        while not ending.wait(0.01):
            outside.run(end_all)

    thread = threading.Thread(target=end_sessions)
    thread.start()
    try:
        for start in range(0, 1_000, 50):
            writer.write(0, prices(start, start + 50))
            if start < 500:
                asked_until_answered(writer.commit)
    finally:
        ending.set()
        thread.join()
    asked_until_answered(writer.commit)
    writer.close()
    assert logged(outside) == list(map(float, range(1_000)))


def test_a_server_that_dies_loses_nothing_that_was_committed(postgres: "Server") -> None:
    """Not even by an accident in the middle of a transaction."""
    outside = new_postgres(postgres)
    outside.run("CREATE TABLE log (item bigint, price double precision)")
    writer = opened(SqlSink(outside.database, table="log", name="log"))
    for start in range(0, 40, 10):
        writer.write(0, prices(start, start + 10))
        if start == 20:
            postgres.kill()
            with pytest.raises(Unavailable):
                writer.commit()
            postgres.start()
        asked_until_answered(writer.commit)
    writer.close()
    assert logged(outside) == list(map(float, range(40)))


def test_a_predecessor_that_stands_still_in_a_transaction_is_ended(postgres: "Server") -> None:
    """Its locks would keep the successor waiting."""
    outside = new_postgres(postgres)
    outside.run("CREATE TABLE log (item bigint, price double precision)")
    sink = SqlSink(outside.database, table="log", name="log")
    zombie = opened(sink)
    zombie.write(0, prices(0, 10))
    inside, let_go = threading.Event(), threading.Event()
    apply = zombie.apply_rows

    def stand_still(session: Any, rows: pa.Table) -> None:
        apply(session, rows)
        inside.set()
        let_go.wait(PATIENCE_SECONDS)

    zombie.apply_rows = stand_still  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        zombie.commit(0.0)
    assert inside.wait(PATIENCE_SECONDS)
    successor = opened(sink)
    successor.write(0, prices(0, 5))
    committed(successor)
    let_go.set()
    with pytest.raises(Fenced):
        asked_until_answered(zombie.commit)
    zombie.close()
    successor.write(0, prices(5, 8))
    committed(successor)
    successor.close()
    assert logged(outside) == list(map(float, range(8)))
