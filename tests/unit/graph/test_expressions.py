"""Expressions: what SQL text and Python functions mean over Arrow columns, and how they fail."""

import functools
import json
import subprocess
import sys
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewake.model.errors import ArithmeticOverflow, SchemaMismatch, UsageError
from rewake.operators.expressions.expression import (
    ArrowFunction,
    Expression,
    expression,
    function_identity,
)

SCHEMA = pa.schema(
    [
        ("item_price", pa.int32()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("ts", pa.timestamp("ms")),
        ("b", pa.bool_()),
        ("d", pa.dictionary(pa.int32(), pa.string())),
        ("cost", pa.decimal128(10, 2)),
        ("u", pa.uint64()),
        ("odd name", pa.int8()),
    ]
)
ROWS = {
    "item_price": [1, None, 700],
    "f": [1.5, None, -2.5],
    "t": ["a", "5", None],
    "ts": [0, 1000, None],
    "b": [True, None, False],
    "d": ["x", None, "y"],
    "cost": [1, 2, None],
    "u": [1, 2, 3],
    "odd name": [1, -1, 0],
}
BATCH = pa.RecordBatch.from_pydict(ROWS, schema=SCHEMA)


def values(text: str) -> list[Any]:
    """Return what an expression gives for the three rows, checking that its type was known."""
    bound = Expression(text).bind(SCHEMA, "step")
    array = bound.evaluate(BATCH)
    assert array.type == bound.type
    assert bound.evaluate(BATCH.slice(1, 1)).to_pylist() == array.to_pylist()[1:2]
    assert len(bound.evaluate(BATCH.slice(0, 0))) == 0
    return list(array.to_pylist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("item_price < 500", [True, None, False]),
        ("item_price / 100", [0.01, None, 7.0]),
        ("item_price + 1 * 2 - 3", [0, None, 699]),
        ("-item_price % 3", [-1, None, -1]),
        ("item_price % 0", [None, None, None]),
        ("f % 2", [1.5, None, -0.5]),
        ('"odd name" + 1', [2, 0, 1]),
        ("u + 1", [2, 3, 4]),
        ("item_price = 1.5 OR b", [True, None, False]),
        ("b AND NULL", [None, None, False]),
        ("NOT b", [False, None, True]),
        ("b IS NULL", [False, True, False]),
        ("b IS NOT NULL", [True, False, True]),
        ("b IS TRUE", [True, False, False]),
        ("b IS NOT FALSE", [True, True, False]),
        ("item_price IN (1, 2)", [True, None, False]),
        ("item_price NOT IN (1, NULL)", [False, None, None]),
        ("item_price IN (1, f)", [True, None, False]),
        ("t IN ('a', 'b')", [True, False, None]),
        ("item_price BETWEEN 1 AND 5", [True, None, False]),
        ("t LIKE '_'", [True, True, None]),
        ("d LIKE '%X%'", [False, None, False]),
        ("d ILIKE '%X%'", [True, None, False]),
        ("t NOT LIKE '_'", [False, False, None]),
        ("d NOT ILIKE '%X%'", [False, None, True]),
        ("item_price NOT BETWEEN 1 AND 5", [False, None, True]),
        ("CASE WHEN b THEN t ELSE 'other' END", ["a", "other", "other"]),
        ("CASE item_price WHEN 1 THEN 'one' WHEN 700 THEN 'x' END", ["one", None, "x"]),
        ("CASE WHEN b THEN 1 ELSE f END", [1.0, None, -2.5]),
        ("COALESCE(item_price, f, 0)", [1.0, 0.0, 700.0]),
        ("ABS(f)", [1.5, None, 2.5]),
        ("ROUND(f)", [2.0, None, -3.0]),
        ("ROUND(item_price, -2)", [0, None, 700]),
        ("UPPER(d)", ["X", None, "Y"]),
        ("LOWER('ABC')", ["abc"] * 3),
        ("LENGTH(t)", [1, 1, None]),
        ("CAST(f AS BIGINT)", [2, None, -2]),
        ("item_price::VARCHAR", ["1", None, "700"]),
        ("CAST(NULL AS INTEGER)", [None] * 3),
        ("cost > 1", [False, True, None]),
        ("ts > '1970-01-01 00:00:00.500'", [False, True, None]),
        ("ts = TIMESTAMP '1970-01-01 00:00:01'", [False, True, None]),
        ("CAST(ts AS DATE)", [date(1970, 1, 1), date(1970, 1, 1), None]),
        ("CAST('2024-02-29 12:00:00' AS TIMESTAMP)", [datetime(2024, 2, 29, 12)] * 3),
        ("ts > NULL", [None] * 3),
        ("1", [1, 1, 1]),
        ("-9223372036854775808", [-(2**63)] * 3),
    ],
)
def test_an_expression_means_what_sql_says(text: str, expected: list[Any]) -> None:
    """With three-valued logic, and a type that is known before the first tuple."""
    assert values(text) == expected


def test_a_branch_of_case_is_only_computed_for_its_own_rows() -> None:
    """So that a condition can guard a cast that would fail for other rows."""
    assert values("CASE WHEN t = '5' THEN CAST(t AS INT) ELSE 0 END") == [0, 5, 0]
    text = "CASE WHEN t LIKE 'a%' THEN -1 WHEN t IS NULL THEN NULL ELSE CAST(t AS INT) END"
    assert values(text) == [-1, 5, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item_prise < 5", "step 'cheap': no column 'item_prise'; did you mean 'item_price'? col"),
        ("ITEM_PRICE", "did you mean 'item_price'?"),
        ("zzz", "no column 'zzz'; columns: item_price, f, t"),
        ("t + 1", "types string and int64 do not go together; CAST one"),
        ("t < 1", "types string and int64 do not go together"),
        ("ts > 5", "do not go together"),
        ("f AND b", "'f' is of type double, not a truth value"),
        ("SUM(f)", "'SUM(f)' is not supported in an expression"),
        ("SELECT 1", "not supported in an expression"),
        ("TRY_CAST(t AS INT)", "not supported in an expression"),
        ("x.f", "'x.f' is not a column"),
        ("t LIKE 'a!%' ESCAPE '!'", "not supported in an expression"),
        ("ROUND(f, 1, 1)", "not supported in an expression"),
        ("item_price BETWEEN SYMMETRIC 5 AND 1", "not supported in an expression"),
        ("f IN (SELECT 1)", "IN needs a list of values"),
        ("t LIKE d", "the pattern of LIKE must be a literal"),
        ("UPPER(f)", "UPPER needs text, but 'f' is double"),
        ("ABS(t)", "ABS needs a number, but 't' is string"),
        ("ROUND(f, f)", "ROUND needs a whole literal number"),
        ("CAST(ts AS BIGINT)", "does not say the unit of time"),
        ("CAST(f AS JSON)", "CAST to JSON is not supported"),
        ("CASE WHEN b THEN 1 ELSE 'x' END", "CASE has branches of types int64 and string"),
        ("NULL", "is always null and has no type"),
        ("ts > 'garbage'", "has no value"),
        ("9223372036854775807 + 1", "has no value: overflow"),
        ("99999999999999999999", "beyond 64 bits"),
        ("+".join(["f"] * 5000), "nested too deeply"),
    ],
)
def test_what_cannot_be_computed_is_refused_when_it_is_bound(text: str, words: str) -> None:
    """With the step, the column and what to do."""
    with pytest.raises(UsageError, match=r"^step 'cheap': ") as caught:
        Expression(text).bind(SCHEMA, "cheap")
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "a <", "a b c", "(", "CASE WHEN"])
def test_what_is_no_expression_is_refused_when_it_is_written(text: str) -> None:
    """Before there is a schema."""
    with pytest.raises(UsageError, match="is not an SQL expression"):
        Expression(text)


def test_a_constant_that_is_not_text_is_refused_with_an_example() -> None:
    """`map(one=1)` is an easy mistake."""
    with pytest.raises(UsageError, match="an expression is SQL text, not 1"):
        Expression(1)  # type: ignore[arg-type]


def test_a_column_name_that_occurs_twice_is_refused() -> None:
    """It cannot be known which is meant."""
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(SchemaMismatch, match="there are 2 columns named 'a'"):
        Expression("a").bind(schema)


def test_integer_overflow_is_an_error_and_never_a_wrong_number() -> None:
    """Sums of narrow columns have 64 bits; beyond them there is an error that says what to do."""
    assert values("item_price * 3000000000")[2] == 2_100_000_000_000
    with pytest.raises(ArithmeticOverflow, match=r"step 's': .*compute in floats"):
        Expression("item_price * 9223372036854775807").bind(SCHEMA, "s").evaluate(BATCH)


def test_a_cast_that_a_value_does_not_survive_names_the_value() -> None:
    """And the step, and what to do about such tuples."""
    with pytest.raises(SchemaMismatch, match=r"step 's': .*'a'.*guard with CASE WHEN"):
        Expression("CAST(t AS INT)").bind(SCHEMA, "s").evaluate(BATCH)


def test_an_expression_is_its_text() -> None:
    """Equality and identity go by it; what is bound is no part of it."""
    assert Expression("f + 1") == Expression("f + 1") != Expression("f+1")
    assert len({Expression("f"), Expression("f"), Expression("b")}) == 2
    assert Expression("f").identity() == {"sql": "f"}
    assert Expression("f + u").bind(SCHEMA).columns == {"f", "u"}


# --- functions -------------------------------------------------------------------------------


def twice(batch: pa.RecordBatch) -> pa.Array:
    return pc.multiply(batch["item_price"], 2)


def test_a_function_of_the_batch_may_stand_for_an_expression() -> None:
    """Its type is found by calling it on an empty batch."""
    bound = expression(twice).bind(SCHEMA, "step")
    assert bound.type == pa.int64()
    assert bound.evaluate(BATCH).to_pylist() == [2, None, 1400]
    assert expression(twice) == ArrowFunction(twice)
    assert expression("f") == Expression("f")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda _: 5, "returned int; it must return a pyarrow.Array"),
        (lambda batch: batch["nope"], '"nope"'),
        (lambda _: 1 // 0, "failed on a batch of 0 tuples with ZeroDivisionError"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_when_it_is_bound(
    function: Any, words: str
) -> None:
    """With the step's name."""
    with pytest.raises(UsageError, match=r"^step 's': function ") as caught:
        ArrowFunction(function).bind(SCHEMA, "s")
    assert words in str(caught.value)


def test_a_function_is_held_to_the_type_and_length_it_promised() -> None:
    """Or the schema of the stream would be wrong."""
    bound = ArrowFunction(lambda batch: pa.array([1] * min(batch.num_rows, 1), pa.int64())).bind(
        SCHEMA, "s"
    )
    with pytest.raises(SchemaMismatch, match="returned 1 values of type int64 for 3 tuples"):
        bound.evaluate(BATCH)


def adder(number: int) -> Any:
    return lambda batch: pc.add(batch["item_price"], number)


def test_functions_are_the_same_when_their_names_and_code_are() -> None:
    """Constants, defaults, arguments and what is enclosed count as code."""
    assert ArrowFunction(adder(1)) == ArrowFunction(adder(1)) != ArrowFunction(adder(2))
    assert hash(ArrowFunction(adder(1))) == hash(ArrowFunction(adder(1)))
    codes = [
        function_identity(each)["code"]
        for each in (
            lambda batch: pc.add(batch["f"], 1),
            lambda batch: pc.add(batch["f"], 2),
            lambda batch: pc.add(batch["g"], 1),
            lambda batch, number=1: pc.add(batch["f"], number),
            lambda batch, number=2: pc.add(batch["f"], number),
            functools.partial(twice),
            functools.partial(twice, 1),
        )
    ]
    assert len(set(codes)) == len(codes)


def test_the_identity_of_a_function_is_the_same_in_every_process() -> None:
    """It goes into the fingerprint, which another process compares."""
    code = (
        "import json; from rewake.operators.expressions.expression import function_identity\n"
        "def chosen(batch): return batch['a'] in {'x', 'y', 'z', 'w'}\n"
        "print(json.dumps(function_identity(chosen)))"
    )
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert found[0]["function"] == "__main__.chosen"
