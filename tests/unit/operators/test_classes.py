"""The classes that operators declare (Hwang 3.2.2), and attempts to break them.

Here those without state and aggregates; those of other operators are in the tests of each.
"""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg, Count
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.classes import OperatorClass
from rewake.operators.expressions.expression import ArrowFunction, Expression
from rewake.operators.fragment import FilterStep, FragmentProgram, MapStep, OutputRoute
from rewake.operators.splitting import SplitStep
from rewake.operators.windows.specs import count_window, running_window, time_window

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
FILTER = FilterStep(Expression("v > 3"))
MAP = MapStep((("k", Expression("k")), ("w", Expression("v * 2 + k"))))
SPLIT = SplitStep((("large", FILTER),), "small")
ROWS = st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9))), max_size=30)


def batch(rows) -> pa.RecordBatch:
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.int64()), pa.array(values, pa.int64())], schema=SCHEMA
    )


def emitted(program: FragmentProgram, rows) -> list[tuple[int, list[dict]]]:
    outputs = {number: [] for number in range(len(program.routes))}
    for output, part in program.apply(batch(rows)):
        outputs[output] += part.to_pylist()
    return list(outputs.items())


PROGRAMS = [
    FragmentProgram((FILTER,)),
    FragmentProgram((MAP,)),
    FragmentProgram((FILTER, MAP)),
    FragmentProgram(split=SPLIT, routes=(OutputRoute(2), OutputRoute(3))),
]


@given(
    rows=ROWS, start=st.integers(0, 30), cut=st.integers(0, 30), chosen=st.sampled_from(PROGRAMS)
)
def test_filters_maps_and_splits_restarted_anywhere_repeat_themselves(rows, start, cut, chosen):
    """Repeatable: all output after a restart is the end of the output without one."""
    assert chosen.operator_class() is OperatorClass.REPEATABLE
    whole = emitted(chosen, rows)
    again = emitted(chosen, rows[start:])
    for (_, first), (_, second) in zip(whole, again, strict=True):
        assert first[len(first) - len(second) :] == second
    parts = [emitted(chosen, rows[:cut]), emitted(chosen, rows[cut:])]
    joined = [one[1] + two[1] for one, two in zip(*parts, strict=True)]
    assert joined == [each for _, each in whole]


def test_a_function_of_the_users_may_look_at_a_whole_batch():
    """So no more is promised than that the same input gives the same output."""

    def numbered(of: pa.RecordBatch) -> pa.Array:
        return pa.array(range(of.num_rows), pa.int64())

    program = FragmentProgram((MapStep((("n", ArrowFunction(numbered)),)),))
    assert program.operator_class() is OperatorClass.DETERMINISTIC
    rows = [(1, 1), (2, 2), (3, 3)]
    assert emitted(program, rows) == emitted(program, rows)
    assert emitted(program, rows)[0][1][1:] != emitted(program, rows[1:])[0][1]


def test_a_union_is_arbitrary_because_who_comes_first_is_chance():
    """The same inputs, met in another order, are another output."""
    union = FragmentProgram()
    assert union.operator_class(inputs=2) is OperatorClass.ARBITRARY
    left, right = [(1, 1)], [(2, 2)]
    one = emitted(union, left)[0][1] + emitted(union, right)[0][1]
    other = emitted(union, right)[0][1] + emitted(union, left)[0][1]
    assert one != other


def test_a_chain_is_of_the_least_of_its_classes():
    """One step that may differ makes all behind it differ."""
    assert FragmentProgram((FILTER,)).operator_class(2) < OperatorClass.DETERMINISTIC
    assert [each.words for each in sorted(OperatorClass)] == [
        "arbitrary",
        "deterministic",
        "convergent-capable",
        "repeatable",
    ]


# --- aggregates ----------------------------------------------------------------------------------

TIMED = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])


def turns_of(spec: AggregateSpec, start: int) -> list[list[tuple]]:
    """What each of a hundred turns emits, of an operator that starts with one of them."""
    operator, found = spec.operator(TIMED), []
    for turn in range(start, 100):
        rows = [{"k": n % 3, "v": turn * n, "t": 4 * turn + n} for n in range(4)]
        event = StreamEvent(4 * turn, pa.RecordBatch.from_pylist(rows, TIMED))
        results = operator.process(event).results
        found.append(
            [] if results is None else [tuple(each.values()) for each in results.to_pylist()]
        )
    return found


def test_windows_of_time_are_convergent_capable_and_no_more():
    """They stand where time says: once those are over that were cut off, all is the same."""
    for window in (time_window(30), time_window(30, 10)):
        spec = AggregateSpec(["k"], window, [Avg("v"), Count()], time="t")
        assert spec.operator_class is OperatorClass.CONVERGENT_CAPABLE
        whole = turns_of(spec, 0)
        assert whole == turns_of(spec, 0)
        differed = 0
        for start in range(1, 60, 4):
            again = turns_of(spec, start)
            settled = 30 // 4 + 2
            assert again[settled:] == whole[start + settled :]
            differed += again != whole[start:]
        assert differed > 0, "they would be repeatable"


def test_windows_by_count_are_deterministic_and_no_more():
    """They stand where counting began: a later start never makes up for what it missed."""
    for window in (count_window(5), count_window(5, 2), running_window()):
        spec = AggregateSpec(["k"], window, [Avg("v"), Count()])
        assert spec.operator_class is OperatorClass.DETERMINISTIC
        whole = turns_of(spec, 0)
        assert whole == turns_of(spec, 0)
        assert turns_of(spec, 1)[-20:] != whole[-20:]
