"""The query that a nemesis strikes at, and its driver in a process of its own.

    python nemesis_driver.py FOLDER

Two entries that producers write to at once meet in a union: in which order is chance, and nobody
could make it again.  The union's tuples go to one sink as they are, and as sums of windows to
another, so that the order found in the first says what the second must hold.
"""

import sys
from pathlib import Path

import pyarrow as pa

from rewake import FileSink
from rewake.graph.query import Query
from rewake.model.errors import RewakeError
from rewake.net.queries.running import start_processes
from rewake.operators.windows.specs import count_window

SCHEMA = pa.schema([("producer", pa.int64()), ("number", pa.int64()), ("key", pa.int64())])
ENTRIES = ("left", "right")
KEYS = 40
WINDOW = 5
REFUSED = 3


def query_in(folder: Path) -> Query:
    """All that it keeps is below the folder."""
    query = Query("struck", recover_within="1s")
    left, right = (query.entry(name, SCHEMA) for name in ENTRIES)
    both = left.union(right, name="both")
    both.to(FileSink(folder / "tuples"), name="as-they-are")
    sums = both.aggregate(by="key", window=count_window(WINDOW), sum="number", name="sums")
    sums.to(FileSink(folder / "sums"), name="summed")
    return query


def main() -> int:
    folder = Path(sys.argv[1])
    try:
        with start_processes(query_in(folder), folder / "query") as running:
            running.await_end()
    except RewakeError as error:
        sys.stderr.write(f"refused: {type(error).__name__}: {error}\n")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
