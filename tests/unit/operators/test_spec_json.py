"""An aggregate's specification as JSON: there and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.model.errors import UsageError
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
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.aggregate.spec_json import spec_from_json
from rewake.operators.windows.specs import count_window, session_window, time_window

names = st.text(min_size=1, max_size=8)
sizes = st.integers(1, 1000)
durations = st.sampled_from(["10s", "250ms", "1.5h"]) | sizes
functions = st.builds(Count) | st.one_of(
    st.builds(kind, names, st.just("") | names)
    for kind in (Count, Sum, Avg, Min, Max, First, Last, Stddev)
)
specs = st.builds(
    AggregateSpec,
    by=st.lists(names, min_size=1, max_size=3),
    window=st.builds(count_window, sizes, sizes) | st.builds(time_window, durations, durations),
    aggregates=st.lists(functions, min_size=1, max_size=4),
    time=st.none() | names,
    slack=durations | st.just(0),
    timeout=st.none() | durations,
    null_keys=st.sampled_from(["group", "refuse"]),
    route_late=st.booleans(),
    window_columns=st.tuples(names, names),
)


@given(specs)
def test_a_spec_survives_json(spec: AggregateSpec) -> None:
    """What is read back equals what was written, whatever it is."""
    assert spec_from_json(json.loads(json.dumps(spec.describe()))) == spec


def test_what_is_as_usual_is_left_out() -> None:
    """A description of the plainest aggregate is plain."""
    spec = AggregateSpec(by=["k"], window=count_window(10), aggregates=[Avg("v", "mean")])
    assert spec.describe() == {
        "by": ["k"],
        "window": {"kind": "count", "size": 10, "advance": 10},
        "aggregates": [{"function": "avg", "column": "v", "name": "mean"}],
    }


def test_of_a_users_function_only_its_name_is_kept() -> None:
    """Stored bytes are data: no code is written, none is read."""
    function = UserDefined(
        "v",
        "spread",
        initial=(0.0, 1.0),
        update=lambda state, _: state,
        merge=lambda older, _: older,
        result=lambda state: state[0],
    )
    spec = AggregateSpec(by=["k"], window=count_window(2), aggregates=[function])
    described = spec.describe()
    assert described["aggregates"] == [
        {"function": "userdefined", "column": "v", "name": "spread", "initial": [0.0, 1.0]}
    ]
    (read,) = spec_from_json(described).aggregates
    assert isinstance(read, UserDefined)
    assert (read.name, read.initial, read.update) == ("spread", (0.0, 1.0), None)


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"by": ["k"], "window": {"kind": "session", "size": 1}, "aggregates": []},
        {"by": ["k"], "window": {"kind": "count", "size": 1}, "aggregates": []},
        {"by": ["k"], "window": {"kind": "count", "size": 0, "advance": 1}, "aggregates": []},
        {"by": ["k"], "window": 10, "aggregates": []},
        {"by": 1, "window": {"kind": "count", "size": 1, "advance": 1}, "aggregates": []},
        {
            "by": ["k"],
            "window": {"kind": "count", "size": 1, "advance": 1},
            "aggregates": [{"function": "median", "column": "v"}],
        },
        {
            "by": ["k"],
            "window": {"kind": "count", "size": 1, "advance": 1},
            "aggregates": [],
            "colour": "red",
        },
    ],
)
def test_what_describes_no_aggregate_is_refused(described: dict[str, object]) -> None:
    """With one typed error, however it is wrong."""
    with pytest.raises(UsageError):
        spec_from_json(described)


def test_sessions_are_described_and_read_back():
    """With all that decides their results; what is none is refused."""
    spec = AggregateSpec(["k"], session_window("5s"), [Avg("v"), Count()], "t", slack="1s")
    described = {"kind": spec.kind, **spec.describe()}
    again = spec_from_json(json.loads(json.dumps(described)))
    assert isinstance(again, AggregateSpec)
    assert again.describe() == spec.describe()
    with pytest.raises(UsageError, match="does not describe an aggregate"):
        spec_from_json({"window": {"kind": "session", "size": 5}})
    plain = AggregateSpec(["k"], count_window(2), [Count()])
    assert spec_from_json(plain.describe()) == plain
