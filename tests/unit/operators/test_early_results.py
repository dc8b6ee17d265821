"""What open windows come to so far, for whoever asks."""

import pyarrow as pa
import pytest

from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg, Count, Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.expressions.expression import Expression
from rewake.operators.fragment import FilterStep, FragmentProgram, MapStep
from rewake.operators.windows.specs import count_window, session_window, time_window

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])


def batch(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    keys, values, times = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"k": keys, "v": values, "t": times}, schema=SCHEMA)


def rows(found: pa.RecordBatch) -> list[tuple]:
    return sorted(tuple(row.values()) for row in found.to_pylist())


EVENT = StreamEvent(0, batch((1, 10, 1), (2, 5, 2), (1, 20, 3), (1, 30, 12), (2, 7, 13)))


def test_open_count_windows_tell_what_they_hold():
    """And go on as if nothing had been asked."""
    operator = AggregateSpec(["k"], count_window(2), [Avg("v"), Count()]).operator(SCHEMA)
    assert operator.early() is None
    results = operator.process(EVENT).results
    assert rows(results) == [(1, 15.0, 2), (2, 6.0, 2)]
    assert rows(operator.early()) == [(1, 30.0, 1)]
    assert rows(operator.early()) == [(1, 30.0, 1)]
    again = operator.process(StreamEvent(5, batch((1, 40, 14)))).results
    assert rows(again) == [(1, 35.0, 2)]


@pytest.mark.parametrize("every", [10, 5])
def test_open_time_windows_tell_what_they_would_be_if_time_ended(every):
    """Overlapping ones, too, in a copy that leaves the operator alone."""
    spec = AggregateSpec(["k"], time_window(10, every=every), [Sum("v")], time="t")
    operator, copy = spec.operator(SCHEMA), spec.operator(SCHEMA)
    emitted = operator.process(EVENT).results
    assert emitted is not None
    early = operator.early()
    assert copy.process(EVENT).results.equals(emitted)
    assert early.equals(copy.punctuate(5, 1000).results)
    assert operator.punctuate(5, 1000).results.equals(early)


def test_open_sessions_tell_what_they_hold():
    """Those that have closed do not; a copy closes the others, and the operator goes on."""
    spec = AggregateSpec(["k"], session_window(5), [Sum("v"), Count()], time="t", slack=2)
    operator = spec.operator(SCHEMA)
    assert operator.early() is None
    emitted = operator.process(EVENT).results
    assert rows(emitted) == [(1, 1, 8, 30, 2), (2, 2, 7, 5, 1)]
    assert rows(operator.early()) == [(1, 12, 17, 30, 1), (2, 13, 18, 7, 1)]
    assert rows(operator.early()) == [(1, 12, 17, 30, 1), (2, 13, 18, 7, 1)]
    # A key's next session opens before its last one closes: a part with two.
    assert operator.process(StreamEvent(5, batch((1, 2, 18)))).results is None
    open_ones = [(1, 12, 17, 30, 1), (1, 18, 23, 2, 1), (2, 13, 18, 7, 1)]
    assert operator.open_parts == 2
    assert rows(operator.early()) == open_ones
    assert rows(operator.punctuate(6, 1000).results) == open_ones
    assert operator.early() is None


def test_windows_that_overlap_by_count_say_that_they_cannot_tell():
    """What of them is a window yet is not known."""
    operator = AggregateSpec(["k"], count_window(4, every=2), [Sum("v")]).operator(SCHEMA)
    operator.process(EVENT)
    with pytest.raises(UsageError, match="windows that tumble"):
        operator.early()


def test_early_results_pass_the_steps_that_results_pass():
    """They have the columns of the stream."""
    spec = AggregateSpec(["k"], count_window(10), [Sum("v")])
    keep = MapStep(tuple((name, Expression(name)) for name in SCHEMA.names))
    program = FragmentProgram((keep,), spec, (FilterStep(Expression("sum_v > 20")),))
    operator = program.operator(SCHEMA)
    operator.process(EVENT)
    assert rows(program.early(operator)) == [(1, 60)]
    with pytest.raises(UsageError, match="windows that are still open"):
        FragmentProgram().early(FragmentProgram().operator(SCHEMA))
