"""Programs of fragments: steps, state, outputs."""

import copy

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewake.model.errors import DamagedFrame, SchemaMismatch, UsageError
from rewake.model.stream_event import END_OF_TIME, NO_TIME, StreamEvent
from rewake.operators.aggregate.functions import Count, Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.expressions.expression import Expression
from rewake.operators.fragment import FilterStep, FragmentProgram, MapStep, OutputRoute
from rewake.operators.stateful import StoredParts
from rewake.operators.windows.specs import count_window, time_window

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
SPEC = AggregateSpec(["k"], count_window(2), [Count(), Sum("v")])
LATE = AggregateSpec(["k"], time_window(10), [Count()], time="t", route_late=True)


def batch(keys, values=None, times=None):
    values = values or [1] * len(keys)
    times = times or [0] * len(keys)
    return pa.RecordBatch.from_pydict({"k": keys, "v": values, "t": times}, schema=SCHEMA)


def odd(batch):
    return pc.equal(pc.bit_wise_and(batch.column("k"), 1), 1)


def doubled(batch):
    rows = pa.array([row for row in range(batch.num_rows) for _ in range(2)], pa.int64())
    return batch.take(rows)


def rows(emissions):
    return {output: batch.to_pylist() for output, batch in emissions}


# --- steps -----------------------------------------------------------------------------------


def test_a_filter_keeps_order_and_drops_what_is_null():
    """A predicate that is null does not hold."""
    step = FilterStep(lambda batch: pc.greater(batch.column("v"), 1), "large")
    found = step.apply(batch([1, 2, 3, 4], [5, None, 1, 7]))
    assert found.column("k").to_pylist() == [1, 4]
    assert step.output_schema(SCHEMA) == SCHEMA


def test_a_filter_that_keeps_everything_copies_nothing():
    """The batch itself comes back."""
    given = batch([1, 3])
    assert FilterStep(odd).apply(given) is given


def test_a_filter_needs_a_condition():
    """Numbers are no flags."""
    with pytest.raises(SchemaMismatch, match=r"step 'sum': a filter needs a condition.*int64"):
        FilterStep(lambda batch: batch.column("v"), "sum").output_schema(SCHEMA)


def test_a_map_computes_its_columns_in_order():
    """Expressions and functions, mixed; a scalar is repeated."""
    step = MapStep(
        (
            ("double", Expression("v * 2")),
            ("key", lambda batch: batch.column("k")),
            ("one", lambda _: pa.scalar(1)),
        )
    )
    found = step.apply(batch([1, 2], [10, 20]))
    assert found.to_pydict() == {"double": [20, 40], "key": [1, 2], "one": [1, 1]}
    assert step.output_schema(SCHEMA).names == ["double", "key", "one"]


def test_a_function_that_gives_a_batch_stands_for_all_of_its_columns():
    """One function may make the whole tuple."""
    step = MapStep((("*", lambda batch: batch.select(["t", "k"])),))
    assert step.output_schema(SCHEMA).names == ["t", "k"]


def test_a_map_with_columns_of_different_lengths_or_one_name_twice_is_refused():
    """The error names the step and the columns."""
    uneven = MapStep((("a", lambda b: b.column("k")), ("b", lambda _: pa.array([1]))), "uneven")
    with pytest.raises(UsageError, match=r"step 'uneven': columns of .* lengths.*a: 2, b: 1"):
        uneven.apply(batch([1, 2]))
    with pytest.raises(SchemaMismatch, match="two columns are named 'a'"):
        MapStep((("a", Expression("k")), ("a", Expression("v")))).output_schema(SCHEMA)


def test_a_function_that_fails_is_reported_with_its_step():
    """What it raised is in the message."""
    step = FilterStep(lambda batch: batch.column("missing"), "broken")
    with pytest.raises(UsageError, match="step 'broken' failed on a batch of 1 tuples: KeyError"):
        step.apply(batch([1]))
    with pytest.raises(UsageError, match="neither an expression nor a function"):
        FilterStep(7).apply(batch([1]))


def test_what_is_bound_is_no_part_of_a_steps_identity():
    """Equal steps stay equal after one has worked, and travel without what was bound."""
    one, other = (MapStep((("x", Expression("k + 1")),), "next") for _ in range(2))
    one.apply(batch([1]))
    assert one == other
    assert hash(one) == hash(other)
    travelled = copy.deepcopy(one)
    assert travelled == one
    assert travelled.apply(batch([1])).column("x").to_pylist() == [2]


def test_a_step_is_bound_anew_for_another_schema():
    """One step value may work in two places of a query."""
    step = MapStep((("x", Expression("k + 1")),))
    other = pa.record_batch([pa.array([1.5])], ["k"])
    assert step.apply(batch([1])).column("x").to_pylist() == [2]
    assert step.apply(other).column("x").to_pylist() == [2.5]
    assert step.apply(batch([1])).column("x").to_pylist() == [2]


# --- stateless programs ----------------------------------------------------------------------


def test_a_stateless_program_applies_its_steps_and_divides_the_rest():
    """Each tuple goes to one of the parts, and to every output that takes all."""
    keys = list(range(20))
    program = FragmentProgram(
        before=(FilterStep(odd),),
        after=(MapStep((("k", Expression("k")),)),),
        routes=(OutputRoute(), *(OutputRoute(0, ("k",), part, 2) for part in range(2))),
    )
    assert program.stateless
    found = rows(program.apply(batch(keys)))
    assert [row["k"] for row in found[0]] == keys[1::2]
    assert sorted(row["k"] for part in (1, 2) for row in found[part]) == keys[1::2]
    assert list(found) == [0, 1, 2]


def test_outputs_without_tuples_are_left_out():
    """Nothing is forwarded where nothing is left."""
    program = FragmentProgram(before=(FilterStep(odd),))
    assert list(program.apply(batch([2, 4]))) == []
    assert list(program.apply(batch([]))) == []


def test_a_step_that_multiplies_tuples_is_refused_where_positions_are_the_inputs():
    """There would be more tuples than positions; the error says what to do."""
    program = FragmentProgram(before=(MapStep((("*", doubled),), "doubled"),))
    with pytest.raises(
        UsageError, match=r"'doubled' made 4 tuples .* 2 positions.*logs its output"
    ):
        program.apply(batch([1, 2]))
    assert rows(program.apply(batch([1, 2]), covered=4))[0][1]["k"] == 1
    aggregate = FragmentProgram(before=program.before, stateful=SPEC).operator(SCHEMA)
    with pytest.raises(UsageError, match="'doubled' made 2 tuples"):
        aggregate.process(StreamEvent(0, batch([1])))
    # Where the stream event covers enough positions there is room.
    sparse = StreamEvent(3, batch([1]), None, 0)
    assert aggregate.process(sparse).results.to_pylist() == [{"k": 1, "count": 2, "sum_v": 2}]


def test_a_logged_stateless_fragment_may_multiply_tuples():
    """Its output has positions of its own."""
    program = FragmentProgram(before=(MapStep((("*", doubled),)),))
    outcome = program.operator(SCHEMA).process(StreamEvent(0, batch([7])))
    assert [row["k"] for row in rows(program.emit(outcome))[0]] == [7, 7]


def test_dictionaries_are_left_out_of_what_is_put_out():
    """A batch stands alone in a frame or packet."""
    schema = pa.schema([("k", pa.dictionary(pa.int8(), pa.string()))])
    given = pa.RecordBatch.from_arrays([pa.array(["a", "b", None], schema.field(0).type)], ["k"])
    program = FragmentProgram()
    assert program.output_schema(schema) == pa.schema([("k", pa.string())])
    (_, found), *_ = program.apply(given)
    assert found.schema == program.output_schema(schema)
    assert found.column("k").to_pylist() == ["a", "b", None]


def test_an_operator_without_state_has_no_parts_and_a_clock():
    """N is 0 for ever; the clock is the watermark."""
    operator = FragmentProgram(before=(FilterStep(odd),)).operator(SCHEMA)
    assert operator.clock == NO_TIME
    outcome = operator.process(StreamEvent(0, batch([1, 2]), 30))
    assert outcome.results.column("k").to_pylist() == [1]
    assert (operator.open_parts, operator.opened_at.size, operator.clock) == (0, 0, 30)
    assert operator.process(StreamEvent(2, batch([2]), 20)).results is None
    assert operator.clock == 30
    operator.punctuate(3, END_OF_TIME)
    assert operator.clock == 2**62


def test_an_operator_without_state_refuses_other_columns_and_the_log_of_another():
    """Nothing is made of what was not meant for it."""
    operator = FragmentProgram().operator(SCHEMA)
    with pytest.raises(SchemaMismatch, match="at position 3 has columns x"):
        operator.process(StreamEvent(3, pa.record_batch([pa.array([1])], ["x"])))
    ids = pa.array([5]).to_numpy()
    parts, none = StoredParts(ids, ids, [], [], []), StoredParts(ids[:0], ids[:0], [], [], [])
    with pytest.raises(DamagedFrame, match="windows, but its operator has none"):
        operator.restore(none, parts, clock=0, late_tuples=0)
    with pytest.raises(DamagedFrame, match="out of range"):
        operator.restore(none, none, clock=2**62 + 1, late_tuples=0)


# --- programs with state ---------------------------------------------------------------------


def test_an_aggregate_between_steps():
    """Filtered input, windows, then a map of the results."""
    program = FragmentProgram(
        before=(FilterStep(odd),),
        stateful=SPEC,
        after=(MapStep((("k", Expression("k")), ("mean", Expression("sum_v / count")))),),
    )
    assert program.output_schema(SCHEMA).names == ["k", "mean"]
    operator = program.operator(SCHEMA)
    outcome = operator.process(StreamEvent(0, batch([1, 2, 1, 2], [10, 0, 20, 0])))
    assert rows(program.emit(outcome)) == {0: [{"k": 1, "mean": 15.0}]}


def test_tuples_behind_a_filter_are_at_the_last_positions_of_their_stream_event():
    """So that a window's id is below the stream event's end."""
    program = FragmentProgram(before=(FilterStep(odd),), stateful=SPEC)
    operator = program.operator(SCHEMA)
    assert operator.process(StreamEvent(10, batch([1, 2, 4, 3]))).opened_ids.tolist() == [12, 13]


def test_only_steps_that_keep_every_tuple_let_a_stream_event_be_cut():
    """A map of expressions does; filters and bare functions may not."""
    copied = MapStep((("k", Expression("k")), ("v", Expression("v"))))
    function = MapStep((("*", lambda batch: batch),))
    for step, divisible in ((copied, True), (FilterStep(odd), False), (function, False)):
        for spec in (SPEC, None):
            program = FragmentProgram(before=(step,), stateful=spec)
            assert program.operator(SCHEMA).divisible is divisible
    assert FragmentProgram(stateful=SPEC).operator(SCHEMA).divisible


def test_late_tuples_have_a_port_of_their_own():
    """As the aggregate was given them, whatever happens to results."""
    program = FragmentProgram(
        before=(MapStep((("k", Expression("k")), ("t", Expression("t")))),),
        stateful=LATE,
        after=(FilterStep(odd),),
        routes=(OutputRoute(1), OutputRoute()),
    )
    assert program.given_schemas(SCHEMA)[0].names == ["k", "t"]
    operator = program.operator(SCHEMA)
    outcome = operator.process(StreamEvent(0, batch([1, 2, 2, 1], times=[3, 4, 15, 2])))
    found = rows(program.emit(outcome))
    assert found[0] == [{"k": 1, "t": 2}]
    assert [row["k"] for row in found[1]] == [1]


def test_programs_that_cannot_be_are_refused_when_they_are_made():
    """Before any tuple comes."""
    with pytest.raises(UsageError, match="route_late=True"):
        FragmentProgram(stateful=SPEC, routes=(OutputRoute(1),))
    with pytest.raises(UsageError, match="need key columns"):
        OutputRoute(parts=2)
    with pytest.raises(UsageError, match="part 2 is not one of 2"):
        OutputRoute(keys=("k",), part=2, parts=2)
    with pytest.raises(UsageError, match="not -1"):
        OutputRoute(port=-1)


def test_a_program_is_a_value():
    """Equal programs are equal, also after one has worked, and travel to other processes."""
    one, other = (
        FragmentProgram((FilterStep(odd),), SPEC, routes=(OutputRoute(0, ("k",), 0, 1),))
        for _ in range(2)
    )
    one.emit(one.operator(SCHEMA).process(StreamEvent(0, batch([1, 1]))))
    assert one == other
