"""`rewake bench engine`: whole queries as nodes on a local Spark, side by side with Spark itself.

The query: item stream -> filter -> averages over count windows -> files, every step a node of its
own, 100,000 items.  What Spark is compared with runs on the same session, warmed up.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rewake.connectors.files.sink import FileSink
from rewake.connectors.item_stream import ItemSource, ItemStream
from rewake.drill.kept import course_of
from rewake.drill.queries import ItemDrill
from rewake.drill.run import DrillResult, run_drill
from rewake.drill.when import Strike
from rewake.graph.query import Query
from rewake.model.connectors import Source
from rewake.model.errors import OperatingFault
from rewake.net.queries.running import RunningQuery
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import approach_named
from rewake.spark.job import SparkNodes
from rewake.spark.session import local_session
from rewake_lab.bench.latency import Second, alone, latency_rows, seconds_of
from rewake_lab.bench.rows import (
    Measured,
    Part,
    Progress,
    Row,
    Shown,
    measure,
    median_interval,
    median_ratio,
)
from rewake_lab.bench.ticks import Ticks
from rewake_lab.bench.turns import InTurns, Rate, Turns, watch
from rewake_lab.spark.state import stateful_rows_per_s

_KEYS = 100_000
_EVENT_TUPLES = 131_072
_ITEMS = ItemSource(ItemStream(1, _KEYS), event_tuples=_EVENT_TUPLES)
# For latency: a stream event holds what comes in this time.  With half of it, p50 was the same and
# nodes took about a fifth more of the processors (three short runs of each, by hand).
_EVENT_SECONDS = 0.01
_NODES = 4
_WITH_AND_WITHOUT = ("cec", "amnesia")
_WARM_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How long things are measured."""

    seconds: float = 4.0
    runs: int = 5
    rounds: int = 100
    batches: int = 6
    latency_seconds: float = 6.0
    latency_rounds: int = 5
    most_latency_rounds: int = 20
    quiet_seconds: int = 5
    kills: int = 3
    minutes: float = 0.0


QUICK = Scale(
    seconds=3.0,
    runs=1,
    rounds=3,
    batches=3,
    latency_seconds=4.0,
    latency_rounds=1,
    most_latency_rounds=2,
    quiet_seconds=2,
    kills=1,
)


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rewake-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def about() -> dict[str, Any]:
    """What the page shows beside the figures: the query that is measured."""
    return {"query": _query(Path("folder"), "cec").explain()}


def _query(folder: Path, approach: str, source: Source = _ITEMS) -> Query:
    """Without an end: it runs until it has been measured."""
    # What logs alone cost: CHECKs are measured by `bench recover-within`.
    query = Query("bench", approach=approach_named(approach), recover_within=None)
    items = query.source("items", source)
    cheap = items.filter("item_price <= 900", name="cheap")
    averages = cheap.aggregate(
        by="item_id", window=count_window(10), avg="item_price", name="averages"
    )
    averages.to(FileSink(str(folder / "files")), name="files")
    return query


def _throughput(session: Any, parent: Path, seconds: float) -> float:
    """Tuples per second that get through, while all nodes run."""
    with (
        _folder(parent) as folder,
        RunningQuery(_query(folder, "cec").plan(), folder / "query", SparkNodes(session)) as query,
    ):
        query.await_start()
        _await_input(query)
        time.sleep(_WARM_SECONDS)
        before, start = _consumed(query), time.monotonic()
        time.sleep(seconds)
        after, end = _consumed(query), time.monotonic()
        # What is consumed is told every tenth of a second: at most 2% of the time measured.
        return (after - before) / (end - start)


def _with_and_without_logs(session: Any, parent: Path, rounds: int) -> list[tuple[Rate, Rate]]:
    """How fast both were, round by round."""
    turns = Turns(len(_WITH_AND_WITHOUT))
    with ExitStack() as stack:
        queries = []
        for contender, approach in enumerate(_WITH_AND_WITHOUT):
            folder = stack.enter_context(_folder(parent))
            plan = _query(folder, approach, InTurns(_ITEMS, turns, contender)).plan()
            query = RunningQuery(plan, folder / "query", SparkNodes(session))
            queries.append(stack.enter_context(query))
        for query in queries:
            query.await_start()
            _await_input(query)
        logged, unlogged = watch(turns, rounds, [partial(_consumed, each) for each in queries])
    pairs = [(logged[each], unlogged[each]) for each in logged.keys() & unlogged.keys()]
    if not pairs:
        raise OperatingFault("there was no round in which both queries got on; try again")
    return pairs


def price_of_logs(rounds: Sequence[tuple[Rate, Rate]]) -> list[Row]:
    """What is left of the throughput with logs, of rounds with and without."""
    ratios = [logged.of_what_was_left / bare.of_what_was_left for logged, bare in rounds]
    low, high = median_interval(ratios)
    with_logs, without = ([both[place].tuples_per_s for both in rounds] for place in (0, 1))
    stolen = statistics.mean(each.stolen for both in rounds for each in both)
    return [
        Row("with / without fault tolerance", statistics.median(ratios), "ratio", ">= 0.9",
            f"both at once, in turns, per second that the host of this virtual machine left to it; "
            f"{len(ratios)} rounds, the median is 95% sure to lie between {low:.3f} and "
            f"{high:.3f}; the host took {stolen:.1%}"),
        Row("the same, per second of the clock", median_ratio(with_logs, without), "ratio"),
    ]  # fmt: skip


def _consumed(query: RunningQuery) -> int:
    return int(query.status()["averages"].get("input_position", 0))


def _await_input(query: RunningQuery) -> None:
    deadline = time.monotonic() + 60.0
    while _consumed(query) < 10 * _EVENT_TUPLES and time.monotonic() < deadline:
        query.await_end(0.05)


def _speed(session: Any, parent: Path, scale: Scale) -> tuple[list[Row], float]:
    with _folder(parent) as folder:
        spark = stateful_rows_per_s(session, folder, _KEYS, scale.batches)
    fastest = statistics.median(
        _throughput(session, parent, scale.seconds) for _ in range(scale.runs)
    )
    note = "100,000 items, count windows of 10, source, filter, aggregate and file sink as nodes"
    return [
        Row("engine, CEC and stable logs", fastest / 1e6, "M tuples/s", note=note),
        Row("Spark's own stateful aggregation", spark / 1e6, "M rows/s",
            note="groupBy(item_id).agg(avg, count), RocksDB with changelog"),
        Row("engine / Spark's own state", fastest / spark, "ratio", ">= 15"),
        *price_of_logs(_with_and_without_logs(session, parent, scale.rounds)),
    ], fastest  # fmt: skip


def _latency(session: Any, parent: Path, scale: Scale, fastest: float) -> list[Row]:
    """Of a query that also says when each window closed, at half of what that one can do."""
    drill = ItemDrill(tuples=int(fastest * scale.seconds / 2), items=_KEYS, event_tuples=65_536)
    rate = _drilled(session, parent, drill, []).tuples_per_s / 2
    drill = replace(
        drill,
        tuples=int(rate * scale.latency_seconds),
        rate=rate,
        event_tuples=max(1024, int(rate * _EVENT_SECONDS)),
    )
    rounds: list[list[Second]] = []
    while len(rounds) < scale.most_latency_rounds and (
        len(rounds) < scale.latency_rounds or len(alone(rounds)) < scale.quiet_seconds
    ):
        rounds.append(_round(session, parent, drill))
    note = f"{rate / 1e6:.1f} M tuples/s, half of the maximum; from due to arrival at a client"
    return latency_rows(rounds, scale.quiet_seconds, note)


def _round(session: Any, parent: Path, drill: ItemDrill) -> list[Second]:
    """One run; what the host takes is noted all along."""
    ticks: list[Ticks] = []
    result = _drilled(
        session, parent, drill, [],
        lambda *_: ticks.append(Ticks.at(time.time() * 1e3)),
    )  # fmt: skip
    return seconds_of(result, ticks)


def _drilled(
    session: Any,
    parent: Path,
    drill: ItemDrill,
    strikes: list[Strike],
    on_progress: Callable[[DrillResult, int], None] | None = None,
) -> DrillResult:
    with _folder(parent) as folder:
        if drill.rate is not None:
            drill = replace(drill, gun=str(folder / "first-tuple-due-ms"))
        nodes = SparkNodes(session)
        return run_drill(drill, folder / "query", nodes, strikes=strikes, on_progress=on_progress)


def _recovery(session: Any, parent: Path, scale: Scale) -> tuple[list[Row], Shown]:
    """The figures of some kills, and the run with the slowest recovery."""
    found: list[tuple[float, float, DrillResult]] = []
    for number in range(scale.kills):
        drill = ItemDrill(tuples=6_000_000, items=_KEYS, rate=1e6, seed=number + 1)
        result = _drilled(session, parent, drill, [Strike("averages", "kill", at_seconds=3.0)])
        for each in result.recoveries():
            restart = each.detect + each.restart
            found.append(((each.total - restart) / 1e3, restart / 1e3, result))
    restarts = [restart for _, restart, _ in found]
    beyond, _, slowest = max(found, key=lambda each: each[0])
    note = f"{scale.kills} kills of the node with {_KEYS:,} windows at 1 M tuples/s"
    rows = [
        Row("Spark starts a killed task again", statistics.median(restarts), "s", note=note),
        Row("SIGKILL to next result, beyond that", beyond, "s", "<= 1", "the worst of them"),
    ]
    words = f"Of {scale.kills} runs with a kill, the one whose recovery took longest."
    return rows, Shown(words, course_of(slowest))


def _memory(session: Any, parent: Path, minutes: float) -> list[Row]:
    """Resident memory of all nodes over a long run with a kill every 30 seconds."""
    rate, seconds = 5e5, minutes * 60
    drill = ItemDrill(tuples=int(rate * seconds), items=_KEYS, rate=rate)
    random = Random(1)
    strikes = [
        Strike(random.choice(["items", "cheap", "averages"]), "kill", at_seconds=float(at))
        for at in range(30, int(seconds) - 10, 30)
    ]
    samples: list[tuple[float, float]] = []

    def sample(result: DrillResult, _read: int) -> None:
        used = sum(float(each.get("rss_mib", 0.0)) for each in result.status.values())
        if used and (not samples or result.samples[-1][0] - samples[-1][0] > 1.0):
            samples.append((result.samples[-1][0], used))

    result = _drilled(session, parent, drill, strikes, sample)
    assert result.verdict is not None
    third = len(samples) // 3
    early = statistics.median(used for _, used in samples[third // 2 : third])
    late = statistics.median(used for _, used in samples[-third // 2 :])
    wrong = sum(result.verdict[1:])
    note = f"{minutes:g} minutes, {len(result.blows)} kills; late against early, all nodes"
    return [
        Row("memory, late / early", late / early, "ratio", "<= 1.1", note),
        Row("results lost, repeated, reordered, wrong", float(wrong), "results", "<= 0"),
    ]


def run(folder: Path, progress: Progress, *, scale: Scale | None = None) -> Measured:
    """All figures."""
    scale = scale or Scale()
    progress("starting Spark")
    session = local_session(nodes=_NODES * len(_WITH_AND_WITHOUT))
    try:
        return _measured(session, folder, scale, progress)
    finally:
        session.stop()


def _measured(session: Any, folder: Path, scale: Scale, progress: Progress) -> Measured:
    fastest = 0.0
    shown: Shown | None = None

    def speed() -> list[Row]:
        nonlocal fastest
        rows, fastest = _speed(session, folder, scale)
        return rows

    def recovery() -> list[Row]:
        nonlocal shown
        rows, shown = _recovery(session, folder, scale)
        return rows

    parts: list[Part] = [
        ("throughput, with and without logs, and Spark's own state", speed),
        ("latency at half of the maximum", lambda: _latency(session, folder, scale, fastest)),
        ("kill and recover", recovery),
    ]
    if scale.minutes:
        about = f"memory over {scale.minutes:g} minutes with a kill every 30 seconds"
        parts.append((about, lambda: _memory(session, folder, scale.minutes)))
    return replace(measure(parts, progress), shown=shown)
