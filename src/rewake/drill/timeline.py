"""What a drill looked like over time: rates and latencies in steps of a tenth of a second."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rewake.drill.run import DrillResult

STEP_SECONDS = 0.1


class Timeline(NamedTuple):
    """Per step: its start in seconds since the first result, and what was seen in it."""

    seconds: np.ndarray[Any, Any]
    tuples_per_s: np.ndarray[Any, Any]
    results_per_s: np.ndarray[Any, Any]
    # NaN where nothing arrived, or where the source has no pace to measure against.
    latency_p50_ms: np.ndarray[Any, Any]
    latency_p99_ms: np.ndarray[Any, Any]


def timeline(result: DrillResult) -> Timeline:
    """Cut the run into steps."""
    start, end = result.first_result_at, result.ended_at
    edges = np.arange(start, end + STEP_SECONDS, STEP_SECONDS)
    if edges.size < 2:
        edges = np.array([start, start + STEP_SECONDS])
    at = np.array([time for time, _ in result.samples])
    read = np.maximum.accumulate([tuples for _, tuples in result.samples])
    rate = np.diff(np.interp(edges, at, read)) / STEP_SECONDS
    arrivals = [each for shard in result.arrivals for each in shard]
    steps = np.searchsorted(edges, [each.at for each in arrivals], side="right") - 1
    counts = np.zeros(edges.size - 1)
    latencies: list[list[Any]] = [[] for _ in counts]
    for step, each in zip(steps, arrivals, strict=True):
        if 0 <= step < counts.size:
            counts[step] += each.batch.num_rows
            if result.origin_ms is not None:
                latencies[step].append(each.wall_ms - result.due_ms(each))
    p50, p99 = (_percentiles(latencies, which) for which in (50, 99))
    return Timeline(edges[:-1] - start, rate, counts / STEP_SECONDS, p50, p99)


def _percentiles(latencies: list[list[Any]], which: int) -> np.ndarray[Any, Any]:
    return np.array(
        [np.percentile(np.concatenate(each), which) if each else np.nan for each in latencies]
    )
