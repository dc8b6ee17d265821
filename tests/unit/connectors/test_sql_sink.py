"""Databases as the end of a stream: what is committed is there once, with its position."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_vocabulary import PRICES, Outside, committed, new_sqlite, opened, prices

from rewake.connectors.databases.sink import SqlSink
from rewake.model.errors import (
    DamagedData,
    Fenced,
    InvalidName,
    SchemaMismatch,
    UsageError,
    WriterFailed,
)
from rewake.model.stream_event import StreamEvent

KEYED = pa.schema([("item", pa.int64()), ("price", pa.float64()), ("gone", pa.bool_())])


@pytest.fixture
def shop(outside: Outside) -> Outside:
    outside.run("CREATE TABLE log (item bigint, price double precision)")
    outside.run("CREATE TABLE latest (item bigint PRIMARY KEY, price double precision)")
    return outside


def sinks(shop: Outside) -> list[SqlSink]:
    """The two ways to add rows to the log."""
    insert = "INSERT INTO log (price, item) VALUES (:price, :item)"
    return [
        SqlSink(shop.database, insert, name="by-statement"),
        SqlSink(shop.database, table="log", name="by-table"),
    ]


def keyed(start: int, *rows: tuple[int, float, bool | None]) -> StreamEvent:
    columns = [
        pa.array(each, kind)
        for each, kind in zip(zip(*rows, strict=True), KEYED.types, strict=True)
    ]
    return StreamEvent(start, pa.RecordBatch.from_arrays(columns, schema=KEYED))


def logged(shop: Outside) -> list[float]:
    return [price for (price,) in shop.run("SELECT price FROM log ORDER BY price")]


def latest(shop: Outside) -> dict[int, float]:
    return dict(shop.run("SELECT item, price FROM latest"))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [0, 1], ids=["statement", "table"])
def test_a_commit_makes_rows_and_positions_visible_at_once(shop: Outside, way: int) -> None:
    """Before it nothing is to be seen; after it the database says how far it goes."""
    writer = opened(sinks(shop)[way])
    for start in range(0, 30, 10):
        writer.write(0, prices(start, start + 10))
    writer.write(3, prices(0, 5))
    assert logged(shop) == []
    assert (writer.position(0), writer.position(3)) == (0, 0)
    committed(writer)
    assert (writer.position(0), writer.position(3)) == (30, 5)
    assert logged(shop) == sorted([*map(float, range(30)), *map(float, range(5))])
    recorded = shop.run("SELECT channel, position FROM rewake_positions ORDER BY channel")
    assert recorded == [(0, 30), (3, 5)]
    committed(writer)
    writer.close()
    writer.close()
    assert len(logged(shop)) == 35


def test_a_successor_goes_on_where_the_commits_end(shop: Outside) -> None:
    """What was written and not committed is written again; what was committed is left out."""
    sink = sinks(shop)[1]
    for last in range(3):
        writer = opened(sink)
        assert writer.position(0) == last * 15
        # The upstream may begin before the position, in the middle of a stream event.
        for start in range(0, (last + 1) * 15, 5):
            if start + 5 > writer.position(0) - 7:
                writer.write(0, prices(start, start + 5))
        committed(writer)
        writer.write(0, prices((last + 1) * 15, (last + 1) * 15 + 100))
        writer.close()
    assert logged(shop) == list(map(float, range(45)))


@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 5), st.sampled_from("cr.")),
        max_size=12,
    )
)
def test_whatever_dies_when_each_tuple_is_there_once(tmp_path_factory, steps: list[Any]) -> None:
    """Several channels, stretches without tuples, writers that are left without a word."""
    shop = new_sqlite(tmp_path_factory.mktemp("sink"))
    shop.run("CREATE TABLE log (item bigint, price double precision)")
    sink = SqlSink(shop.database, table="log", name="log")
    writer = opened(sink)
    at = {0: 0, 1: 0}
    made: dict[int, list[StreamEvent]] = {0: [], 1: []}
    for channel, before, rows, then in steps:
        event = prices(at[channel], at[channel] + before + rows, rows)
        made[channel].append(event)
        writer.write(channel, event)
        at[channel] = event.end
        if then == "c":
            committed(writer)
        if then == "r":
            writer.close()
            writer = opened(sink)
            for each, events in made.items():
                for again in events:
                    writer.write(each, again)
    committed(writer)
    writer.close()
    due = [price for events in made.values() for each in events for price in each.batch["price"]]
    assert logged(shop) == sorted(price.as_py() for price in due)


# --- by key --------------------------------------------------------------------------------------


def test_with_a_key_the_last_tuple_of_each_counts(shop: Outside) -> None:
    """Also when several come in one commit."""
    writer = opened(SqlSink(shop.database, table="latest", key="item", name="latest"))
    writer.write(0, prices(0, 35))
    committed(writer)
    assert latest(shop) == {item: float(20 + item + (10 if item < 5 else 0)) for item in range(10)}
    writer.write(0, prices(35, 37))
    committed(writer)
    writer.close()
    assert (latest(shop)[5], latest(shop)[6], latest(shop)[7]) == (35.0, 36.0, 27.0)


def test_rows_are_removed_where_a_tuple_says_so(shop: Outside) -> None:
    """The flag itself is not stored; null is not true; what is not there stays away."""
    sink = SqlSink(shop.database, table="latest", key=("item",), deleted="gone", name="latest")
    writer = opened(sink, KEYED)
    writer.write(0, keyed(0, (1, 1.0, False), (2, 2.0, None), (3, 3.0, True), (1, 9.0, True)))
    committed(writer)
    assert latest(shop) == {2: 2.0}
    writer.write(0, keyed(4, (2, 5.0, True), (2, 6.0, False), (4, 4.0, False)))
    committed(writer)
    assert latest(shop) == {2: 6.0, 4: 4.0}
    writer.write(0, keyed(7, (2, 0.0, True), (4, 0.0, True)))
    committed(writer)
    writer.close()
    assert latest(shop) == {}


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99), st.booleans()), min_size=1),
        max_size=6,
    )
)
def test_a_table_by_key_is_what_a_dictionary_would_be(tmp_path_factory, commits: Any) -> None:
    """However the tuples are divided into commits."""
    shop = new_sqlite(tmp_path_factory.mktemp("sink"))
    shop.run("CREATE TABLE latest (item bigint PRIMARY KEY, price double precision)")
    sink = SqlSink(shop.database, table="latest", key="item", deleted="gone", name="latest")
    writer, due, at = opened(sink, KEYED), {}, 0
    for rows in commits:
        writer.write(0, keyed(at, *rows))
        at += len(rows)
        for item, price, gone in rows:
            due.pop(item, None)
            if not gone:
                due[item] = float(price)
        committed(writer)
    writer.close()
    assert latest(shop) == due


def test_statements_are_run_in_the_order_of_the_tuples(shop: Outside) -> None:
    """Any statement, for each tuple."""
    shop.run("INSERT INTO latest VALUES (1, 0), (2, 0)")
    statement = "UPDATE latest SET price = price * 10 + :price WHERE item = :item;"
    writer = opened(SqlSink(shop.database, statement, name="digits"))
    batch = pa.RecordBatch.from_pydict(
        {"item": [1, 2, 1, 1], "price": [1.0, 5.0, 2.0, 3.0]}, PRICES
    )
    writer.write(0, StreamEvent(0, batch))
    committed(writer)
    writer.close()
    assert latest(shop) == {1: 123.0, 2: 5.0}


TYPED = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("ms")),
        ("utc", pa.timestamp("us", "UTC")),
        ("d", pa.decimal128(10, 2)),
        ("c", pa.dictionary(pa.int8(), pa.string())),
    ]
)
VALUES = [
    [1, -(2**31), None],
    [0.1, float("inf"), None],
    ['a "b",\n\\c', "", None],
    [True, False, None],
    [b"\0\xff\\", b"", None],
    [date(2024, 2, 29), date(1, 1, 1), None],
    [datetime(2024, 1, 2, 3, 4, 5, 6000), datetime(1970, 1, 1), None],
    [datetime(2024, 1, 2, 3, 4, 5, 6, UTC), datetime(1970, 1, 1, tzinfo=UTC), None],
    [Decimal("1.50"), Decimal("-99999999.99"), None],
    ["x", "y", None],
]
COLUMNS = "i int, f float8, t text, b boolean, x bytea, day date, at timestamp, utc timestamptz, "


@pytest.mark.parametrize("way", ["statement", "table"])
def test_every_type_that_databases_have_comes_back(outside: Outside, way: str) -> None:
    """Nulls, and what a careless quotation would spoil."""
    outside.run(f"CREATE TABLE typed ({COLUMNS} d numeric(10, 2), c text)")
    marks = ", ".join(f":{name}" for name in TYPED.names)
    chosen = {"table": "typed"} if way == "table" else {}
    statement = None if way == "table" else f"INSERT INTO typed VALUES ({marks})"
    writer = opened(SqlSink(outside.database, statement, name="typed", **chosen), TYPED)
    columns = [pa.array(each, kind) for each, kind in zip(VALUES, TYPED.types, strict=True)]
    writer.write(0, StreamEvent(0, pa.RecordBatch.from_arrays(columns, schema=TYPED)))
    committed(writer)
    writer.close()
    columns = [list(each) for each in zip(*outside.run("SELECT * FROM typed"), strict=True)]
    if not outside.is_postgres:
        # Its times are texts that sort, its decimals numbers.
        days, times, utc, decimals = columns[5], columns[6], columns[7], columns[8]
        assert days == ["2024-02-29", "0001-01-01", None]
        assert times[0] == "2024-01-02 03:04:05.006000"
        assert utc[0] == "2024-01-02 03:04:05.000006Z"
        assert decimals == [1.5, -99999999.99, None]
        assert columns[:5] + columns[9:] == VALUES[:5] + VALUES[9:]
    else:
        assert columns == VALUES


# --- who may write -------------------------------------------------------------------------------


def test_a_writer_that_was_succeeded_is_fenced(shop: Outside) -> None:
    """It may wake up whenever it likes: nothing of it appears, and it learns why."""
    sink = sinks(shop)[1]
    zombie = opened(sink)
    zombie.write(0, prices(0, 10))
    committed(zombie)
    zombie.write(0, prices(10, 20))
    successor = opened(sink)
    assert successor.position(0) == 10
    with pytest.raises(Fenced, match=r"sink 'by-table' now has epoch 2.*this writer has epoch 1"):
        committed(zombie)
    with pytest.raises(WriterFailed, match="has stopped"):
        committed(zombie)
    successor.write(0, prices(10, 15))
    committed(successor)
    successor.close()
    zombie.close()
    assert logged(shop) == list(map(float, range(15)))


def test_shards_have_positions_and_epochs_of_their_own(shop: Outside) -> None:
    """One that is opened again does not disturb the others."""
    sink = sinks(shop)[1]
    first, second = sink.open(0, 2, PRICES), sink.open(1, 2, PRICES)
    second.write(0, prices(0, 5))
    committed(second)
    again = sink.open(0, 2, PRICES)
    second.write(0, prices(5, 10))
    committed(second)
    assert (again.position(0), second.position(0)) == (0, 10)
    for writer in (first, second, again):
        writer.close()


def test_a_name_belongs_to_one_sink(shop: Outside) -> None:
    """Another table, other columns or another number of shards need another name."""
    opened(SqlSink(shop.database, table="log", name="mine")).close()
    with pytest.raises(UsageError, match=r"knows another sink 'mine'.*another name"):
        opened(SqlSink(shop.database, table="latest", name="mine"))
    with pytest.raises(UsageError, match=r"with 1 shards.*this one has 2 shards"):
        SqlSink(shop.database, table="log", name="mine").open(1, 2, PRICES)
    opened(SqlSink(shop.database, table="log", name="mine")).close()


def test_positions_that_somebody_changed_are_refused(shop: Outside) -> None:
    """Rather than to write something twice, or not at all."""
    writer = opened(sinks(shop)[0])
    writer.write(0, prices(0, 10))
    committed(writer)
    shop.run("UPDATE rewake_positions SET position = 7")
    writer.write(0, prices(10, 20))
    with pytest.raises(DamagedData, match=r"up to 10 and goes on to 20, but.*says 7"):
        committed(writer)
    writer.close()
    assert len(logged(shop)) == 10


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statement": "INSERT INTO log VALUES (:item, :cost)"}, "no column 'cost'"),
        ({"statement": "INSERT INTO nothing VALUES (:item, :price)"}, "nothing"),
        ({"statement": "INSERT INTO log (item, cost) VALUES (:item, :price)"}, "cost"),
        ({"table": "nothing"}, "nothing"),
        ({"table": "latest", "key": "cost"}, "no column 'cost'"),
        ({"table": "log", "key": "item"}, r"ON CONFLICT|unique"),
        ({"table": "latest", "key": "item", "deleted": "price"}, "make it a truth value"),
    ],
)
def test_what_the_database_would_refuse_is_refused_when_the_sink_is_opened(
    shop: Outside, options: dict[str, Any], message: str
) -> None:
    """The error names the sink and the column or table; another try is not another sink."""
    with pytest.raises(UsageError, match=rf"sink 'bad': .*({message})"):
        opened(SqlSink(shop.database, name="bad", **options))
    opened(SqlSink(shop.database, table="log", name="bad")).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "log"}, "needs a name"),
        ({"name": "a"}, "a statement or a table"),
        ({"name": "a", "table": "log", "statement": "DELETE FROM log"}, "a statement or a table"),
        ({"name": "a", "statement": "DELETE FROM log", "key": "item"}, "a key goes with a table"),
        ({"name": "a", "table": "log", "deleted": "gone"}, "give key="),
        ({"name": "a", "statement": "DELETE FROM log; DELETE FROM log"}, "several statements"),
    ],
)
def test_a_sink_says_one_thing(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """A statement or a table, and a name."""
    with pytest.raises(UsageError, match=message):
        SqlSink(new_sqlite(tmp_path).database, **options)
    with pytest.raises(InvalidName):
        SqlSink(new_sqlite(tmp_path).database, table="log", name="a/b")


def test_types_that_databases_do_not_have_are_refused(shop: Outside) -> None:
    """When the sink is opened, by the name of the column."""
    schema = pa.schema([("item", pa.list_(pa.int64()))])
    with pytest.raises(SchemaMismatch, match="sink 'by-table': column 'item' is of type list"):
        opened(sinks(shop)[1], schema)


def test_a_row_that_the_database_refuses_stops_the_sink(shop: Outside) -> None:
    """Nothing of its commit is there, and waiting would not help."""
    shop.run("CREATE TABLE strict (item bigint, price double precision CHECK (price < 15))")
    writer = opened(SqlSink(shop.database, table="strict", name="strict"))
    writer.write(0, prices(0, 10))
    committed(writer)
    writer.write(0, prices(10, 20))
    with pytest.raises(UsageError, match=r"(?i)check constraint"):
        committed(writer)
    writer.close()
    assert shop.run("SELECT count(*) FROM strict") == [(10,)]
    successor = opened(SqlSink(shop.database, table="strict", name="strict"))
    assert successor.position(0) == 10
    successor.close()


def test_a_key_is_not_null(shop: Outside) -> None:
    """A row without a key could be neither changed nor removed."""
    writer = opened(SqlSink(shop.database, table="latest", key="item", name="latest"))
    batch = pa.RecordBatch.from_pydict({"item": [1, None], "price": [1.0, 2.0]}, PRICES)
    writer.write(0, StreamEvent(0, batch))
    with pytest.raises(UsageError, match="column 'item' is part of the key and is null in 1"):
        committed(writer)
    writer.close()


def test_a_sink_is_a_value(shop: Outside, valued: Callable[[Any], None]) -> None:
    """Travels, and describes itself."""
    for sink in sinks(shop):
        valued(sink)
    assert "position" not in str(sink.describe())


def test_what_the_database_takes_for_one_key_does_not_depend_on_commits(tmp_path: Path) -> None:
    """Here "A" and "a" are two keys, and in this column one: what came last counts."""
    found = []
    for cuts in ([3], [1, 2, 3]):
        folder = tmp_path / str(len(cuts))
        folder.mkdir()
        shop = new_sqlite(folder)
        shop.run("CREATE TABLE names (name text COLLATE NOCASE PRIMARY KEY, number bigint)")
        sink = SqlSink(shop.database, table="names", key="name", deleted="gone", name="names")
        schema = pa.schema([("name", pa.string()), ("number", pa.int64()), ("gone", pa.bool_())])
        rows = [("A", 1, False), ("a", 2, True), ("B", 3, False)]
        writer = sink.open(0, 1, schema)
        for start, end in zip([0, *cuts], cuts, strict=False):
            batch = pa.RecordBatch.from_pylist(
                [dict(zip(schema.names, row, strict=True)) for row in rows[start:end]], schema
            )
            writer.write(0, StreamEvent(start, batch))
            committed(writer)
        writer.close()
        found.append(shop.run("SELECT name, number FROM names"))
    assert found == [[("B", 3)], [("B", 3)]]


def test_positions_that_are_gone_while_it_is_known_whose_rows_they_are_are_damage(
    shop: Outside,
) -> None:
    """All rows would be written again."""
    sink = sinks(shop)[1]
    writer = opened(sink)
    writer.bind({"channels": {}})
    writer.write(0, prices(0, 10))
    committed(writer)
    writer.close()
    assert sink.look(0, 1) == ({0: 10}, {"channels": {}})
    shop.run("DELETE FROM rewake_positions")
    with pytest.raises(DamagedData, match="does not say how far they go"):
        sink.look(0, 1)
    with pytest.raises(DamagedData, match="does not say how far they go"):
        opened(sink)
