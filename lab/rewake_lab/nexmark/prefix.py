"""The first so many events of a NEXMark stream as three tables, to be asked about."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from rewake_lab.nexmark.events.stream import SCHEMAS, NexmarkStream

__all__ = ["Prefix", "prefix_of"]


class Prefix(NamedTuple):
    """Some events by kind; the bids also say when they were `emitted`."""

    persons: pa.Table
    auctions: pa.Table
    bids: pa.Table


def prefix_of(stream: NexmarkStream, events: int) -> Prefix:
    """The first so many events, in the order in which they come."""
    return Prefix(
        stream.table("persons", events),
        stream.table("auctions", events),
        stream.table("bids", events, [*SCHEMAS["bids"].names, "emitted"]),
    )
