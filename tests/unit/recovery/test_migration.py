"""State that moves to another number of shards goes on as if it had always been there."""

from collections import defaultdict
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from rewake.log.frame import decode_frame, encode_frame
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg, Count, Last, Max, Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.operators.windows.specs import count_window, running_window, session_window, time_window
from rewake.recovery.approach import RESULTS_OUTPUT
from rewake.recovery.self_contained.engine import SelfContained, repeat
from rewake.recovery.self_contained.migration import first_record, parts_of

SCHEMA = pa.schema(
    {
        "who": pa.string(),
        "n": pa.int64(),
        "at": pa.timestamp("us"),
        "exact": pa.decimal128(21, 2),
    }
)
TOTALS = pa.schema([("who", pa.string()), ("n", pa.int64()), ("timer", pa.bool_())])


def summed(who, tuples, state):
    """The sum so far, and a timer."""
    n = state["n"] + sum(tuples.column("n").to_pylist())
    timer = tuples.column("at")[-1].as_py() + timedelta(milliseconds=5)
    return [{"who": who, "n": n, "timer": False}], {"n": n}, timer


def silent(who, _time, state):
    """The sum, and forgotten."""
    return [{"who": who, "n": state["n"], "timer": True}], None


FUNCTIONS = [Sum("n"), Avg("n"), Count(), Last("n"), Last("who"), Max("who"), Sum("exact")]
WINDOWS = {
    "tumbling": AggregateSpec(["who"], count_window(5), FUNCTIONS),
    "sliding": AggregateSpec(["who"], count_window(6, every=2), FUNCTIONS),
    "time": AggregateSpec(["who"], time_window("40us"), FUNCTIONS, time="at"),
    "running": AggregateSpec(["who"], running_window(), FUNCTIONS),
}
# Their clocks are not those of before when shards that were apart come together: what they give is
# the same, but for when.
BY_CLOCK = {
    "sessions": AggregateSpec(["who"], session_window("9us"), FUNCTIONS, "at", slack="20us"),
    "process": ProcessSpec(
        summed,
        ("who",),
        state_fields({"n": (pa.int64(), 0)}),
        TOTALS,
        "at",
        each_key=True,
        on_timer=silent,
    ),
}


class Shards:
    """Some shards of an operator, each with its log in memory."""

    def __init__(self, spec, count):
        self.spec, self.count = spec, count
        self.frames = [[] for _ in range(count)]
        self.states = [SelfContained(self.build()) for _ in range(count)]

    def build(self):
        return self.spec.operator(SCHEMA)

    def append(self, shard, record):
        frames = self.frames[shard]
        numbers = {"log_id": 1, "epoch": 1, "sequence": len(frames), "position": 0, "durable": 0}
        frames.append(decode_frame(encode_frame(record, **numbers)))

    def batch(self, rows, identity):
        """All results of a batch, by key."""
        found = defaultdict(list)
        for shard, state in enumerate(self.states):
            mine = rows.take(pa.array(np.flatnonzero(shards_of(rows["who"], self.count) == shard)))
            turn = state.turn(StreamEvent(state.position, mine), identity)
            self.append(shard, turn.record)
            gather(found, [batch for output, batch in turn.outputs if output == RESULTS_OUTPUT])
        return found

    def repeated(self):
        found = defaultdict(list)
        for frames in self.frames:
            again = repeat(self.build, reversed(frames))
            gather(found, [batch for output, batch in again if output == RESULTS_OUTPUT])
        return found

    def moved_to(self, count):
        """The same state in another number of shards."""
        others = Shards(self.spec, count)
        old = []
        for state in self.states:
            parts = parts_of(state)
            old.append(parts._replace(shards=shards_of(parts.keys[0], count)))
        results = defaultdict(list)
        for frames in self.frames:
            for _, batch in repeat(self.build, reversed(frames)):
                numbers = shards_of(batch["who"], count)
                for shard in range(count):
                    results[shard].append(batch.take(pa.array(np.flatnonzero(numbers == shard))))
        identity, columns = self.states[0].identity, self.states[0].columns
        for shard in range(count):
            one = pa.concat_batches(results[shard]) if results[shard] else None
            emitted = [(RESULTS_OUTPUT, one)] if one is not None and one.num_rows else []
            record = first_record(self.build, old, shard, identity, emitted, columns)
            others.append(shard, record)
        others.recover()
        return others

    def recover(self):
        self.states = [
            SelfContained.recover(self.build, reversed(frames)) for frames in self.frames
        ]
        for state in self.states:
            state.check_invariants()


def shards_of(keys, count):
    return np.array([hash_of(key) % count for key in keys.to_pylist()], np.int64)


def hash_of(key):
    return sum(key.encode()) if key is not None else 7


def gather(found, batches):
    for batch in batches:
        for row in batch.to_pylist():
            found[row["who"]].append(row)


def rows_of(random, number, size=60):
    keys = [f"k{key}" if key else None for key in random.integers(0, 12, size)]
    times = np.sort(random.integers(0, 60, size)) + 50 * number
    columns = [pa.array(keys), pa.array(random.integers(0, 100, size)), pa.array(times, pa.int64())]
    columns[2] = columns[2].cast(pa.timestamp("us"))
    columns.append(columns[1].cast(pa.decimal128(21, 2)))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5), (4, 4)])
def test_results_are_those_of_shards_that_never_moved(window, before, after):
    """Key by key, in order, through moves and recoveries from the moved log."""
    random = np.random.default_rng(before * 10 + after)
    moving, staying = Shards(WINDOWS[window], before), Shards(WINDOWS[window], before)
    if window == "time":
        # Event time is the latest of all shards after a move, so it must be before, too.
        moving, staying = Shards(WINDOWS[window], 1), Shards(WINDOWS[window], 1)
    for number in range(8):
        rows, identity = rows_of(random, number), bytes([number])
        expected = staying.batch(rows, identity)
        assert moving.batch(rows, identity) == expected
        if number in (2, 5):
            moving = moving.moved_to(after if number == 2 else before)
            assert moving.repeated() == expected
            if window == "time":
                break
        if number == 6:
            moving.recover()


@pytest.mark.parametrize("kind", BY_CLOCK)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5)])
def test_sessions_and_keys_come_out_once_whatever_clocks_their_shards_had(kind, before, after):
    """Nothing that one shard's clock had passed is lost under another's."""
    random = np.random.default_rng(before * 10 + after)
    moving, staying = Shards(BY_CLOCK[kind], before), Shards(BY_CLOCK[kind], 1)
    found, expected = [], []
    for number in range(8):
        rows, identity = rows_of(random, number), bytes([number])
        for shards, results in ((moving, found), (staying, expected)):
            results += [row for rows in shards.batch(rows, identity).values() for row in rows]
        if number in (2, 5):
            moving = moving.moved_to(after if number == 2 else before)
    late = [[f"k{key}" for key in range(100)], [0] * 100, [10**6] * 100, [None] * 100]
    arrays = [pa.array(each, kind.type) for each, kind in zip(late, SCHEMA, strict=True)]
    last = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    for shards, results in ((moving, found), (staying, expected)):
        results += [row for rows in shards.batch(last, b"last").values() for row in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert len(found) > 40


def test_windows_of_all_shards_arrive_once():
    """None is lost, none is there twice, and each holds what it held."""
    random = np.random.default_rng(3)
    before = Shards(WINDOWS["running"], 3)
    for number in range(3):
        before.batch(rows_of(random, number), bytes([number]))
    after = before.moved_to(4)

    def contents(shards):
        found = []
        for state in shards.states:
            slots = np.flatnonzero(state.operator.opened_at >= 0).astype(np.int32)
            found += state.operator.current(slots).to_pylist()
        return sorted(found, key=repr)

    assert contents(after) == contents(before)
    assert len(contents(after)) == 12
