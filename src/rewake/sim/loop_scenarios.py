"""Small random queries whose streams come back: simple, nested and overlapping loops.

Every loop comes to its end: what goes around gets smaller, or fewer tuples are made of more.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from rewake.graph.stream import LoopStream, Stream
from rewake.operators.windows.specs import count_window, time_window
from rewake.sim.scenarios import SCHEMA, Builder, Row, Scenario

__all__ = ["loop_scenario"]


class LoopBuilder(Builder):
    """Sources, a loop or two, and what reads them."""

    def build(self) -> Scenario:
        """One scenario."""
        random = self._random
        streams = [self._source(f"source{number}") for number in range(random.choice((1, 1, 2)))]
        streams = [self._stateless(each, number) for number, each in enumerate(streams)]
        mixed = random.choice(_LOOPS)(self, streams)
        ends = [self._aggregate(mixed, "first")]
        if random.random() < 0.3:
            ends.append(self._aggregate(mixed, "other"))
        for number, end in enumerate(ends):
            end.to_stream(f"stream{number}")
            self._maybe_sink(end, number)
        if random.random() < 0.3:
            mixed.to_stream("stream-mixed")
        self._scenario.plan = self._kept(self._query.plan())
        return self._scenario

    # --- loops -------------------------------------------------------------------------------

    def _reducing(self, streams: list[Stream]) -> Stream:
        """What is large comes back smaller."""
        again = self._loop("again")
        mixed = self._entered("mixed", [*streams, again])
        reduced, comes_back = self._reduced(mixed, "again")
        again.close_with(reduced)
        self._scenario.comes_back["mixed"] = comes_back
        return mixed

    def _read_apart(self, streams: list[Stream]) -> Stream:
        """The loop itself is read by a step without other inputs."""
        again = self._loop("again")
        reduced, comes_back = self._reduced(again, "again")
        mixed = self._entered("mixed", [*streams, reduced])
        again.close_with(mixed)
        self._scenario.comes_back["mixed"] = comes_back
        return mixed

    def _nested(self, streams: list[Stream]) -> Stream:
        """Two loops, one within the other, entered at two places."""
        outer, inner = self._loop("outer"), self._loop("inner")
        mixed = self._entered("mixed", [streams[0], outer])
        within = self._entered("within", [mixed, inner, *streams[1:]])
        back, _ = self._reduced(within, "inner")
        inner.close_with(back)
        outer.close_with(self._reduced(within, "outer")[0])
        return within

    def _two(self, streams: list[Stream]) -> Stream:
        """Two loops that share all but the way back."""
        one, other = self._loop("one"), self._loop("two")
        mixed = self._entered("mixed", [*streams, one, other])
        first, comes_back_first = self._reduced(mixed, "one")
        second, comes_back_second = self._reduced(mixed, "two")
        one.close_with(first)
        other.close_with(second)
        self._scenario.comes_back["mixed"] = lambda row: [
            *comes_back_first(row),
            *comes_back_second(row),
        ]
        return mixed

    def _summed(self, streams: list[Stream]) -> Stream:
        """An aggregate is on the loop: of several tuples it makes one."""
        again = self._loop("again")
        mixed = self._entered("mixed", [*streams, again])
        timed = self._timed and self._random.random() < 0.6
        size = self._random.randrange(2, 5)
        sums = mixed.aggregate(
            by="k",
            window=time_window(size * 3) if timed else count_window(size),
            sum="v",
            max="t",
            time="t" if timed else None,
            slack=self._random.choice((0, 2, 5)) if timed else 0,
            name="sums",
            shards=self._random.choice((1, 1, 2)),
            approach=self._approach(),
        )
        named = sums.map({"k": "k", "v": "sum_v", "t": "max_t"}, name="named")
        self._scenario.maps["named"] = lambda row: {
            "k": row["k"],
            "v": row["sum_v"],
            "t": row["max_t"],
        }
        # Sums of one window each could go around for ever.
        again.close_with(self._reduced(named, "again")[0] if timed else named)
        return mixed

    # --- steps -------------------------------------------------------------------------------

    def _loop(self, name: str) -> LoopStream:
        return self._query.loop(name, SCHEMA)

    def _entered(self, name: str, streams: list[Stream]) -> Stream:
        shards = self._random.choice((1, 1, 2))
        options: dict[str, Any] = {"shards": shards, "approach": self._approach()}
        return streams[0].union(*streams[1:], name=name, partition_by="k", **options)

    def _reduced(self, stream: Stream, name: str) -> tuple[Stream, Callable[[Row], list[Row]]]:
        """What exceeds a limit, less some; and the same in plain Python."""
        least, less = self._random.choice((20, 40, 55)), self._random.randrange(7, 30)
        dear, smaller = f"{name}-dear", f"{name}-smaller"
        self._scenario.predicates[dear] = lambda row: row["v"] > least
        self._scenario.maps[smaller] = lambda row: row | {"v": row["v"] - less}
        reduced = stream.filter(f"v > {least}", name=dear)
        reduced = reduced.map({"k": "k", "v": f"v - {less}", "t": "t"}, name=smaller)
        return reduced, lambda row: [row | {"v": row["v"] - less}] if row["v"] > least else []


_LOOPS: list[Callable[[LoopBuilder, list[Stream]], Stream]] = [
    LoopBuilder._reducing,
    LoopBuilder._read_apart,
    LoopBuilder._nested,
    LoopBuilder._two,
    LoopBuilder._summed,
    LoopBuilder._summed,
]


def loop_scenario(random: Random, *, largest: int = 120) -> Scenario:
    """A scenario with loops, with at most so many tuples per source and shard, roughly."""
    return LoopBuilder(random, largest=largest).build()
