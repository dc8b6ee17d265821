"""Small random queries around one operator that is no aggregate, for whoever judges their outcome.

Functions of keyed processing are such that what they give a key depends neither on how tuples are
cut into stream events nor on other keys: then plain Python can say what must come out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rewake.graph.stream import Stream
from rewake.operators.windows.specs import session_window
from rewake.sim.connectors import ListTable
from rewake.sim.scenarios import Builder, Row, Scenario

__all__ = ["CLOCKED", "PATIENCE", "PROCESSED", "operator_scenario"]

# Steps that whoever judges must know by name.
PROCESSED, CLOCKED = "process", "clocked"
# How long after a key's latest tuple its timer fires: longer than any tuple is late.
PATIENCE = 20

_COUNTED = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("t", pa.int64())])
_TOTALS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
# What the table of a lookup says of a key: nothing, one thing or two.
_LABELS = {key: [10 * key + each for each in range(key % 3)] for key in range(12)}


def _count_up(key: int, tuples: pa.RecordBatch, state: dict[str, Any]) -> tuple[Any, ...]:
    """Number each tuple; the timer stands a while behind the latest."""
    times = tuples.column("t").to_pylist()
    rows = [{"k": key, "n": state["n"] + 1 + i, "t": time} for i, time in enumerate(times)]
    last = max([*times, *([] if state["last"] is None else [state["last"]])])
    return rows, {"n": state["n"] + len(rows), "last": last}, last + PATIENCE


def _fall_silent(key: int, time: int, state: dict[str, Any]) -> tuple[Any, ...]:
    """Say how many there were, and forget the key."""
    return [{"k": key, "n": -state["n"], "t": time}], None


def _hold_back(
    key: int,  # noqa: ARG001
    tuples: pa.RecordBatch,
    state: dict[str, Any],
    now: datetime | None,
) -> tuple[Any, ...]:
    """Count until nothing has come for a while."""
    timer = None if now is None else now + timedelta(milliseconds=15)
    return [], {"n": state["n"] + tuples.num_rows}, timer


def _let_go(key: int, time: datetime, state: dict[str, Any]) -> tuple[Any, ...]:  # noqa: ARG001
    return [{"k": key, "n": state["n"]}], None


def _repeated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each tuple as often as its value says: never, once or twice."""
    often = pc.bit_wise_and(pc.add(batch.column("v"), 64), 3).to_pylist()
    return batch.take(pa.array([i for i, n in enumerate(often) for _ in range(n % 3)], pa.int64()))


class _OperatorBuilder(Builder):
    """Sources, perhaps some filters, the operator, a stream and perhaps a sink."""

    def __init__(self, random: Random, *, largest: int) -> None:
        super().__init__(random, largest=largest)
        self._timed = True
        # There are few nodes, soon done: at the usual pace most would meet no faults.
        self._scenario.paces_ms = (50.0, 100.0, 200.0)

    def build(self) -> Scenario:
        """One scenario."""
        random = self._random
        step = random.choice(_STEPS)
        count = 2 if step in (_OperatorBuilder._joined, _OperatorBuilder._resampled) else 1
        streams = [self._stateless(self._source(f"source{n}"), n) for n in range(count)]
        if count == 1 and random.random() < 0.3:
            other = self._source("source-other")
            streams = [streams[0].union(other, name="union", approach=self._approach())]
        ends = step(self, *streams)
        for number, end in enumerate(ends):
            end.to_stream(f"stream{number}")
        self._maybe_sink(ends[0], 0)
        self._scenario.plan = self._kept(self._query.plan())
        return self._scenario

    def _options(self, *, shards: bool = True) -> dict[str, Any]:
        chosen = self._random.choice((1, 1, 2)) if shards else 1
        return {"shards": chosen, "approach": self._approach()}

    # --- steps -------------------------------------------------------------------------------

    def _split(self, stream: Stream) -> list[Stream]:
        self._scenario.splits["split"] = [
            lambda row: row["v"] > 20,
            lambda row: row["k"] % 2 == 0,
        ]
        named = {"large": "v > 20", "even": "k % 2 = 0"}
        return list(stream.split(named, rest="rest", name="split").values())

    def _many(self, stream: Stream) -> list[Stream]:
        self._scenario.several["many"] = lambda row: [row] * (((row["v"] + 64) & 3) % 3)
        return [stream.map(_repeated, many=True, name="many", approach=self._approach())]

    def _looked_up(self, stream: Stream) -> list[Stream]:
        self._scenario.several["lookup"] = _labelled
        table = ListTable("k", "label", _LABELS)
        return [stream.lookup(table, "labels of :k", many=True, name="lookup")]

    def _joined(self, left: Stream, right: Stream) -> list[Stream]:
        random = self._random
        joined = left.join(
            right,
            on="k",
            within=random.choice((2, 5, 12)),
            time="t",
            how=random.choice(("inner", "left", "right", "full", "semi", "anti")),
            slack=random.choice((0, 3)),
            route_late=True,
            name="join",
            **self._options(),
        )
        return [joined, joined.output("late-left"), joined.output("late-right")]

    def _resampled(self, values: Stream, requests: Stream) -> list[Stream]:
        random = self._random
        resampled = values.resample(
            requests,
            time="t",
            window=random.choice((2, 5, 12)),
            columns={"then": "v"},
            on="k",
            how=random.choice(("linear", "previous", "nearest")),
            route_late=True,
            name="resample",
            **self._options(),
        )
        return [resampled, resampled.late, resampled.output("late_requests")]

    def _sorted(self, stream: Stream) -> list[Stream]:
        random = self._random
        per = random.choice(((), ("k",)))
        sorted_ = stream.bsort(
            by="t",
            buffer=random.choice((1, 3, 10)),
            per=per,
            flush=random.random() < 0.5,
            name="sort",
            **self._options(shards=bool(per)),
        )
        return [sorted_]

    def _in_sessions(self, stream: Stream) -> list[Stream]:
        random = self._random
        found = stream.aggregate(
            by="k",
            window=session_window(random.choice((2, 5, 12))),
            time="t",
            sum="v",
            count=True,
            max="v",
            slack=random.choice((0, 2, 5)),
            route_late=True,
            name="sessions",
            **self._options(),
        )
        return [found, found.late]

    def _processed(self, stream: Stream) -> list[Stream]:
        processed = stream.process(
            _count_up,
            by="k",
            state={"n": (pa.int64(), 0), "last": pa.int64()},
            output=_COUNTED,
            time="t",
            slack="watermarks",
            each_key=True,
            on_timer=_fall_silent,
            name=PROCESSED,
            **self._options(),
        )
        return [processed]

    def _by_the_clock(self, stream: Stream) -> list[Stream]:
        processed = stream.process(
            _hold_back,
            by="k",
            state={"n": (pa.int64(), 0)},
            output=_TOTALS,
            timers="processing",
            each_key=True,
            on_timer=_let_go,
            name=CLOCKED,
            **self._options(),
        )
        return [processed]


_STEPS: list[Callable[..., list[Stream]]] = [
    _OperatorBuilder._split,
    _OperatorBuilder._many,
    _OperatorBuilder._looked_up,
    _OperatorBuilder._joined,
    _OperatorBuilder._joined,
    _OperatorBuilder._resampled,
    _OperatorBuilder._sorted,
    _OperatorBuilder._in_sessions,
    _OperatorBuilder._processed,
    _OperatorBuilder._by_the_clock,
]


def _labelled(row: Row) -> list[Row]:
    return [{**row, "label": label} for label in _LABELS[row["k"]]] or [{**row, "label": None}]


def operator_scenario(random: Random, *, largest: int = 220) -> Scenario:
    """A scenario around one operator, with at most so many tuples per source and shard, roughly."""
    return _OperatorBuilder(random, largest=largest).build()
