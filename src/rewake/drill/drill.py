"""What a drill is to those who run it and report on it: a query, and a way to judge its streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from rewake.graph.query import Query
from rewake.oracle.verdict import Verdict

if TYPE_CHECKING:
    from rewake.drill.run import DrillResult


class Drill(Protocol):
    """A query with a finite input, and what its streams must hold at the end."""

    @property
    def name(self) -> str:
        """The name of the query."""

    @property
    def tuples(self) -> int:
        """Input tuples in all."""

    @property
    def rate(self) -> float | None:
        """The pace of the source in tuples per second; None: as fast as it goes."""

    @property
    def gun(self) -> str | None:
        """The file that a paced source waits for."""

    def build(self) -> Query:
        """The query."""

    def prepared(self, place: Path, observe: Callable[[Drill, Path], DrillResult]) -> Drill:
        """The drill, ready to be run in `place`; `observe` runs one there without breaking it."""

    def streams(self) -> Sequence[tuple[str, int]]:
        """The streams to watch, each with a shard."""

    def due_ms(self, times_us: Any, origin_ms: float) -> Any:
        """When the tuple with this time was due, if the first was at `origin_ms`; with a rate."""

    def check(self, tables: Sequence[pa.Table]) -> Verdict:
        """Judge what came, one table for each of `streams`, in the order of arrival."""
