"""Turns that wait for a system outside: taken again as they were, and nothing ends before them."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from rewake.connectors.memory import Batches
from rewake.graph.lookups import lookup
from rewake.graph.query import Query
from rewake.model.errors import Unavailable
from rewake.model.stream_event import StreamEvent
from rewake.node.commands import Append, Finish
from rewake.node.node import Node

TABLE = pa.table({"id": pa.array(range(10), pa.int64())})


@dataclass(frozen=True)
class Absent:
    """A lookup and its database, which is away for a number of questions."""

    away: list[int]
    parameters: tuple[str, ...] = ("id",)
    schema: pa.Schema = pa.schema([("double", pa.int64())])

    def lookup(self, statement: str, schema: pa.Schema) -> "Absent":  # noqa: ARG002
        return self

    def describe(self) -> dict[str, Any]:
        return {}

    def open(self) -> "Absent":
        return self

    def rows(self, parameters: pa.RecordBatch) -> pa.RecordBatch:
        if self.away[0]:
            self.away[0] -= 1
            raise Unavailable("it is away")
        ids = parameters.column(0).to_numpy()
        columns = [pa.array(range(ids.size), pa.int64()), pa.array(2 * ids)]
        return pa.RecordBatch.from_arrays(columns, ["", "double"])


def new_node(away: list[int], inputs: int) -> Node:
    query = Query("waiting")
    streams = [query.source(f"source-{each}", Batches(TABLE)) for each in range(inputs)]
    stream = streams[0]
    if inputs > 1:
        stream = stream.union(*streams[1:], name="one", fragment="doubled")
    lookup(stream, Absent(away), "", name="doubled", fragment="doubled").to_stream()
    node = Node(query.plan().node("doubled"), 1)
    node.start()
    return node


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_turn_that_waits_is_taken_again_as_it_was(inputs: int) -> None:
    """Nothing is appended, consumed or finished before; then all of it, once."""
    away = [0]
    node = new_node(away, inputs)
    batches = TABLE.to_batches(max_chunksize=5)
    for channel in range(inputs):
        for number, batch in enumerate(batches):
            node.arrived(channel, StreamEvent(5 * number, batch))
        node.source_ended(channel)
    appended = 0
    for number in range(2 * inputs):
        away[0] = number % 2 + 1
        for _ in range(away[0]):
            with pytest.raises(Unavailable):
                node.work(0.0)
            node.check_invariants()
            assert (node.turns, node.finished) == (number, False)
            assert not any(isinstance(each, Append | Finish) for each in node.tick(0.0))
        commands = node.work(0.0)
        node.check_invariants()
        appended += sum(isinstance(each, Append) for each in commands)
    assert (node.turns, appended, node.tuples_in) == (2 * inputs, 2 * inputs, 10 * inputs)
    for _ in range(inputs):  # the ends
        node.work(0.0)
    commands = node.durable(node.protocol.sequence)
    assert any(isinstance(each, Finish) for each in commands)
    assert node.finished
