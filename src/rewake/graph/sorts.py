"""The step that sorts a stream: `bsort`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewake.graph.promised import AS_QUERY
from rewake.graph.steps import Kind
from rewake.operators.aggregate.functions import listed
from rewake.operators.sorting.operator import SortSpec
from rewake.recovery.approach import Approach

if TYPE_CHECKING:
    from rewake.graph.stream import Columns, Stream

__all__ = ["bsort"]


def bsort(
    stream: Stream,
    *,
    by: Columns,
    buffer: int,
    per: Columns = (),
    flush: bool = False,
    descending: bool = False,
    route_late: bool = False,
    name: str | None = None,
    shards: int = 1,
    approach: Approach | None = None,
    recover_within: str | None = AS_QUERY,
    checkpoint_budget: str | float = "5%",
    fragment: str | None = None,
) -> Stream:
    """The same tuples nearly in order: whenever `buffer` of them wait, the smallest leaves.

    `per` gives each key a buffer of its own.  `flush` also lets tuples leave when the watermark
    passes the first of the columns to order `by`, which is then the event time.  With `route_late`
    tuples that come too late to be in order are the stream `late`.  The rest are the options of all
    steps.
    """
    spec = SortSpec(
        by=listed(by),
        buffer=buffer,
        per=listed(per),
        flush=flush,
        descending=descending,
        route_late=route_late,
    )
    return stream.add_stateful(
        Kind.SORT,
        spec,
        name=stream._named(name, Kind.SORT),
        shards=shards,
        approach=stream._chosen(approach, recover_within, checkpoint_budget),
        fragment=fragment,
    )
