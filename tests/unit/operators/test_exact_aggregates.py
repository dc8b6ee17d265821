"""Decimals in aggregates and as keys, exact to the last digit; texts in aggregates."""

import tracemalloc
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rewake.model.errors import ArithmeticOverflow, DamagedFrame, SchemaMismatch
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import (
    Avg,
    Count,
    First,
    Last,
    Max,
    Min,
    Stddev,
    Sum,
    UserDefined,
)
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.columns.keys import GroupBy
from rewake.operators.join.keys import JoinKeys
from rewake.operators.shuffle import Shuffle
from rewake.operators.stateful import StoredParts
from rewake.operators.windows.specs import count_window, running_window, time_window

PRICE = pa.decimal128(10, 2)


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("x", kind), ("t", pa.int64())])


def operator(
    kind: pa.DataType, *functions: Any, window: Any = None, time: str | None = None
) -> Aggregate:
    """Over count windows of 3 unless a test says otherwise."""
    spec = AggregateSpec(["k"], window or count_window(3), functions, time=time)
    return Aggregate(spec, schema_of(kind))


def batch(kind: pa.DataType, values: list[Any], keys: list[int] | None = None) -> pa.RecordBatch:
    rows = [keys or [1] * len(values), values, list(range(len(values)))]
    columns = [
        pa.array(each, field.type) for each, field in zip(rows, schema_of(kind), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(kind))


def results(made: Aggregate, rows: pa.RecordBatch, position: int = 0) -> list[dict[str, Any]]:
    found = made.process(StreamEvent(position, rows)).results
    if found is None:
        return []
    found.validate(full=True)
    return list(found.to_pylist())


def decimals(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


# --- decimals ----------------------------------------------------------------------------------


def test_results_over_decimals_are_of_the_types_that_spark_gives_them():
    """A sum has ten digits more, an average four more behind the point; 38 at most."""
    functions = Sum("x"), Avg("x"), Min("x"), Last("x"), Stddev("x"), Count("x")
    types = operator(PRICE, *functions).output_schema.types[1:]
    assert types == [
        pa.decimal128(20, 2),
        pa.decimal128(14, 6),
        PRICE,
        PRICE,
        pa.float64(),
        pa.int64(),
    ]
    widest = operator(pa.decimal128(38, 36), Sum("x"), Avg("x")).output_schema.types[1:]
    assert widest == [pa.decimal128(38, 36), pa.decimal128(38, 38)]


def test_sums_of_decimals_are_exact_where_floats_are_not():
    """Ten times a tenth is one."""
    made = operator(PRICE, Sum("x"), Avg("x"), window=count_window(10))
    (row,) = results(made, batch(PRICE, [Decimal("0.10")] * 10))
    assert (row["sum_x"], row["avg_x"]) == (Decimal("1.00"), Decimal("0.100000"))


@pytest.mark.parametrize(
    ("values", "average"),
    [
        (["0.01", "0.00", "0.00"], "0.003333"),
        (["0.02", "0.00", "0.00"], "0.006667"),
        (["-0.02", "0.00", "0.00"], "-0.006667"),
        (["0.01", None, None], "0.010000"),
        ([None, None, None], None),
    ],
)
def test_averages_of_decimals_are_rounded_half_up_and_nulls_are_not_counted(values, average):
    """Away from zero, as Spark does it."""
    (row,) = results(operator(PRICE, Avg("x")), batch(PRICE, decimals(*values)))
    assert row["avg_x"] == (None if average is None else Decimal(average))


def test_half_of_the_last_digit_goes_away_from_zero():
    """1 / 32 = 0.03125 to four digits is 0.0313, and below zero it is -0.0313."""
    whole = pa.decimal128(5, 0)
    made = operator(whole, Avg("x"), window=count_window(32))
    keys = [1] * 32 + [2] * 32
    values = decimals("1", *["0"] * 31, "-1", *["0"] * 31)
    assert [row["avg_x"] for row in results(made, batch(whole, values, keys))] == [
        Decimal("0.0313"),
        Decimal("-0.0313"),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_decimals_of_any_size_add_up_as_pythons_do(seed):
    """Sums, averages, extremes and arrivals of numbers of 1 to 31 digits, of both signs."""
    numbers = np.random.default_rng(seed)
    kind = pa.decimal128(38, 5)
    values = []
    for digits in numbers.integers(1, 32, 600):
        text = "".join(map(str, numbers.integers(0, 10, digits)))
        values.append(Decimal(f"{'-' if numbers.random() < 0.5 else ''}{text}").scaleb(-5))
    functions = [each("x") for each in (Sum, Avg, Min, Max, First, Last)]
    made = operator(kind, *functions, window=count_window(7))
    found = results(made, batch(kind, values))
    assert len(found) == 85
    for number, row in enumerate(found):
        window = values[7 * number : 7 * number + 7]
        with localcontext() as context:
            context.prec, context.rounding = 200, ROUND_HALF_UP
            total = sum(window)
            average = (total / 7).quantize(Decimal("1e-9"))
        assert list(row.values())[1:] == [
            total,
            average,
            min(window),
            max(window),
            window[0],
            window[-1],
        ]


def test_averages_over_more_tuples_than_32_bits_count_are_exact():
    """Which no test can send: the state of a window that has them is restored."""
    count = 3 * 2**32 + 1
    made = operator(pa.decimal128(38, 0), Avg("x"), window=running_window())
    ids = np.zeros(1, np.int64)
    low, high = (np.array([value], np.int64) for value in (5, 2**40))
    keys = np.array([1], np.int64), np.zeros(0, np.int32)
    written = made.snapshot_columns(np.zeros(0, np.int32))
    columns = [*keys, np.array([count], np.int64), ids, low, high]
    columns = [each.astype(like.dtype) for each, like in zip(columns, written, strict=True)]
    stored = StoredParts(ids, ids, [columns], [np.arange(1)], [1])
    nothing = StoredParts(ids[:0], ids[:0], [], [], [])
    slots = made.restore(nothing, stored, clock=0, late_tuples=0)
    with localcontext() as context:
        context.prec, context.rounding = 100, ROUND_HALF_UP
        expected = (Decimal(2**104 + 5) / count).quantize(Decimal("1e-4"))
    assert made.current(slots)["avg_x"].to_pylist() == [expected]


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_sum_that_outgrows_its_type_is_an_error(sign):
    """Not a wrong number: 38 digits are all there are."""
    kind = pa.decimal128(38, 0)
    large = Decimal(f"{sign}{'9' * 38}")
    made = operator(kind, Sum("x"))
    with pytest.raises(ArithmeticOverflow, match=r"sum of column 'x'.*decimal128\(38, 0\).*DOUBLE"):
        made.process(StreamEvent(0, batch(kind, [large, large])))


def test_the_remedy_for_integers_that_overflow_helps():
    """As DECIMAL(28, 0), which the error names, the largest integers have an exact sum."""
    kind, largest = pa.decimal128(28, 0), 2**63 - 1
    made = operator(kind, Sum("x"), window=count_window(2))
    rows = batch(kind, [Decimal(largest), Decimal(largest)])
    assert [each["sum_x"] for each in results(made, rows)] == [2 * largest]


def test_a_sum_of_panes_that_outgrows_its_type_is_an_error():
    """Each pane holds its sum, the window does not."""
    kind = pa.decimal128(38, 0)
    half = Decimal("6" + "0" * 37)
    made = operator(kind, Sum("x"), window=count_window(2, 1))
    with pytest.raises(ArithmeticOverflow, match="sum of column 'x'"):
        made.process(StreamEvent(0, batch(kind, [half, half])))


def test_an_average_that_outgrows_its_type_is_an_error():
    """Four digits more behind the point leave as many fewer before it."""
    kind = pa.decimal128(38, 0)
    made = operator(kind, Avg("x"), window=count_window(1))
    assert results(made, batch(kind, [Decimal("9" * 34)])) == [{"k": 1, "avg_x": Decimal("9" * 34)}]
    with pytest.raises(ArithmeticOverflow, match=r"an average of column 'x'.*DOUBLE"):
        made.process(StreamEvent(1, batch(kind, [Decimal("1" + "0" * 34)])))


def test_functions_that_yield_floats_see_decimals_as_floats():
    """A spread, and functions of one's own."""
    own = UserDefined("x", "own", (0.0,), _added, _merged, _total)
    (row,) = results(
        operator(PRICE, Stddev("x"), own), batch(PRICE, decimals("0.50", "1.50", "2.50"))
    )
    assert row == {"k": 1, "stddev_x": 1.0, "own": 4.5}


def _added(state: Any, value: Any) -> Any:
    return (state[0] + value,)


def _merged(older: Any, newer: Any) -> Any:
    return (older[0] + newer[0],)


def _total(state: Any) -> Any:
    return state[0]


# --- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_have_an_order_by_bytes_and_of_arrival(kind):
    """UTF-8 sorts as its code points do; the empty text is the smallest, and it is a text."""
    values: list[Any] = ["z", "\u00e9", "", "\U0001f600", "za", None]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [None if each is None else each.encode() for each in values]
    functions = [each("x") for each in (Min, Max, First, Last, Count)]
    made = operator(kind, *functions, window=count_window(6))
    (row,) = results(made, batch(kind, values))
    assert list(row.values()) == [1, values[2], values[3], values[0], values[4], 5]
    assert made.output_schema.field("max_x").type == kind


def test_a_window_of_nulls_has_no_text_and_is_not_the_empty_one():
    """Also after one that had."""
    made = operator(pa.string(), Min("x"), Last("x"), window=count_window(2))
    found = results(made, batch(pa.string(), ["a", "b", None, None, "", None]))
    assert [tuple(row.values())[1:] for row in found] == [("a", "b"), (None, None), ("", "")]


def test_the_last_status_of_each_key_is_kept_while_others_come_and_go():
    """Running windows: every batch says what it touched; what was replaced leaves the memory."""
    made = operator(pa.string(), Last("x"), Max("x"), window=running_window())
    last: dict[int, str] = {}
    largest: dict[int, str] = {}
    numbers = np.random.default_rng(1)
    for turn in range(60):
        keys = numbers.integers(0, 40, 200).tolist()
        values = [f"{numbers.integers(0, 999)}" * int(numbers.integers(1, 400)) for _ in keys]
        for key, value in zip(keys, values, strict=True):
            last[key], largest[key] = value, max(value, largest.get(key, ""))
        found = results(made, batch(pa.string(), values, keys), 200 * turn)
        assert {row["k"]: row["last_x"] for row in found} == {key: last[key] for key in set(keys)}
        assert all(row["max_x"] == largest[row["k"]] for row in found)


def test_texts_that_no_window_holds_any_more_take_no_memory():
    """Sixty megabytes pass through ten windows that hold some kilobytes."""
    made = operator(pa.string(), Last("x"), Max("x"), window=running_window())
    values = [f"{number:0>3}" * 500 for number in range(700)]
    event = batch(pa.string(), values, [number % 10 for number in range(700)])
    results(made, event)
    tracemalloc.start()
    for turn in range(1, 60):
        made.process(StreamEvent(700 * turn, event))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 12_000_000


def test_sums_of_texts_are_refused():
    """With what can be summed."""
    with pytest.raises(SchemaMismatch, match="Sum needs numbers, but column 'x' is of type string"):
        operator(pa.string(), Sum("x"))
    with pytest.raises(SchemaMismatch, match="Min needs numbers, booleans, times, strings"):
        operator(pa.list_(pa.int64()), Min("x"))


@pytest.mark.parametrize("kind", [pa.string(), PRICE])
def test_early_results_of_open_windows_are_exact_too(kind):
    """Panes of windows that overlap, merged in a copy; the windows go on."""
    values = ["b", "a", "c"] if kind == pa.string() else decimals("0.20", "0.10", "0.30")
    made = operator(kind, Min("x"), Last("x"), window=time_window(4, 2), time="t")
    made.process(StreamEvent(0, batch(kind, values)))
    rows = [(row["window_start"], row["min_x"], row["last_x"]) for row in made.early().to_pylist()]
    assert rows == [(0, values[1], values[2]), (2, values[2], values[2])]
    assert made.open_parts == 2


# --- footprints --------------------------------------------------------------------------------


def checked(made: Aggregate) -> tuple[np.ndarray, list[np.ndarray]]:
    slots = np.flatnonzero(made.opened_at >= 0).astype(np.int32)
    return made.ids_of(slots), made.snapshot_columns(slots)


def restored(kind: pa.DataType, ids: Any, columns: Any, rows: Any) -> Aggregate:
    made = operator(kind, Max("x"), First("x"))
    applied = np.full(len(rows), 2, np.int64)
    nothing = StoredParts(ids[:0], ids[:0], [], [], [])
    stored = StoredParts(ids[rows], applied, [columns], [np.array(rows)], [ids.size])
    made.restore(nothing, stored, clock=0, late_tuples=0)
    made.end_replay()
    return made


@pytest.mark.parametrize("kind", [pa.string(), PRICE])
def test_parts_are_restored_one_by_one(kind):
    """In any choice and order; what a CHECK holds is the whole state."""
    values = ["long" * 9, "", "b"] if kind == pa.string() else decimals("-1.00", "0.00", "5.25")
    made = operator(kind, Max("x"), First("x"))
    made.process(StreamEvent(0, batch(kind, values, [1, 2, 3])))
    ids, columns = checked(made)
    again = restored(kind, ids, columns, [2, 0])
    low = "" if kind == pa.string() else Decimal("-9.00")
    found = results(again, batch(kind, [low] * 4, [1, 1, 3, 3]), 3)
    assert [tuple(row.values()) for row in found] == [
        (1, values[0], values[0]),
        (3, values[2], values[2]),
    ]


@pytest.mark.parametrize(
    ("place", "damage"),
    [
        (-5, lambda lengths: lengths + 1),
        (-5, lambda lengths: np.where(lengths > 2, -2, lengths).astype(np.int32)),
        (-4, lambda data: data[:-1]),
        (-4, lambda data: np.full_like(data, 255)),
        (-1, lambda arrived: arrived * 0),
        (-1, lambda arrived: arrived[:-1]),
    ],
)
def test_damaged_texts_of_a_footprint_are_refused(place, damage):
    """Lengths that do not fit, bytes that are no text, a text that never arrived."""
    made = operator(pa.string(), Max("x"), First("x"))
    made.process(StreamEvent(0, batch(pa.string(), ["abc", "d"], [1, 2])))
    ids, columns = checked(made)
    columns[place] = damage(columns[place])
    with pytest.raises(DamagedFrame):
        restored(pa.string(), ids, columns, [0, 1])


# --- keys --------------------------------------------------------------------------------------

AMOUNTS = decimals("1.50", "0.00", None, "-1.50", "100.00", f"{10**28}.00", "0.01", "-0.10")


def test_decimals_are_keys_of_windows():
    """Equal ones are one key, null is one of its own, and they come back as they were."""
    schema = pa.schema([("k", PRICE)])
    made = Aggregate(AggregateSpec(["k"], count_window(2), [Count()]), schema)
    keys = decimals("1.50", "0.00", None, "1.50", "-0.01", None, "0.00", "-0.01")
    rows = pa.RecordBatch.from_arrays([pa.array(keys, PRICE)], schema=schema)
    assert results(made, rows) == [
        {"k": key, "count": 2} for key in decimals("1.50", None, "0.00", "-0.01")
    ]


@pytest.mark.parametrize("kind", [pa.decimal128(38, 2), pa.decimal128(31, 2), pa.decimal128(38, 9)])
def test_a_decimal_goes_to_the_same_part_whatever_its_precision_and_scale(kind):
    """For ever: these numbers are part of what logs mean."""
    rows = pa.RecordBatch.from_arrays([pa.array(AMOUNTS, kind)], names=["k"])
    numbers = Shuffle(rows.schema, ["k"], 1000).part_numbers(rows).tolist()
    assert numbers == [634, 479, 550, 777, 305, 346, 50, 363]


def test_equal_decimals_of_both_sides_of_a_join_have_one_number():
    """Alone and beside other columns; nulls are equal to none."""
    one = JoinKeys([pa.field("k", PRICE)])
    left = one.numbers([pa.array(decimals("1.50", "2.00", "0.00"), PRICE)], None)
    right = one.numbers([pa.array(decimals("0.00", "1.50", "7.00"), PRICE)], None)
    assert right.tolist()[:2] == [left[2], left[0]]
    assert right[2] not in left


def test_bytes_that_are_no_decimal_are_refused_as_a_key():
    """A footprint's key must be one of its column's type."""
    keys = GroupBy(pa.schema([("k", PRICE)]), ["k"], refuse_nulls=False)
    rows = pa.RecordBatch.from_arrays([pa.array(decimals("1.50"), PRICE)], names=["k"])
    offsets, data = keys.table.pack(keys.intern(rows, 0))
    short = data[:-1].copy()
    short[1] = 15
    with pytest.raises(DamagedFrame, match="no decimal of column 'k'"):
        keys.table.unpack([offsets - [0, 1], short], np.arange(1), 1)
