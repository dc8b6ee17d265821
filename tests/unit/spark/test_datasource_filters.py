"""Filters that the reader takes over answer as Spark would, for every value."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rewake.spark.datasource.filters import Bounds, Predicate, bounds_of, is_handled

NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("v", pa.list_(pa.int64())),
    ]
)
BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([1, 2, 3, None]),
        pa.array([1.0, NAN, -2.5, None]),
        pa.array(["apple", "pear", "grape", None]),
        pa.array([0, 1_000_000, 2_000_000, None]).cast(SCHEMA.field("t").type),
        pa.array([0, 1, 2, None], pa.int32()).cast(pa.date32()),
        pa.array([Decimal("1.50"), Decimal("2.00"), Decimal("-1.00"), None], pa.decimal128(10, 2)),
        pa.array([True, False, True, None]),
        pa.array([[1], [2], [3], None]),
    ],
    schema=SCHEMA,
)
SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def kept(wanted: Filter) -> list[int]:
    """The rows that pass, by number."""
    assert is_handled(wanted, SCHEMA)
    numbered = BATCH.append_column("row", pa.array(range(4)))
    return Predicate((wanted,)).keep(numbered).column("row").to_pylist()


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (EqualTo(("n",), 2), [1]),
        (Not(EqualTo(("n",), 2)), [0, 2]),
        (GreaterThan(("n",), 1), [1, 2]),
        (GreaterThanOrEqual(("n",), 2), [1, 2]),
        (LessThan(("n",), 2), [0]),
        (LessThanOrEqual(("n",), 2), [0, 1]),
        (In(("n",), (1, 3, 9)), [0, 2]),
        (Not(In(("n",), (1, 3))), [1]),
        (IsNull(("n",)), [3]),
        (IsNotNull(("n",)), [0, 1, 2]),
        (Not(IsNull(("n",))), [0, 1, 2]),
        (EqualNullSafe(("n",), None), [3]),
        (EqualNullSafe(("n",), 3), [2]),
        (Not(EqualNullSafe(("n",), 3)), [0, 1, 3]),
        (GreaterThan(("x",), 0.0), [0, 1]),
        (GreaterThanOrEqual(("x",), 1.0), [0, 1]),
        (LessThan(("x",), 5.0), [0, 2]),
        (Not(GreaterThan(("x",), 0.0)), [2]),
        (Not(LessThan(("x",), 0.0)), [0, 1]),
        (Not(EqualTo(("x",), 1.0)), [1, 2]),
        (EqualTo(("s",), "pear"), [1]),
        (GreaterThan(("s",), "grape"), [1]),
        (StringStartsWith(("s",), "ap"), [0]),
        (StringEndsWith(("s",), "pe"), [2]),
        (StringContains(("s",), "ap"), [0, 2]),
        (Not(StringContains(("s",), "ap")), [1]),
        (EqualTo(("t",), SECOND), [1]),
        (LessThan(("d",), date(1970, 1, 2)), [0]),
        (EqualTo(("m",), Decimal("1.5")), [0]),
        (EqualTo(("b",), True), [0, 2]),
    ],
)
def test_a_filter_keeps_the_rows_that_spark_would(wanted: Filter, rows: list[int]) -> None:
    """Null is neither true nor false; NaN is above every number."""
    assert kept(wanted) == rows


@pytest.mark.parametrize(
    "wanted",
    [
        EqualTo(("nowhere",), 1),
        EqualTo(("n", "inner"), 1),
        EqualTo(("n",), None),
        EqualTo(("n",), 1.5),
        EqualTo(("n",), True),
        EqualTo(("n",), 2**70),
        EqualTo(("n",), "1"),
        EqualTo(("x",), NAN),
        In(("x",), (1.0, NAN)),
        In(("n",), (1, None)),
        StringContains(("n",), "1"),
        EqualTo(("t",), datetime(1970, 1, 1)),
        EqualTo(("t",), date(1970, 1, 1)),
        EqualTo(("d",), SECOND),
        EqualTo(("v",), [1]),
        EqualTo(("m",), Decimal("1.234")),
    ],
)
def test_a_filter_that_cannot_be_exact_goes_back_to_spark(wanted: Filter) -> None:
    """Better slow than wrong."""
    assert not is_handled(wanted, SCHEMA)
    assert not is_handled(Not(wanted), SCHEMA)


def test_ranges_of_a_column_narrow_what_is_read() -> None:
    """All filters together; those of other columns, and negations, say nothing."""
    wanted = [
        GreaterThan(("_position",), 9),
        LessThanOrEqual(("_position",), 99),
        Not(EqualTo(("_position",), 50)),
        GreaterThan(("n",), 1000),
        IsNotNull(("_position",)),
    ]
    assert bounds_of(wanted, "_position") == Bounds(10, 100)
    assert bounds_of([In(("_position",), (7, 3))], "_position") == Bounds(3, 8)
    assert bounds_of([EqualTo(("_time",), SECOND)], "_time") == Bounds(1_000_000, 1_000_001)
    assert bounds_of([], "_time") == Bounds(None, None)
