"""Joins as steps of queries: what they look like, and what is refused."""

import pyarrow as pa
import pytest

from rewake import Batches
from rewake.graph import Query
from rewake.graph.joins import join
from rewake.model.errors import InvalidWindow, SchemaMismatch, UsageError

BIDS = pa.table({"auction": [1], "price": [5], "at": [0]})
AUCTIONS = pa.table({"id": [1], "seller": ["x"], "at": [0]})


def streams(query=None):
    """Two sources of one query."""
    query = query or Query("q")
    return query.source("bids", Batches(BIDS)), query.source("auctions", Batches(AUCTIONS))


def joined(query=None, **more):
    """A join of the two unless a test says otherwise."""
    options = {"on": [("auction", "id")], "within": 10, "time": "at", "name": "won"}
    return join(*streams(query), **{**options, **more})


def test_a_join_is_a_step_with_two_inputs():
    """Its plan divides each input by its own equality columns."""
    query = Query("q")
    made = joined(query, shards=2, how="left", where="price > 1")
    assert made.schema.names == ["auction", "price", "at", "id", "seller", "at_right"]
    made.to_stream("won")
    text = query.explain()
    assert "won: join, 2 shards" in text
    assert "by auction into 2" in text
    assert "by id into 2" in text


def test_equality_columns_may_be_given_in_every_way():
    """One name, several, or pairs of names."""
    left, right = streams()
    same = right.map({"auction": "id", "at": "at"})
    for on in ("auction", ["auction"], ("auction", "at"), [("auction", "auction"), "at"]):
        made = join(left, same, on=on, within=10, time="at", suffixes=("", "_r"))
        assert made.schema.names[:2] == ["auction", "price"]


def test_late_tuples_of_both_inputs_are_streams():
    """Each has the columns of its input, and a name of its own."""
    made = joined(route_late=True)
    left, right = made.output("late-left"), made.output("late-right")
    assert (left.name, left.schema.names) == ("won.late-left", ["auction", "price", "at"])
    assert (right.name, right.schema.names) == ("won.late-right", ["id", "seller", "at"])
    with pytest.raises(UsageError, match="besides its results it has none"):
        joined().output("late-left")


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"on": "auction"}, SchemaMismatch, "step 'won': right input: no column 'auction'"),
        ({"on": [("a", "b", "c")]}, UsageError, "step 'won': on: ('a', 'b', 'c') is not a pair"),
        ({"on": [("auction", "seller")]}, SchemaMismatch, "cast one of them upstream"),
        ({"within": None}, InvalidWindow, "step 'won': a join needs a window"),
        ({"time": ("at",)}, UsageError, "step 'won': time: ('at',) is not a pair"),
        ({"where": "prize > 1"}, SchemaMismatch, "no column 'prize'; did you mean 'price'"),
        ({"where": "price >"}, UsageError, "step 'won': 'price >' is not an SQL expression"),
        ({"suffixes": "_r"}, UsageError, "step 'won': suffixes: '_r' is not a pair"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused_by_name(more, error, words):
    """When the step is added; the message names the step and the column."""
    with pytest.raises(error) as caught:
        joined(**more)
    assert words in str(caught.value)
