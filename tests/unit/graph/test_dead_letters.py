"""Filters and maps that fail for a tuple: they name it and stop, or send it elsewhere."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rewake.connectors.memory import Batches
from rewake.graph.query import Query
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.stream_event import StreamEvent

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])
BATCH = pa.RecordBatch.from_pydict(
    {"k": [1, 2, 3, 4, 5], "text": ["10", "x", "30", "y", "50"]}, schema=SCHEMA
)


def number(batch: pa.RecordBatch) -> pa.Array:
    return pc.cast(batch.column("text"), pa.int64())


def items(query: Query):
    return query.source("items", Batches(BATCH))


def outputs(query: Query, name: str) -> dict[str, list[dict]]:
    """What the node of a step gives on its streams."""
    plan = query.plan()
    node = plan.node(name)
    parts = dict(node.program.apply(BATCH))
    places = {stream: at[0][1] for stream, at in plan.streams.items() if at[0][0] == name}
    return {each: parts[at].to_pylist() for each, at in places.items() if at in parts}


def test_an_error_names_the_step_the_function_and_the_first_tuple_it_fails_for():
    """Whoever reads it can look at the tuple."""
    query = Query("q")
    items(query).map(k="k", n=number, name="numbers").to_stream()
    with pytest.raises(UsageError) as raised:
        query.plan().node("numbers").program.apply(BATCH)
    text = str(raised.value)
    assert "'numbers'" in text
    assert "number(batch)" in text
    assert "2 of 5 tuples, the first of which is {'k': 2, 'text': 'x'}" in text


def test_tuples_that_a_map_fails_for_go_to_an_output_of_their_own():
    """With the error's text; all others go on, in order."""
    query = Query("q")
    numbers = items(query).map(k="k", n=number, on_error="divert", name="numbers")
    numbers.to_stream()
    numbers.output("dead").to_stream("dead")
    found = outputs(query, "numbers")
    assert found["numbers"] == [{"k": 1, "n": 10}, {"k": 3, "n": 30}, {"k": 5, "n": 50}]
    assert [(row["k"], row["text"]) for row in found["dead"]] == [(2, "x"), (4, "y")]
    assert "Failed to parse string: 'x'" in found["dead"][0]["error"]
    assert "what it fails for is diverted" in query.explain()


def test_a_filter_diverts_too_and_under_a_log_as_well():
    """Kept as a stream, its output is logged: the approach is given both outputs."""
    query = Query("q")
    large = items(query).filter(
        lambda batch: pc.greater(number(batch), 20), on_error="divert", name="large"
    )
    large.to_stream()
    large.output("dead").to_stream("dead")
    node = query.plan().node("large")
    outcome = node.program.operator(SCHEMA).process(StreamEvent(0, BATCH))
    assert outcome.results.column("k").to_pylist() == [3, 5]
    ((_, dead),) = outcome.others
    assert dead.column("k").to_pylist() == [2, 4]
    assert sum(batch.num_rows for _, batch in node.program.emit(outcome)) == 4


def test_a_function_that_fails_for_the_whole_and_for_no_tuple_alone_diverts_the_whole():
    """Nothing is lost, and nothing is guessed."""

    def few(batch: pa.RecordBatch) -> pa.Array:
        if batch.num_rows > 2:
            raise ValueError("too many at once")
        return batch.column("k")

    query = Query("q")
    made = items(query).map(k=few, on_error="divert", name="few")
    made.to_stream()
    made.output("dead").to_stream("dead")
    found = outputs(query, "few")
    assert [row["k"] for row in found["dead"]] == [3, 4, 5]
    assert [row["k"] for row in found["few"]] == [1, 2]


def test_a_tuple_whose_sum_overflows_is_diverted_too():
    """It is the tuple's fault, not the machine's."""
    query = Query("q")
    made = items(query).map(m="k * 4000000000000000000", on_error="divert", name="m")
    made.to_stream()
    made.output("dead").to_stream("dead")
    found = outputs(query, "m")
    assert [row["k"] for row in found["dead"]] == [3, 4, 5]
    assert len(found["m"]) == 2


def test_what_cannot_be_is_refused_when_the_step_is_added():
    """With the step's name."""
    query = Query("q")
    with pytest.raises(UsageError, match="step 'm': on_error is 'stop' or 'divert', not 'skip'"):
        items(query).map(k="k", on_error="skip", name="m")
    other = query.source("others", Batches(BATCH.rename_columns(["k", "error"])))
    with pytest.raises(SchemaMismatch, match=r"step 'm'.*there is one already"):
        other.map(k="k", on_error="divert", name="m")


def test_a_diverting_step_is_a_fragment_of_its_own():
    """What it fails for leaves it beside the results."""
    query = Query("q")
    made = items(query).filter("k > 0", name="some").map(k="k", on_error="divert", name="m")
    made.filter("k > 1", name="more").to_stream()
    made.output("dead").to_stream("dead")
    assert {node.name for node in query.plan().nodes} == {"some", "m", "more"}


def test_windows_of_several_sizes_are_streams_of_several_names():
    """The same functions over each."""
    from rewake.operators.windows.specs import count_window

    query = Query("q")
    sizes = {"short": count_window(2), "long": count_window(10)}
    made = items(query).aggregates(sizes, by="k", count=True, name="counts")
    for stream in made.values():
        stream.to_stream()
    assert {each: stream.name for each, stream in made.items()} == {
        "short": "counts-short",
        "long": "counts-long",
    }
    assert {"counts-short", "counts-long"} <= {node.name for node in query.plan().nodes}
