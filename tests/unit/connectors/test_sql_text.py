"""Named parameters in SQL: found where they are, and nowhere else."""

import pytest

from rewake.connectors.databases.text import (
    parameters_of,
    quoted,
    quoted_table,
    replaced,
    single_statement,
)
from rewake.model.errors import UsageError


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("SELECT a FROM t WHERE id = :id", ["id"]),
        ("SELECT :b + :a + :b", ["b", "a"]),
        ("SELECT ':no' || \":no\" || :yes", ["yes"]),
        ("SELECT 'it''s :no', :yes -- :no\n, :also /* :no\n :no */", ["yes", "also"]),
        ("SELECT x::text, :y::bigint, z[1:2], z[a:b]", ["y"]),
        ("SELECT $$ :no $$, $tag$ :no $$ :no $tag$, :yes", ["yes"]),
        ("SELECT :_under_score9", ["_under_score9"]),
        ("SELECT 1", []),
    ],
)
def test_parameters_are_found_where_they_are(statement: str, names: list[str]) -> None:
    """Not in texts, names, comments, casts and slices."""
    assert list(parameters_of(statement)) == names


def test_all_but_the_parameters_stays_as_it_is() -> None:
    """Except for what is asked of the rest."""
    statement = "SELECT ':a', :a, a::text -- 100 % :a"
    assert replaced(statement, lambda name: f"<{name}>") == "SELECT ':a', <a>, a::text -- 100 % :a"
    doubled = replaced(statement, str.upper, lambda text: text.replace("%", "%%"))
    assert doubled == "SELECT ':a', A, a::text -- 100 %% :a"


@pytest.mark.parametrize(
    ("given", "is_"),
    [(" SELECT 1 ; ", "SELECT 1"), ("SELECT ';'", "SELECT ';'"), ("SELECT 1;;", "SELECT 1")],
)
def test_a_statement_may_end_with_a_semicolon(given: str, is_: str) -> None:
    """It is no part of it."""
    assert single_statement(given) == is_


@pytest.mark.parametrize("given", ["SELECT 1; DROP TABLE t", "", " ; "])
def test_there_is_one_statement(given: str) -> None:
    """Neither none nor several."""
    with pytest.raises(UsageError, match=r"several statements|no statement"):
        single_statement(given)


def test_names_may_hold_anything() -> None:
    """But a null character, or nothing."""
    assert quoted('a"b') == '"a""b"'
    assert quoted_table("shop.orders") == '"shop"."orders"'
    for name in ("", "a\0"):
        with pytest.raises(UsageError, match="cannot be a name"):
            quoted(name)
