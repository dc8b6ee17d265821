"""What OPEN tuples cost: native, Gopen/Net, Gopen/Disk and Real, side by side.

Native is the operator without fault tolerance, its results sent to the sink.  Gopen/Net sends the
OPENs, too.  Gopen/Disk also persists all of it before it is forwarded.  Real is what the sink of
Gopen/Disk receives, control tuples included.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rewake.connectors.item_stream import ItemStream
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly
from rewake_lab.reproduce.driving import (
    Clock,
    Logged,
    Sink,
    averages,
    events,
    made_batches,
    send_record,
)
from rewake_lab.reproduce.experiment import Plot, Row, Setting, Value, middle, several

NATIVE, NET, DISK = "native", "Gopen/Net", "Gopen/Disk"


@dataclass(frozen=True, slots=True)
class Workload:
    """Windows of `window` tuples over `items` items, the last `slow_items` of them rare."""

    name: str
    window: int
    items: int
    slow_items: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one configuration."""

    seconds: float
    processor_percent: float
    results: int
    opens: int
    sink_bytes: int


def native(workload: Workload, batches: list[pa.RecordBatch], turns: int, _: Path) -> Measured:
    """The operator alone."""
    operator = averages(workload.window)
    count = 0
    with Sink() as sink:
        stream = events(batches, 0, turns)
        clock = Clock()
        for event in stream:
            results = operator.process(event).results
            if results is not None:
                count += results.num_rows
                sink.send(memoryview(results.serialize()))
        received = sink.finish()
        return Measured(clock.seconds, clock.processor_percent, count, 0, received)


def forwarded(workload: Workload, batches: list[pa.RecordBatch], turns: int, _: Path) -> Measured:
    """With OPENs that are forwarded but not persisted."""
    cec = ContinuousEventualCheckpointing(averages(workload.window), OpenOnly())
    count = records = 0
    with Sink() as sink:
        stream = events(batches, 0, turns)
        clock = Clock()
        for event in stream:
            record = cec.turn(event).record
            if record is not None:
                count, records = count + record.tuples, records + record.records
                send_record(sink, record)
        received = sink.finish()
        return Measured(clock.seconds, clock.processor_percent, count, records - count, received)


def persisted(
    workload: Workload, batches: list[pa.RecordBatch], turns: int, folder: Path
) -> Measured:
    """With OPENs that are persisted, stably, before they are forwarded."""
    with Sink() as sink:
        logged = Logged(folder, averages(workload.window), OpenOnly(), sink)
        stream = events(batches, 0, turns)
        clock = Clock()
        for event in stream:
            logged.turn(event, 0.0)
        logged.flush()
        received = sink.finish()
        measured = Measured(
            clock.seconds, clock.processor_percent, logged.tuples, logged.opens, received
        )
        logged.close()
        return measured


_Run = Callable[[Workload, list[pa.RecordBatch], int, Path], Measured]
CONFIGURATIONS: dict[str, _Run] = {NATIVE: native, NET: forwarded, DISK: persisted}


def measure(
    setting: Setting, workload: Workload, event_tuples: int, tuples: int, rounds: int
) -> Iterator[Row]:
    """Rows of all configurations, which take turns; the first round only warms up."""
    stream = ItemStream(setting.seed, workload.items, workload.slow_items)
    batches = made_batches(stream, event_tuples, min(tuples, 200 * event_tuples))
    for number in range(rounds + 1):
        turns = max(1, tuples // event_tuples // (1 if number else 20))
        # Who goes first changes from round to round.
        for name in list(CONFIGURATIONS)[:: -1 if number % 2 else 1]:
            log = setting.folder / f"{workload.name}-{event_tuples}-{number}"
            measured = CONFIGURATIONS[name](workload, batches, turns, log)
            if number:
                yield _row(workload, name, event_tuples, number, turns * event_tuples, measured)


def _row(
    workload: Workload, name: str, event_tuples: int, number: int, tuples: int, measured: Measured
) -> Row:
    seconds = measured.seconds
    return {
        "workload": workload.name,
        "configuration": name,
        "event_tuples": event_tuples,
        "round": number,
        "input_tuples": tuples,
        "seconds": seconds,
        "input_per_s": tuples / seconds,
        "results": measured.results,
        "opens": measured.opens,
        "results_per_s": measured.results / seconds,
        "real_per_s": (measured.results + measured.opens) / seconds,
        "sink_bytes": measured.sink_bytes,
        "processor_percent": measured.processor_percent,
    }


def losses(table: pa.Table, configuration: str, **chosen: Value) -> list[float]:
    """By how many percent fewer results come per second than natively, in each round; sorted."""
    found = []
    for number in several(table, "round"):
        rate, native_rate = (
            middle(table, "results_per_s", configuration=name, round=number, **chosen)
            for name in (configuration, NATIVE)
        )
        found.append(100 * (1 - rate / native_rate))
    return sorted(found)


def loss_percent(table: pa.Table, configuration: str, **chosen: Value) -> float:
    """The median of the losses over the rounds."""
    return statistics.median(losses(table, configuration, **chosen))


def loss_words(table: pa.Table, configuration: str, **chosen: Value) -> str:
    """The median loss with its range over the rounds: how far it can be trusted."""
    found = losses(table, configuration, **chosen)
    return f"{statistics.median(found):.0f}% ({found[0]:.0f} to {found[-1]:.0f})"


def bars(table: pa.Table, workload: str, event_tuples: int) -> Plot:
    """The four bars of one workload, as the papers draw them."""
    chosen: dict[str, Value] = {"workload": workload, "event_tuples": event_tuples}
    heights = {
        name: middle(table, "results_per_s", configuration=name, **chosen)
        for name in CONFIGURATIONS
    }
    heights["Real"] = middle(table, "real_per_s", configuration=DISK, **chosen)
    return Plot(
        f"{workload} windows, stream events of {event_tuples:,} tuples",
        pa.table({"configuration": list(heights), "rate": list(heights.values())}),
        x="configuration",
        y="rate",
        x_title="",
        y_title="tuples per second at the sink",
        kind="bar",
    )
