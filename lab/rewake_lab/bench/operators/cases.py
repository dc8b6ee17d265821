"""The programs that `rewake bench operators` runs, with input for each.

Input is made before the clock starts; stream events come around again with later positions and,
where there is one, later times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.expressions.expression import Expression
from rewake.operators.fragment import FilterStep, FragmentProgram, MapStep, OutputRoute
from rewake.operators.join.operator import JoinSpec
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.operators.keyed.vocabulary import KeyedResult, KeyedTuples
from rewake.operators.resampling.operator import ResampleSpec
from rewake.operators.sorting.operator import SortSpec
from rewake.operators.splitting import SplitStep
from rewake.operators.stateful import FURTHER_PORTS
from rewake.operators.windows.specs import count_window, session_window, time_window
from rewake_lab.bench.core import item_batches

__all__ = ["Case", "cases"]

EVENT_TUPLES = 10_000
_ITEMS = pa.schema([("item_id", pa.int32()), ("item_price", pa.int32())])
_TIMED = pa.schema([("item_id", pa.int32()), ("item_price", pa.int32()), ("at", pa.int64())])


@dataclass(frozen=True)
class Case:
    """A program and its input: `batch(turn)` gives tuples, and by which input they come."""

    name: str
    program: FragmentProgram
    schemas: Sequence[pa.Schema]
    batch: Callable[[int], tuple[int, pa.RecordBatch]]
    target: str = ""
    note: str = ""
    logged: bool = True
    # Turns before the clock starts, and in a measured round.
    warm: int = 200
    measured: int = 300
    # Of event time, behind each turn; None without time.
    watermark: Callable[[int], int] | None = None

    @property
    def event_tuples(self) -> int:
        """Tuples of a turn."""
        return EVENT_TUPLES

    def turns(self) -> Iterator[StreamEvent]:
        """Stream events without end."""
        turn = 0
        while True:
            port, batch = self.batch(turn)
            watermark = None if self.watermark is None else self.watermark(turn)
            yield StreamEvent(turn * EVENT_TUPLES, batch, watermark, port=port)
            turn += 1


def _around(batches: list[pa.RecordBatch]) -> Callable[[int], tuple[int, pa.RecordBatch]]:
    return lambda turn: (0, batches[turn % len(batches)])


def _timed(keys: int, ports: int = 1) -> Callable[[int], tuple[int, pa.RecordBatch]]:
    """Items with a time that rises by one with every tuple, on inputs in turns."""
    batches = item_batches(keys, 100)

    def batch(turn: int) -> tuple[int, pa.RecordBatch]:
        ids, prices = batches[turn % len(batches)].columns
        start = turn * EVENT_TUPLES
        times = pa.array(np.arange(start, start + EVENT_TUPLES))
        return turn % ports, pa.RecordBatch.from_arrays([ids, prices, times], schema=_TIMED)

    return batch


def cases() -> Iterator[Case]:
    """All of them, in the order of the papers."""
    yield from _without_state()
    yield from _aggregates()
    yield from _joins()
    yield from _ordered()
    yield from _keyed()


def _without_state() -> Iterator[Case]:
    items = _around(item_batches(100_000, 100))
    half = FilterStep(Expression("item_price < 500"))
    not_logged = "made again on demand: no log"
    yield Case(
        "filter", FragmentProgram((half,)), [_ITEMS], items, ">= 20", not_logged, logged=False
    )
    doubled = MapStep((("item_id", Expression("item_id")), ("twice", Expression("item_price * 2"))))
    yield Case(
        "map", FragmentProgram((doubled,)), [_ITEMS], items, ">= 20", not_logged, logged=False
    )
    twice = MapStep((("", _twice),), many=True)
    yield Case(
        "map, two of each", FragmentProgram((twice,)), [_ITEMS], items, "", "every tuple is logged"
    )
    split = SplitStep((("cheap", half),), "dear")
    routes = tuple(OutputRoute(FURTHER_PORTS + number) for number in range(2))
    divided = FragmentProgram(split=split, routes=routes)
    yield Case("split in two", divided, [_ITEMS], items, "", not_logged, logged=False)
    yield Case("union", FragmentProgram(), [_ITEMS], items, ">= 30", "every tuple is logged")


def _twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(batch.num_rows).repeat(2)))


def _aggregates() -> Iterator[Case]:
    items = _around(item_batches(100_000, 100))
    counted = AggregateSpec(["item_id"], count_window(10), [Avg("item_price")])
    yield Case("aggregate, count windows", FragmentProgram(stateful=counted), [_ITEMS], items)
    timed = AggregateSpec(["item_id"], time_window(1_000_000), [Avg("item_price")], time="at")
    yield Case(
        "aggregate, time windows", FragmentProgram(stateful=timed), [_TIMED], _timed(100_000)
    )
    spec = AggregateSpec(("item_id",), session_window(100_000), (Avg("item_price"),), time="at")
    yield Case(
        "sessions", FragmentProgram(stateful=spec), [_TIMED], _timed(10_000), note="10,000 keys"
    )


def _joins() -> Iterator[Case]:
    """Two streams in turns; times rise by one with every tuple."""

    def joined(name: str, keys: int, target: str, note: str) -> Case:
        spec = JoinSpec(on=(("item_id", "item_id"),), within=keys, time=("at", "at"))
        return Case(
            name,
            FragmentProgram(stateful=spec),
            [_TIMED, _TIMED],
            _timed(keys, ports=2),
            target,
            note,
            watermark=lambda turn: (turn - 1) * EVENT_TUPLES,
            warm=60,
            measured=100,
        )

    yield joined("join", 100_000, "", "100,000 keys, about one match a tuple")
    spec = JoinSpec(
        on=(("item_id", "item_id"), ("item_price", "item_price")),
        within=1_000_000,
        time=("at", "at"),
    )
    yield Case(
        "join, 1,000 tuples of a key in a window",
        FragmentProgram(stateful=spec),
        [_TIMED, _TIMED],
        _timed(1_000, ports=2),
        ">= 2",
        "on item and price: about one match a tuple",
        watermark=lambda turn: (turn - 1) * EVENT_TUPLES,
        warm=250,
        measured=100,
    )


def _ordered() -> Iterator[Case]:
    shuffled = _shuffled(1_000)
    spec = SortSpec(by=("at",), buffer=1_000)
    yield Case(
        "bsort", FragmentProgram(stateful=spec), [_TIMED], shuffled, ">= 3", "a buffer of 1,000"
    )
    asked = ResampleSpec(columns=(("price", "item_price"),), time="at", window=1_000)
    yield Case(
        "resample, linear",
        FragmentProgram(stateful=asked),
        [_TIMED, _TIMED],
        _timed(100_000, ports=2),
        note="windows of 1,000 tuples",
        watermark=lambda turn: (turn - 1) * EVENT_TUPLES,
    )


def _shuffled(reach: int) -> Callable[[int], tuple[int, pa.RecordBatch]]:
    """Items whose times are out of order by less than `reach` places."""
    inner, random = _timed(100_000), np.random.default_rng(1)
    order = np.argsort(np.arange(EVENT_TUPLES) + random.uniform(0, reach / 2, EVENT_TUPLES))
    places = pa.array(order)
    return lambda turn: (0, inner(turn)[1].take(places))


def _keyed() -> Iterator[Case]:
    def add_up(tuples: KeyedTuples) -> KeyedResult:
        prices = tuples.batch.column("item_price").to_numpy()
        held = tuples.state.column("total").to_numpy()
        totals = held + np.bincount(tuples.key_of, prices, len(held)).astype(np.int64)
        batch = pa.RecordBatch.from_arrays([pa.array(totals)], names=["total"])
        return KeyedResult(batch, batch)

    schema = pa.schema([("total", pa.int64())])
    spec = ProcessSpec(
        function=add_up,
        by=("item_id",),
        state=state_fields({"total": (pa.int64(), 0)}),
        output=schema,
    )
    items = _around(item_batches(100_000, 100))
    yield Case(
        "process, vectorised function",
        FragmentProgram(stateful=spec),
        [_ITEMS],
        items,
        ">= 1",
        "100,000 keys; every key that a turn touches emits its total",
    )
