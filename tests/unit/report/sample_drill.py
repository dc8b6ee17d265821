"""A drill that was never run, with everything in it that a report shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rewake.connectors.item_stream import ItemStream
from rewake.drill.queries import ItemDrill
from rewake.drill.run import Arrival, Blow, DrillResult
from rewake.net.queries.coordinator_host import Happening
from rewake.oracle.verdict import Verdict

SECONDS = 8.0
KILLS = (2.0, 2.4, 5.0)


def sample_drill(**settings: Any) -> DrillResult:
    """Eight seconds with three kills of `averages`, each half a second until it was back."""
    drill = ItemDrill(tuples=800_000, items=1000, rate=100_000.0, **settings)
    result = DrillResult(drill, origin_ms=1_000_000.0, first_result_at=100.0, ended_at=108.0)
    result.blows = [
        Blow("averages", "kill", 100 + at, 1, predicted_ms=350.0, target_ms=500.0) for at in KILLS
    ]
    result.history = [
        Happening(100 + at + later, "averages", what, life)
        for life, at in enumerate(KILLS, 1)
        for later, what in ((0.02, "lost"), (0.1, "registered"))
    ]
    result.arrivals = [[_arrival(at) for at in np.arange(0.0, SECONDS, 0.05) if not _down(at)]]
    result.tables = [pa.Table.from_batches([each.batch for each in result.arrivals[0]])]
    for at in np.arange(0.0, SECONDS, 0.02):
        result.samples.append((100 + at, int(at * 100_000)))
        result.note(100 + at, _status(float(at)))
    result.verdict = Verdict(result.results, 0, 0, 0, 0)
    return result


def _down(at: float) -> bool:
    return any(kill <= at < kill + 0.5 for kill in KILLS)


def _arrival(at: float) -> Arrival:
    times = ItemStream(1, 1000).batch(int(at * 100_000), int(at * 100_000) + 40).column(2)
    columns = [pa.array(np.arange(40)), pa.array(np.ones(40)), times]
    names = ["item_id", "avg_item_price", "max_item_time"]
    batch = pa.RecordBatch.from_arrays(columns, names)
    return Arrival(100 + at, 1_000_000.0 + at * 1e3 + 20 + 5 * np.sin(at), batch)


def _status(at: float) -> dict[str, dict[str, Any]]:
    # The second kill comes before the node is back from the first.
    before = [kill for kill in KILLS[1:] if kill + 0.5 <= at]
    said = {
        "running": not _down(at), "open_windows": 1000, "checks": int(at * 20),
        "extent_records": int(90_000 + 20_000 * np.sin(3 * at)),
        "replay_tuples": int(500_000 + 90_000 * np.cos(2 * at)),
        "predicted_ms": 300 + 100 * np.sin(2 * at), "target_ms": 500.0,
    }  # fmt: skip
    if before:
        # Each life loads longer than the one before.
        said |= {"resumed_at": 100 + before[-1] + 0.45, "load_ms": 10.0 * len(before),
                 "replay_ms": 40.0}  # fmt: skip
    return {"averages": said, "cheap": {"running": True}}
