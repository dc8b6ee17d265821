"""Kernels are compiled before they are needed."""

import pyarrow as pa

from rewake.net import warm
from rewake.operators.aggregate import AggregateSpec
from rewake.operators.fragment import FragmentProgram, MapStep
from rewake.operators.functions import Avg
from rewake.operators.windows import count_window

SCHEMA = pa.schema([("key", pa.int32()), ("value", pa.int32()), ("name", pa.string())])


def test_a_warm_up_runs_turns_and_a_recovery():
    """The whole way that a node goes, without an error."""
    spec = AggregateSpec(["key", "name"], count_window(10), [Avg("value")])
    warm._run_and_recover(FragmentProgram(stateful=spec), SCHEMA)


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
