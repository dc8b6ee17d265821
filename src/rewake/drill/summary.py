"""A drill in numbers: what `--json` prints, the table shows and the report begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rewake.drill.run import Blow, DrillResult, Recovered
from rewake.node.late_watch import DROPPED


def summary(result: DrillResult, report: str | None = None) -> dict[str, Any]:
    """One object with everything that was measured and checked."""
    assert result.verdict is not None
    recoveries = recoveries_of(result)
    return {
        "ok": result.verdict.right,
        "query": result.drill.name,
        "tuples": result.drill.tuples,
        "results": result.results,
        "expected": result.verdict.expected,
        "seconds": round(result.seconds, 3),
        "tuples_per_s": round(result.tuples_per_s),
        "latency_ms": percentiles(result.latencies_ms(outages=False)),
        "latency_with_outages_ms": percentiles(result.latencies_ms()),
        "missed": result.missed,
        "late_dropped": sum(int(each.get(DROPPED, 0)) for each in result.status.values()),
        "kills": [_kill(result, blow) for blow in result.blows],
        "replaced": _replaced(result),
        "recovery_ms": _without_node(recoveries[0]) if recoveries else None,
        "recoveries": recoveries,
        "lost": result.verdict.lost,
        "duplicated": result.verdict.duplicated,
        "reordered": result.verdict.reordered,
        "wrong": result.verdict.wrong,
        "report": report,
    }


def _replaced(result: DrillResult) -> dict[str, int]:
    """How many attempts of nodes were replaced, by cause."""
    counts: dict[str, int] = {}
    for status in result.status.values():
        for cause, times in status.get("replaced", {}).items():
            counts[cause] = counts.get(cause, 0) + times
    return counts


def recoveries_of(result: DrillResult) -> list[dict[str, Any]]:
    """The phases of each recovery, in ms, with its node and what was predicted and promised."""
    return [{"node": each.node} | _phases(each) for each in result.recoveries()]


def _without_node(recovery: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in recovery.items() if name != "node"}


def _kill(result: DrillResult, blow: Blow) -> dict[str, Any]:
    at_s = round(blow.at - result.first_result_at, 3)
    kill = {"node": blow.node, "action": blow.action, "pid": blow.pid, "at_s": at_s}
    return kill | {"point": blow.point}


def _phases(recovered: Recovered) -> dict[str, float]:
    names = ["detect", "restart", "load", "replay", "total", "beyond_restart"]
    names += [name for name in ("predicted", "target") if getattr(recovered, name) is not None]
    return {name: round(getattr(recovered, name), 1) for name in names}


def percentiles(values: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """p50, p99 and the highest; None when nothing was measured."""
    if not values.size:
        return {"p50": None, "p99": None, "max": None}
    p50, p99, most = np.percentile(values, [50, 99, 100])
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1), "max": round(float(most), 1)}


def over_repeats(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What many runs of a drill have in common."""
    totals = [each["total"] for one in summaries for each in one["recoveries"]]
    return {
        "ok": all(one["ok"] for one in summaries),
        "runs": len(summaries),
        "kills": sum(len(one["kills"]) for one in summaries),
        "recovery_total_ms": percentiles(np.array(totals)),
        **{
            name: sum(one[name] for one in summaries)
            for name in ("lost", "duplicated", "reordered", "wrong")
        },
    }
