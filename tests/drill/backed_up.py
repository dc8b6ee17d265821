"""Two nodes in a row whose input is kept upstream, then a log of what they give.

    python backed_up.py FOLDER

runs the query in a process of its own, as far as the gate in the folder lets it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from drill_queries import HIGHEST, item_source
from gated_source import GatedSource

from rewake.graph.query import Query
from rewake.net.queries.running import start_processes
from rewake.operators.windows.specs import time_window
from rewake.recovery.upstream_backup import UpstreamBackup

TUPLES = 120_000


def backed_up(gate: Path) -> Query:
    """What each item brings within 20 ms, then what the dear ones bring within 60."""
    query = Query("averages")
    items = query.source("items", GatedSource(item_source(tuples=TUPLES), str(gate)))
    sums = items.filter(f"item_price <= {HIGHEST}", name="cheap").aggregate(
        by="item_id", time="item_time", window=time_window("20ms"), sum="item_price",
        name="windows", approach=UpstreamBackup(every="50ms"),
    )  # fmt: skip
    dear = sums.filter("sum_item_price > 600", name="dear").aggregate(
        by="item_id", time="window_end", window=time_window("60ms"), count=True,
        sum="sum_item_price", name="longer", approach=UpstreamBackup(every="80ms"),
    )  # fmt: skip
    dear.filter("item_id >= 0", name="averages").to_stream("averages")
    return query


def main() -> None:
    """A driver."""
    folder = Path(sys.argv[1])
    with start_processes(backed_up(folder / "gate"), folder / "query") as query:
        query.await_end()


if __name__ == "__main__":
    main()
