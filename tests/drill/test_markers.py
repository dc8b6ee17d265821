"""Markers between real processes: a protocol that is no part of the package aligns two streams."""

from pathlib import Path

import pytest
from aligned import Aligned
from drill_queries import item_source
from drill_vocabulary import Drill, until
from gated_source import GatedSource

from rewake.graph.query import Query
from rewake.graph.stream import Stream
from rewake.operators.windows.specs import count_window

TUPLES = 60_000


def aligned(gate: Path) -> Query:
    """Two sources, windows over each, their union, and windows over that: all in rounds."""
    query = Query("aligned")

    def windows(number: int) -> Stream:
        source = GatedSource(item_source(number + 1, TUPLES), str(gate))
        return query.source(f"items-{number}", source).aggregate(
            by="item_id", window=count_window(5), sum="item_price", name=f"windows-{number}",
            approach=Aligned(),
        )  # fmt: skip

    union = windows(0).union(windows(1), name="union", approach=Aligned(inputs=2))
    totals = union.aggregate(
        by="item_id", window=count_window(2), sum="sum_item_price", name="totals",
        approach=Aligned(inputs=1),
    )  # fmt: skip
    totals.to_stream("totals")
    return query


class Rounds(Drill):
    """The drill, with its rounds."""

    def __init__(self, folder: Path) -> None:
        query = aligned(folder / "gate")
        super().__init__(folder, query, tuples=TUPLES, stream="totals")

    def round(self, node: str = "totals") -> int:
        """The last round that is complete at a node."""
        return int(self.running.status()[node].get("round", 0))

    def further(self) -> None:
        """Wait until rounds have come all the way, twice."""
        for _ in range(2):
            before = self.round()
            until(lambda before=before: self.round() > before)


@pytest.mark.parametrize("killed", [(), ("windows-0",), ("union",), ("totals", "windows-1")])
def test_rounds_come_through_whoever_is_killed(tmp_path: Path, killed: tuple[str, ...]) -> None:
    """Held inputs go on, lost markers are made up for, the end comes, and no tuple is missing."""
    with Rounds(tmp_path) as drill:
        drill.flow(0.4)
        drill.further()
        drill.let(0.7)
        drill.kill(*killed)
        for node in killed:
            drill.back(node)
        drill.further()
        drill.finish()
    readers = [item_source(number + 1, TUPLES).open(0, 1) for number in range(2)]
    assert drill.results().num_rows == windows_of_two(readers)


def windows_of_two(readers) -> int:
    """How many windows of two must come out, whatever met whom first."""
    counts: dict[int, int] = {}
    for reader in readers:
        bought: dict[int, int] = {}
        while not reader.ended:
            event = reader.read(0.0)
            if event is not None:
                for item in event.batch.column("item_id").to_pylist():
                    bought[item] = bought.get(item, 0) + 1
        for item, number in bought.items():
            counts[item] = counts.get(item, 0) + number // 5
    return sum(number // 2 for number in counts.values())
