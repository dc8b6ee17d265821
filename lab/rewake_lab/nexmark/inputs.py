"""The streams that NEXMark's queries read, all of one finite prefix of its events."""

from __future__ import annotations

from dataclasses import dataclass

from rewake.graph.query import Query
from rewake.graph.stream import Stream
from rewake_lab.nexmark.events.numbers import IN_ALL, KINDS
from rewake_lab.nexmark.events.source import NexmarkSource
from rewake_lab.nexmark.events.stream import NexmarkStream

__all__ = ["Inputs"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Sources of one NEXMark stream, and how many nodes each step with state shall have.

    `cut`: stream events of any kind span so many events of all kinds, so that the times of several
    sources go hand in hand.
    """

    stream: NexmarkStream
    events: int | None = None
    cut: int = 10_000
    rate: float | None = None
    shards: int = 2

    def source(
        self, query: Query, kind: str, *columns: str, shards: int = 1, fragment: str | None = None
    ) -> Stream:
        """The persons, auctions, bids, or all events; of their columns these, or all."""
        source = NexmarkSource(
            self.stream,
            kind,
            self.events,
            event_tuples=max(self.cut * KINDS[kind][1] // IN_ALL, 1),
            columns=columns or None,
            rate=self.rate,
        )
        return query.source(kind, source, shards=shards, fragment=fragment)
