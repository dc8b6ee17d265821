"""Lookups in real databases: what is found, by how few statements, and what is refused."""

import json
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sql_vocabulary import PATIENCE_SECONDS, Outside, new_sqlite

from rewake.connectors.databases.database import Sqlite
from rewake.connectors.databases.lookup import SqlLookup
from rewake.model.errors import DamagedData, SchemaMismatch, Unavailable, UsageError

VISITS = pa.schema([("id", pa.int64()), ("city", pa.string())])


@pytest.fixture
def persons(outside: Outside) -> Outside:
    outside.run("CREATE TABLE persons (id bigint PRIMARY KEY, name text, city varchar(20))")
    outside.run("INSERT INTO persons VALUES (1,'Ada','London'), (2,'Emmy',NULL), (3,'Max','Bonn')")
    return outside


def found(lookup: SqlLookup, **parameters: list[Any]) -> list[tuple[Any, ...]]:
    """The rows that are found, with the number of the row of parameters each is for."""
    reader = lookup.open()
    try:
        kinds = [VISITS.field(name).type for name in parameters]
        columns = [
            pa.array(each, kind) for each, kind in zip(parameters.values(), kinds, strict=True)
        ]
        batch = reader.rows(pa.RecordBatch.from_arrays(columns, list(parameters)), PATIENCE_SECONDS)
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    finally:
        reader.close()


def test_each_row_of_parameters_gets_what_is_found_for_it(persons: Outside) -> None:
    """In order; nothing for those that are not there, and for nulls."""
    lookup = persons.database.lookup("SELECT name, city FROM persons WHERE id = :id", VISITS)
    assert lookup.parameters == ("id",)
    assert lookup.schema == pa.schema([("name", pa.string()), ("city", pa.string())])
    rows = found(lookup, id=[3, 7, None, 1, 2])
    assert rows == [(0, "Max", "Bonn"), (3, "Ada", "London"), (4, "Emmy", None)]


def test_nothing_found_at_all_has_the_columns_all_the_same(persons: Outside) -> None:
    """An empty answer is one."""
    lookup = persons.database.lookup("SELECT name FROM persons WHERE id = :id", VISITS)
    assert found(lookup, id=[99]) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "SELECT name FROM persons WHERE id <= :id ORDER BY id DESC LIMIT 2",
            [(0, "Emmy"), (0, "Ada"), (1, "Max"), (1, "Emmy")],
        ),
        (
            "SELECT CAST(count(*) AS integer) AS n FROM persons WHERE id > :id AND id <> :id",
            [(0, 1), (1, 0)],
        ),
        (
            "WITH later AS (SELECT * FROM persons p WHERE p.id >= :id) SELECT name FROM later;",
            [(0, "Emmy"), (0, "Max"), (1, "Max")],
        ),
        (
            """SELECT name FROM persons WHERE id = :id AND name LIKE '%mm%'
            UNION ALL SELECT city FROM persons WHERE id = :id -- ; the end""",
            [(0, "Emmy"), (0, None), (1, "Bonn")],
        ),
    ],
    ids=["limit", "aggregate", "with", "union"],
)
def test_any_select_will_do(persons: Outside, statement: str, expected: list[Any]) -> None:
    """Whatever it holds, it means for each row what it means alone."""
    assert found(persons.database.lookup(statement, VISITS), id=[2, 3]) == expected


def test_several_parameters_belong_together(persons: Outside) -> None:
    """A row is found for a combination."""
    statement = "SELECT name FROM persons WHERE id = :id AND city = :city"
    lookup = persons.database.lookup(statement, VISITS)
    assert lookup.parameters == ("id", "city")
    assert found(lookup, id=[1, 1, 3], city=["London", "Bonn", "Bonn"]) == [(0, "Ada"), (2, "Max")]


def test_a_batch_is_one_question(persons: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows of parameters it has, as many statements are run."""
    lookup = persons.database.lookup("SELECT name FROM persons WHERE id = :id", VISITS)
    counts = [len(_statements(lookup, list(range(size)), monkeypatch)) for size in (1, 3, 2_000)]
    assert counts[0] == counts[1] == counts[2] < 8


def _statements(lookup: SqlLookup, ids: list[int], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    session = lookup.database.connect()
    ran: list[str] = []
    connection = session.connection
    if isinstance(lookup.database, Sqlite):
        # Rows of the temporary table are put in by one `executemany`.
        connection.set_trace_callback(lambda text: ran.append(text.split(" VALUES")[0]))
    else:
        cursor = connection.cursor_factory
        execute = cursor.execute
        monkeypatch.setattr(cursor, "execute", lambda *a, **k: ran.append("") or execute(*a, **k))
    session.find(lookup.statement, pa.record_batch({"id": pa.array(ids)}), lookup.schema)
    session.close()
    monkeypatch.undo()
    return [text for number, text in enumerate(ran) if not number or text != ran[number - 1]]


TYPED = {
    "sqlite": (
        """CREATE TABLE typed (id integer, a boolean, b text, c blob, d double precision, e date,
        f timestamp, g numeric(10, 2))""",
        """INSERT INTO typed VALUES (1, 1, 'é', x'00ff', 0.1, '2024-02-29',
        '2024-02-29 23:59:59.000001', 2.5)""",
        [True, "é", b"\0\xff", 0.1, date(2024, 2, 29), datetime(2024, 2, 29, 23, 59, 59, 1), 2.5],
    ),
    "postgres": (
        """CREATE TABLE typed (id integer, a boolean, b varchar, c bytea, d float8, e date,
        f timestamptz, g numeric(10, 2))""",
        r"""INSERT INTO typed VALUES (1, true, 'é', '\x00ff', 0.1, '2024-02-29',
        '2024-02-29 23:59:59.000001+01', 2.5)""",
        [
            True,
            "é",
            b"\0\xff",
            0.1,
            date(2024, 2, 29),
            datetime(2024, 2, 29, 22, 59, 59, 1, UTC),
            Decimal("2.50"),
        ],
    ),
}


def test_values_keep_their_types(outside: Outside) -> None:
    """As the table declares them."""
    create, insert, expected = TYPED["postgres" if outside.is_postgres else "sqlite"]
    outside.run(create)
    outside.run(insert)
    outside.run("INSERT INTO typed (id) VALUES (2)")
    statement = "SELECT a, b, c, d, e, f, g FROM typed WHERE id = :id"
    lookup = outside.database.lookup(statement, VISITS)
    assert found(lookup, id=[1, 2]) == [(0, *expected), (1, *[None] * 7)]


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    value=st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        st.booleans(),
    )
)
def test_a_parameter_is_the_value_that_the_tuple_has(tmp_path: Path, value: Any) -> None:
    """Nothing is rounded or quoted wrongly on the way."""
    outside = new_sqlite(tmp_path)
    schema = pa.schema([pa.field("v", pa.array([value]).type)])
    kind = {int: "INTEGER", float: "REAL", str: "TEXT", bool: "INTEGER"}
    statement = f"SELECT CAST(:v AS {kind[type(value)]}) AS same"
    reader = outside.database.lookup(statement, schema).open()
    answer = reader.rows(pa.record_batch({"v": pa.array([value])}), PATIENCE_SECONDS)
    reader.close()
    assert answer.column(1).to_pylist() == [value]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT name FROM persons WHERE id = :ids", r"parameter :ids: no column 'ids'.*'id'"),
        ("SELECT name FROM nobody WHERE id = :id", r"nobody"),
        ("SELECT nome FROM persons WHERE id = :id", r"nome"),
        ("SELECT name FROM persons", "has no parameter.*:id"),
        ("SELECT name, city AS name FROM persons WHERE id = :id", "two columns 'name'|duplicate"),
        ("SELECT name FROM persons WHERE id = :id; DROP TABLE persons", "several statements"),
        ("DELETE FROM persons WHERE id = :id", "syntax error"),
    ],
)
def test_a_wrong_statement_is_refused_when_the_query_is_made(
    persons: Outside, statement: str, message: str
) -> None:
    """The error names the column or the table."""
    with pytest.raises(UsageError, match=message):
        persons.database.lookup(statement, VISITS)
    assert persons.run("SELECT count(*) FROM persons") == [(3,)]


def test_a_found_column_must_have_a_type(persons: Outside) -> None:
    """The error says what to write."""
    statement = "SELECT {} AS it FROM persons WHERE id = :id"
    unknown = "ARRAY[1]" if persons.is_postgres else "count(*)"
    with pytest.raises(SchemaMismatch, match=r"column 'it'.*(CAST|cast)"):
        persons.database.lookup(statement.format(unknown), VISITS)


def test_a_parameter_must_have_a_type_that_databases_have(persons: Outside) -> None:
    """The error names the column."""
    schema = pa.schema([("id", pa.list_(pa.int64()))])
    with pytest.raises(SchemaMismatch, match="parameter 'id' is of type list<"):
        persons.database.lookup("SELECT name FROM persons WHERE id = :id", schema)


def test_sqlite_may_hold_what_a_column_does_not_declare(tmp_path: Path) -> None:
    """That is said, and by which column."""
    outside = new_sqlite(tmp_path)
    outside.run("CREATE TABLE t (id integer, n integer)")
    outside.run("INSERT INTO t VALUES (1, 'many')")
    lookup = outside.database.lookup("SELECT n FROM t WHERE id = :id", VISITS)
    with pytest.raises(SchemaMismatch, match=r"column 'n' should hold int64.*many"):
        found(lookup, id=[1])


def test_a_database_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    """When the query is made nobody waits; and no file is made."""
    path = tmp_path / "none.db"
    with pytest.raises(Unavailable, match=r"none\.db.*no such file"):
        Sqlite(path).lookup("SELECT 1 WHERE :id", VISITS)
    assert not path.exists()


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    """Waiting would not help."""
    (tmp_path / "text.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(DamagedData, match="not a database"):
        Sqlite(tmp_path / "text.db").lookup("SELECT 1 WHERE :id", VISITS)


# --- as a value ----------------------------------------------------------------------------------


def test_a_lookup_travels(persons: Outside, valued: Callable[[Any], None]) -> None:
    """With its columns: the node asks only for rows."""
    lookup = persons.database.lookup("SELECT name FROM persons WHERE id = :id", VISITS)
    valued(lookup)
    there = pickle.loads(pickle.dumps(lookup))
    assert there.schema == lookup.schema
    assert found(there, id=[1]) == [(0, "Ada")]
    assert json.dumps(lookup.describe())
