"""Queries: steps are checked as they are added, with errors that name step and column."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from graph_vocabulary import ITEMS, Folder, Numbers, items_of

from rewake.graph import Query, count_window, time_window
from rewake.model.errors import InvalidName, InvalidWindow, SchemaMismatch, UsageError
from rewake.operators.aggregate.functions import Avg
from rewake.recovery.amnesia import Amnesia
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.instant.approach import Instant
from rewake.recovery.policies.targets import Targets


@pytest.fixture
def query() -> Query:
    return Query("average-price")


# --- steps and their schemas -----------------------------------------------------------------


def test_a_filter_has_the_schema_of_its_input(query: Query) -> None:
    """It only leaves tuples out."""
    assert items_of(query).filter("item_price < 500").schema == ITEMS


def test_a_map_has_the_columns_it_computes(query: Query) -> None:
    """In the order in which they are written, of the types of their expressions."""
    named = items_of(query).map(
        {"name": "item_id"}, euros="item_price / 100", twice=lambda batch: batch["item_price"]
    )
    assert named.schema == pa.schema(
        [("name", pa.int32()), ("euros", pa.float64()), ("twice", pa.int32())]
    )


def test_a_map_may_be_one_function_for_all_columns(query: Query) -> None:
    """Its schema is found on an empty batch."""
    mapped = items_of(query).map(lambda batch: batch.select(["item_id"]), name="ids")
    assert mapped.schema.names == ["item_id"]


def test_an_aggregate_has_its_keys_and_functions(query: Query) -> None:
    """Named functions, lists of columns, a count, and functions with names of their own."""
    found = items_of(query).aggregate(
        by="item_id",
        window=count_window(10),
        avg="item_price",
        max=["item_price", "item_time"],
        count=True,
        functions=[Avg("item_price", "mean")],
    )
    assert found.schema.names == [
        "item_id",
        "avg_item_price",
        "max_item_price",
        "max_item_time",
        "count",
        "mean",
    ]


def test_an_aggregate_can_count_the_values_of_a_column(query: Query) -> None:
    """`count="column"` leaves nulls out."""
    found = items_of(query).aggregate(by="item_id", window=count_window(2), count="item_price")
    assert found.schema.names == ["item_id", "count_item_price"]


def test_late_tuples_are_a_stream_of_the_input_schema(query: Query) -> None:
    """When they are asked for."""
    sums = items_of(query).aggregate(
        by="item_id",
        window=time_window("10s"),
        time="item_time",
        sum="item_price",
        route_late=True,
        name="sums",
    )
    assert sums.late.schema == ITEMS
    assert sums.late.name == "sums.late"
    assert "item_id" in repr(sums.late)


def test_a_union_may_be_null_where_any_of_its_inputs_may(query: Query) -> None:
    """Names and types must be the same; whether nulls can be is united."""
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    loose = pa.schema([("a", pa.int64())])
    both = query.entry("one", strict).union(query.entry("other", loose))
    assert both.schema.field("a").nullable


def test_dictionaries_are_only_a_way_to_store_a_column(query: Query) -> None:
    """Streams carry the values."""
    schema = pa.schema([("word", pa.dictionary(pa.int32(), pa.string()))])
    words = query.source("words", Numbers(schema))
    assert words.schema == pa.schema([("word", pa.string())])


def test_steps_without_a_name_are_numbered(query: Query) -> None:
    """The same whenever the query is written down."""
    items = items_of(query)
    first, second = items.filter("item_id > 0"), items.filter("item_id > 1")
    assert (first.name, second.name) == ("filter-1", "filter-2")
    assert repr(query) == "<Query 'average-price': items, filter-1, filter-2>"


# --- mistakes --------------------------------------------------------------------------------


def test_a_column_that_is_not_there_is_named_with_its_step(query: Query) -> None:
    """And a near name is suggested, wherever columns are named."""
    items = items_of(query)
    near = r"step 'cheap': no column 'item_prise'; did you mean 'item_price'\? columns: item_id"
    window = count_window(10)
    with pytest.raises(SchemaMismatch, match=near):
        items.filter("item_prise < 500", name="cheap")
    with pytest.raises(SchemaMismatch, match=near):
        items.map(euros="item_prise / 100", name="cheap")
    with pytest.raises(SchemaMismatch, match=near):
        items.aggregate(by="item_prise", window=window, count=True, name="cheap")
    with pytest.raises(SchemaMismatch, match=near):
        items.aggregate(by="item_id", window=window, avg="item_prise", name="cheap")
    with pytest.raises(SchemaMismatch, match=near):
        items.filter("item_id > 1", partition_by="item_prise", name="cheap")


def test_a_refused_step_leaves_no_trace(query: Query) -> None:
    """So that a notebook's cell can be corrected and run again."""
    items = items_of(query)
    with pytest.raises(SchemaMismatch):
        items.filter("item_prise < 500", name="cheap")
    assert items.filter("item_price < 500", name="cheap").name == "cheap"


def test_a_filter_needs_a_truth_value(query: Query) -> None:
    """A number is none."""
    with pytest.raises(SchemaMismatch, match="step 'cheap': 'item_price' is of type int32; a filt"):
        items_of(query).filter("item_price", name="cheap")
    with pytest.raises(SchemaMismatch, match=r"step 'odd': '.*\(batch\)' is of type int32"):
        items_of(Query("q")).filter(lambda batch: batch["item_price"], name="odd")


def test_syntax_errors_name_the_step(query: Query) -> None:
    """Also in one of many columns."""
    with pytest.raises(UsageError, match="step 'm': 'item_price /' is not an SQL expression"):
        items_of(query).map(a="item_id", b="item_price /", name="m")


def test_a_map_without_columns_is_refused(query: Query) -> None:
    """And so is one whose columns are given twice, or in two ways."""
    items = items_of(query)
    with pytest.raises(UsageError, match="step 'm': a map needs at least one column"):
        items.map(name="m")
    with pytest.raises(UsageError, match="step 'm': column 'a' is given twice"):
        items.map({"a": "item_id"}, a="item_id", name="m")
    with pytest.raises(UsageError, match="one function for all columns, or columns"):
        items.map(lambda batch: batch, a="item_id", name="m")


def test_two_steps_with_one_name_are_refused(query: Query) -> None:
    """The error says what both are."""
    items = items_of(query)
    items.filter("item_id > 0", name="x")
    with pytest.raises(UsageError, match="two steps are named 'x': a filter and an aggregate"):
        items.aggregate(by="item_id", window=count_window(2), count=True, name="x")


def test_names_become_folders_so_they_are_checked(query: Query) -> None:
    """Of queries, steps, fragments and streams."""
    with pytest.raises(InvalidName):
        Query("../up")
    with pytest.raises(InvalidName):
        query.source("a/b", Numbers())
    items = items_of(query)
    with pytest.raises(InvalidName):
        items.filter("item_id > 0", fragment="a b")
    with pytest.raises(InvalidName):
        items.to_stream(".hidden")


def test_streams_of_a_union_need_one_schema(query: Query) -> None:
    """The error names the column and both streams."""
    items = items_of(query)
    other = query.entry("other", pa.schema([("item_id", pa.int32())]))
    with pytest.raises(SchemaMismatch, match="'items' has columns item_id, item_price, item_time"):
        items.union(other, name="both")
    wide = items.map(item_id="CAST(item_id AS BIGINT)", item_price="item_price", name="wide")
    slim = items.map(item_id="item_id", item_price="item_price", name="slim")
    with pytest.raises(SchemaMismatch, match="'item_id' is int64 in 'wide', but int32 in 'slim'"):
        wide.union(slim, name="both")


def test_a_union_needs_different_streams_of_this_query(query: Query) -> None:
    """None, itself, one of another query, or something else will not do."""
    items = items_of(query)
    with pytest.raises(UsageError, match="at least one other stream"):
        items.union()
    with pytest.raises(UsageError, match="'items' is united with itself"):
        items.union(items)
    with pytest.raises(UsageError, match="belongs to another query, 'elsewhere'"):
        items.union(items_of(Query("elsewhere")))
    with pytest.raises(UsageError, match="'orders' is not a stream"):
        items.union("orders")  # type: ignore[arg-type]


def test_what_an_aggregate_refuses_names_the_step(query: Query) -> None:
    """With the same kind of error."""
    items = items_of(query)
    with pytest.raises(InvalidWindow, match="step 'a': a time window needs"):
        items.aggregate(by="item_id", window=time_window("1s"), count=True, name="a")
    with pytest.raises(UsageError, match="step 'a': an aggregate needs at least one function"):
        items.aggregate(by="item_id", window=count_window(1), name="a")
    with pytest.raises(SchemaMismatch, match=r"step 'a': .*two result columns are named 'count'"):
        items.aggregate(
            by="item_id", window=count_window(1), count=True, functions=[Avg("item_id", "count")],
            name="a",
        )  # fmt: skip


def test_only_an_aggregate_that_routes_late_tuples_has_them(query: Query) -> None:
    """The error says how to get them."""
    with pytest.raises(UsageError, match="have one with route_late=True"):
        _ = items_of(query).late


def test_shards_are_a_small_positive_number(query: Query) -> None:
    """Anything else is refused with the step's name."""
    for shards in (0, -1, 257, True, "2"):
        with pytest.raises(UsageError, match="step 'items': shards is a number from 1 to 256"):
            items_of(query, shards=shards)


def test_a_key_must_be_of_a_type_that_can_be_hashed(query: Query) -> None:
    """Lists cannot."""
    schema = pa.schema([("many", pa.list_(pa.int64()))])
    with pytest.raises(SchemaMismatch, match="step 'f': partition_by: column 'many'"):
        query.entry("lists", schema).filter("TRUE", partition_by="many", name="f")


def test_a_schema_is_a_schema_with_columns_of_different_names(query: Query) -> None:
    """Before anything else is asked of it."""
    with pytest.raises(UsageError, match=r"step 'e': a schema is a pyarrow\.Schema"):
        query.entry("e", {"a": "int"})
    with pytest.raises(UsageError, match="step 'e': two columns are named 'a'"):
        query.entry("e", pa.schema([("a", pa.int64()), ("a", pa.int64())]))


def test_an_approach_is_a_value_and_no_name(query: Query) -> None:
    """A name is refused, with the classes that there are."""
    items_of(query, approach=Amnesia()).to(Folder())
    assert query.plan().node("items").approach.name == "amnesia"
    with pytest.raises(UsageError, match=r"choose one of .*ContinuousEventual\(\)"):
        Query("q", approach="cec")  # type: ignore[arg-type]


# --- loops and streams -----------------------------------------------------------------------


def test_a_loop_is_closed_once_with_a_step_of_its_schema(query: Query) -> None:
    """Not with itself, and not with something else."""
    items = items_of(query)
    loop = query.loop("again", ITEMS)
    both = items.union(loop, name="both")
    with pytest.raises(SchemaMismatch, match=r"loop 'again' cannot be closed: .*'ids' has item_id"):
        loop.close_with(both.map(item_id="item_id", name="ids"))
    with pytest.raises(UsageError, match="cannot be closed with loop 'again'"):
        loop.close_with(loop)
    loop.close_with(both)
    with pytest.raises(UsageError, match="already closed with 'both'"):
        loop.close_with(items)


def test_two_streams_with_one_name_are_refused(query: Query) -> None:
    """Naming the same output twice is no conflict."""
    items = items_of(query)
    items.to_stream("kept").to_stream("kept")
    other = items.filter("item_id > 0", name="other")
    with pytest.raises(UsageError, match=r"two streams are named 'kept'.*'items' and 'other'"):
        other.to_stream("kept")


# --- notebooks -------------------------------------------------------------------------------


def test_a_notebook_shows_a_query_as_a_picture(query: Query) -> None:
    """And one that is not complete as text, because it is shown while it is written."""
    items = items_of(query)
    assert "nobody uses its output" in query._repr_mimebundle_()["text/plain"]
    items.filter(lambda batch: pc.greater(batch["item_id"], 1), name="odd").to(Folder())
    shown = query._repr_mimebundle_(include=None, exclude=None)
    assert shown == {"text/vnd.mermaid": query.picture(), "text/plain": query.explain()}


def test_a_query_says_how_long_a_crash_may_cost() -> None:
    """For all its steps, or for one; it is a setting of continuous eventual checkpointing."""
    query = Query("promised", recover_within="1s")
    assert query.approach.settings() == {"recover_within": "1s"}
    averages = items_of(query).aggregate(
        by="item_id",
        window=count_window(10),
        avg="item_price",
        recover_within="250ms",
        checkpoint_budget="10%",
    )
    (step,) = [each for each in query.graph().steps if each.name == averages.name]
    assert step.approach is not None
    assert step.approach.settings() == {"recover_within": "250ms", "checkpoint_budget": "10%"}


TARGETS = ContinuousEventual(Targets(tuples=9))


@pytest.mark.parametrize(
    ("settings", "of_query", "of_step"),
    [
        ({}, {"recover_within": "10s"}, {"recover_within": "10s"}),
        ({"checkpoint_budget": "2%"}, {"recover_within": "10s", "checkpoint_budget": "2%"}, None),
        ({"recover_within": None}, {}, {}),
        ({"recover_within": "1s"}, {"recover_within": "1s"}, {"recover_within": "1s"}),
        ({"approach": ContinuousEventual()}, {"recover_within": "10s"}, None),
        ({"approach": TARGETS}, {"tuples": 9}, {"tuples": 9}),
        ({"approach": Instant()}, {}, {"recover_within": "10s"}),
        ({"approach": Amnesia()}, {}, {"recover_within": "10s"}),
    ],
)
def test_who_says_nothing_is_promised_ten_seconds(
    settings: dict, of_query: dict, of_step: dict | None
) -> None:
    """Unless the approach has CHECKs of its own, or cannot promise; None says that nothing is."""
    query = Query("q", **settings)
    assert query.approach.settings() == of_query
    averages = items_of(query).aggregate(
        by="item_id", window=count_window(10), count=True, approach=ContinuousEventual()
    )
    step = next(each for each in query.graph().steps if each.name == averages.name)
    assert step.approach is not None
    # It says nothing of CHECKs, so it leaves them as the query does.
    assert step.approach.settings() == (of_query if of_step is None else of_step)


def test_a_step_does_without_a_promise_in_words() -> None:
    """None for a step is for that step alone; another approach stays what it is."""
    for query, expected in (
        (Query("q", recover_within="1s"), ContinuousEventual()),
        (Query("q"), ContinuousEventual()),
        (Query("q", approach=Instant()), None),
        (Query("q", recover_within=None), None),
    ):
        averages = items_of(query).aggregate(
            by="item_id", window=count_window(10), count=True, recover_within=None
        )
        step = next(each for each in query.graph().steps if each.name == averages.name)
        assert step.approach == expected


def test_an_approach_of_a_step_is_not_held_against_the_querys_promise() -> None:
    """Only what was said of the step itself can contradict it."""
    query = Query("q", recover_within="1s")
    items = items_of(query)
    window = count_window(10)
    for approach in (Instant(), Amnesia(), TARGETS):
        made = items.aggregate(by="item_id", window=window, count=True, approach=approach)
        step = next(each for each in query.graph().steps if each.name == made.name)
        assert step.approach == approach
    with pytest.raises(UsageError, match="recover_within='2s' cannot be promised"):
        items.aggregate(
            by="item_id", window=window, count=True, approach=Instant(), recover_within="2s"
        )


def test_what_is_promised_is_part_of_a_plan() -> None:
    """The same whether the default was said or not; another promise is another plan."""
    plans = []
    for settings in ({}, {"recover_within": "10s"}, {"recover_within": None}):
        query = Query("q", **settings)
        items_of(query).aggregate(
            by="item_id", window=count_window(10), count=True, name="counts"
        ).to_stream()
        plans.append(query.plan().fingerprint)
    assert plans[0] == plans[1] != plans[2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"recover_within": "1s", "approach": Amnesia()}, "cannot be promised"),
        ({"recover_within": "10s", "approach": Instant()}, "cannot be promised"),
        ({"recover_within": "soon"}, r'recover_within .*such as "1s": \'soon\' is not a duration'),
        ({"recover_within": "0s"}, r"recover_within must be longer than nothing, .*'0s'"),
        ({"recover_within": "1s", "checkpoint_budget": "0%"}, "checkpoint_budget"),
        ({"recover_within": "1s", "checkpoint_budget": "much"}, "not a share"),
    ],
)
def test_a_promise_that_makes_no_sense_is_refused(settings: dict, words: str) -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match=words):
        Query("promised", **settings)
