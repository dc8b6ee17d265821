"""Kernels are compiled before they are needed."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rewake.net.nodes import warm
from rewake.operators.aggregate.functions import Avg, First, Last, Max, Min, Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.expressions.expression import ArrowFunction
from rewake.operators.fragment import FragmentProgram, MapStep
from rewake.operators.join.operator import JoinSpec
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.operators.resampling.operator import ResampleSpec
from rewake.operators.sorting.operator import SortSpec
from rewake.operators.windows.specs import count_window, session_window

SCHEMA = pa.schema([("key", pa.int32()), ("value", pa.int32()), ("name", pa.string())])


TIMED = pa.schema([*SCHEMA, ("at", pa.timestamp("us"))])
TYPES = [("price", pa.decimal128(9, 2)), ("raw", pa.binary()), ("day", pa.date32())]
EXACT = [Sum("price"), Min("price"), Max("raw"), Last("name"), First("day")]
SPECS = {
    "aggregate": (AggregateSpec(["key", "name"], count_window(10), [Avg("value")]), 1),
    "exact": (AggregateSpec(["price"], count_window(10), EXACT), 1),
    "sessions": (AggregateSpec(["key"], session_window("1s"), [Avg("value")], "at"), 1),
    "join": (JoinSpec((("key", "key"),), "10s", ("at", "at"), how="full"), 2),
    "sort": (SortSpec(("at",), 3, per=("key",), flush=True), 1),
    "resample": (ResampleSpec((("v", "value"),), "at", "1s", on=("key",)), 2),
    "process": (
        ProcessSpec(print, ["key"], state_fields({"n": (pa.int64(), 0)}), SCHEMA, time="at"),
        1,
    ),
}


@pytest.mark.parametrize("kind", SPECS)
def test_a_warm_up_runs_turns_and_recoveries(kind, capsys):
    """The whole way that a node goes, of any operator, without an error."""
    spec, inputs = SPECS[kind]
    schema = pa.schema([*TIMED, *TYPES])
    warm.run_and_recover(FragmentProgram(stateful=spec.rehearsed()), *[schema] * inputs)
    assert capsys.readouterr().out == ""


def test_after_a_warm_up_a_join_and_its_recovery_find_everything_compiled():
    """A node that compiles when it should answer is taken for dead."""
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "warm_child.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["some", "none"]


def test_functions_of_the_user_never_see_made_up_tuples():
    """They are called with empty batches at most, to learn their types."""
    seen = []

    def spy(batch):
        seen.append(batch.num_rows)
        return batch.column("value")

    steps = (MapStep((("key", spy), ("value", spy)), "spied"),)
    spec = AggregateSpec(["key"], count_window(10), [Avg("value")])
    warm.warm_up(FragmentProgram(before=steps, stateful=spec), SCHEMA)
    assert set(seen) <= {0}


def test_nor_do_functions_that_have_state_beside_them():
    """What a key's function does once too often may be done to the world."""
    seen = []

    def spy(*given):
        seen.append(given)
        raise AssertionError("called")

    process = ProcessSpec(
        spy, ["key"], state_fields({}), SCHEMA, time="at", each_key=True, on_timer=spy
    )
    warm.warm_up(FragmentProgram(stateful=process), TIMED)
    resample = ResampleSpec((("v", "value"),), "at", "1s", how=spy)
    warm.warm_up(FragmentProgram(stateful=resample), TIMED, TIMED)

    def condition(batch):
        seen.extend(range(batch.num_rows))
        return pa.array([True] * batch.num_rows, pa.bool_())

    join = JoinSpec((("key", "key"),), "10s", ("at", "at"), where=ArrowFunction(condition))
    warm.warm_up(FragmentProgram(stateful=join), TIMED, TIMED)
    assert seen == []
