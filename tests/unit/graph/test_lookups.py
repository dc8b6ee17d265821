"""Lookups in queries: their columns, their plan, and where they may not be."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from graph_vocabulary import Numbers

from rewake.graph import Query, Stream
from rewake.graph.lookups import lookup
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import Kept, approach_named

STATEMENT = "SELECT name FROM items WHERE id = :item_id"


@dataclass(frozen=True)
class Asked:
    """A lookup that is only talked about."""

    statement: str
    schema: pa.Schema = pa.schema([("name", pa.string())])
    parameters: tuple[str, ...] = ("item_id",)

    def describe(self) -> dict[str, Any]:
        return {"kind": "asked", "statement": self.statement}

    def open(self) -> Any:
        raise AssertionError("planning opens nothing")


@dataclass(frozen=True)
class Outside:
    """A database that is only talked about."""

    def lookup(self, statement: str, schema: pa.Schema) -> Asked:  # noqa: ARG002
        if "nowhere" in statement:
            raise SchemaMismatch("no such table: nowhere")
        return Asked(statement)


def named(query: Query, statement: str = STATEMENT, **options: Any) -> Stream:
    stream = query.source("items", Numbers())
    return lookup(stream, Outside(), statement, **{"name": "named", **options})


def test_a_lookup_adds_columns_and_logs_what_it_was_answered() -> None:
    """The plan says why."""
    query = Query("q")
    stream = named(query).to_stream()
    assert stream.schema.names == ["item_id", "item_price", "item_time", "name"]
    node = query.plan().node("named")
    assert (node.kept is Kept.IN_LOG, node.kept_because) == (
        True,
        "what a database answers may change",
    )
    assert "lookup" in query.explain()
    assert "arbitrary" in query.explain()


def test_the_statement_is_part_of_the_fingerprint() -> None:
    """A log of other answers is another log."""

    def fingerprint(**options: Any) -> str:
        query = Query("q")
        named(query, **options).to_stream()
        return query.plan().fingerprint

    assert fingerprint() == fingerprint()
    others = [
        fingerprint(statement=STATEMENT + " "),
        fingerprint(how="inner"),
        fingerprint(many=True),
    ]
    assert len({fingerprint(), *others}) == 4


def test_errors_name_the_step() -> None:
    """Those of the database, too."""
    with pytest.raises(SchemaMismatch, match="step 'named': no such table: nowhere"):
        named(Query("q"), "SELECT name FROM nowhere")
    with pytest.raises(UsageError, match="step 'named': how is one of left, inner"):
        named(Query("q"), how="outer")


def test_a_lookup_shares_no_fragment_with_state() -> None:
    """Its answers may be others when the state is rebuilt from them."""
    before = Query("q")
    found = named(before, fragment="one")
    found.aggregate(
        by="item_id", window=count_window(2), count=True, name="counts", fragment="one"
    ).to_stream()
    with pytest.raises(UsageError, match=r"'named' and 'counts' cannot share fragment 'one'"):
        before.plan()
    after = Query("q")
    counts = after.source("items", Numbers()).aggregate(
        by="item_id", window=count_window(2), count=True, name="counts", fragment="one"
    )
    lookup(counts, Outside(), STATEMENT, name="named", fragment="one").to_stream()
    with pytest.raises(UsageError, match=r"a database may answer differently"):
        after.plan()


def test_a_lookup_may_share_a_fragment_with_steps_without_state() -> None:
    """They are logged as one."""
    query = Query("q")
    stream = query.source("items", Numbers(), fragment="one")
    cheap = stream.filter("item_price < 5", fragment="one")
    lookup(cheap, Outside(), STATEMENT, name="named", fragment="one").to_stream()
    (node,) = query.plan().nodes
    assert (node.name, node.kept) == ("one", Kept.IN_LOG)


@pytest.mark.parametrize(
    ("approach", "run_as"), [("cec", "cec"), ("instant", "cec"), ("amnesia", "amnesia")]
)
def test_a_lookup_is_not_replayed(approach: str, run_as: str) -> None:
    """Whatever the approach of the query, or of the step itself."""
    for of_step in (None, approach):
        query = Query("q", approach=None if of_step else approach_named(approach))
        named(query, approach=of_step and approach_named(of_step)).to_stream()
        assert query.plan().node("named").approach.name == run_as


def test_shards_and_keys_are_those_of_the_input() -> None:
    """Unless the user says otherwise."""
    query = Query("q")
    stream = query.source("items", Numbers(), shards=2)
    lookup(stream, Outside(), STATEMENT, name="named").to_stream()
    assert [each.name for each in query.plan().nodes][-2:] == ["named-0", "named-1"]
