"""Queries that run at the same time and take turns on the processors, a second or so each.

How fast a shared machine is changes from one second to the next.  Queries that are started one
after the other meet different machines; these meet the same one, and a ratio within a round is
theirs.  A query whose turn it is not has no input, and its nodes sleep.

Whose turn it is follows from the wall clock alone, so sources in other processes know it, too:

    |-- settles in ------|-- is measured --------------|-- drains -----------|
    | queues fill up     | all of its nodes have work  | input is held back  |

What always holds: never do two contenders have input at once, and in every round each has one turn;
who goes first changes from round to round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rewake.model.connectors import Source, SourceReader
from rewake.model.stream_event import StreamEvent
from rewake_lab.bench.ticks import Ticks

__all__ = ["InTurns", "Rate", "Sample", "Turns", "rates_of", "watch"]

_LOOK_SECONDS: Final = 0.005


class _Now(NamedTuple):
    """The number of a round, whose turn it is there, and how much of the turn is over."""

    number: int
    contender: int
    over_ms: float


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns of `contenders` queries, since ever."""

    contenders: int = 2
    settle_ms: float = 300.0
    measured_ms: float = 1000.0
    drain_ms: float = 300.0

    @property
    def turn_ms(self) -> float:
        """How long a turn is."""
        return self.settle_ms + self.measured_ms + self.drain_ms

    def at(self, now_ms: float) -> _Now:
        """Whose turn it is."""
        turn, over_ms = divmod(now_ms, self.turn_ms)
        number, place = divmod(int(turn), self.contenders)
        return _Now(number, self.contenders - 1 - place if number % 2 else place, over_ms)

    def has_input(self, contender: int, now_ms: float) -> bool:
        """Whether the source of this one may be read."""
        now = self.at(now_ms)
        return now.contender == contender and now.over_ms < self.turn_ms - self.drain_ms

    def is_measured(self, contender: int, now_ms: float) -> bool:
        """Whether this one works as fast as it can."""
        return self.has_input(contender, now_ms) and self.at(now_ms).over_ms >= self.settle_ms


@dataclass(frozen=True, slots=True)
class InTurns:
    """A source that has something to read only when it is its query's turn."""

    source: Source
    turns: Turns
    contender: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        return self.source.schema

    def describe(self) -> dict[str, Any]:
        """As the source it is: turns do not decide which tuples come."""
        return self.source.describe()

    def open(self, shard: int, shards: int) -> SourceReader:
        """Open one of `shards` disjoint parts."""
        return _ReaderInTurns(self.source.open(shard, shards), self.turns, self.contender)


class _ReaderInTurns:
    def __init__(self, reader: SourceReader, turns: Turns, contender: int) -> None:
        self._reader, self._turns, self._contender = reader, turns, contender

    def seek(self, position: int) -> None:
        self._reader.seek(position)

    def read(self, now_ms: float) -> StreamEvent | None:
        if not self._turns.has_input(self._contender, now_ms):
            return None
        return self._reader.read(now_ms)

    @property
    def ended(self) -> bool:
        return self._reader.ended

    def close(self) -> None:
        self._reader.close()


class Sample(NamedTuple):
    """How far a query had come when it was seen to have come further."""

    ticks: Ticks
    position: int


class Rate(NamedTuple):
    """Tuples per second, and the share of the time that the host took meanwhile."""

    tuples_per_s: float
    stolen: float

    @property
    def of_what_was_left(self) -> float:
        """Tuples per second that the host left to the machine."""
        return self.tuples_per_s / max(1.0 - self.stolen, 0.01)


def watch(
    turns: Turns,
    rounds: int,
    positions: Sequence[Callable[[], int]],
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> list[dict[int, Rate]]:
    """How fast each contender was by round, over the next `rounds` whole rounds."""
    samples: list[list[Sample]] = [[] for _ in positions]
    # In the one that is under way some may have missed their turn; the next makes caches warm.
    first = turns.at(clock() * 1e3).number + 2
    while (number := turns.at(now_ms := clock() * 1e3).number) < first + rounds:
        for position, seen in zip(positions, samples, strict=True):
            where = position()
            if number >= first and (not seen or where > seen[-1].position):
                seen.append(Sample(Ticks.at(now_ms), where))
        sleep(_LOOK_SECONDS)
    return [rates_of(turns, contender, seen) for contender, seen in enumerate(samples)]


def rates_of(turns: Turns, contender: int, samples: Iterable[Sample]) -> dict[int, Rate]:
    """How fast it was by round, where more than one sample is from the time that is measured."""
    by_round: dict[int, list[Sample]] = {}
    for each in samples:
        wall_ms = each.ticks.wall_ms
        if turns.is_measured(contender, wall_ms):
            by_round.setdefault(turns.at(wall_ms).number, []).append(each)
    return {number: _rate(seen[0], seen[-1]) for number, seen in by_round.items() if len(seen) > 1}


def _rate(first: Sample, last: Sample) -> Rate:
    seconds = (last.ticks.wall_ms - first.ticks.wall_ms) / 1e3
    return Rate((last.position - first.position) / seconds, first.ticks.stolen_until(last.ticks))
