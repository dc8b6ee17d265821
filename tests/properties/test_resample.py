"""A resample gives what its definition says, and a crash never shows in its output."""

import pyarrow as pa
import pytest
from aggregate_cases import examples
from aggregate_runs import TRIED, bytes_of, readable
from hypothesis import given, note
from hypothesis import strategies as st
from resample_cases import ResampleCase, oracle, resample_cases
from sort_runs import CUTS, RANDOM, Life, lives_of, run, survives_damage

from rewake.operators.stateful import FURTHER_PORTS, LATE_PORT, RESULTS_PORT
from rewake.recovery.approach import Keeper, approaches

PRECISE = sorted(name for name, each in approaches().items() if each.keeper is Keeper.LOG)


@examples(300)
@given(resample_cases(), CUTS)
def test_a_resample_gives_what_its_definition_says(
    case: ResampleCase, cuts: tuple[int, ...]
) -> None:
    """Request by request, from the values around it; however stream events are cut."""
    TRIED["cases"] += 1
    found = run(case.spec, case.line, "cec", [], Life(cuts), case.patched())
    results, late_values, late_requests, dead = oracle(case)
    assert found.late_tuples == len(late_values) + len(late_requests)
    further = [late_requests] if case.spec.route_late else []
    expected = {RESULTS_PORT: results, LATE_PORT: late_values}
    expected |= dict(enumerate([*further, dead], FURTHER_PORTS))
    for port, output in found.tables.items():
        table = output
        if expected[port] is dead and case.spec.on_error == "divert":
            assert all("ValueError: seven" in text for text in output["error"].to_pylist())
            table = output.drop_columns("error")
        columns = list(zip(*expected[port], strict=True)) or [()] * len(table.schema)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, table.schema)]  # noqa: B905
        wanted = pa.Table.from_arrays(arrays, schema=table.schema)
        assert bytes_of(table) == bytes_of(wanted), (
            f"\n  found    {readable(table)}\n  expected {readable(wanted)}"
        )


@pytest.mark.parametrize("name", [*PRECISE, RANDOM])
@examples(100)
@given(data=st.data())
def test_no_crash_of_a_resample_shows_in_its_output(name, data):
    """Whenever processes die: the same tuples on each output, byte for byte, in order."""
    case = data.draw(resample_cases())
    expected = run(case.spec, case.line, name, [], Life((40,)), case.patched())
    for _ in range(3):
        crashes, last = data.draw(lives_of(name))
        note(f"this schedule: {crashes}, then {last}")
        TRIED["cases"] += 1
        run(case.spec, case.line, name, crashes, last, case.patched()).check_same(expected)


@examples(200)
@given(case=resample_cases(), data=st.data(), most=st.integers(1, 40))
def test_a_resample_takes_damage_for_damage(case, data, most):
    """Whatever bytes a snapshot has: refused as damaged, or an operator that goes on."""
    TRIED["cases"] += 1
    with case.patched():
        survives_damage(case.spec, case.line, data, most)
