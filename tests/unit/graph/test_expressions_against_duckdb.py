"""Bound expressions agree with DuckDB, on random batches with nulls, for the supported grammar."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rewake.operators.expressions.expression import Expression

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("digits", pa.string()),
        ("b", pa.bool_()),
        ("ts", pa.timestamp("us")),
    ]
)
# One for all examples: opening a database takes longer than all that it is asked here.
DUCKDB = duckdb.connect(config={"threads": 1})
EPOCH = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)
numbers = st.integers(-1000, 1000)
texts = st.text("abAB%_5é ", max_size=4)
row = st.tuples(
    st.none() | st.integers(-4, 4) | numbers,
    st.none() | st.integers(-4, 4) | numbers,
    # Eighths: every operation on them below is exact, so both sides round alike.
    st.none() | st.integers(-100, 100).map(lambda eighths: eighths / 8),
    st.none() | texts,
    st.none() | numbers.map(str),
    st.none() | st.booleans(),
    st.none() | st.integers(0, 5).map(lambda hours: EPOCH + timedelta(hours=hours)),
)
batches = st.lists(row, max_size=8).map(
    lambda rows: pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, each, strict=True)) for each in rows], schema=SCHEMA
    )
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


integer_literals = st.integers(-5, 5).map(str)
number_leaves = st.sampled_from(["i", "n", "f"]) | integer_literals | st.just("2.5e0")
text_leaves = st.sampled_from(["t", "digits"]) | texts.map(quoted)
truth_leaves = st.sampled_from(["b", "TRUE", "FALSE", "NULL", "b IS NULL", "b IS NOT TRUE"])
moments = st.integers(0, 5).map(lambda hours: f"TIMESTAMP '2024-01-01 0{hours}:00:00'")
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def number_expressions(depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return number_leaves
    below, truths = number_expressions(depth - 1), truth_expressions(depth - 1)
    return st.one_of(
        number_leaves,
        st.builds("({} {} {})".format, below, st.sampled_from("+-"), below),
        st.builds("({} * {})".format, below, integer_literals),
        st.builds("({} / {})".format, below, st.sampled_from(["2", "-4", "0.5e0"])),
        st.builds("({} % {})".format, st.sampled_from(["i", "n"]), st.sampled_from(["3", "-7"])),
        st.builds("(f % {})".format, st.sampled_from(["2", "-0.75e0"])),
        st.builds("(- {})".format, below),
        st.builds("abs({})".format, below),
        st.builds("round(f, {})".format, st.integers(0, 2)),
        st.just("CAST(f AS BIGINT)"),
        st.just("CAST(digits AS BIGINT)"),
        st.builds("CAST({} AS BIGINT)".format, truths.map(typed_truth)),
        st.builds("length({})".format, text_expressions(depth - 1)),
        st.builds("coalesce({}, {})".format, below, below),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, truths, below, below),
        st.builds("CASE i WHEN {} THEN {} END".format, integer_literals, below),
    )


def text_expressions(depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return text_leaves
    below = text_expressions(depth - 1)
    return st.one_of(
        text_leaves,
        st.builds("lower({})".format, below),
        st.builds("upper({})".format, below),
        st.builds("CAST({} AS VARCHAR)".format, st.sampled_from(["i", "n", "b"])),
        st.builds("coalesce({}, {})".format, below, below),
        st.builds(
            "CASE WHEN {} THEN {} ELSE {} END".format, truth_expressions(depth - 1), below, below
        ),
    )


def truth_expressions(depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return truth_leaves
    numbers_below, texts_below = number_expressions(depth - 1), text_expressions(depth - 1)
    below = truth_expressions(depth - 1)
    return st.one_of(
        truth_leaves,
        st.builds("({} {} {})".format, numbers_below, signs, numbers_below),
        st.builds("({} {} {})".format, texts_below, signs, texts_below),
        st.builds("(ts {} {})".format, signs, moments),
        st.builds("(ts BETWEEN {} AND {})".format, moments, moments),
        st.builds("({} {} {})".format, below, st.sampled_from(["AND", "OR"]), below),
        st.builds("(NOT {})".format, below),
        st.builds("({} IS {}NULL)".format, numbers_below, st.sampled_from(["", "NOT "])),
        st.builds("({} IN ({}, {}))".format, numbers_below, numbers_below, numbers_below),
        st.builds("({} NOT IN (1, -2, NULL))".format, numbers_below),
        st.builds("({} IN ('a', 'B', '5'))".format, texts_below),
        st.builds("({} BETWEEN {} AND {})".format, numbers_below, numbers_below, numbers_below),
        st.builds("({} NOT BETWEEN {} AND 3)".format, numbers_below, integer_literals),
        st.builds("({} NOT LIKE {})".format, texts_below, texts.map(quoted)),
        st.builds("({} LIKE {})".format, texts_below, texts.map(quoted)),
        st.builds("({} NOT ILIKE {})".format, texts_below, texts.map(quoted)),
    )


def typed_truth(text: str) -> str:
    return f"CAST({text} AS BOOLEAN)"


expressions = st.one_of(
    number_expressions(3), text_expressions(3), truth_expressions(3).map(typed_truth)
)


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and theirs is not None:
        return math.isclose(ours, float(theirs), rel_tol=1e-12, abs_tol=1e-12)
    return bool(ours == theirs)


@given(batches, expressions)
def test_bound_expressions_agree_with_duckdb(batch: pa.RecordBatch, text: str) -> None:
    """Value by value, nulls included; a float and an integer of the same value are the same."""
    ours = Expression(text).bind(SCHEMA).evaluate(batch).to_pylist()
    DUCKDB.register("rows", pa.Table.from_batches([batch]))
    theirs = [value for (value,) in DUCKDB.execute(f"SELECT {text} FROM rows").fetchall()]
    assert len(ours) == len(theirs)
    assert all(same(*pair) for pair in zip(ours, theirs, strict=True)), (text, ours, theirs)
