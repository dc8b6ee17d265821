"""Whether a query has come to its end, as its folder says, for those who read its logs.

    <folder>/streams.json       {"streams": ..., "ended": true}; written by the coordinator's host
    <folder>/nodes/<node>/      the log of a node

What always holds: `ended` is said when all nodes have finished and all that they have made is
durable; so whoever sees it and then finds no more in a log has read all of it.  A query that was
stopped, or failed, has not ended: it may be started again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["NODES_FOLDER", "STREAMS_FILE", "has_ended", "query_has_ended"]

STREAMS_FILE: Final = "streams.json"
NODES_FOLDER: Final = "nodes"


def query_has_ended(folder: Path) -> bool:
    """Whether the query in a folder has processed all of its finite streams."""
    with suppress(OSError, ValueError, AttributeError):
        return json.loads((folder / STREAMS_FILE).read_bytes()).get("ended") is True
    return False


def has_ended(log: Sequence[str]) -> bool:
    """Whether nothing will be written to a log any more, because its query has ended."""
    place = Path(log[0]).parent
    return place.name == NODES_FOLDER and query_has_ended(place.parent)
