"""Queries with a promised recovery time whose state is no window: a join and keyed processing.

Nodes import this module: functions that queries use must be found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from rewake import ItemSource, ItemStream
from rewake.drill.compare import compare
from rewake.graph.query import Query
from rewake.oracle.verdict import Verdict

COUNTED = pa.schema([("item_id", pa.int32()), ("n", pa.int64()), ("total", pa.int64())])


@dataclass(frozen=True, slots=True)
class _PromisedDrill:
    """What both have in common: items at a pace, and one node that is promised."""

    name: str
    node: str
    items: int
    seconds: float
    rate: float = 200_000.0
    recover_within: str = "1s"
    checkpoint_budget: str = "10%"
    sources: int = 1

    gun = None

    @property
    def of_each(self) -> int:
        """Tuples of each source."""
        return int(self.rate * self.seconds)

    @property
    def tuples(self) -> int:
        return self.of_each * self.sources

    def source(self, number: int) -> ItemSource:
        """One of them; its stream events are what comes in some hundredths of a second."""
        stream = ItemStream(number + 1, self.items)
        return ItemSource(stream, tuples=self.of_each, event_tuples=4096, rate=self.rate)

    def table(self, number: int) -> pa.Table:
        """All that a source gives."""
        return pa.Table.from_batches([ItemStream(number + 1, self.items).batch(0, self.of_each)])

    def prepared(self, place: Path, observe: Any) -> Any:  # noqa: ARG002
        return self

    def streams(self) -> Sequence[tuple[str, int]]:
        return [(self.node, 0)]

    def due_ms(self, times_us: Any, origin_ms: float) -> Any:  # noqa: ARG002
        raise AssertionError("latencies are not measured")


@dataclass(frozen=True, slots=True)
class PromisedJoin(_PromisedDrill):
    """Tuples of two streams with the same item, less than `within` apart.

    Four panes or more are open, of a hundred thousand tuples for each second of `within`.
    """

    name: str = "promised-join"
    node: str = "pairs"
    items: int = 400_000
    seconds: float = 6.0
    within_ms: int = 1_000
    how: str = "left"
    sources: int = 2

    def build(self) -> Query:
        query = Query(self.name)
        left, right = (query.source(f"items-{each}", self.source(each)) for each in range(2))
        left.join(
            right,
            on="item_id",
            within=f"{self.within_ms}ms",
            time="item_time",
            how=self.how,
            name=self.node,
            recover_within=self.recover_within,
            checkpoint_budget=self.checkpoint_budget,
        ).to_stream(self.node)
        return query

    def check(self, tables: Sequence[pa.Table]) -> Verdict:
        """Compare with what DuckDB makes of the same tuples."""
        left, right = self.table(0), self.table(1)  # noqa: F841 (DuckDB finds them by name)
        expected = duckdb.sql(f"""
            SELECT coalesce(l.item_id, r.item_id) AS item_id, l.item_price,
                   greatest(coalesce(l.item_time, r.item_time),
                            coalesce(r.item_time, l.item_time)) AS item_time,
                   r.item_price AS item_price_right, r.item_time AS item_time_right
            FROM "left" l {self.how} JOIN "right" r ON l.item_id = r.item_id
                AND abs(epoch_us(l.item_time) - epoch_us(r.item_time)) < {self.within_ms * 1000}
        """).to_arrow_table()
        found = pa.concat_tables(tables).select(expected.column_names).cast(expected.schema)
        return compare(expected, found, in_order=False)


def count_up(item: int, tuples: pa.RecordBatch, state: dict[str, Any]) -> tuple[Any, ...]:
    """Number each item's tuples and add up their prices: a row for each tuple."""
    rows = []
    for price in tuples.column("item_price").to_pylist():
        state = {"n": state["n"] + 1, "total": state["total"] + price}
        rows.append({"item_id": item, **state})
    return rows, state


@dataclass(frozen=True, slots=True)
class PromisedProcess(_PromisedDrill):
    """A function of one key at a time: state for ever, and every tuple is dear to replay."""

    name: str = "promised-process"
    node: str = "counted"
    items: int = 5_000
    seconds: float = 6.0
    rate: float = 20_000.0

    def build(self) -> Query:
        query = Query(self.name)
        query.source("items", self.source(0)).process(
            count_up,
            by="item_id",
            state={"n": (pa.int64(), 0), "total": (pa.int64(), 0)},
            output=COUNTED,
            each_key=True,
            name=self.node,
            recover_within=self.recover_within,
            checkpoint_budget=self.checkpoint_budget,
        ).to_stream(self.node)
        return query

    def check(self, tables: Sequence[pa.Table]) -> Verdict:
        """Compare with running sums by DuckDB, each item in its order."""
        items = self.table(0)  # noqa: F841 (DuckDB finds it by name)
        expected = duckdb.sql("""
            SELECT item_id, row_number() OVER key AS n,
                   CAST(sum(item_price) OVER key AS BIGINT) AS total
            FROM items WINDOW key AS (PARTITION BY item_id ORDER BY item_time
                                      ROWS UNBOUNDED PRECEDING)
        """).to_arrow_table()
        found = pa.concat_tables(tables).select(expected.column_names).cast(expected.schema)
        order = [("item_id", "ascending")]
        # Stable: of one item, in the order in which they came.
        return compare(expected.sort_by([*order, ("n", "ascending")]), found, in_order=False)
