"""The aggregate operator: what it refuses, and what it makes of odd input."""

import dataclasses
import datetime as dt
import statistics

import numpy as np
import pyarrow as pa
import pytest

from rewake.model.errors import (
    ArithmeticOverflow,
    InvalidWindow,
    NullKey,
    SchemaMismatch,
    UsageError,
)
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
from rewake.operators.stateful import FURTHER_PORTS
from rewake.operators.windows.specs import count_window, time_window

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("v", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.int64()),
    ]
)


HOW_MANY = (Count(),)
TIMED = {"window": time_window(5), "time": "t"}


def aggregate(window=None, functions=HOW_MANY, schema=SCHEMA, by=("k",), **more):
    """An operator over count windows of 2 unless a test says otherwise."""
    return Aggregate(AggregateSpec(list(by), window or count_window(2), functions, **more), schema)


def batch(schema=SCHEMA, **columns):
    """A batch of these columns; the others are null, times 0."""
    rows = len(next(iter(columns.values())))
    defaults = {"t": [0] * rows}
    arrays = [
        pa.array(columns.get(field.name, defaults.get(field.name, [None] * rows)), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def results(operator, rows, position=0, watermark=None):
    """The results of one stream event as tuples."""
    found = operator.process(StreamEvent(position, rows, watermark)).results
    return [] if found is None else [tuple(row.values()) for row in found.to_pylist()]


# --- what is refused when the operator is built ------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (UsageError, "at least one key column", {"by": ()}),
        (UsageError, "at least one function", {"functions": ()}),
        (UsageError, "null_keys is 'group' or 'refuse' .*, not 'drop'", {"null_keys": "drop"}),
        (SchemaMismatch, "group by: no column 'x'; columns: k, v, f", {"by": ("x",)}),
        (SchemaMismatch, "aggregate 'sum_x': no column 'x'", {"functions": (Sum("x"),)}),
        (SchemaMismatch, "Sum needs numbers, but column 's' is", {"functions": (Sum("s"),)}),
        (SchemaMismatch, "Stddev needs numbers, but column 's'", {"functions": (Stddev("s"),)}),
        (SchemaMismatch, "columns are named 'n'", {"functions": (Count("v", "n"), Sum("v", "n"))}),
        (SchemaMismatch, "two result columns are named 'k'", {"functions": (Sum("v", "k"),)}),
        (SchemaMismatch, "two result columns are named 'k'", {"by": ("k", "k")}),
        (SchemaMismatch, "event time: no column 'x'", {"time": "x"}),
        (SchemaMismatch, "event time: column 's' is of type string", {"time": "s"}),
        (InvalidWindow, "needs an event-time column", {"window": time_window(5)}),
        (InvalidWindow, r"'30s' is no window: count_window\(10\)", {"window": "30s"}),
        (InvalidWindow, "a time window has no timeout", TIMED | {"timeout": 3}),
        (InvalidWindow, "slack is for time windows", {"time": "t", "slack": 3}),
        (InvalidWindow, "slack must not be negative", TIMED | {"slack": -1}),
        (InvalidWindow, "a timeout needs an event-time column", {"timeout": 3}),
        (InvalidWindow, "a timeout must be longer than nothing", {"time": "t", "timeout": 0}),
        (InvalidWindow, "beyond what 64-bit times can hold", {"time": "t", "timeout": 2**62}),
        (InvalidWindow, "beyond what 64-bit", TIMED | {"slack": 2**70}),
        (InvalidWindow, "'soon' is not a duration", {"time": "t", "timeout": "soon"}),
    ],
)  # fmt: skip
def test_a_specification_that_cannot_be_is_refused(error, message, arguments):
    """When it is built, with what is wrong and where."""
    with pytest.raises(error, match=message):
        aggregate(**arguments)


@pytest.mark.parametrize(
    "kind", [pa.decimal256(50, 2), pa.list_(pa.int64()), pa.float16(), pa.null(), pa.struct([])]
)
def test_a_type_that_cannot_be_a_key_is_refused(kind):
    """The message lists the types that can."""
    with pytest.raises(SchemaMismatch, match=r"column 'k' of type .* cannot be a key; integers"):
        aggregate(schema=pa.schema([("k", kind)]))


@pytest.mark.parametrize("kind", [pa.uint64(), pa.float16(), pa.decimal256(50, 2), pa.date32()])
def test_a_type_that_cannot_be_summed_is_refused(kind):
    """Rather than summed wrongly."""
    with pytest.raises(SchemaMismatch, match="Sum needs numbers"):
        aggregate(functions=(Sum("v"),), schema=pa.schema([("k", pa.int64()), ("v", kind)]))


def test_two_columns_of_one_name_are_refused():
    """There is no telling which is meant."""
    schema = pa.schema([("k", pa.int64()), ("k", pa.int64())])
    with pytest.raises(SchemaMismatch, match="there are 2 columns named 'k'"):
        aggregate(schema=schema)


# --- what is refused when it arrives -----------------------------------------------------------


def test_a_stream_event_of_another_schema_is_refused():
    """Position, found and expected columns are named."""
    wrong = pa.record_batch([pa.array([1])], ["other"])
    with pytest.raises(
        SchemaMismatch, match=r"position 7 has columns other: int64, but .* k: int64"
    ):
        aggregate().process(StreamEvent(7, wrong))


def test_a_refused_null_key_is_named_with_its_position():
    """And the operator goes on as if the event had not come."""
    operator = aggregate(null_keys="refuse", by=("k", "s"))
    results(operator, batch(k=[1], s=["a"]))
    with pytest.raises(NullKey, match="key column 's' is null in the tuple at position 12"):
        operator.process(StreamEvent(10, batch(k=[1, 2, 3], s=["a", "b", None])))
    assert operator.open_parts == 1
    assert results(operator, batch(k=[1], s=["a"]), 1) == [(1, "a", 2)]


def test_a_null_in_a_dictionary_is_a_null_key():
    """Wherever a dictionary hides it: in its indices or in its values."""
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.int64()))])
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), pa.array([0, None]))
    rows = pa.RecordBatch.from_arrays([keys], schema=schema)
    assert results(aggregate(count_window(1), schema=schema), rows) == [
        (0, 1),
        (None, 1),
        (None, 1),
    ]
    with pytest.raises(NullKey, match="position 1"):
        aggregate(schema=schema, null_keys="refuse").process(StreamEvent(0, rows))


def test_a_null_time_is_refused_with_its_position():
    """And nothing was applied."""
    operator = aggregate(time_window(5), time="t")
    with pytest.raises(SchemaMismatch, match="event time 't' is null in the tuple at position 4"):
        operator.process(StreamEvent(3, batch(k=[1, 2], t=[0, None])))
    assert operator.open_parts == 0


@pytest.mark.parametrize("time", [2**62, -(2**62), 2**63 - 1])
def test_a_time_beyond_62_bits_is_refused(time):
    """Window borders around it could not be computed."""
    with pytest.raises(SchemaMismatch, match="beyond 2\\*\\*62 near position 3"):
        aggregate(time_window(5), time="t").process(StreamEvent(3, batch(k=[1], t=[time])))


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1]])
def test_a_sum_that_overflows_is_an_error_and_no_wrong_number(values):
    """It names the column and what to do."""
    operator = aggregate(functions=(Sum("v"),))
    words = r"the sum of column 'v' left the range.*DECIMAL\(28, 0\).*or to DOUBLE.*a folder"
    with pytest.raises(ArithmeticOverflow, match=words):
        operator.process(StreamEvent(0, batch(k=[1, 1], v=values)))


def test_a_sum_that_overflows_between_panes_is_an_error_too():
    """Each pane fits; the window does not."""
    operator = aggregate(count_window(2, 1), (Sum("v"),))
    with pytest.raises(ArithmeticOverflow, match="column 'v'"):
        operator.process(StreamEvent(0, batch(k=[1, 1], v=[2**63 - 1, 2**63 - 1])))


def test_too_many_panes_are_refused_before_memory_runs_out():
    """A remedy is named."""
    with pytest.raises(UsageError, match="an advance that divides the size into fewer panes"):
        aggregate(count_window(2**31 - 1, 1)).process(StreamEvent(0, batch(k=[1])))


# --- odd input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [count_window(1), count_window(2, 1), time_window(1)])
def test_an_event_without_tuples_changes_nothing(window):
    """Neither state nor output."""
    operator = aggregate(window, (Sum("v"), Min("f"), First("t")), time="t")
    outcome = operator.process(StreamEvent(0, batch(k=[])))
    assert outcome.results is None
    assert operator.open_parts == outcome.opened_ids.size == outcome.ended_ids.size == 0


def test_a_punctuation_alone_closes_windows():
    """An event may consist of a watermark only."""
    operator = aggregate(time_window(10), time="t")
    assert results(operator, batch(k=[1, 2, 1], t=[1, 2, 3])) == []
    assert results(operator, batch(k=[]), 3, watermark=9) == []
    assert results(operator, batch(k=[]), 3, watermark=10) == [(1, 0, 10, 2), (2, 0, 10, 1)]


@pytest.mark.parametrize("watermark", [2**62, 2**63 - 1, 2**70])
@pytest.mark.parametrize("time", [-5, 0, 2**61])
def test_a_watermark_at_the_end_of_time_closes_everything(watermark, time):
    """However far away it is."""
    timed = aggregate(time_window(10), time="t")
    assert len(results(timed, batch(k=[1], t=[time]), watermark=watermark)) == 1
    counted = aggregate(count_window(9), time="t", timeout=5)
    assert results(counted, batch(k=[1], t=[time]), watermark=watermark) == [(1, 1)]


def test_windows_before_the_epoch_are_where_they_belong():
    """Borders are multiples of the advance, also below zero."""
    operator = aggregate(time_window(10), time="t")
    found = results(operator, batch(k=[1, 1, 1], t=[-11, -10, -1]), watermark=0)
    assert [row[1:] for row in found] == [(-20, -10, 1), (-10, 0, 2)]


@pytest.mark.parametrize(
    ("unit", "one_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]
)
def test_durations_are_in_the_unit_of_the_timestamps(unit, one_second):
    """Two seconds are "2s" whatever the column's unit."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp(unit))])
    operator = aggregate(time_window("2s"), schema=schema, time="t")
    times = pa.array([0, one_second, 2 * one_second], pa.int64()).cast(pa.timestamp(unit))
    rows = pa.RecordBatch.from_arrays([pa.array([1, 1, 1]), times], schema=schema)
    found = operator.process(StreamEvent(0, rows)).results
    assert found.column("count").to_pylist() == [2]
    assert found.column("window_end").cast(pa.int64()).to_pylist() == [2 * one_second]


@pytest.mark.parametrize("window", [time_window(1), time_window(10, 3), time_window(3, 10)])
def test_a_jump_over_countless_empty_windows_costs_nothing(window):
    """Only windows that hold tuples are visited."""
    operator = aggregate(window, time="t", functions=(Sum("v"),))
    found = results(operator, batch(k=[1, 1], v=[5, 6], t=[0, 2**60]))
    assert {row[-1] for row in found} == {5}
    assert len(found) == {1: 1, 3: 4, 10: 1}[window.advance]


def test_a_million_keys_in_one_event_find_room():
    """Tables grow within a turn."""
    keys = np.arange(1_000_000) * 7919
    schema = pa.schema([("k", pa.int64())])
    operator = aggregate(schema=schema)
    rows = pa.RecordBatch.from_arrays([pa.array(keys)], schema=schema)
    assert operator.process(StreamEvent(0, rows)).opened_ids.size == keys.size
    found = operator.process(StreamEvent(keys.size, rows)).results
    assert found.column("k").equals(rows.column("k"))
    assert operator.open_parts == 0


LEAP = dt.datetime(2020, 2, 29, 12)
KINDS = {
    "int8": (pa.int8(), [1, None, -128, 127, 5]),
    "uint16": (pa.uint16(), [1, None, 65535, 0, 5]),
    "uint32": (pa.uint32(), [1, None, 2**32 - 1, 0, 5]),
    "float32": (pa.float32(), [1.5, None, -0.25, 0.0, 5.0]),
    "bool": (pa.bool_(), [True, None, False, True, False]),
    "date32": (pa.date32(), [dt.date(1970, 1, d) if d else None for d in (1, 0, 3, 4, 5)]),
    "date64": (pa.date64(), [dt.date(1970, 1, d) if d else None for d in (1, 0, 3, 4, 5)]),
    "time32": (pa.time32("s"), [dt.time(1), None, dt.time(2), dt.time(3), dt.time(4)]),
    "timestamp": (pa.timestamp("us"), [LEAP, None, *[dt.datetime(1969, 1, 1)] * 3]),
    "duration": (pa.duration("ms"), [dt.timedelta(d) if d else None for d in (1, 0, -3, 4, 5)]),
}  # fmt: skip
TEXTS = {
    "string": (pa.string(), ["a", None, "", "bc", "d"]),
    "large_string": (pa.large_string(), ["a", None, "", "bc", "d"]),
    "large_binary": (pa.large_binary(), [b"a", None, b"", b"\0", b"d"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b", "a", "b"]),
}


@pytest.mark.parametrize("name", [*KINDS, *TEXTS])
@pytest.mark.parametrize("others", [(), ("extra",)])
def test_a_slice_of_a_batch_has_the_keys_of_the_slice(name, others):
    """Arrow arrays may start anywhere in their buffers, and validity in the middle of a byte."""
    kind, values = (KINDS | TEXTS)[name]
    schema = pa.schema([("k", kind), *[(other, pa.int8()) for other in others]])
    columns = [pa.array(values * 3, kind), *[pa.array([1] * 15, pa.int8()) for _ in others]]
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    operator = aggregate(count_window(1), schema=schema, by=("k", *others))
    found = [row[0] for row in results(operator, whole.slice(3, 9))]
    assert found == (values * 3)[3:12]


@pytest.mark.parametrize("name", KINDS)
def test_a_slice_of_a_batch_has_the_values_of_the_slice(name):
    """For every type that can be ordered, with nulls left out."""
    kind, values = KINDS[name]
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    columns = [pa.array([1] * 10), pa.array(values * 2, kind)]
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    functions = (Count("v"), Min("v"), Max("v"), First("v"), Last("v"))
    (found,) = results(aggregate(count_window(4), functions, schema), whole.slice(1, 4))
    seen = values[2:]
    assert found[1:] == (3, min(seen), max(seen), seen[0], seen[-1])


@pytest.mark.parametrize("name", ["int8", "uint16", "uint32", "float32"])
def test_numbers_of_any_width_are_summed_without_wrapping(name):
    """Sums are 64 bits wide."""
    kind, values = KINDS[name]
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1] * 50), pa.array(values * 10, kind)], schema=schema
    )
    (found,) = results(aggregate(count_window(50), (Sum("v"), Avg("v")), schema), rows)
    total = 10 * sum(value for value in values if value is not None)
    assert found[1:] == (total, total / 40)


# --- functions ---------------------------------------------------------------------------------


def test_nulls_are_not_aggregated():
    """A function of nothing is null, a count of nothing 0."""
    functions = (
        Count(),
        Count("f"),
        Sum("f"),
        Avg("f"),
        Min("f"),
        First("f"),
        Last("f"),
        Stddev("f"),
    )
    (found,) = results(aggregate(functions=functions), batch(k=[1, 1], f=[None, None]))
    assert found[1:] == (2, 0, *[None] * 6)


def test_first_and_last_go_by_arrival_and_pass_over_nulls():
    """Over panes of a sliding window, too."""
    operator = aggregate(count_window(4, 2), (First("v"), Last("v")))
    found = results(operator, batch(k=[1] * 6, v=[None, 7, 3, None, None, None]))
    assert found == [(1, 7, 3), (1, 3, 3)]


def test_the_standard_deviation_is_that_of_a_sample():
    """As `statistics.stdev` has it, far from zero, and over panes; null for a single value."""
    values = [1e9 + 0.1, 1e9 + 0.4, 1e9 - 7.3, 1e9 + 2.2]
    for window in (count_window(4), count_window(4, 1)):
        (found,) = results(aggregate(window, (Stddev("f"),)), batch(k=[1] * 4, f=values))
        assert found[1] == pytest.approx(statistics.stdev(values), rel=1e-6)
    assert results(aggregate(count_window(1), (Stddev("f"),)), batch(k=[1], f=[2.0])) == [(1, None)]


@pytest.mark.parametrize("values", [[1.0, float("nan")], [float("nan"), 1.0], [float("nan")] * 2])
def test_not_a_number_is_never_hidden(values):
    """A minimum or maximum over NaN is NaN, not a number that was never there."""
    (found,) = results(
        aggregate(functions=(Min("f"), Max("f"), Sum("f"))), batch(k=[1, 1], f=values)
    )
    assert all(np.isnan(found[1:]))


def test_zero_and_minus_zero_are_one_key_and_so_are_all_nans():
    """As grouping in SQL has it."""
    schema = pa.schema([("k", pa.float64())])
    other_nan = np.array([0x7FF8000000000001]).view(np.float64)[0]
    keys = pa.array(np.array([0.0, -0.0, np.nan, other_nan]))
    found = results(aggregate(schema=schema), pa.RecordBatch.from_arrays([keys], schema=schema))
    assert [count for _, count in found] == [2, 2]


def test_late_tuples_are_counted_and_put_out_if_asked_for():
    """A tuple is late when all its windows have closed."""
    for route_late in (True, False):
        operator = aggregate(time_window(5), time="t", route_late=route_late)
        outcome = operator.process(StreamEvent(0, batch(k=[1, 2, 3], t=[3, 10, 4])))
        assert operator.late_tuples == 1
        assert (outcome.late is not None) == route_late
        if outcome.late is not None:
            assert outcome.late.to_pylist()[0]["k"] == 3


# --- user-defined functions ----------------------------------------------------------------------


def product(**change):
    """A product of floats."""
    parts = {
        "initial": (1.0,),
        "update": lambda state, value: (state[0] * value,),
        "merge": lambda older, newer: (older[0] * newer[0],),
        "result": lambda state: state[0],
    }
    return UserDefined("f", "product", **(parts | change))


def test_a_user_defined_function_is_computed_over_panes():
    """From its initial state, by update and merge."""
    operator = aggregate(count_window(2, 1), (product(),))
    found = results(operator, batch(k=[1, 1, 1], f=[2.0, 3.0, 5.0]))
    assert found == [(1, 6.0), (1, 15.0)]


@pytest.mark.parametrize(
    "missing", [{"initial": ()}, {"update": None}, {"merge": None}, {"result": None}]
)
def test_an_incomplete_user_defined_function_is_refused(missing):
    """All four parts are needed."""
    with pytest.raises(UsageError, match=r"'product' needs an initial state .* update, merge"):
        aggregate(functions=(product(**missing),))


def test_a_user_defined_function_that_does_not_compile_is_refused_when_it_is_built():
    """Not when the first tuple comes; the rules are in the message."""
    with pytest.raises(UsageError, match=r"'product' does not compile: .* arithmetic"):
        aggregate(functions=(product(update=lambda state, value: (state.no, value)),))


def _positive(state: tuple[float, ...], value: float) -> tuple[float, ...]:
    if value < 0:
        raise ValueError("a factor below zero")
    return (state[0] * value,)


def _small(state: tuple[float, ...]) -> float:
    if state[0] > 100:
        raise OverflowError("too large a product")
    return state[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"update": _positive}, r"position 5, {'k': 2, .*-3.0.*}: ValueError: a factor below zero"),
        ({"result": _small}, r"position 6, {'k': 1, .*60.0.*}: OverflowError: too large a product"),
    ],
)
def test_a_user_defined_function_that_fails_is_named_with_the_tuple(change, words):
    """The tuple has its key; so has one at which a window closed whose result fails."""
    operator = aggregate(count_window(2), (product(**change),))
    results(operator, batch(k=[1, 2, 3, 4], f=[2.0, 3.0, 5.0, 4.0]))
    with pytest.raises(UsageError, match=f"'product' failed at the tuple at {words}"):
        operator.process(StreamEvent(4, batch(k=[5, 2, 1], f=[1.0, -3.0, 60.0])))


def test_a_tuple_that_a_diverting_function_fails_for_is_counted_and_left_out():
    """It is a dead letter, with the error; the window closes where it would have."""
    operator = aggregate(count_window(2), (Count(), product(update=_positive)), on_error="divert")
    outcome = operator.process(StreamEvent(0, batch(k=[1, 1, 2, 2], f=[-1.0, 3.0, -2.0, -5.0])))
    assert [tuple(row.values()) for row in outcome.results.to_pylist()] == [
        (1, 2, 3.0),
        (2, 2, 1.0),
    ]
    ((port, dead),) = outcome.others
    assert port == FURTHER_PORTS
    assert dead.schema == operator.spec.further_schema("dead", operator.input_schema)
    assert dead.column("f").to_pylist() == [-1.0, -2.0, -5.0]
    said = "the user-defined aggregate 'product' failed: ValueError: a factor below zero"
    assert set(dead.column("error").to_pylist()) == {said}
    assert not operator.process(StreamEvent(4, batch(k=[1], f=[3.0]))).others


def test_each_function_that_fails_for_a_tuple_makes_a_dead_letter_of_it():
    """In the order of tuples, then of functions; each function fails for itself."""
    again = dataclasses.replace(product(update=_positive), name="again")
    operator = aggregate(count_window(9), (product(update=_positive), again), on_error="divert")
    ((_, dead),) = operator.process(StreamEvent(0, batch(k=[1, 1], f=[-1.0, -2.0]))).others
    assert dead.column("f").to_pylist() == [-1.0, -1.0, -2.0, -2.0]
    assert ["again" in each for each in dead.column("error").to_pylist()] == [False, True] * 2


def test_a_result_that_fails_stops_the_query_though_tuples_are_diverted():
    """A window is no tuple that could be set aside."""
    operator = aggregate(count_window(1), (product(result=_small),), on_error="divert")
    with pytest.raises(UsageError, match="OverflowError: too large a product"):
        operator.process(StreamEvent(0, batch(k=[1], f=[101.0])))


def test_diverting_is_refused_where_there_is_no_function_to_fail():
    """What Rewake computes itself fails for no tuple."""
    with pytest.raises(UsageError, match="functions of your own"):
        aggregate(count_window(2), (Count(),), on_error="divert")
    with pytest.raises(UsageError, match="on_error is 'stop' or 'divert', not 'ignore'"):
        aggregate(count_window(2), (product(),), on_error="ignore")
