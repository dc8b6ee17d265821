"""The queries that drills know by name, each with an oracle of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.connectors.item_stream import ItemSource, ItemStream
from rewake.drill.drill import Drill
from rewake.drill.starting_gun import WaitingSource
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.operators.windows.specs import count_window
from rewake.oracle.items import expected_windows, judge
from rewake.oracle.verdict import Verdict
from rewake.recovery.approach import Approach, approach_of

_PIECE = 1_000_000
# Tuples that the oracle looks at in one go: it needs some 50 bytes for each.
MOST_AT_ONCE = 40_000_000
HIGHEST_KEPT = 900


@dataclass(frozen=True, slots=True)
class ItemDrill:
    """The papers' item stream: filter by price, average per item over count windows.

    `rate` is the pace of the source in tuples per second.  With one, the source waits for a
    starting gun, a file at `gun`, which makes latencies measurable from outside.
    """

    name: str = "items"
    tuples: int = 5_000_000
    items: int = 100_000
    window: int = 10
    seed: int = 1
    event_tuples: int = 16_384
    rate: float | None = None
    gun: str | None = None
    shards: int = 1
    source_shards: int = 1
    approach: Approach | str = "cec"
    recover_within: str | None = None
    checkpoint_budget: str | float = "5%"

    stream_name = "averages"

    def stream(self) -> ItemStream:
        """The tuples that go in."""
        return ItemStream(self.seed, self.items)

    def build(self) -> Query:
        """The query."""
        query = Query(
            self.name,
            approach=approach_of(self.approach),
            recover_within=self.recover_within,
            checkpoint_budget=self.checkpoint_budget,
        )
        paced = ItemSource(
            self.stream(),
            tuples=self.tuples,
            event_tuples=self.event_tuples,
            rate=self.rate,
        )
        source = paced if self.gun is None else WaitingSource(paced, self.gun)
        # Apart from the filter, so that there is a source to kill.
        items = query.source("items", source, shards=self.source_shards, fragment="items")
        cheap = items.filter(
            f"item_price <= {HIGHEST_KEPT}", name="cheap", shards=self.source_shards
        )
        averages = cheap.aggregate(
            by="item_id",
            window=count_window(self.window),
            avg="item_price",
            max="item_time",
            name="averages",
            shards=self.shards,
        )
        averages.to_stream(self.stream_name)
        return query

    def prepared(self, place: Path, observe: Any) -> ItemDrill:  # noqa: ARG002
        """With a rate: its source waits for the starting gun, so that latencies can be measured."""
        return self if self.rate is None else replace(self, gun=str(place / "first-tuple-due-ms"))

    def streams(self) -> Sequence[tuple[str, int]]:
        """The averages, shard by shard."""
        return [(self.stream_name, shard) for shard in range(self.shards)]

    def due_ms(self, times_us: Any, origin_ms: float) -> Any:
        """When the tuple with this item time was due, if the first was at `origin_ms`."""
        assert self.rate is not None
        return origin_ms + ItemStream.positions_at(times_us) * (1e3 / self.rate)

    def check(self, shards: Sequence[pa.Table]) -> Verdict:
        """Compare the results of all shards, each in the order in which it came.

        Windows are per item, so a long stream is looked at a share of the items at a time.
        """
        results = pa.concat_tables(shards)
        items = results.column("item_id").to_numpy()
        averages = results.column("avg_item_price").to_numpy()
        closed_at = results.column("max_item_time").to_numpy().astype(np.int64)
        shares = -(-self.tuples // MOST_AT_ONCE)
        verdicts = []
        for share in range(shares):
            mine = items % shares == share
            expected = expected_windows(
                self.pieces(share, shares), self.window, lambda prices: prices <= HIGHEST_KEPT
            )
            verdicts.append(
                judge(
                    expected, items[mine], averages[mine], closed_at[mine], self.window,
                    in_order=False,
                )
            )  # fmt: skip
        total = Verdict(*(sum(column) for column in zip(*verdicts, strict=True)))
        if self.shards == 1 and self.source_shards == 1:
            # Then results come in the order in which windows close, whatever the item.
            swapped = int(np.count_nonzero(closed_at[1:] < closed_at[:-1]))
            total = total._replace(reordered=max(total.reordered, swapped))
        return total

    def pieces(self, share: int, shares: int) -> Iterator[tuple[Any, Any, Any]]:
        """The stream's columns, piece by piece, of a share of the items."""
        stream = self.stream()
        for start in range(0, self.tuples, _PIECE):
            batch = stream.batch(start, min(start + _PIECE, self.tuples))
            items, prices = batch.column(0).to_numpy(), batch.column(1).to_numpy()
            times = batch.column(2).to_numpy().astype(np.int64)
            mine = items % shares == share
            yield items[mine], prices[mine], times[mine]


_BUILT_IN: dict[str, Callable[..., Drill]] = {
    "items": ItemDrill,
    "items-sharded": lambda **settings: ItemDrill(
        name="items-sharded", shards=2, source_shards=1, **settings
    ),
}


def built_in(name: str, **settings: Any) -> Drill:
    """The drill of that name."""
    known = _known() if name not in _BUILT_IN else _BUILT_IN
    if name not in known:
        raise UsageError(f"there is no built-in query {name!r}; there are {', '.join(known)}")
    return known[name](**settings)


def _known() -> dict[str, Callable[..., Drill]]:
    """Our own, and those of other packages: each names a mapping like this one."""
    brought = [each.load() for each in entry_points(group="rewake.drills")]
    return {name: make for drills in (_BUILT_IN, *brought) for name, make in drills.items()}
