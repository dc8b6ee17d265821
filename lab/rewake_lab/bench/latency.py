"""Latencies second by second, and which seconds count.

Latency is a time, not a ratio, and a host that takes the processors away from its virtual machine
for 30 ms is seen in every result that was due then, and in those behind them until the queue is
worked off.  So the seconds in which the host left the machine alone count, and did so a moment
before, if there are enough of them, and otherwise all; the rows say which, and what all of them
came to.  Which seconds these are is told by the system, never by the latencies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rewake.drill.run import DrillResult
from rewake_lab.bench.rows import Row
from rewake_lab.bench.ticks import Ticks

__all__ = ["Second", "alone", "latency_rows", "seconds_of"]

# A host that takes no more of the time than this leaves the machine alone.
_ALONE: Final = 0.01
_SECOND_MS: Final = 1000.0
# What piled up while the host was at it is worked off for a while after.
_WORKED_OFF_MS: Final = 500.0
# Results that are due at the end of a second are still on their way for about so long.
_ON_THEIR_WAY_MS: Final = 100.0


class Second(NamedTuple):
    """The latencies in ms of the results that were due in a second, and what the host took.

    Taken then, a moment before, or while its last results were on their way: of all that time.
    """

    latencies: NDArray[Any]
    stolen: float


def seconds_of(result: DrillResult, ticks: Sequence[Ticks]) -> list[Second]:
    """One run at a rate, but for its first second, which fills caches and windows."""
    assert result.origin_ms is not None
    due = np.concatenate([result.due_ms(each) for shard in result.arrivals for each in shard])
    latencies = result.latencies_ms()
    number = ((due - result.origin_ms) // _SECOND_MS).astype(np.int64)
    found = []
    for second in range(1, int(number.max()) + 1):
        start = result.origin_ms + second * _SECOND_MS
        stolen = _stolen(ticks, start - _WORKED_OFF_MS, start + _SECOND_MS + _ON_THEIR_WAY_MS)
        here = latencies[number == second]
        if here.size:
            found.append(Second(here, stolen))
    return found


def _stolen(ticks: Sequence[Ticks], start_ms: float, end_ms: float) -> float:
    """The share of the time that the host took from `start_ms` to `end_ms`."""
    times = [each.wall_ms for each in ticks]
    before, after = (bisect_left(times, each) for each in (start_ms, end_ms))
    return ticks[max(before - 1, 0)].stolen_until(ticks[min(after, len(ticks) - 1)])


def alone(rounds: Sequence[Sequence[Second]]) -> list[Second]:
    """The seconds in which the host left the machine alone."""
    return [each for each in chain.from_iterable(rounds) if each.stolen <= _ALONE]


def latency_rows(rounds: Sequence[Sequence[Second]], wanted: int, note: str) -> list[Row]:
    """Percentiles over the seconds alone if there are `wanted`, or else medians of all rounds."""
    quiet, all_seconds = alone(rounds), list(chain.from_iterable(rounds))
    of_rounds = np.array([_percentiles(each) for each in rounds])
    p50_of_all, p99_of_all = np.median(of_rounds, axis=0)
    few = len(quiet) < wanted
    p50, p99 = (p50_of_all, p99_of_all) if few else _percentiles(quiet)
    which = (
        f"median of all {len(rounds)} rounds: in too few of their {len(all_seconds)} seconds "
        f"({len(quiet)})"
        if few
        else f"over the {len(quiet)} seconds of {len(all_seconds)} in which"
    )
    stolen = [each.stolen for each in all_seconds]
    words = (
        f"{which} the host of this virtual machine took no more than {_ALONE:.1%} of the time, "
        f"nor of the {_WORKED_OFF_MS / 1e3:g} s before.  "
        f"All {len(rounds)} rounds: median {p99_of_all:.0f}, worst {of_rounds[:, 1].max():.0f} ms; "
        f"taken {np.mean(stolen):.1%}, at most {max(stolen):.1%} of a second"
    )
    return [
        Row("latency p50, source to subscriber", float(p50), "ms", note=note),
        Row("latency p99, source to subscriber", float(p99), "ms", "<= 50", words),
        Row("the same, all rounds", float(p99_of_all), "ms"),
    ]


def _percentiles(seconds: Sequence[Second]) -> tuple[float, float]:
    p50, p99 = np.percentile(np.concatenate([each.latencies for each in seconds]), [50, 99])
    return float(p50), float(p99)
