"""Filters with several outputs, and maps that make several tuples of one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from rewake.connectors.memory import Batches
from rewake.graph.query import Query
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.recovery.approach import Kept

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
BATCH = pa.RecordBatch.from_pydict({"k": [1, 2, 3, 4, 5], "v": [5, None, 15, 25, 9]}, schema=SCHEMA)


def items(query: Query):
    return query.source("items", Batches(BATCH))


def emitted(program, batch=BATCH):
    return {output: part.to_pydict()["k"] for output, part in program.apply(batch)}


def test_a_tuple_goes_to_the_first_predicate_that_holds_for_it():
    """And to the rest if none does, null being no truth."""
    query = Query("q")
    parts = items(query).split({"small": "v < 10", "odd": "v % 2 = 1"}, rest="others", name="by-v")
    for part in parts.values():
        part.to_stream()
    assert list(parts) == ["small", "odd", "others"]
    assert [part.name for part in parts.values()] == ["by-v.small", "by-v.odd", "by-v.others"]
    plan = query.plan()
    node = plan.node("by-v")
    streams = {name: outputs[0][1] for name, outputs in plan.streams.items()}
    found = emitted(node.program)
    assert found[streams["by-v.small"]] == [1, 5]
    assert found[streams["by-v.odd"]] == [3, 4]
    assert found[streams["by-v.others"]] == [2]


def test_without_a_rest_other_tuples_go_nowhere():
    """As a filter leaves them out."""
    query = Query("q")
    parts = items(query).split({"small": "v < 10"}, name="by-v")
    parts["small"].to_stream("small")
    assert list(emitted(query.plan().node("by-v").program).values()) == [[1, 5]]


def test_the_outputs_of_a_split_are_read_by_different_steps():
    """Each by its own channel, with the split evaluated once."""
    query = Query("q")
    parts = items(query).split({"small": "v < 10", "large": "v >= 10"}, name="by-v")
    parts["small"].map(twice="v * 2", name="doubled").to_stream("doubled")
    parts["large"].filter("k > 3", name="late").to_stream("late")
    plan = query.plan()
    reads = {name: plan.node(name).inputs[0] for name in ("doubled", "late")}
    assert {each.upstream for each in reads.values()} == {"by-v"}
    assert {each.output for each in reads.values()} == {0, 1}
    assert "small: v < 10" in query.explain()


@pytest.mark.parametrize(
    ("predicates", "rest", "words"),
    [
        ({}, None, "at least one predicate"),
        ({"a": "v < 1"}, "a", "two outputs are named 'a'"),
        ({"a": "v + 1"}, None, "condition"),
        ({"a": "w < 1"}, None, "'w'"),
        ({"a/b": "v < 1"}, None, "a/b"),
    ],
)
def test_a_split_that_cannot_be_is_refused_with_the_reason(predicates, rest, words):
    """When it is written down."""
    with pytest.raises((UsageError, SchemaMismatch), match=words):
        items(Query("q")).split(predicates, rest=rest, name="by-v")


def test_a_map_that_makes_many_tuples_is_logged():
    """There are not enough positions for them otherwise."""

    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.concat_batches([batch, batch])

    query = Query("q")
    items(query).map(twice, many=True, name="twice").to_stream("twice")
    node = query.plan().node("twice")
    assert node.kept is Kept.IN_LOG
    assert node.kept_because == "it makes several tuples of one"
    outcome = node.program.operator(SCHEMA).process(StreamEvent(0, BATCH))
    assert outcome.results.num_rows == 10
    with pytest.raises(UsageError, match="many=True"):
        items(Query("q")).map(many=True, w="v + 1", name="columns")
