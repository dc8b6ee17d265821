"""The programs that `rewake bench operators` runs, with input for each.

Input is made before the clock starts; stream events come around again with later positions and,
where there is one, later times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rewake.lab.bench.core import item_batches
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate import AggregateSpec
from rewake.operators.expressions import Expression
from rewake.operators.fragment import FilterStep, FragmentProgram, MapStep, OutputRoute
from rewake.operators.functions import Avg
from rewake.operators.splitting import SplitStep
from rewake.operators.stateful import FURTHER_PORTS
from rewake.operators.windows import count_window

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
    split = SplitStep((("cheap", half),), "dear")
    routes = tuple(OutputRoute(FURTHER_PORTS + number) for number in range(2))
    divided = FragmentProgram(split=split, routes=routes)
    yield Case("split in two", divided, [_ITEMS], items, "", not_logged, logged=False)
    yield Case("union", FragmentProgram(), [_ITEMS], items, ">= 30", "every tuple is logged")


def _aggregates() -> Iterator[Case]:
    items = _around(item_batches(100_000, 100))
    counted = AggregateSpec(["item_id"], count_window(10), [Avg("item_price")])
    yield Case("aggregate, count windows", FragmentProgram(stateful=counted), [_ITEMS], items)
