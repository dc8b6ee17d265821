"""What the experiments on Q and U share: run, crash in the middle, load, replay (CEC IV.B).

100,000 items in windows of 10, CHECKs within CI = 5 ms of every CP = 100 ms.  The policy's clock is
the stream's: the paper's operator took about 55,000 tuples per second (a window was open for
16.5 s, Fig. 8), so position / 55,000 is the time it would have been there, and a period has as many
tuples as in the paper, however fast this machine is.  How many CHECKs its operator could take in an
interval the paper does not say.  It decides how tight a target can be kept, so two assumptions are
run side by side: a CHECK takes a tuple's time, or a tenth of it.  The first was chosen beforehand;
the second was added when the first missed targets that the paper's operator met, so that agreement
under the second alone proves little.  Load and replay are measured in real seconds, from files that
are not cached.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rewake.connectors.item_stream import SCHEMA, ItemStream
from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.log.results import result_batch
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.operator import Aggregate
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import CheckpointPolicy, Extent, OpenOnly
from rewake.recovery.policies.targets import TargetsPolicy
from rewake.stores import create_log, open_log_reader, open_log_writer
from rewake_lab.reproduce.driving import PAPER_EVENT, Clock, Logged, averages, uncached
from rewake_lab.reproduce.experiment import Finding, Plot, Row, Setting, where

PAPER_ITEMS = 100_000
PAPER_RATE = 55_000
PAPER_TUPLE_BYTES = 100
NO_TARGET = 2**62
# A run is looked at each time that so many tuples of each item have come.
_LOOK_TUPLES_PER_ITEM = 0.25
_LOADS = 3
# How long a CHECK is taken to take, in tuples' times.
CHECK_COSTS = {"a tuple's time": 1.0, "a tenth of it": 0.1}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The paper's sizes, all divided by the same number."""

    items: int
    event_tuples: int
    # Where the crash comes: windows of 10 are in the steady state after two lives.
    tuples_per_item: float = 30

    @property
    def share(self) -> float:
        """Our size against the paper's."""
        return self.items / PAPER_ITEMS

    @property
    def open_windows(self) -> int:
        """A window of 10 is open nine tenths of the time: the paper's 90,000."""
        return self.items * 9 // 10

    @property
    def rate(self) -> float:
        """Tuples per second of the stream's clock."""
        return PAPER_RATE * self.share

    @property
    def tuples(self) -> int:
        """Where the crash comes, at the end of a stream event."""
        tuples = int(self.items * self.tuples_per_item)
        return tuples // self.event_tuples * self.event_tuples

    @property
    def look_tuples(self) -> int:
        """How many tuples pass between two looks at a run."""
        events = int(self.items * _LOOK_TUPLES_PER_ITEM / self.event_tuples)
        return max(1, events) * self.event_tuples


@dataclass(frozen=True, slots=True)
class Case:
    """What runs until the crash: which tuples, how many, through which operator."""

    stream: ItemStream
    size: Sizes
    make: Callable[[], Aggregate] = averages


def sizes(setting: Setting) -> Sizes:
    """A tenth of the paper's at the small scale, in stream events twice as coarse as that."""
    return Sizes(PAPER_ITEMS, PAPER_EVENT) if setting.full else Sizes(PAPER_ITEMS // 10, 37)


def scaling(setting: Setting) -> str:
    """What differs from the paper's set-up."""
    size = sizes(setting)
    return (
        f"{size.items:,} items instead of {PAPER_ITEMS:,} (all sizes times {size.share:g}), stream "
        f"events of {size.event_tuples}, crash at tuple {size.tuples:,}; the policy's clock runs "
        f"at {size.rate:,.0f} tuples/s; a CHECK is assumed to take a tuple's time or a tenth of "
        f"it, because the paper does not tell (the second was added when the first missed "
        f"targets that the paper met); a tuple has 16 bytes instead of {PAPER_TUPLE_BYTES};"
        f" load times are the median of {_LOADS}, files not cached"
    )


def write_upstream(folder: Path, stream: ItemStream, size: Sizes) -> None:
    """The log of the filter before the operator: what it replays is read from there."""
    create_log(folder, "upstream")
    with open_log_writer(folder) as writer:
        for start in range(0, size.tuples, size.event_tuples):
            stop = start + size.event_tuples
            payload = stream.batch(start, stop).serialize().to_pybytes()
            sections = (Section(SectionKind.RESULTS, payload),)
            writer.append(TurnRecord(stop - 1, 0, 0, stop - start, stop - start, sections))
        writer.flush()


def sweep(setting: Setting, targets: Sequence[tuple[Row, dict[str, int]]]) -> Iterator[Row]:
    """A run with a crash for each target and each time that a CHECK may take; labels first."""
    size = sizes(setting)
    upstream = setting.folder / "upstream"
    write_upstream(upstream, ItemStream(setting.seed, size.items), size)
    for cost in CHECK_COSTS:
        for labels, target in targets:
            yield {**labels, **crash_and_recover(setting, upstream, cost, **target)}


def crash_and_recover(
    setting: Setting,
    upstream: Path,
    check_cost: str,
    *,
    records: int = NO_TARGET,
    tuples: int = NO_TARGET,
) -> Row:
    """Run to the crash with these targets Q and U, then recover from the logs."""
    size = sizes(setting)
    policy = TargetsPolicy(
        records=records,
        tuples=tuples,
        interval_ms=5,
        period_ms=100,
        check_us=CHECK_COSTS[check_cost] * 1e6 / size.rate,
    )
    return {"check_cost": check_cost, **run_with(setting, upstream, policy)}


def run_with(setting: Setting, upstream: Path, policy: CheckpointPolicy) -> Row:
    """Run the papers' operator to the crash under a policy, then recover from the logs."""
    size = sizes(setting)
    case = Case(ItemStream(setting.seed, size.items), size)
    return run_case(setting.folder / "operator", upstream, case, policy)


def run_case(
    folder: Path,
    upstream: Path,
    case: Case,
    policy: CheckpointPolicy,
    watch: Callable[[Extent], None] = lambda _: None,
) -> Row:
    """Run to the crash, `watch` looking on, then recover from the logs."""
    size = case.size
    logged = Logged(folder, case.make(), policy)
    clock = Clock()
    for start in range(0, size.tuples, size.event_tuples):
        event = case.stream.event(start, start + size.event_tuples)
        logged.turn(event, start * 1e3 / size.rate)
        if event.end % size.look_tuples == 0:
            watch(logged.cec.extent())
    logged.flush()
    seconds, extent = clock.processor_seconds, logged.cec.extent()
    row: Row = {
        "processor_s": seconds,
        "results": logged.tuples,
        "open_windows": extent.open_windows,
        "checks": logged.checks,
        "extent_records": extent.records,
        "replay_tuples": extent.tuples,
    }
    logged.close()
    row |= _recovered(folder, upstream, case.make, extent.open_windows)
    shutil.rmtree(folder)
    return row


def _recovered(
    folder: Path, upstream: Path, make: Callable[[], Aggregate], open_windows: int
) -> Row:
    loads = []
    for _ in range(_LOADS):
        uncached(folder)
        clock = Clock()
        with open_log_reader(folder) as reader:
            cec = ContinuousEventualCheckpointing.recover(
                make(), OpenOnly(), reader.frames_backwards()
            )
        loads.append(clock.seconds)
    uncached(upstream)
    clock = Clock()
    count = 0
    with open_log_reader(upstream) as reader:
        for frame in reader.frames(from_position=cec.position):
            count += frame.length
            cec.turn(_event(frame, cec.position))
    assert cec.operator.open_parts == open_windows, "recovery has lost or invented windows"
    return {
        "load_s": statistics.median(loads),
        "replay_s": clock.seconds,
        "replay_bytes": count,
    }


def _event(frame: Frame, position: int) -> StreamEvent:
    event = StreamEvent(frame.position, result_batch(frame, SCHEMA))
    return event.split(position)[1] if event.start < position else event


# --- what both figures show --------------------------------------------------------------------

_METRICS = (
    ("checks", "CHECKs emitted", "CHECKs"),
    ("extent_records", "Extent at the crash", "records"),
    ("load_s", "EC-load time", "seconds"),
    ("replay_mb", "Input to replay, at the paper's 100 bytes a tuple", "MB"),
)


def with_megabytes(table: pa.Table) -> pa.Table:
    """With the replay as the paper counts it."""
    values = [each * PAPER_TUPLE_BYTES / 1e6 for each in table["replay_tuples"].to_pylist()]
    return table.append_column("replay_mb", pa.array(values, pa.float64()))


def four_plots(table: pa.Table, x: str, x_title: str) -> list[Plot]:
    """The four charts of Fig. 6 and 7."""
    shown = with_megabytes(table)
    return [
        Plot(title, shown, x=x, y=column, x_title=x_title, y_title=unit, kind="bar",
             series="check_cost")
        for column, title, unit in _METRICS
    ]  # fmt: skip


FASTER = (
    "a newer machine, a local disk instead of a file system behind a network, and columns instead "
    "of tuples one by one; how much each of them does was not measured"
)


def ends(table: pa.Table, target: str, papers: dict[str, tuple[str, str]]) -> Iterator[Finding]:
    """Each metric under the tightest and the loosest target, beside the paper's."""
    shown = with_megabytes(table)
    for cost in CHECK_COSTS:
        rows = where(shown, check_cost=cost).to_pylist()
        for column, title, unit in _METRICS:
            for row, paper in zip((rows[0], rows[-1]), papers[column], strict=True):
                name = f"{title}, {target} = {row[target]:,}, a CHECK takes {cost}"
                yield Finding(name, row[column], unit, paper)


def targets_met(table: pa.Table, target: str, reached: str, label: str) -> str:
    """Which targets were kept, within 5%, under each assumption."""
    words = []
    for cost in CHECK_COSTS:
        rows = where(table, check_cost=cost).to_pylist()
        met = [f"{row[label]:,}" for row in rows if row[reached] <= 1.05 * row[target]]
        words.append(f"{', '.join(met) or 'none'} if a CHECK takes {cost}")
    return "; ".join(words)
