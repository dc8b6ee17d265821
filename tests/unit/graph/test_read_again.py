"""Upstream backup: what is refused before anything starts, and in which words."""

import pyarrow as pa
import pytest

from rewake.graph.query import Query
from rewake.graph.showing.explain import explain
from rewake.model.errors import UsageError
from rewake.node.protocols import protocol_of
from rewake.node.protocols.bookmarked import Bookmarked
from rewake.operators.windows.specs import count_window, session_window, time_window
from rewake.recovery.approach import Kept
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.standby.passive import PassiveStandby
from rewake.recovery.upstream_backup import UpstreamBackup
from rewake.sim.connectors import ListSource

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
BACKED_UP = UpstreamBackup()


def source(query, name="items", **options):
    return query.source(name, ListSource(SCHEMA, ((),) * options.get("shards", 1)), **options)


def sums(stream, window=None, *, name="sums", approach=BACKED_UP, **options):
    """Windows of time under upstream backup, and a log behind them."""
    window = window or time_window(10)
    return stream.aggregate(
        by="k", time="t", window=window, sum="v", name=name, approach=approach, **options
    )


def plan_of(query, stream):
    stream.filter("k > 0", name="out").to_stream("out")
    return query.plan()


def refused(query, stream, words):
    with pytest.raises(UsageError, match=f"'upstream-backup', .*: .*{words}"):
        plan_of(query, stream)


def test_windows_behind_a_source_are_carried_out():
    """Through steps that only pass on, and one behind the other; explain says what it costs."""
    query = Query("q")
    windows = sums(source(query).filter("v > 0", name="some"))
    sessions = windows.aggregate(
        by="k", time="window_end", window=session_window(9), count=True, name="sessions",
        approach=BACKED_UP,
    )  # fmt: skip
    plan = plan_of(query, sessions)
    for name in ("sums", "sessions"):
        assert plan.node(name).kept is Kept.IN_QUEUE
        assert protocol_of(plan.node(name)) is Bookmarked
        assert plan.node(name).places == 1
    text = explain(plan)
    assert "approach upstream-backup, output precise" in text
    assert "upstreams keep its input from the oldest open window on" in text


def test_what_is_kept_by_others_may_be_read_again():
    """A log, and records in another place, are what they were, whatever they were made from."""
    for approach in (ContinuousEventual(), PassiveStandby()):
        query = Query("q")
        both = source(query).union(source(query, "others"), name="both", approach=approach)
        plan_of(query, sums(both))


def test_a_step_that_only_passes_on_needs_no_approach():
    """It can be made again, and is."""
    query = Query("q", approach=BACKED_UP)
    sink = source(query).filter("k > 0", name="some").filter("v > 0", name="more")
    windows = sums(sink, approach=None)
    plan = plan_of(query, windows.filter("k > 1", name="last", approach=ContinuousEventual()))
    assert plan.node("more").kept is Kept.UPSTREAM


def test_several_inputs_are_refused():
    """In which order they meet is chance: unions, joins, and shards that come together."""
    query = Query("q")
    one, other = source(query), source(query, "others")
    refused(query, one.union(other, name="both", approach=BACKED_UP), "which order these meet")
    query = Query("q")
    refused(query, sums(source(query, shards=2)), "which order these meet")
    query = Query("q")
    one, other = source(query), source(query, "others").map(k="k", t="t", w="v", name="named")
    joined = one.join(other, on="k", time="t", within=5, name="joined", approach=BACKED_UP)
    refused(query, joined, "which order these meet")


def test_windows_that_are_counted_are_refused():
    """They would begin elsewhere, and what to take instead is said."""
    query = Query("q")
    words = "windows of counts would begin elsewhere.*deterministic.*approach with a log"
    refused(query, sums(source(query), count_window(3)), words)


def test_functions_of_which_nothing_is_known_are_refused():
    """Nothing says that they give the same when they begin elsewhere."""
    query = Query("q")
    step = source(query).filter(_true, name="odd", fragment="one")
    windows = sums(step, fragment="one")
    refused(query, windows, "nothing says that it would, as of functions")


def _true(batch):
    return pa.array([True] * batch.num_rows, pa.bool_())


def test_an_entry_is_refused():
    """Producers cannot be asked twice."""
    query = Query("q")
    entry = query.entry("entry", SCHEMA, approach=BACKED_UP)
    refused(query, entry, "producers cannot be asked twice")


def test_input_that_falls_silent_by_chance_is_refused():
    """Where time stands then is chance; behind a log it is written down."""
    query = Query("q")
    silent = source(query, idle_after="1s")
    refused(query, sums(silent.filter("v > 0", name="some")), "falls silent .idle_after. is chance")
    query = Query("q")
    logged = sums(source(query, idle_after="1s"), name="logged", approach=ContinuousEventual())
    again = logged.map(k="k", t="window_end", v="sum_v", name="again")
    plan_of(query, sums(again))


def test_output_for_clients_is_kept_by_a_step_behind_it():
    """They come when they like, and hold nothing back."""
    query = Query("q")
    sums(source(query)).to_stream("sums")
    assert query.plan().streams["sums"] == (("sums-stream", 0),)


def test_a_loop_is_refused():
    """Cause would lead back to itself."""
    query = Query("q")
    loop = query.loop("again", SCHEMA)
    both = source(query).union(loop, name="both", approach=ContinuousEventual())
    windows = sums(both).map(k="k", t="window_end", v="sum_v", name="named")
    loop.close_with(windows.filter("v < 3", name="some"))
    with pytest.raises(UsageError, match="does not allow cycles"):
        plan_of(query, windows)
