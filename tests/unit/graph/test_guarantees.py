"""Guarantees of outputs: computed along the way, told by explain, required by users."""

import pyarrow as pa
import pytest

from rewake.connectors.memory import Batches
from rewake.graph.plan.guarantees import guarantees
from rewake.graph.query import Query
from rewake.graph.stream import Stream
from rewake.model.errors import UsageError
from rewake.operators.windows.specs import count_window
from rewake.recovery.amnesia import Amnesia
from rewake.recovery.approach import Approach, Guarantee, Kept
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.instant.approach import Instant
from rewake.recovery.standby.active import ActiveStandby
from rewake.recovery.standby.passive import PassiveStandby

ITEMS = pa.table({"k": [1, 2, 1, 2], "v": [1, 2, 3, 4]})
HELD = [ContinuousEventual(), Instant(), PassiveStandby(), ActiveStandby()]
AT_ONCE = [PassiveStandby(output="at_once"), ActiveStandby(output="at_once")]


def name_of(approach: Approach) -> str:
    """For the names of tests."""
    return "-".join([approach.name, *map(str, approach.settings().values())])


def source(query: Query, name: str = "items", idle_after: str | None = None) -> Stream:
    return query.source(name, Batches(ITEMS), idle_after=idle_after)


def windows(stream: Stream, approach: Approach, name: str = "windows") -> Stream:
    return stream.aggregate(
        by="k", window=count_window(2), count=True, name=name, approach=approach
    )


def kept(query: Query, stream: Stream) -> Query:
    """The query with this as its one stream, behind a step with a log."""
    stream.filter("k > 0", name="kept", approach=ContinuousEventual()).to_stream("kept")
    return query


@pytest.mark.parametrize("approach", [*HELD, *AT_ONCE], ids=name_of)
def test_without_chance_whatever_keeps_something_is_precise(approach: Approach) -> None:
    """What left at once is made again under the same positions: whoever has it drops it."""
    query = Query("q")
    given = guarantees(kept(query, windows(source(query), approach)).plan())
    assert {each.guarantee for each in given.values()} == {Guarantee.PRECISE}


def by_order(approach: Approach) -> Query:
    query = Query("q")
    first, second = source(query, "first"), source(query, "second")
    return kept(query, first.union(second, name="chance", approach=approach))


def by_silence(approach: Approach) -> Query:
    query = Query("q")
    return kept(query, windows(source(query, idle_after="1s"), approach, "chance"))


@pytest.mark.parametrize("made", [by_order, by_silence])
@pytest.mark.parametrize("approach", [*HELD, *AT_ONCE], ids=name_of)
def test_where_chance_has_a_part_output_must_be_held(approach: Approach, made) -> None:
    """What was decided before a crash is in the record; without it, it is decided anew."""
    given = guarantees(made(approach).plan())["chance"]
    assert given.guarantee is (Guarantee.DIVERGENT if approach in AT_ONCE else Guarantee.PRECISE)
    assert given.because == "chance"
    assert ("chance" in given.why) == (approach in AT_ONCE)


def test_what_is_behind_says_because_of_whom_and_why() -> None:
    """Also far behind, and also in explain."""
    query = Query("q")
    kept(query, windows(windows(source(query), Amnesia(), "forgets"), Instant()))
    given = guarantees(query.plan())
    assert given["windows"] == given["forgets"]
    assert given["windows"].guarantee is Guarantee.GAP
    text = query.explain()
    assert "output gap: what is in memory is lost" in text
    assert "output gap, because of forgets: what is in memory is lost" in text


@pytest.mark.parametrize("approach", [PassiveStandby(), ActiveStandby()], ids=name_of)
def test_explain_says_what_a_standby_does_not_survive(approach: Approach) -> None:
    """Before anything starts: two processes are not a log."""
    said = "survives the end of one place at a time; when all end, the query is lost"
    query, other = Query("q"), Query("q")
    assert said in kept(query, windows(source(query), approach)).explain()
    assert "survives" not in kept(other, windows(source(other), Instant())).explain()


def test_a_stream_of_a_step_in_memory_is_kept_by_a_step_of_its_own() -> None:
    """Clients come when they like; a name that is taken is refused."""
    query = Query("q", approach=PassiveStandby())
    sums = windows(source(query), PassiveStandby(), "sums")
    sums.to_stream("results")
    plan = query.plan()
    assert plan.streams["results"] == (("results-stream", 0),)
    assert plan.node("results-stream").kept is Kept.IN_LOG
    sums.filter("k > 0", name="results-stream").to_stream("others")
    with pytest.raises(UsageError, match="gets a step of its own, 'results-stream', but there is"):
        query.plan()


def test_a_query_is_refused_that_gives_less_than_is_required() -> None:
    """It says what, how much, because of which step, why, and what to do."""
    query = Query("q", require="precise")
    windows(windows(source(query), Amnesia(), "forgets"), Instant()).to_stream("sums")
    with pytest.raises(UsageError) as caught:
        query.plan()
    assert str(caught.value) == (
        "stream 'sums' is gap, not precise, because of step 'forgets': what is in memory is lost; "
        "give it an approach that keeps something, such as rewake.ContinuousEventual()"
    )


def test_streams_and_sinks_may_require_something_of_their_own(tmp_path) -> None:
    """More than the query requires, or less."""
    query = Query("q", require="precise")
    forgets = windows(source(query), Amnesia())
    forgets.to_stream("sums", require="gap")
    query.plan()
    sums = windows(forgets, ContinuousEventual(), "further")
    sums.to_stream("further", require="divergent")
    with pytest.raises(UsageError, match="stream 'further' is gap, not divergent, because of step"):
        query.plan()


def test_a_guarantee_that_there_is_not_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(UsageError, match="choose one of precise, repeating, convergent, divergent"):
        Query("q", require="perfect")
