"""Small random queries behind sources with a slack, and what plain Python makes of all their rows.

The oracle knows no clock: it is given whole streams at once.  So whatever the engine leaves out
because it takes it for late is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from rewake import Batches
from rewake.graph import Query, session_window, time_window
from rewake.graph.stream import Stream
from rewake.node.limits import NodeLimits
from rewake.sim.cluster import Cluster, Kinds
from rewake.sim.connectors import ListSink
from rewake.sim.faults import FaultSchedule
from rewake.sim.world import World

Row = dict[str, Any]
Rows = list[Row]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
KEYS = 4
# What steps say themselves, mostly nothing.
SLACKS = (None, None, 0, 7)


def rows_within(random: Random, rows: int, slack: int) -> Rows:
    """Rows whose times go back by at most `slack`."""
    latest, made = 0, []
    for number in range(rows):
        latest += random.choice((0, 0, 1, 1, 2, 9))
        time = max(0, latest - random.choice((0, 0, random.randint(0, slack), slack)))
        made.append({"k": random.randrange(KEYS), "v": number, "t": time})
    return made


# --- steps, said twice -----------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A stream, the rows it must have, and the column that is its event time."""

    stream: Stream
    rows: Rows
    time: str


def filtered(random: Random, given: Made) -> Made:
    """Some of the rows."""
    stream = given.stream.filter("k <> 1")
    return Made(stream, [row for row in given.rows if row["k"] != 1], given.time)


def mapped(random: Random, given: Made) -> Made:
    """The time under another name."""
    stream = given.stream.map({"k": "k", "v": "v", "at": given.time})
    return Made(stream, [{"k": r["k"], "v": r["v"], "at": r[given.time]} for r in given.rows], "at")


def windowed(random: Random, given: Made) -> Made:
    """Time windows that tumble, overlap or leave gaps; by start or end from then on."""
    size, every = random.choice(((10, 10), (12, 4), (6, 9), (30, 30)))
    stream = given.stream.aggregate(
        by="k", window=time_window(size, every=every), time=given.time, sum=["v"],
        shards=random.choice((1, 2)), slack=random.choice(SLACKS),
    )  # fmt: skip
    sums: dict[tuple[int, int], int] = {}
    for row in given.rows:
        start = row[given.time] // every * every
        while start > row[given.time] - size:
            sums[row["k"], start] = sums.get((row["k"], start), 0) + row["v"]
            start -= every
    rows = [
        {"k": k, "window_start": at, "window_end": at + size, "sum_v": v}
        for (k, at), v in sums.items()
    ]
    return renamed(stream, rows, "sum_v", random.choice(("window_start", "window_end")))


def renamed(stream: Stream, rows: Rows, value: str, time: str) -> Made:
    """What all steps here have: k, v and a time."""
    stream = stream.map({"k": "k", "v": f"coalesce({value}, -1)", "at": time})
    found = [{"k": r["k"], "v": -1 if r[value] is None else r[value], "at": r[time]} for r in rows]
    return Made(stream, found, "at")


def in_sessions(random: Random, given: Made) -> Made:
    """Sessions, which are known by when they end."""
    gap = random.choice((3, 8))
    stream = given.stream.aggregate(
        by="k",
        window=session_window(gap),
        time=given.time,
        sum=["v"],
        shards=random.choice((1, 2)),
        slack=random.choice(SLACKS),
    )
    rows: Rows = []
    for key in range(KEYS):
        mine = sorted((r[given.time], r["v"]) for r in given.rows if r["k"] == key)
        for number, (time, value) in enumerate(mine):
            if number and time < mine[number - 1][0] + gap:
                rows[-1]["window_end"] = time + gap
                rows[-1]["sum_v"] += value
            else:
                rows.append({"k": key, "window_end": time + gap, "sum_v": value})
    return renamed(stream, rows, "sum_v", "window_end")


def in_order(random: Random, given: Made) -> Made:
    """Sorted by event time."""
    stream = given.stream.bsort(by=given.time, buffer=random.choice((100_000, 1000)), flush=True)
    return Made(stream, given.rows, given.time)


def joined(random: Random, left: Made, right: Made) -> Made:
    """Pairs of two streams, and what met nobody."""
    how = random.choice(("inner", "left", "right", "full", "semi", "anti"))
    within = random.choice((3, 10))
    right_stream = right.stream.map({"k": "k", "w": "v", "u": right.time})
    stream = left.stream.join(
        right_stream, on="k", within=within, time=(left.time, "u"), how=how,
        shards=random.choice((1, 2)), slack=random.choice(SLACKS),
    )  # fmt: skip
    rows, met = [], set()
    for one in left.rows:
        partners = [
            (number, other)
            for number, other in enumerate(right.rows)
            if one["k"] == other["k"] and abs(one[left.time] - other[right.time]) < within
        ]
        met |= {number for number, _ in partners}
        time = one[left.time]
        if how in ("semi", "anti"):
            rows += [{"k": one["k"], "v": one["v"], "t": time}] * (
                bool(partners) == (how == "semi")
            )
            continue
        rows += [{"k": one["k"], "v": one["v"], "t": max(time, o[right.time])} for _, o in partners]
        if not partners and how in ("left", "full"):
            rows.append({"k": one["k"], "v": one["v"], "t": time})
    if how in ("right", "full"):
        alone = [other for number, other in enumerate(right.rows) if number not in met]
        rows += [{"k": other["k"], "v": None, "t": other[right.time]} for other in alone]
    named = [row | {left.time: row["t"]} for row in rows]
    return renamed(stream, named, "v", left.time)


ONE_INPUT: tuple[Callable[[Random, Made], Made], ...] = (
    filtered, mapped, windowed, in_sessions, in_order,
)  # fmt: skip


# --- running ---------------------------------------------------------------------------------


def source(query: Query, name: str, random: Random, rows: int, slack: int) -> Made:
    """Rows within a slack, in one or two shards, cut anyhow."""
    made = rows_within(random, rows, slack)
    table = pa.Table.from_pylist(made, SCHEMA)
    batches = Batches(table, event_tuples=random.choice((1, 5, 40)), time_column="t", slack=slack)
    return Made(query.source(name, batches, shards=random.choice((1, 1, 2))), made, "t")


def random_query(random: Random, rows: int) -> tuple[Query, ListSink, Rows]:
    """A query that ends with time windows, its sink, and what must be in it."""
    query = Query("one-clock")
    slack = random.choice((0, 3, 20))
    made = source(query, "left", random, rows, slack)
    for _ in range(random.choice((0, 1))):
        made = random.choice(ONE_INPUT)(random, made)
    if random.random() < 0.6:
        made = joined(random, made, source(query, "right", random, rows, random.choice((0, 3, 20))))
    for _ in range(random.choice((0, 1, 1))):
        made = random.choice(ONE_INPUT)(random, made)
    made = windowed(random, made)
    sink = ListSink()
    made.stream.to(sink)
    return query, sink, made.rows


def run(query: Query, seed: int, *, faults: bool = True) -> None:
    """Run a query in the simulator; with faults, as many as the seed says."""
    world = World(seed)
    cluster = Cluster(world, query.plan(), kinds=Kinds(), limits=NodeLimits(turns_per_trim=4))
    cluster.pace_ms = 5.0
    schedule = FaultSchedule(cluster, world.between(100, 1500) if faults else 0.0)
    cluster.start()
    if faults:
        schedule.start()
    world.run(lambda: cluster.over, until_ms=schedule.stops_ms + 60_000.0)


def counted(rows: Rows) -> Counter[tuple[tuple[str, Any], ...]]:
    """Rows in no order."""
    return Counter(tuple(sorted(row.items())) for row in rows)


def committed(sink: ListSink) -> Rows:
    """What a sink has."""
    return [
        row for events in sink.committed.values() for e in events for row in e.batch.to_pylist()
    ]
