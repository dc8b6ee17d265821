"""Streams large enough to fill every table: room is made in the middle of a turn, unseen."""

import functools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from aggregate_cases import IMMORTAL, Life, PolicyOf, examples
from aggregate_runs import TRIED, crashing, failure_free
from hypothesis import given
from hypothesis import strategies as st

from rewake.operators.aggregate.functions import Avg, Count, First, Sum
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window, time_window
from rewake.recovery.policies.targets import TargetsPolicy

CHECKING = (("records", 500), ("tuples", 2000), ("period_ms", 5), ("check_us", 10))


@dataclass(frozen=True)
class LargeCase:
    """A stream grown from a seed; otherwise as `Case`."""

    seed: int
    rows: int
    keys: int
    text: bool
    window: tuple[str, int, int]
    slack: int
    timeout: int | None
    every: int  # tuples in a unit of event time
    forgetful: bool
    punctuations: tuple[tuple[int, int], ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """Of the input."""
        key = pa.string() if self.text else pa.int64()
        return pa.schema([("k", key), ("v", pa.int64()), ("t", pa.int64())])

    @functools.cached_property
    def batch(self) -> pa.RecordBatch:
        """The whole input; one time in a hundred, time jumps ahead."""
        random = np.random.default_rng(self.seed)
        keys = pa.array(random.integers(0, self.keys, self.rows) * 7919)
        values = pa.array(
            random.integers(-1000, 1000, self.rows), mask=random.random(self.rows) < 0.1
        )
        times = np.arange(self.rows) // self.every
        times += np.cumsum((random.random(self.rows) < 0.01) * random.integers(0, 40, self.rows))
        times -= random.integers(0, self.slack + 2, self.rows)
        arrays = [keys.cast(pa.string()) if self.text else keys, values, pa.array(times)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def operator(self) -> Aggregate:
        """A new operator."""
        kind, size, advance = self.window
        window = count_window(size, advance) if kind == "count" else time_window(size, advance)
        functions = [Count("", "n"), Sum("v"), Avg("v"), First("v")]
        late = kind == "time"
        spec = AggregateSpec(
            ["k"],
            window,
            functions,
            time="t",
            slack=self.slack,
            timeout=self.timeout,
            route_late=late,
        )
        return Aggregate(spec, self.schema)


@st.composite
def large_cases(draw: st.DrawFn) -> LargeCase:
    """Many keys, many panes, many windows that close at once."""
    kind = draw(st.sampled_from(["time", "count"]))
    size = draw(st.sampled_from([1, 8, 30, 100]))
    advance = draw(st.sampled_from([size, max(1, size // 8), size + 5]))
    return LargeCase(
        seed=draw(st.integers(0, 2**16)),
        rows=draw(st.sampled_from([3000, 12000])),
        keys=draw(st.sampled_from([1, 50, 5000])),
        text=draw(st.booleans()),
        window=(kind, size, advance),
        slack=draw(st.sampled_from([0, 300])) if kind == "time" else 0,
        timeout=draw(st.sampled_from([None, 20])) if kind == "count" else None,
        every=draw(st.sampled_from([1, 100])),
        forgetful=draw(st.booleans()),
        gaps=draw(st.sampled_from([(), ((700, 1000), (2000, 5), (2999, 300))])),
    )


@examples(150)
@given(large_cases(), st.sampled_from([(700,), (4001, 13), (12000,)]), st.integers(1, 4))
def test_crashes_and_batching_do_not_show_in_large_streams(
    case: LargeCase, cuts: tuple[int, ...], turns: int
) -> None:
    """One event for all, or many and a crash: the same output, byte for byte."""
    TRIED["cases"] += 1
    at_once = failure_free(case, IMMORTAL._replace(cuts=(case.rows,)))
    checking = PolicyOf(TargetsPolicy, CHECKING)
    lives = [Life(cuts, checking, turns), Life((500,), checking, turns, lost=True)]
    crashing(case, lives, Life(cuts)).check_same(at_once)
