"""The classes that operators without state declare (Hwang 3.2.2), and attempts to break them."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rewake.operators.classes import OperatorClass
from rewake.operators.expressions import ArrowFunction, Expression
from rewake.operators.fragment import FilterStep, FragmentProgram, MapStep, OutputRoute
from rewake.operators.splitting import SplitStep

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
