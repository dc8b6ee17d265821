"""The join operator: what it puts out, what it refuses, and what a restart does to it."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewake.model.errors import ArithmeticOverflow, InvalidWindow, SchemaMismatch, UsageError
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.operators.classes import OperatorClass
from rewake.operators.expressions.expression import expression
from rewake.operators.join.operator import Join, JoinSpec

LEFT = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("w", pa.string()), ("t", pa.int64())])


def spec(on=(("k", "k"),), within=10, time=("t", "t"), where=None, **more):
    """A join on k within 10 unless a test says otherwise."""
    where = None if where is None else expression(where)
    return JoinSpec(on=on, within=within, time=time, where=where, **more)


def joined(left=LEFT, right=RIGHT, **more):
    """An operator for two inputs."""
    return spec(**more).operator(left, right)


class Driven:
    """An operator that is given one row at a time, and what it put out."""

    def __init__(self, operator: Join, schemas=(LEFT, RIGHT), position=0):
        self.operator, self.schemas, self.position = operator, schemas, position
        self.rows, self.late = [], []

    def give(self, side, *row):
        """One tuple of an input."""
        return self.give_all(side, [row])

    def give_all(self, side, rows, watermark=None):
        """One stream event of an input."""
        arrays = [
            pa.array(column, each.type)
            for column, each in zip(zip(*rows, strict=True), self.schemas[side], strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schemas[side])
        event = StreamEvent(self.position, batch, watermark, port=side)
        self.position = event.end
        return self._take(self.operator.process(event))

    def mark(self, time=END_OF_TIME):
        """A watermark alone."""
        return self._take(self.operator.punctuate(self.position, time))

    def _take(self, outcome):
        if outcome.results is not None:
            self.rows += [tuple(row.values()) for row in outcome.results.to_pylist()]
        for port, batch in outcome.others:
            self.late += [(port, *row.values()) for row in batch.to_pylist()]
        return self


def outcome_of(**more):
    """The rows of a small stream: 1 meets two, 2 nobody, null nobody."""
    driven = Driven(joined(**more))
    driven.give(0, 1, 10, 0).give(0, 2, 20, 1).give(0, None, 30, 2)
    driven.give(1, 1, "a", 5).give(1, 3, "b", 6).give(1, None, "c", 7).give(1, 1, "d", 9)
    return driven.mark().rows


# --- results ---------------------------------------------------------------------------------

PAIRS = [(1, 10, 5, "a", 5), (1, 10, 9, "d", 9)]
LEFTS = [(2, 20, 1, None, None), (None, 30, 2, None, None)]
RIGHTS = [(3, None, 6, "b", 6), (None, None, 7, "c", 7)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", PAIRS),
        ("left", PAIRS + LEFTS),
        ("right", PAIRS + RIGHTS),
        ("full", PAIRS + LEFTS + RIGHTS),
        ("semi", [(1, 10, 0)]),
        ("anti", [(2, 20, 1), (None, 30, 2)]),
    ],
)
def test_each_kind_of_join_emits_what_sql_says(how, expected):
    """Pairs with the later time; what met nobody, once that is sure; nulls meet nobody."""
    assert outcome_of(how=how) == expected


def test_tuples_exactly_the_window_apart_do_not_join():
    """|a - b| < within, strictly, in both directions."""
    driven = Driven(joined(slack=20)).give(0, 1, 0, 100)
    driven.give(1, 1, "x", 110).give(1, 1, "y", 109).give(1, 1, "z", 91).give(1, 1, "u", 90)
    assert [row[3] for row in driven.rows] == ["y", "z"]


def test_results_are_in_the_order_of_arrival_then_of_partners_positions():
    """Also where event time is in another order."""
    driven = Driven(joined(slack=100)).give_all(0, [(1, 0, 5), (1, 1, 3), (1, 2, 4)])
    driven.give_all(1, [(1, "a", 6), (1, "b", 2)])
    assert [(row[3], row[1]) for row in driven.rows] == [(w, v) for w in "ab" for v in range(3)]


def test_columns_of_one_name_get_suffixes_and_the_left_suffix_keeps_the_own_time():
    """Without a left suffix the column of the time's name is the result's timestamp alone."""
    right = RIGHT.append(pa.field("v", pa.int8()))
    assert joined(right=right).output_schema.names == ["k", "v", "t", "w", "t_right", "v_right"]
    named = joined(right=right, suffixes=("_l", "_r")).output_schema.names
    assert named == ["k", "v_l", "t", "t_l", "w", "t_r", "v_r"]
    driven = Driven(joined(suffixes=("_l", "_r"))).give(0, 1, 7, 3).give(1, 1, "a", 5)
    assert driven.rows == [(1, 7, 5, 3, "a", 5)]


def test_equality_columns_of_different_names_are_both_kept():
    """Each has the value of its own input, or null where that has no tuple."""
    right = pa.schema([("id", pa.int64()), ("w", pa.string()), ("u", pa.int64())])
    operator = joined(right=right, on=(("k", "id"),), time=("t", "u"), how="full")
    driven = Driven(operator, (LEFT, right)).give(0, 1, 7, 3).give(1, 1, "a", 5).give(1, 2, "b", 6)
    assert driven.mark().rows == [(1, 7, 5, 1, "a", 5), (None, None, 6, 2, "b", 6)]


def test_a_condition_that_is_null_does_not_hold():
    """Three-valued logic, as in a filter behind the join."""
    driven = Driven(joined(where="v > 1", how="left"))
    driven.give(0, 1, None, 0).give(0, 1, 2, 0).give(1, 1, "a", 1)
    assert driven.mark().rows == [(1, 2, 1, "a", 1), (1, None, 0, None, None)]


def test_a_pair_that_the_condition_fails_for_is_named():
    """As the result would have it; nothing of the turn was applied."""
    driven = Driven(joined(where=f"v * {2**62} > 0", how="left"))
    driven.give_all(0, [(1, 1, 0), (1, 7, 0)])
    with pytest.raises(ArithmeticOverflow) as caught:
        driven.give_all(1, [(2, "b", 1), (1, "a", 1)])
    assert "for the pair {'k': 1, 'v': 7, 't': 1, 'w': 'a', 't_right': 1}" in str(caught.value)
    assert "on_error='divert'" in str(caught.value)
    assert driven.mark().rows == [(1, 1, 0, None, None), (1, 7, 0, None, None)]


def test_a_pair_that_the_condition_fails_for_may_be_diverted():
    """Then it is no pair: its tuples may still meet others, or nobody."""
    operator = joined(where=f"v * {2**62} > 0", how="left", on_error="divert", late_outputs=True)
    driven = Driven(operator)
    driven.give_all(0, [(1, 1, 0), (1, 7, 0)]).give_all(1, [(2, "b", 1), (1, "a", 1)]).mark()
    assert driven.rows == [(1, 1, 1, "a", 1), (1, 7, 0, None, None)]
    (dead,) = driven.late
    assert dead[:-1] == (4, 1, 7, 1, "a", 1)
    assert "overflow" in dead[-1]


def test_dead_letters_have_the_columns_of_a_pair_whatever_is_emitted():
    """Also of a semi join, whose results are left tuples."""
    made = spec(where="v > 1", how="semi", on_error="divert")
    assert made.further_outputs == ("dead",)
    assert made.further_schema("dead", LEFT, RIGHT).names == [
        "k",
        "v",
        "t",
        "w",
        "t_right",
        "error",
    ]
    with pytest.raises(UsageError, match="no output 'dead'"):
        spec(where="v > 1").further_schema("dead", LEFT, RIGHT)
    taken = RIGHT.set(1, pa.field("error", pa.string()))
    with pytest.raises(SchemaMismatch, match="a column 'error', and there is one already"):
        made.further_schema("dead", LEFT, taken)


def test_an_equality_in_the_condition_is_as_good_as_one_of_the_keys():
    """Nulls in it meet nobody, but are tuples like others otherwise: here they move the clock."""
    right = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("t", pa.int64())])
    driven = Driven(joined(right=right, where="x = v", late_outputs=True), (LEFT, right))
    driven.give(0, 1, 7, 0).give(0, 1, None, 50).give(1, 1, 7, 0).give(1, 1, None, 50)
    driven.give(0, 1, 7, 1)
    assert driven.rows == [(1, 7, 0, 7, 0)]
    assert driven.late == [(2, 1, 7, 1)]


def test_a_skewed_key_joins_with_all_of_its_partners():
    """Many to many: every one of the pairs, however many a condition is computed for at a time."""
    driven = Driven(joined(within=1000, where="v % 100 = 0"))
    driven.give_all(0, [(1, v, v % 7) for v in range(2000)])
    driven.give_all(1, [(1, "x", 3)] * 300)
    assert len(driven.rows) == 300 * 20


# --- event time ------------------------------------------------------------------------------


def test_a_late_tuple_is_counted_and_goes_to_the_output_of_its_input():
    """Late is what comes when the clock has reached the end of its pane."""
    driven = Driven(joined(late_outputs=True)).give(0, 1, 0, 5).mark(20)
    driven.give(0, 1, 1, 9).give(1, 1, "a", 19).give(1, 1, "b", 20)
    assert driven.late == [(2, 1, 1, 9), (3, 1, "a", 19)]
    assert driven.operator.late_tuples == 2


def test_the_clock_waits_for_the_input_that_is_behind():
    """However far one input is ahead, the other's tuples are not late for it."""
    driven = Driven(joined()).give(1, 1, "a", 5).give(1, 1, "b", 500).give(0, 1, 0, 4)
    assert driven.rows == [(1, 0, 5, "a", 5)]
    assert driven.operator.late_tuples == 0
    assert driven.operator.clock == 4


def test_state_is_bounded_by_the_clock():
    """When the clock has passed everything, nothing is held and no part is open."""
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        driven = Driven(joined(how=how))
        for time in range(0, 10_000, 7):
            driven.give(time % 2, time % 5, None, time)
        assert driven.operator.open_parts <= 10
        assert driven.mark().operator.open_parts == 0


def test_outer_tuples_are_emitted_as_soon_as_they_can_meet_nobody():
    """One width after the end of their pane, not before."""
    driven = Driven(joined(how="left")).give(0, 1, 0, 5).mark(19)
    assert driven.rows == []
    assert driven.mark(20).rows == [(1, 0, 5, None, None)]


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"on": (("kk", "k"),)}, SchemaMismatch, "left input: no column 'kk'; did you mean 'k'"),
        ({"on": (("k", "q"),)}, SchemaMismatch, "right input: no column 'q'"),
        ({"time": ("t", "u")}, SchemaMismatch, "right input: no column 'u'"),
        ({"on": (("k", "w"),)}, SchemaMismatch, "'k' is of type int64, but right column 'w'"),
        ({"time": ("t", "w")}, SchemaMismatch, "event time: column 'w' is of type string"),
        ({"on": ()}, UsageError, "at least one equality column"),
        ({"within": None}, InvalidWindow, "a join needs a window"),
        ({"within": 0}, InvalidWindow, "longer than nothing"),
        ({"within": 2**60}, InvalidWindow, "beyond what 64-bit times can hold"),
        ({"within": "ten"}, InvalidWindow, "not a duration"),
        ({"within": 1.5}, InvalidWindow, 'a duration such as "10s", not 1.5'),
        ({"slack": -1}, InvalidWindow, "slack must not be negative"),
        ({"how": "outer"}, UsageError, "how is one of inner, left"),
        ({"on_error": "skip"}, UsageError, "on_error is 'stop' or 'divert', not 'skip'"),
        ({"where": "z > 1"}, SchemaMismatch, "no column 'z'"),
        ({"where": "v + 1"}, SchemaMismatch, "needs a truth value"),
        ({"suffixes": ("", "")}, SchemaMismatch, "two result columns are named 't'"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(more, error, words):
    """When it is made, not when the first tuple comes; with the column named."""
    with pytest.raises(error) as caught:
        joined(**more)
    assert words in str(caught.value)


def test_time_columns_of_different_units_are_refused():
    """Their numbers cannot be compared."""
    left = pa.schema([("k", pa.int64()), ("t", pa.timestamp("ms"))])
    right = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    with pytest.raises(SchemaMismatch, match="cast one of them upstream"):
        joined(left, right, within="10s")


def test_a_stream_event_of_other_columns_is_refused():
    """The message says which input."""
    batch = pa.RecordBatch.from_arrays([pa.array([1])], names=["k"])
    with pytest.raises(SchemaMismatch, match="the right input of the join was built for k: int64"):
        joined().process(StreamEvent(0, batch, port=1))


def test_a_mistake_in_a_stream_event_leaves_the_operator_as_it_was():
    """A turn is atomic: also when the user's function fails for one of the pairs."""

    def fussy(batch):
        if pc.any(pc.equal(batch["v"], 13)).as_py():
            raise ValueError("unlucky")
        return pc.greater(batch["v"], 0)

    driven = Driven(joined(where=fussy, how="full", slack=9)).give(1, 1, "a", 0).give(1, 1, "b", 90)
    before = [driven.operator.open_parts, driven.operator.clock]
    with pytest.raises(UsageError, match=r"fussy.*unlucky"):
        driven.give_all(0, [(1, 1, 0), (2, 1, 90), (1, 13, 91)])
    assert [driven.operator.open_parts, driven.operator.clock] == before
    assert driven.give(0, 1, 5, 1).rows == [(1, 5, 1, "a", 0)]


# --- what it says of itself ------------------------------------------------------------------


def test_a_join_describes_itself_as_json_and_in_words():
    """What is at its default is left out; a function is code."""
    made = spec(on=(("k", "id"),), within="10s", where="v > 1", how="left", late_outputs=True)
    assert made.describe() == {
        "on": [["k", "id"]],
        "within": "10s",
        "time": ["t", "t"],
        "where": "v > 1",
        "how": "left",
        "late_outputs": True,
    }
    assert list(made.words()) == ["left join on k = id", "less than 10s of t apart", "where v > 1"]
    assert made.keys(0) == ("k",)
    assert made.keys(1) == ("id",)
    assert made.further_schema("late-right", LEFT, RIGHT) == RIGHT
    assert made.code() == []
    assert spec(where=len).code() == [len]


def _stream(operator, start):
    """The rows that an operator gives for a long stream from some tuple on, by when."""
    driven = Driven(operator, position=start)
    found = []
    for place in range(start, 90):
        side = place % 2
        value = place if side == 0 else str(place)
        driven.rows = []
        driven.give(side, place % 3, value, place * 2 - 5 * (place % 4))
        found += [(place, row) for row in driven.rows]
    return found


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_join_is_convergent_capable_and_not_repeatable(how):
    """Restarted empty anywhere, its output becomes the same after a while, but not at once."""
    assert spec().operator_class is OperatorClass.CONVERGENT_CAPABLE
    whole = _stream(joined(how=how), 0)
    assert _stream(joined(how=how), 0) == whole, "the same input gives the same output"
    differing = 0
    for start in range(1, 50, 8):
        again, expected = _stream(joined(how=how), start), [e for e in whole if e[0] >= start]
        settled = start + 30
        assert [e for e in again if e[0] >= settled] == [e for e in expected if e[0] >= settled]
        differing += again != expected
    assert differing > 0, "a repeatable operator would never differ"


def test_a_condition_that_fails_names_its_function_and_the_pair():
    """With the key and all columns, of the first pair it fails for; nothing of the turn is done."""

    def picky(batch):
        if 13 in batch.column("v").to_pylist():
            raise ValueError("thirteen")
        return pa.array([True] * batch.num_rows, pa.bool_())

    driven = Driven(joined(where=picky))
    driven.give_all(0, [(1, 5, 1), (1, 13, 2), (2, 13, 3)])
    before = driven.operator.open_parts, driven.operator.clock
    with pytest.raises(UsageError, match=r"picky\(batch\).*the pair {'k': 1, 'v': 13.*thirteen"):
        driven.give(1, 1, "a", 2)
    assert (driven.operator.open_parts, driven.operator.clock) == before
