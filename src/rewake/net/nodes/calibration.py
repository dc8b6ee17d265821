"""What loading, replaying, processing and CHECKs cost on this machine, measured in a second.

Run once per query and machine, before its nodes start, and kept beside the query's state
(`calibration.json`); nodes begin with it and correct it by what they see, which they keep, too
(`rates/<node>.json`), because a node that dies has just learnt something.  The measured program is
the papers' own: averages of integer keys over count windows.  Others cost more, which their first
turns will show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.log.frame import (
    Frame,
    Section,
    SectionKind,
    TurnRecord,
    decode_frame,
    encode_frame,
)
from rewake.log.store import publish
from rewake.model.errors import OperatingFault, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import CheckpointPolicy, Extent, OpenOnly
from rewake.recovery.promises.rates import Costs, RecoveryRates
from rewake.stores import create_log, open_log_reader, open_log_writer
from rewake.stores.local import LocalStore
from rewake.stores.private import FOLDER_MODE, make_private_folder, private_opener

__all__ = [
    "HOPS_MS",
    "KeptCosts",
    "calibrate",
    "calibration",
    "go_on_with_rates",
    "keep_rates",
    "kept_rates",
]

Clock = Callable[[], float]

CALIBRATION_FILE: Final = "calibration.json"
_RATES_FOLDER: Final = "rates"
_SCHEMA: Final = pa.schema([("item", pa.int64()), ("price", pa.int64())])
_SPEC: Final = AggregateSpec(["item"], count_window(10**6), [Avg("price")])
_TURN: Final = 10_000
_TURNS: Final = 20
_KEYS: Final = 50_000
# Each part of a recovery is rehearsed so often: once says what it takes, not how that varies.
_REHEARSALS: Final = 5
# A replayed tuple is also made again and sent by others, who work at the same time.
_MADE_AGAIN: Final = 4.0
# What a node does not see of its own recovery: that its end is noticed, and that its first new
# result becomes durable and travels.
HOPS_MS: Final = 25.0
# A new process opens its log for the first time: nothing of it is in its memory yet.
_FIRST_TIME: Final = 2.0
# A machine that takes longer for a tuple is not slow but held up, and what is measured on it says
# nothing of the time to come.
_TOO_SLOW_US: Final = 50.0


class _Everything(CheckpointPolicy):
    """Checks every window, when told to."""

    now = False

    def checks(self, extent: Extent) -> np.ndarray:
        """All that are open, or none."""
        slots = np.flatnonzero(extent.operator.opened_at >= 0) if self.now else np.zeros(0)
        return slots.astype(np.int32)


def calibrate(
    folder: Path | None = None,
    clock: Clock = time.perf_counter,
    work_clock: Clock = time.thread_time,
) -> Costs:
    """Measure, logs in a folder; the faster of two goes, because the first may still be compiling.

    Work is measured as work, without waiting for a processor, because budgets are; recoveries are
    measured in the time that they take.  Raises `OperatingFault` where a promise could not stand on
    what is measured.
    """
    with TemporaryDirectory(prefix="calibration-", dir=folder) as place:
        goes = [_measure(Path(place) / str(number), clock, work_clock) for number in range(2)]
    costs = min(goes, key=lambda costs: costs.work_us)
    if costs.work_us > _TOO_SLOW_US:
        raise OperatingFault(
            f"this machine is too slow to calibrate: a tuple took {costs.work_us:,.0f} us, where "
            f"{_TOO_SLOW_US:.0f} us is the most that recover_within can be promised with; start "
            "the query when the machine is less busy, give it more cores, or leave recover_within "
            "out"
        )
    return costs


def _measure(place: Path, clock: Clock, work_clock: Clock) -> Costs:
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

    work = _seconds(work_clock, lambda: turns(events[:-1]))
    policy.now = True
    check = _seconds(work_clock, lambda: turns(events[-1:]))
    windows, records = cec.operator.open_parts, cec.extent().records
    loads = [_seconds(clock, lambda: _recovered(frames)) for _ in range(_REHEARSALS)]
    replays = [_replayed_seconds(clock, frames[:-1], events) for _ in range(_REHEARSALS)]
    opened = _opened_again_seconds(place, clock)
    tuples = _TURN * (_TURNS - 1)
    per_tuple = work / tuples * 1e6
    caution = Costs()
    return Costs(
        load_us=max(median(loads) / records * 1e6, 0.01),
        replay_us=max(median(replays) / tuples * 1e6, 0.005) * _MADE_AGAIN,
        work_us=max(per_tuple, 0.005),
        check_us=max((check * 1e6 - _TURN * per_tuple) / windows, 0.01),
        fixed_ms=median(opened) * 1e3 * _FIRST_TIME + HOPS_MS,
        fixed_margin=max(_spread(opened), caution.fixed_margin),
        load_margin=max(_spread(loads), caution.load_margin),
        replay_margin=max(_spread(replays), caution.replay_margin),
    )


def _spread(seconds: list[float]) -> float:
    """How many times as long as the middle one the longest took: no recovery was seen yet."""
    return max(seconds) / max(median(seconds), 1e-9)


def _replayed_seconds(clock: Clock, frames: list[Frame], events: list[StreamEvent]) -> float:
    again = _recovered(frames)
    return _seconds(clock, lambda: [again.turn(event) for event in events if again.recovering])


def _event(random: np.random.Generator, number: int) -> StreamEvent:
    items = pa.array(random.integers(0, _KEYS, _TURN))
    batch = pa.RecordBatch.from_arrays([items, items], schema=_SCHEMA)
    return StreamEvent(number * _TURN, batch)


def _recovered(frames: list[Frame]) -> ContinuousEventualCheckpointing:
    operator = Aggregate(_SPEC, _SCHEMA)
    return ContinuousEventualCheckpointing.recover(operator, OpenOnly(), reversed(frames))


def _opened_again_seconds(place: Path, clock: Clock) -> list[float]:
    """Open a log as the successor of its writer, read it, make a first frame durable; each time."""
    create_log(place, "calibration")
    record = TurnRecord(0, 0, 0, 0, 1, (Section(SectionKind.RESULTS, bytes(1000)),))
    with open_log_writer(place, epoch=1) as writer:
        writer.append(record)
        writer.flush()

    def open_again(epoch: int) -> None:
        with open_log_writer(place, epoch=epoch) as writer, open_log_reader(place):
            writer.append(record)
            writer.flush()

    epochs = range(2, 2 + _REHEARSALS)
    return [_seconds(clock, lambda epoch=epoch: open_again(epoch)) for epoch in epochs]  # type: ignore[misc]


def _seconds(clock: Clock, work: Callable[[], object]) -> float:
    started = clock()
    work()
    return clock() - started


def calibration(folder: Path) -> Costs:
    """The costs kept in a query's folder; measured and kept if there are none that can be read."""
    try:
        return Costs.from_json(json.loads((folder / CALIBRATION_FILE).read_bytes()))
    except (OSError, ValueError, UsageError):
        make_private_folder(folder)
        costs = calibrate(folder)
    store = LocalStore(folder, create=True)
    try:
        publish(store, CALIBRATION_FILE, json.dumps(costs.to_json(), indent=1).encode())
    finally:
        store.close()
    return costs


# --- what a node has seen, over its lives --------------------------------------------------------


class KeptCosts(NamedTuple):
    """What a node last kept: when (seconds since 1970), its rates, its figures."""

    at: float
    rates: dict[str, list[float]]
    figures: dict[str, float]


def keep_rates(folder: Path, node: str, rates: RecoveryRates, figures: dict[str, float]) -> None:
    """Keep what a node knows of its recoveries, and how it stands, for its next life and people.

    A measurement is not worth failing for: without room, the last one stays.
    """
    path = folder / _RATES_FOLDER / f"{node}.json"
    draft = path.with_suffix(".tmp")
    kept = KeptCosts(time.time(), rates.kept(), figures)
    with suppress(OSError):
        path.parent.mkdir(FOLDER_MODE, exist_ok=True)
        with open(draft, "w", opener=private_opener) as file:
            file.write(json.dumps(kept._asdict(), indent=1))
        draft.replace(path)


def kept_rates(folder: Path, node: str) -> KeptCosts | None:
    """What a node last kept; None when there is nothing that can be read."""
    with suppress(OSError, ValueError, TypeError):
        return KeptCosts(**json.loads((folder / _RATES_FOLDER / f"{node}.json").read_bytes()))
    return None


def go_on_with_rates(folder: Path, node: str, rates: RecoveryRates) -> KeptCosts | None:
    """Take up what an earlier life of the node has kept, if there is something to be read."""
    kept = kept_rates(folder, node)
    if kept is not None:
        with suppress(UsageError):
            rates.go_on(kept.rates)
    return kept
