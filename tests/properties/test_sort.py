"""A sort gives what its definition says, and a crash never shows in its output."""

import pyarrow as pa
import pytest
from aggregate_cases import examples
from aggregate_runs import TRIED, bytes_of, readable
from hypothesis import given, note
from hypothesis import strategies as st
from sort_cases import SortCase, oracle, sort_cases
from sort_runs import CUTS, RANDOM, Life, lives_of, run, survives_damage

from rewake.recovery.approach import Keeper, approaches

PRECISE = sorted(name for name, each in approaches().items() if each.keeper is Keeper.LOG)


@examples(300)
@given(sort_cases(), CUTS)
def test_a_sort_gives_what_its_definition_says(case: SortCase, cuts: tuple[int, ...]) -> None:
    """Tuple by tuple: insert, let the smallest leave; however stream events are cut."""
    TRIED["cases"] += 1
    found = run(case.spec, case.line, "cec", [], Life(cuts), case.patched())
    wanted = oracle(case)
    for port, table in found.tables.items():
        expected = pa.Table.from_batches([case.line.batch(0, wanted[port])]).cast(table.schema)
        assert bytes_of(table) == bytes_of(expected), (
            f"port {port}:\n  found    {readable(table)}\n  expected {readable(expected)}"
        )
    assert found.late_tuples == len(wanted[1])


@pytest.mark.parametrize("name", [*PRECISE, RANDOM])
@examples(100)
@given(data=st.data())
def test_no_crash_of_a_sort_shows_in_its_output(name, data):
    """Whenever processes die: the same tuples, byte for byte, in order, and the same count."""
    case = data.draw(sort_cases())
    expected = run(case.spec, case.line, name, [], Life((40,)), case.patched())
    for _ in range(3):
        crashes, last = data.draw(lives_of(name))
        note(f"this schedule: {crashes}, then {last}")
        TRIED["cases"] += 1
        run(case.spec, case.line, name, crashes, last, case.patched()).check_same(expected)


@examples(200)
@given(case=sort_cases(), data=st.data(), most=st.integers(1, 40))
def test_a_sort_takes_damage_for_damage(case, data, most):
    """Whatever bytes a snapshot has: refused as damaged, or an operator that goes on."""
    TRIED["cases"] += 1
    with case.patched():
        survives_damage(case.spec, case.line, data, most)
