"""Steps whose results are older than the time they have seen hold time back for who comes next."""

import pyarrow as pa

from rewake.connectors.memory import Batches
from rewake.graph.query import Query
from rewake.graph.resamples import resample
from rewake.graph.sorts import bsort
from rewake.log.columns import unpack_columns
from rewake.log.frame import SectionKind
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.node.commands import Append
from rewake.node.node import Node

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
ROWS = pa.RecordBatch.from_pydict({"k": [1, 2, 3], "t": [3, 1, 2]}, schema=SCHEMA)


def told(node: Node) -> list[int]:
    """The watermarks that a node logs for those behind it."""
    found = []
    while commands := node.work(0.0):
        found += [each.record for each in commands if isinstance(each, Append)]
    return [mark for record in found if (mark := _mark(record)) is not None]


def _mark(record):
    for section in record.sections:
        if section.kind == SectionKind.PUNCTUATIONS:
            return int(unpack_columns(section.payload)[0][0])
    return None


def _items(query: Query, name: str):
    return query.source(name, Batches(ROWS))


def test_a_sort_tells_nothing_of_time_before_the_end_unless_it_is_flushed():
    """Tuples wait in it that time has passed."""
    for flush, expected in ((False, [END_OF_TIME]), (True, [5, END_OF_TIME])):
        query = Query("q")
        bsort(_items(query, "items"), by="t", buffer=10, flush=flush, name="sorted").to_stream()
        node = Node(query.plan().node("sorted"), 1)
        node.arrived(0, StreamEvent(0, ROWS, watermark=5))
        node.source_ended(0)
        assert told(node) == expected


def test_answers_of_a_resample_hold_time_back_by_what_they_wait_for():
    """A window, which they look ahead."""
    query = Query("q")
    values, times = _items(query, "values"), _items(query, "times")
    resample(
        values.map({"t": "t", "v": "k"}, name="v"), times, time="t", window=4, columns=["v"],
        name="sampled",
    ).to_stream()  # fmt: skip
    node = Node(query.plan().node("sampled"), 1)
    schema = node.plan.inputs[0].schema
    nothing = pa.RecordBatch.from_pylist([], schema)
    node.arrived(0, StreamEvent(0, nothing, watermark=30))
    node.arrived(1, StreamEvent(0, ROWS, watermark=20))
    node.source_ended(0)
    node.source_ended(1)
    assert told(node) == [16, END_OF_TIME]
