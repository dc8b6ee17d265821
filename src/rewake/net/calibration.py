"""What loading, replaying, processing and CHECKs cost on this machine, measured in a second.

Run once per query and machine, before its nodes start, and kept beside the query's state; nodes
begin with it and correct it by what they see.  The measured program is the papers' own: averages of
integer keys over count windows.  Others cost more, which their first turns will show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from rewake.log.frame import Frame, decode_frame, encode_frame
from rewake.log.store import publish
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate import Aggregate, AggregateSpec
from rewake.operators.functions import Avg
from rewake.operators.windows import count_window
from rewake.recovery.continuous_eventual_checkpointing import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import Extent, OpenOnly
from rewake.recovery.rates import Costs
from rewake.stores.local import LocalStore

__all__ = ["calibrate", "calibration"]

_FILE: Final = "calibration.json"
_SCHEMA: Final = pa.schema([("item", pa.int64()), ("price", pa.int64())])
_SPEC: Final = AggregateSpec(["item"], count_window(10**6), [Avg("price")])
_TURN: Final = 10_000
_TURNS: Final = 20
_KEYS: Final = 50_000
# A replayed tuple is also made again and sent by others, who work at the same time.
_MADE_AGAIN: Final = 1.5
# Noticing the end of a connection, registering, opening the log, asking upstream.
_FIXED_MS: Final = 120.0


class _Everything:
    """Checks every window, when told to."""

    now = False

    def checks(self, extent: Extent) -> np.ndarray:
        """All that are open, or none."""
        slots = np.flatnonzero(extent.operator.opened_at >= 0) if self.now else np.zeros(0)
        return slots.astype(np.int32)


def calibrate() -> Costs:
    """Measure; the faster of two goes, because the first may still be compiling."""
    return min((_measure() for _ in range(2)), key=lambda costs: costs.work_us)


def _measure() -> Costs:
    random = np.random.default_rng(1)
    events = [_event(random, number) for number in range(_TURNS)]
    policy = _Everything()
    cec = ContinuousEventualCheckpointing(Aggregate(_SPEC, _SCHEMA), policy)
    frames: list[Frame] = []
    position = 0

    def turn(event: StreamEvent) -> None:
        nonlocal position
        record = cec.turn(event).record
        if record is not None:
            data = encode_frame(
                record, log_id=1, epoch=1, sequence=len(frames), position=position, durable=0
            )
            frames.append(decode_frame(data))
            position += record.tuples

    def turns(some: list[StreamEvent]) -> None:
        for event in some:
            turn(event)

    work = _seconds(lambda: turns(events[:-1]))
    policy.now = True
    check = _seconds(lambda: turns(events[-1:]))
    windows, records = cec.operator.open_parts, cec.extent().records
    load = _seconds(lambda: _recovered(frames))
    again = _recovered(frames[:-1])
    replay = _seconds(lambda: [again.turn(event) for event in events if again.recovering])
    tuples = _TURN * (_TURNS - 1)
    per_tuple = work / tuples * 1e6
    return Costs(
        load_us=max(load / records * 1e6, 0.01),
        replay_us=max(replay / tuples * 1e6, 0.005) * _MADE_AGAIN,
        work_us=max(per_tuple, 0.005),
        check_us=max((check * 1e6 - _TURN * per_tuple) / windows, 0.01),
        fixed_ms=_FIXED_MS,
    )


def _event(random: np.random.Generator, number: int) -> StreamEvent:
    items = pa.array(random.integers(0, _KEYS, _TURN))
    batch = pa.RecordBatch.from_arrays([items, items], schema=_SCHEMA)
    return StreamEvent(number * _TURN, batch)


def _recovered(frames: list[Frame]) -> ContinuousEventualCheckpointing:
    operator = Aggregate(_SPEC, _SCHEMA)
    return ContinuousEventualCheckpointing.recover(operator, OpenOnly(), reversed(frames))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def calibration(folder: Path) -> Costs:
    """The costs kept in a query's folder; measured and kept if there are none that can be read."""
    try:
        return Costs.from_json(json.loads((folder / _FILE).read_bytes()))
    except (OSError, ValueError, UsageError):
        costs = calibrate()
    store = LocalStore(folder, create=True)
    try:
        publish(store, _FILE, json.dumps(costs.to_json(), indent=1).encode())
    finally:
        store.close()
    return costs
