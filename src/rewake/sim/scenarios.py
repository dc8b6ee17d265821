"""Small random queries, with everything that decides what they must yield.

Every step that a scenario uses is said twice: to the query in its own words, and in plain Python
for whoever judges the outcome.  Keys and values are small, so that windows fill and close often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa

from rewake.graph.plan.plan import Plan
from rewake.graph.query import Query
from rewake.graph.stream import Stream
from rewake.model.stream_event import StreamEvent
from rewake.operators.windows.specs import CountWindow, TimeWindow, count_window, time_window
from rewake.recovery.approach import Approach
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.instant.approach import Instant
from rewake.recovery.policies.cost_benefit import CostBenefit
from rewake.recovery.policies.shots import Shots
from rewake.recovery.policies.targets import Targets
from rewake.sim.connectors import ListSink, ListSource

Row = dict[str, Any]

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
_EMPTY = pa.RecordBatch.from_pylist([], SCHEMA)


@dataclass(frozen=True, slots=True)
class ProducerScript:
    """A producer of an entry: how much it writes, and when others come to write under its name."""

    entry: str
    name: str
    number: int
    tuples: int
    rivals_ms: tuple[float, ...]
    schema: pa.Schema = SCHEMA


@dataclass(slots=True)
class Scenario:
    """A plan, and what its steps mean in plain Python, by name of the step."""

    plan: Plan
    sources: dict[str, ListSource]
    sinks: dict[str, ListSink]
    predicates: dict[str, Callable[[Row], bool]] = field(default_factory=dict)
    maps: dict[str, Callable[[Row], Row]] = field(default_factory=dict)
    # The most that a source may wait between two stream events, of which a run has one.
    paces_ms: tuple[float, ...] = (2.0, 10.0, 40.0)
    # Steps that make any number of tuples of one.
    several: dict[str, Callable[[Row], list[Row]]] = field(default_factory=dict)
    # The predicates of a split, in order; what none holds for is the rest.
    splits: dict[str, list[Callable[[Row], bool]]] = field(default_factory=dict)
    # Who writes into entries.
    producers: tuple[ProducerScript, ...] = ()
    # Of loops without state: where they are entered, and what a tuple that was there comes back as.
    comes_back: dict[str, Callable[[Row], list[Row]]] = field(default_factory=dict)

    @property
    def tuples(self) -> int:
        """How many tuples enter."""
        tuples = sum(each.tuples for each in self.producers)
        for source in self.sources.values():
            tuples += sum(event.batch.num_rows for shard in source.shards for event in shard)
        return tuples


class Builder:
    """Grows a query from the generator of a run."""

    def __init__(self, random: Random, *, largest: int) -> None:
        self._random = random
        self._largest = largest
        # A promise looks at the machine's clock, and here all time is virtual.
        self._query = Query("simulated", recover_within=None)
        self._scenario = Scenario(Plan("", ()), {}, {})
        self._keys = random.choice((2, 5, 12))
        self._timed = random.random() < 0.4

    def build(self) -> Scenario:
        """One scenario."""
        random = self._random
        streams = [self._source(f"source{number}") for number in range(random.choice((1, 1, 1, 2)))]
        streams = [self._stateless(each, number) for number, each in enumerate(streams)]
        stream = streams[0]
        meeting = random.random() if len(streams) > 1 else 1.0
        if meeting < 0.45:
            stream = stream.union(*streams[1:], name="union", approach=self._approach())
        elif meeting < 0.8:
            stream = self._join(*streams)
        elif len(streams) > 1:
            streams[1].to_stream("stream-aside")
        if random.random() < 0.15:
            stream.to_stream("stream-kept")
        ends = [self._aggregate(stream, "first")]
        if random.random() < 0.3:
            ends.append(self._aggregate(stream, "other"))
        if random.random() < 0.35:
            ends[0] = self._second(ends[0])
        for number, end in enumerate(ends):
            end.to_stream(f"stream{number}")
            self._maybe_sink(end, number)
        self._scenario.plan = self._kept(self._query.plan())
        return self._scenario

    def _maybe_sink(self, stream: Stream, number: int) -> None:
        if self._random.random() < 0.4:
            sink = self._scenario.sinks[f"sink{number}"] = ListSink()
            stream.to(sink, name=f"sink{number}")

    def _kept(self, plan: Plan) -> Plan:
        """The plan with history where clients read, as a user would ask for."""
        kept = {
            node
            for name, places in plan.streams.items()
            if name.startswith("stream")
            for node, _ in places
        }
        nodes = tuple(replace(each, keeps_history=each.name in kept) for each in plan.nodes)
        streams = {name: at for name, at in plan.streams.items() if name.startswith("stream")}
        return replace(plan, nodes=nodes, streams=streams)

    # --- steps -------------------------------------------------------------------------------

    def _source(self, name: str) -> Stream:
        shards = self._random.choice((1, 1, 1, 2))
        source = ListSource(SCHEMA, tuple(self._events() for _ in range(shards)))
        self._scenario.sources[name] = source
        return self._query.source(name, source, shards=shards)

    def _events(self) -> tuple[StreamEvent, ...]:
        random, events = self._random, []
        tuples, clock, position = random.randrange(20, self._largest), 0, 0
        size = random.choice((3, 10, 40))
        while position < tuples:
            rows = []
            for _ in range(random.randrange(1, size + 1)):
                clock += random.choice((0, 0, 1, 1, 2, 6))
                late = random.choice((0, 0, 0, 1, 4))
                rows.append(
                    {
                        "k": random.randrange(self._keys),
                        "v": random.randrange(-20, 60),
                        "t": max(0, clock - late),
                    }
                )
            watermark = (
                clock - random.choice((0, 2)) if self._timed and random.random() < 0.2 else None
            )
            events.append(
                StreamEvent(position, pa.RecordBatch.from_pylist(rows, SCHEMA), watermark)
            )
            position += len(rows)
            if self._timed and random.random() < 0.1:
                events.append(StreamEvent(position, _EMPTY, clock + random.choice((-3, 0, 2))))
        return tuple(events)

    def _stateless(self, stream: Stream, number: int) -> Stream:
        random = self._random
        if random.random() < 0.8:
            stream = self._filter(stream, f"filter{number}")
        if random.random() < 0.3:
            name = f"map{number}"
            stream = stream.map({"k": "k", "v": "v * 2", "t": "t"}, name=name)
            self._scenario.maps[name] = lambda row: row | {"v": row["v"] * 2}
        return stream

    def _filter(self, stream: Stream, name: str, **options: Any) -> Stream:
        modulus, rest = self._random.randrange(2, 5), self._random.randrange(2)
        self._scenario.predicates[name] = lambda row: (row["v"] + 100) % modulus != rest
        return stream.filter(f"(v + 100) % {modulus} <> {rest}", name=name, **options)

    def _join(self, left: Stream, right: Stream) -> Stream:
        random = self._random
        return left.join(
            right,
            on="k",
            within=random.choice((2, 5, 12)),
            time="t",
            how=random.choice(("inner", "inner", "left")),
            slack=random.choice((0, 3)),
            name="join",
            shards=random.choice((1, 1, 2)),
            approach=self._approach(),
        )

    def _aggregate(self, stream: Stream, name: str) -> Stream:
        timed = self._timed and self._random.random() < 0.7
        window: CountWindow | TimeWindow
        size = self._random.randrange(1, 9)
        every = self._random.choice((size, size, self._random.randrange(1, 10)))
        window = time_window(size * 3, every * 3) if timed else count_window(size, every)
        fused = f"fused-{name}" if self._random.random() < 0.25 else None
        approach = self._approach()
        if fused is not None:
            # Fused with the aggregate, a filter has the aggregate's approach and one shard.
            stream = self._filter(
                stream, f"{name}-filter", shards=1, approach=approach, fragment=fused
            )
        results = stream.aggregate(
            by="k",
            window=window,
            sum="v",
            count=True,
            max="v",
            first="t",
            time="t" if timed else None,
            slack=self._random.choice((0, 2, 5)) if timed else 0,
            route_late=timed,
            name=name,
            shards=1 if fused is not None else self._random.choice((1, 1, 2, 3)),
            approach=approach,
            fragment=fused,
        )
        if timed:
            results.late.to_stream(f"stream-late-{name}")
        return results

    def _second(self, stream: Stream) -> Stream:
        size = self._random.randrange(1, 5)
        return stream.aggregate(
            by="k",
            window=count_window(size),
            sum="sum_v",
            last="max_v",
            name="second",
            shards=self._random.choice((1, 1, 2)),
            approach=self._approach(),
        )

    def _approach(self) -> Approach:
        random = self._random
        kind = random.choice(("plain", "targets", "shots", "costs", "instant", "delta"))
        if kind == "targets":
            targets = Targets(
                records=random.randrange(30),
                tuples=random.randrange(60),
                interval_ms=1,
                period_ms=random.choice((1, 20)),
                check_us=random.choice((1, 300)),
            )
            return ContinuousEventual(targets)
        if kind == "shots":
            return ContinuousEventual(Shots(random.randrange(1, 20), windows=3))
        if kind == "costs":
            return ContinuousEventual(CostBenefit(random.choice((0.1, 5.0)), period_ms=5))
        if kind == "instant":
            return Instant(every_tuples=random.randrange(1, 80))
        if kind == "delta":
            return Instant(every_tuples=None, every_turns=random.randrange(1, 6), full_every=4)
        return ContinuousEventual()


class ProducersBuilder(Builder):
    """Grows a query with an entry that several producers write to."""

    def build(self) -> Scenario:
        """One scenario."""
        random = self._random
        stream = self._query.entry("entry", SCHEMA, approach=self._approach())
        stream.to_stream("stream-entry")
        end = self._aggregate(self._stateless(stream, 0), "first")
        end.to_stream("stream0")
        self._maybe_sink(end, 0)
        self._scenario.producers = tuple(
            ProducerScript(
                "entry",
                f"producer{number}",
                number,
                random.randrange(self._largest),
                tuple(random.uniform(20, 1500) for _ in range(random.choice((0, 0, 1, 2, 4)))),
            )
            for number in range(random.choice((1, 2, 2, 4)))
        )
        self._scenario.plan = self._kept(self._query.plan())
        return self._scenario


def producers_scenario(random: Random, *, largest: int = 220) -> Scenario:
    """A scenario with at most so many tuples per producer, roughly."""
    return ProducersBuilder(random, largest=largest).build()


def random_scenario(random: Random, *, largest: int = 220) -> Scenario:
    """A scenario with at most so many tuples per source and shard, roughly."""
    return Builder(random, largest=largest).build()
