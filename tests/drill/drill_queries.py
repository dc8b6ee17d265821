"""The queries of drills.  Nodes import this module: functions that queries use must be found."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from gated_source import GatedSource
from pyarrow import parquet

from rewake import Files, FileSink, ItemSource, ItemStream
from rewake.connectors.item_stream import SCHEMA
from rewake.graph.query import Query
from rewake.graph.steps import Port
from rewake.graph.stream import Stream
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import Approach, approach_of
from rewake.recovery.instant.approach import Instant

TUPLES = 200_000
ITEMS = 2_000
EVENT_TUPLES = 2_048
WINDOW = 10
HIGHEST = 900


def item_source(seed: int = 1, tuples: int = TUPLES) -> ItemSource:
    """The items of a drill."""
    return ItemSource(ItemStream(seed, ITEMS), tuples=tuples, event_tuples=EVENT_TUPLES)


def averages(
    gate: Path,
    *,
    tuples: int = TUPLES,
    shards: int = 1,
    source_shards: int = 1,
    approach: Approach | str = "cec",
    filter_approach: str | None = None,
    kept: bool = False,
) -> Query:
    """Filter by price, average per item over windows of ten: three nodes or more.

    `kept`: the filter's output is a stream as well, so that it has a log.
    """
    query = Query("averages", approach=approach_of(approach))
    source = GatedSource(item_source(tuples=tuples), str(gate))
    items = query.source("items", source, shards=source_shards, fragment="items")
    cheap = items.filter(
        f"item_price <= {HIGHEST}",
        name="cheap",
        shards=source_shards,
        approach=None if filter_approach is None else approach_of(filter_approach),
    )
    if kept:
        cheap.to_stream("cheap")
    results = cheap.aggregate(
        by="item_id",
        window=count_window(WINDOW),
        avg="item_price",
        max="item_time",
        name="averages",
        shards=shards,
    )
    results.to_stream("averages")
    return query


def united(gate: Path, tuples: int) -> Query:
    """Two sources, of other items each, into one aggregate by way of a union."""
    query = Query("united")
    streams = [
        query.source(f"items-{number}", GatedSource(item_source(number + 1, tuples), str(gate)))
        for number in range(2)
    ]
    shifted = streams[1].map(
        {"item_id": f"item_id + {ITEMS}", "item_price": "item_price", "item_time": "item_time"},
        name="shifted",
    )
    shifted = shifted.map(shifted_back, name="same-types")
    union = streams[0].union(shifted, name="union")
    results = union.aggregate(
        by="item_id",
        window=count_window(WINDOW),
        sum="item_price",
        max="item_time",
        name="averages",
    )
    results.to_stream("averages")
    return query


def shifted_back(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns with the types that they had."""
    wanted = [pa.int32(), pa.int32(), pa.timestamp("us")]
    columns = [column.cast(kind) for column, kind in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def files_to_files(folder: Path, tuples: int) -> Query:
    """Parquet in, Parquet out."""
    source = folder / "in"
    source.mkdir()
    for number in range(4):
        first = number * tuples // 4
        batch = ItemStream(1, ITEMS).batch(first, first + tuples // 4)
        parquet.write_table(pa.Table.from_batches([batch]), source / f"part-{number}.parquet")
    query = Query("files")
    gated = GatedSource(Files(source, event_tuples=1_024), str(folder / "gate"))
    items = query.source("items", gated, fragment="items")
    cheap = items.filter(f"item_price <= {HIGHEST}", name="cheap")
    results = cheap.aggregate(
        by="item_id", window=count_window(WINDOW), avg="item_price", max="item_time",
        name="averages",
    )  # fmt: skip
    results.to(FileSink(folder / "out"), name="sink")
    return query


def entered() -> Query:
    """Producers send the items; otherwise as `averages`, with the filter beside the windows."""
    query = Query("entered")
    items = query.entry("entry", SCHEMA)
    cheap = items.filter(f"item_price <= {HIGHEST}", name="cheap")
    results = cheap.aggregate(
        by="item_id",
        window=count_window(WINDOW),
        avg="item_price",
        max="item_time",
        name="averages",
    )
    results.to_stream("averages")
    return query


def picky(batch: pa.RecordBatch) -> pa.RecordBatch:
    """All items as they are; but one of them is too much."""
    times = batch.column("item_time").cast(pa.int64()).to_numpy()
    if times.size and times[0] <= FATAL_TIME <= times[-1]:
        raise ValueError("cannot price the item at 120000")
    return batch


# The tuple at position 120,000 was bought somewhere in these ten microseconds.
FATAL_TIME = 1_700_000_000_000_000 + 120_000 * 10 + 5


def failing(gate: Path, function: Any = picky) -> Query:
    """As `averages`, with a map before the filter that fails for one tuple."""
    query = Query("failing")
    items = query.source("items", GatedSource(item_source(), str(gate)), fragment="items")
    mapped = items.map(function, name="picky", fragment="priced")
    kept = mapped.filter(f"item_price <= {HIGHEST}", name="kept", fragment="priced")
    results = kept.aggregate(
        by="item_id",
        window=count_window(WINDOW),
        avg="item_price",
        max="item_time",
        name="averages",
    )
    results.to_stream("averages")
    return query


def overflowing(gate: Path) -> Query:
    """A sum of numbers so large that a few of them leave 64 bits."""
    query = Query("overflowing")
    items = query.source("items", GatedSource(item_source(), str(gate)), fragment="items")
    huge = items.map({"item_id": "item_id", "huge": "item_price * 9000000000000000"}, name="huge")
    results = huge.aggregate(by="item_id", window=count_window(WINDOW), sum="huge", name="sums")
    results.to_stream("sums")
    return query


def chained(gate: Path) -> Query:
    """Windows over the results of windows, each under an approach of its own."""
    query = averages(gate)
    first = Stream(query, Port(query.graph().steps[-1]))
    second = first.aggregate(
        by="item_id",
        window=count_window(3),
        last="avg_item_price",
        name="highest",
        approach=Instant(),
    )
    second.to_stream("highest")
    return query
