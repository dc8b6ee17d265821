"""Wrong arguments are refused where they are given, in words: by every step and every setting.

By introspection: a step or an option that is added is tried, too.  A value may be right by chance;
what is wrong must be a `UsageError`, never an error from inside.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import rewake
from rewake.graph.query import Query
from rewake.graph.stream import Stream
from rewake.model.errors import InvalidWindow, UsageError
from rewake.operators.aggregate.operator import AggregateSpec

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("v", pa.float64()),
        ("word", pa.string()),
        ("at", pa.timestamp("us")),
    ]
)
# What people give by mistake: of the wrong type, empty, negative, nonsense.
HOSTILE: tuple[Any, ...] = (
    None, True, 10, -1, 0, 2**70, 3.5, float("nan"), "", "nonsense", "10s", "10 minutes", b"10s",
    [], [10], [None], {}, {"v": 10}, {1: 2}, (), ("k",), ("k", 10), object(), len, pa.int64(),
)  # fmt: skip


def stream() -> Stream:
    """A stream to put a step behind."""
    return Query("wrong").entry("entry", SCHEMA)


def other(of: Stream) -> Stream:
    """A second one of the same query."""
    return of.filter("v >= 0", name="other")


def per_key(_key: Any, _tuples: Any, state: Any) -> Any:
    """Keyed processing that does nothing."""
    return [], state


STEPS: dict[str, Callable[[Stream], tuple[Any, dict[str, Any]]]] = {
    "filter": lambda of: (of.filter, {"predicate": "v > 1"}),
    "split": lambda of: (of.split, {"predicates": {"high": "v > 1"}}),
    "map": lambda of: (of.map, {"columns": {"double": "v * 2"}}),
    "union": lambda of: (partial(of.union, other(of)), {}),
    "aggregate": lambda of: (
        of.aggregate, {"by": "k", "window": rewake.count_window(10), "avg": "v"},
    ),
    "aggregates": lambda of: (
        of.aggregates, {"windows": {"ten": rewake.count_window(10)}, "by": "k", "avg": "v"},
    ),
    "bsort": lambda of: (of.bsort, {"by": "at", "buffer": 10}),
    "join": lambda of: (
        of.join, {"right": other(of), "on": "k", "within": "10s", "time": "at"},
    ),
    "process": lambda of: (
        of.process,
        {
            "function": per_key, "by": "k", "state": {"n": pa.int64()}, "output": SCHEMA,
            "each_key": True,
        },
    ),
    "resample": lambda of: (
        of.resample, {"at": other(of), "time": "at", "window": "10s", "columns": {"then": "v"}},
    ),
    "sessions": lambda of: (
        of.aggregate,
        {"by": "k", "window": rewake.session_window("10s"), "time": "at", "avg": "v"},
    ),
    "to_stream": lambda of: (of.to_stream, {"name": "kept"}),
    "to": lambda of: (of.to, {"sink": rewake.FileSink("files")}),
    "output": lambda of: (of.output, {"name": "dead"}),
    "time_window": lambda _of: (rewake.time_window, {"size": "10s"}),
    "count_window": lambda _of: (rewake.count_window, {"size": 10}),
    "session_window": lambda _of: (rewake.session_window, {"gap": "10s"}),
    "Query": lambda _of: (Query, {"name": "another"}),
    "entry": lambda _of: (Query("wrong").entry, {"name": "more", "schema": SCHEMA}),
    "source": lambda _of: (
        Query("wrong").source, {"name": "more", "source": rewake.Batches(pa.table({"v": [1]}))},
    ),
    "loop": lambda _of: (Query("wrong").loop, {"name": "more", "schema": SCHEMA}),
    "Batches": lambda _of: (rewake.Batches, {"rows": pa.table({"v": [1], "at": [1]})}),
}  # fmt: skip
# What needs a database, and what only looks at a stream.
LEFT_OUT = {"lookup", "late", "name", "schema", "add_stateful"}


def options() -> Iterator[tuple[str, str]]:
    """Every parameter of every step."""
    for step, given in STEPS.items():
        call, _ = given(stream())
        for name, each in inspect.signature(call).parameters.items():
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                yield step, name


def test_every_step_is_tried() -> None:
    """A new one must be added above."""
    public = {name for name in dir(Stream) if not name.startswith("_")}
    assert public - LEFT_OUT <= STEPS.keys()


@pytest.mark.parametrize(("step", "option"), list(options()))
def test_a_wrong_argument_is_a_usage_error(step: str, option: str) -> None:
    """At once, not when the query is planned or runs."""
    for value in HOSTILE:
        call, right = STEPS[step](stream())
        arguments = right | {option: value}
        positional = [
            arguments.pop(name)
            for name, each in inspect.signature(call).parameters.items()
            if each.kind is each.POSITIONAL_ONLY
        ]
        try:
            call(*positional, **arguments)
        except UsageError:
            continue
        except Exception as error:
            pytest.fail(f"{step}({option}={value!r}): {type(error).__name__}: {error}")


# --- what is true by accident, and what would be repeated at length ----------------------------


FLAGS = [
    ("aggregate", "route_late"), ("bsort", "route_late"), ("bsort", "flush"),
    ("bsort", "descending"), ("join", "route_late"), ("process", "route_late"),
    ("process", "each_key"), ("resample", "route_late"), ("map", "many"),
    ("entry", "watermarks"), ("loop", "watermarks"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "option"), FLAGS)
@pytest.mark.parametrize("value", ["yes", "no", 1, None])
def test_a_flag_is_true_or_false_and_nothing_like_it(step: str, option: str, value: Any) -> None:
    """Text such as "no" would be true."""
    call, right = STEPS[step](stream())
    with pytest.raises(UsageError, match=f"{option} is True or False, not {value!r}"):
        call(*([right.pop("columns")] if step == "map" else []), **{**right, option: value})


def test_structured_streaming_refuses_such_a_flag_too(tmp_path: Path) -> None:
    """At once, before Spark runs anything."""
    given: Any = "yes"
    with pytest.raises(UsageError, match="route_late is True or False, not 'yes'"):
        rewake.aggregate(
            by="k", window=rewake.count_window(2), at=tmp_path, avg="v", route_late=given
        )
    with pytest.raises(UsageError, match="route_late is True or False, not 'yes'"):
        rewake.process(per_key, by="k", state={}, output=SCHEMA, at=tmp_path, route_late=given)


ROWS = [{"k": 1}] * 100_000


@pytest.mark.parametrize(
    ("rows", "remedy"),
    [
        (ROWS, r"\(of type list\).*rewake\.Batches\(pa\.Table\.from_pylist\(rows\)\)"),
        ({"k": [1] * 1000}, r"\(of type dict\).*rewake\.Batches\(pa\.table\(columns\)\)"),
        (pd.DataFrame({"k": [1]}), r"rewake\.Batches\(pa\.Table\.from_pandas\(frame\)\)"),
        ([pa.table({"k": [1]})], r"rewake\.Batches\(pa\.concat_tables\(tables\)\)"),
    ],
    ids=["rows", "columns", "frame", "tables"],
)
def test_rows_at_hand_are_told_how_to_become_a_source(rows: Any, remedy: str) -> None:
    """In few words, however many rows there are."""
    for call in (rewake.Batches, partial(Query("q").source, "s")):
        with pytest.raises(UsageError, match=remedy) as caught:
            call(rows)
        assert len(str(caught.value)) < 300


def test_a_table_is_no_source() -> None:
    """Though it has columns."""
    table: Any = pa.table({"k": [1]})
    with pytest.raises(UsageError, match=r"of type Table\) is no source; write rewake\.Batches"):
        Query("q").source("s", table)


@pytest.mark.parametrize("name", [None, "", 1])
def test_a_column_has_a_name(name: Any) -> None:
    """None would become the column "None"."""
    with pytest.raises(UsageError, match="is no name of a column"):
        stream().map({name: "v"})


def test_processing_without_a_function_is_refused() -> None:
    """Not when the first tuple comes."""
    nothing: Any = None
    with pytest.raises(UsageError, match="None is not a function"):
        stream().process(nothing, by="k", state={}, output=SCHEMA)
    with pytest.raises(UsageError, match="None is not a function"):
        rewake.process(nothing, by="k", state={}, output=SCHEMA, at="somewhere")


@pytest.mark.parametrize("path", [[], (), None, 5])
def test_a_stream_is_somewhere(path: Any) -> None:
    """An error in words, not an IndexError."""
    with pytest.raises(UsageError, match="give the folder of a stream"):
        rewake.StreamSource(path)


# --- columns that options hide ---------------------------------------------------------------


def test_a_column_is_never_lost_to_the_name_of_a_step() -> None:
    """Where `name=` may be meant as a column, it is refused; in the mapping both have a place."""
    people = Query("people").entry("people", pa.schema([("name", pa.string()), ("v", pa.int64())]))
    for wrong in ({"name": "name"}, {"name": "shouted"}, {"fragment": "name"}):
        with pytest.raises(UsageError, match=r"a column\? For a column write map\(\{"):
            people.map(double="v * 2", **wrong)
    both = people.map({"name": "upper(name)", "double": "v * 2"}, name="shouted")
    assert (both.name, both.schema.names) == ("shouted", ["name", "double"])
    unnamed = people.map({"v": "v"}).map(double="v * 2", name="doubled")
    assert (unnamed.name, unnamed.schema.names) == ("doubled", ["double"])


# --- windows and durations -----------------------------------------------------------------------


@pytest.mark.parametrize("window", [10, "10s", "10 minutes", None, 3.5])
def test_what_is_no_window_is_refused_with_what_is_one(window: Any) -> None:
    """In a query and in Structured Streaming alike: the specification refuses it."""
    with pytest.raises(InvalidWindow, match=r'count_window\(10\).*time_window\("10 minutes"\)'):
        stream().aggregate(by="k", window=window, avg="v")
    with pytest.raises(InvalidWindow, match=r"count_window\(10\)"):
        AggregateSpec(["k"], window, [rewake.Avg("v")])


@pytest.mark.parametrize("text", ["10 minutes", "1 hour 30 minutes", "90 SECONDS", "1 day", "2s"])
def test_durations_are_taken_as_spark_writes_them_wherever_one_is_taken(text: str) -> None:
    """Windows, gaps, slack, timeouts, silences, promises."""
    query = Query("durations", recover_within=text)
    entry = query.entry("entry", SCHEMA, idle_after=text)
    window = rewake.time_window(text, every=text)
    entry.aggregate(by="k", window=window, time="at", slack=text, avg="v", recover_within=text)
    entry.aggregate(by="k", window=rewake.count_window(5), time="at", timeout=text, avg="v")
    entry.aggregate(by="k", window=rewake.session_window(text), time="at", avg="v")
    entry.join(query.entry("other", SCHEMA), on="k", within=text, time="at", slack=text)
    entry.resample(query.entry("times", SCHEMA), time="at", window=text, columns={"then": "v"})
    rows = pa.table({"at": pa.array([1], pa.timestamp("us"))})
    rewake.Batches(rows, time_column="at", slack=text)
    rewake.Sqlite("some.db", give_up_after=text)


@pytest.mark.parametrize(
    "text", ["10", "minutes", "10 fortnights", "-10 minutes", "10 minutes and"]
)
def test_what_is_no_duration_is_refused_when_the_window_is_made(text: str) -> None:
    """Not when it meets a time column, or tuples."""
    for make in (rewake.time_window, rewake.session_window):
        with pytest.raises(InvalidWindow, match=r'is not a duration.*"1 hour 30 minutes"'):
            make(text)


def test_a_gap_of_nothing_is_refused() -> None:
    """Every tuple would be a session."""
    with pytest.raises(InvalidWindow, match="the gap of sessions must be longer than nothing"):
        rewake.session_window(0)


@pytest.mark.parametrize("sink", ["out", None, rewake.FileSink])
def test_what_is_no_sink_is_refused_where_it_is_said(sink: Any) -> None:
    """A path is what people try first; they hear of it before anything starts."""
    stream = rewake.Query("q").source("a", rewake.Batches(pa.table({"k": [1]})))
    with pytest.raises(UsageError, match=r"is no sink; give one such as rewake\.FileSink"):
        stream.to(sink)
