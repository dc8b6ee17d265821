"""Drills of NEXMark's queries: what they give, broken on purpose, against DuckDB's answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.drill.compare import compare
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.oracle.verdict import Verdict
from rewake.recovery.approach import Approach, approach_of
from rewake_lab.nexmark.answers import answer
from rewake_lab.nexmark.events.stream import NexmarkStream
from rewake_lab.nexmark.inputs import Inputs
from rewake_lab.nexmark.prefix import prefix_of
from rewake_lab.nexmark.queries import QUERIES, RESULTS, checked

__all__ = ["DRILLS", "NexmarkDrill"]


@dataclass(frozen=True, slots=True)
class NexmarkDrill:
    """A query over the first so many events; `query` is q1 to q8 or q12.

    Its events come in disorder, by groups of `out_of_order`.  `pace` is that of the sources in
    events per second, of all kinds.
    """

    query: str
    events: int = 500_000
    seed: int = 1
    events_per_second: int = 10_000
    out_of_order: int = 100
    cut: int = 10_000
    pace: float | None = None
    shards: int = 2
    approach: Approach | str = "cec"
    recover_within: str | None = None
    checkpoint_budget: str | float = "5%"

    # Its sources have a pace of their own from the beginning: there is no starting gun.
    gun = None

    def __post_init__(self) -> None:
        checked(self.query)

    @property
    def name(self) -> str:
        """The name of the query."""
        return f"nexmark-{self.query}"

    def stream(self) -> NexmarkStream:
        """The events that go in."""
        return NexmarkStream(
            self.seed, events_per_second=self.events_per_second, out_of_order=self.out_of_order
        )

    @property
    def tuples(self) -> int:
        """What its sources read: those of the events that the query looks at."""
        stream = self.stream()
        return sum(stream.tuples(kind, self.events) for kind in checked(self.query).reads)

    @property
    def rate(self) -> float | None:
        """The pace in tuples of its sources per second."""
        return None if self.pace is None else self.pace * self.tuples / max(self.events, 1)

    def build(self) -> Query:
        """The query."""
        query = Query(
            self.name,
            approach=approach_of(self.approach),
            recover_within=self.recover_within,
            checkpoint_budget=self.checkpoint_budget,
        )
        inputs = Inputs(self.stream(), self.events, self.cut, self.pace, self.shards)
        checked(self.query).build(query, inputs).to_stream(RESULTS)
        return query

    def prepared(self, place: Path, observe: Any) -> NexmarkDrill:  # noqa: ARG002
        """Nothing is to be done."""
        return self

    def streams(self) -> Sequence[tuple[str, int]]:
        """The results, shard by shard."""
        return [(RESULTS, shard) for shard in range(len(self.build().plan().streams[RESULTS]))]

    def due_ms(self, times_us: Any, origin_ms: float) -> Any:  # noqa: ARG002
        """Without a starting gun nobody knows."""
        raise AssertionError("latencies of NEXMark's queries are not measured")

    def check(self, tables: Sequence[pa.Table]) -> Verdict:
        """Compare the results of all nodes with the answer, and those of each with their order."""
        expected = answer(self.query, prefix_of(self.stream(), self.events))
        found = pa.concat_tables(tables).select(expected.column_names).cast(expected.schema)
        verdict = compare(expected, found, in_order=False)
        return verdict._replace(reordered=sum(_falls(self.query, table) for table in tables))


def _falls(query: str, table: pa.Table) -> int:
    """How often a result is below the one before it, by the columns that its query orders by."""
    _, _, columns, per = checked(query)
    numbers = {name: table.column(name).cast(pa.int64()).to_numpy() for name in columns}
    if per is not None:
        keys = table.column(per).to_numpy()
        rows = np.argsort(keys, kind="stable")
        equal = keys[rows][1:] == keys[rows][:-1]
    else:
        rows = np.arange(table.num_rows)
        equal = np.ones(max(table.num_rows - 1, 0), np.bool_)
    falls = np.zeros(equal.size, np.bool_)
    for values in numbers.values():
        ordered = values[rows]
        falls |= equal & (ordered[1:] < ordered[:-1])
        equal &= ordered[1:] == ordered[:-1]
    return int(np.count_nonzero(falls))


def _drill(query: str, **settings: Any) -> NexmarkDrill:
    """As a command asks for it: tuples are events of all kinds, a rate is their pace."""
    if "items" in settings:
        raise UsageError(
            "NEXMark's stream decides itself how many keys there are; leave out --keys"
        )
    called = {"tuples": "events", "rate": "pace"}
    return NexmarkDrill(query, **{called.get(name, name): settings[name] for name in settings})


DRILLS = {f"nexmark:{query}": partial(_drill, query) for query in QUERIES}
