"""Whole queries as Spark tasks: killed, stopped, continued, failed; every result exactly once."""

import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from query_vocabulary import (
    ALL,
    assert_right,
    end_offspring,
    kills,
    offspring,
    read_some,
    run_on,
    run_program,
    small,
    start_program,
)
from task_vocabulary import alive, require_spark, until

import rewake
from rewake.drill.run import Watcher
from rewake.drill.starting_gun import fire
from rewake.model.errors import QueryFailed
from rewake.net.queries.running import RunningQuery
from rewake.spark.job import SparkNodes
from rewake.spark.slots import TooFewSlots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_COMPLAINT = (
    "node 'doubtful': step 'doubtful' failed on a batch of 1000 tuples: ValueError: no such price"
)


def test_every_node_killed_once_while_data_flows(
    node_session: "SparkSession", tmp_path: Path
) -> None:
    """Spark starts each again, and the output is what it would have been."""
    result = run_on(node_session, small(tmp_path), tmp_path, kills("items", "cheap", "averages"))
    assert_right(result)
    assert {blow.node for blow in result.blows} == {"items", "cheap", "averages"}
    assert all(result.status[name]["epoch"] >= 2 for name in ("items", "cheap", "averages"))


def test_a_node_that_sleeps_is_ended_and_its_successor_finishes(
    node_session: "SparkSession", tmp_path: Path
) -> None:
    """Its process would keep its slot for ever: the coordinator kills it."""
    result = run_on(node_session, small(tmp_path), tmp_path, kills("averages", action="pause"))
    assert_right(result)
    assert "silent" in {each.what for each in result.history}
    (blow,) = result.blows
    assert blow.pid is not None
    assert not alive(blow.pid)


def test_a_stopped_query_goes_on_where_it_was(node_session: "SparkSession", tmp_path: Path) -> None:
    """In the same folder and session: what came before the stop and after it is the whole."""
    drill, folder = small(tmp_path), tmp_path / "query"
    plan = drill.build().plan()
    with RunningQuery(plan, folder, SparkNodes(node_session)) as query:
        first = read_some(query, drill, 3_000)
        endpoint = query.endpoint
    assert not (folder / "endpoint.json").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(endpoint.address, 1.0)
    with RunningQuery(plan, folder, SparkNodes(node_session)) as query:
        rest = read_some(query, drill, ALL, first.num_rows)
        assert query.await_end(60.0)
    verdict = drill.check([pa.concat_tables([first, rest])])
    assert verdict.right, verdict
    assert first.num_rows >= 3_000
    assert rest.num_rows > 0


def test_two_queries_run_on_one_session_at_once(
    node_session: "SparkSession", tmp_path: Path
) -> None:
    """Neither notices the other, nor that the other is stopped."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    drills = [small(folder, seed=number + 1) for number, folder in enumerate(folders)]
    with (
        RunningQuery(drills[0].build().plan(), folders[0] / "q", SparkNodes(node_session)) as one,
        RunningQuery(drills[1].build().plan(), folders[1] / "q", SparkNodes(node_session)) as two,
    ):
        read_some(two, drills[1], 1_000)
        one.await_start()
        fire(Path(str(drills[0].gun)))
        watcher = Watcher(one, "averages", 0)
        two.stop()
        one.signal_node("averages")
        assert one.await_end(60.0)
        watcher.thread.join(30.0)
        watcher.leave()
    verdict = drills[0].check([watcher.table()])
    assert verdict.right, verdict


def test_too_few_slots_are_an_error_before_anything_runs(
    node_session: "SparkSession", tmp_path: Path
) -> None:
    """And the folder is free again."""
    wide = small(tmp_path, shards=8)
    with pytest.raises(TooFewSlots, match="10 servers at once but Spark has 7 slots"):
        RunningQuery(wide.build().plan(), tmp_path / "query", SparkNodes(node_session))
    assert not (tmp_path / "query" / "endpoint.json").exists()
    with RunningQuery(wide.build().plan(), tmp_path / "query", _Nowhere()) as query:
        assert query.active


def test_a_query_of_more_nodes_than_slots_runs_when_they_share_servers(
    node_session: "SparkSession", tmp_path: Path
) -> None:
    """Ten nodes on three tasks; one task dies, and comes back with all that it hosts."""
    wide = small(tmp_path, shards=8)
    victim = "averages-3"
    result = run_on(node_session, wide, tmp_path, kills(victim), servers=3)
    assert_right(result)
    hosting = wide.build().plan().on(3).hosting
    names = [{seat.node for seat in each.seats} for each in hosting]
    epochs = [{result.status[name]["epoch"] for name in together} for together in names]
    assert [sorted(each) for each in epochs] == [[2 if victim in each else 1] for each in names]


class _Nowhere:
    """A launcher that starts nothing."""

    def start(self, tasks: object, on_failure: object) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


def test_an_error_of_a_node_ends_the_query_with_its_name(
    node_session: "SparkSession", tmp_path: Path
) -> None:
    """A restart would meet the same tuples: the user's error, once, as it was."""
    with RunningQuery(_broken().plan(), tmp_path, SparkNodes(node_session)) as query:
        with pytest.raises(
            QueryFailed,
            match=_COMPLAINT,
        ):
            query.await_end(60.0)
        assert query.running == []
    assert node_session.range(10).count() == 10


def _broken():
    import rewake

    def doubtful(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:  # without any, it is asked what its columns are
            raise ValueError("no such price")
        return batch

    query = rewake.Query("broken")
    source = rewake.ItemSource(rewake.ItemStream(1, 100), tuples=10_000, event_tuples=1_000)
    query.source("items", source).map(doubtful, name="doubtful").to_stream("out")
    return query


@pytest.mark.parametrize("way", ["sys.exit(0)", "os._exit(0)", "SIGTERM to itself"])
def test_a_task_that_leaves_unasked_comes_back(
    node_session: "SparkSession", tmp_path: Path, way: str
) -> None:
    """Spark takes what returns for done; a node is done when the coordinator says so."""
    query = _leaving(way, tmp_path / "mark")
    with RunningQuery(query.plan(), tmp_path / "query", SparkNodes(node_session)) as running:
        with running.subscribe("out") as out:
            found = pa.Table.from_batches([event.batch for event in out])
        assert running.await_end(60.0)
        assert (tmp_path / "mark").exists()
        assert running.status()["leaving"]["replaced"]
    assert found.equals(pa.Table.from_batches([rewake.ItemStream(1, 100).batch(0, 10_000)]))


def _leaving(way: str, mark: Path) -> rewake.Query:
    """Items as they are; in the middle of them the process of their node ends, once."""

    def leaving(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not batch.num_rows or mark.exists():
            return batch
        mark.touch()
        match way:
            case "sys.exit(0)":
                sys.exit(0)
            case "os._exit(0)":
                os._exit(0)
            case _:
                os.kill(os.getpid(), signal.SIGTERM)
        return batch

    query = rewake.Query("leaving")
    source = rewake.ItemSource(rewake.ItemStream(1, 100), tuples=10_000, event_tuples=1_000)
    query.source("items", source).map(leaving, name="leaving").to_stream("out")
    return query


# --- with sessions of their own ------------------------------------------------------------------

_OWN_SESSIONS = """
import pyarrow as pa
from pathlib import Path
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from query_vocabulary import ALL, read_some, small
from test_queries import _broken
import rewake
from rewake.model.errors import QueryFailed
from rewake.spark.start import start

def no_session():
    try:
        SparkSession.active()
        return False
    except PySparkRuntimeError:
        return True

folder = Path(sys.argv[1])
drill = small(folder)
with start(drill.build(), folder / "query") as query:
    first = read_some(query, drill, 3_000)
    query.signal_node("cheap")
assert no_session()
with start(drill.build(), folder / "query") as query:
    rest = read_some(query, drill, ALL, first.num_rows)
    assert query.await_end(60.0)
assert no_session()
verdict = drill.check([pa.concat_tables([first, rest])])
print(verdict.right, first.num_rows >= 3_000, rest.num_rows > 0)
with rewake.start(_broken(), folder / "broken") as query:
    try:
        query.await_end(60.0)
    except QueryFailed as error:
        print(error)
assert no_session()
"""


def test_a_query_with_a_session_of_its_own_ends_it_and_goes_on_in_another(
    tmp_path: Path,
) -> None:
    """Exactly once; nothing is printed, also not of a node that fails; nothing is left behind."""
    require_spark()
    code, out, err = run_program(_OWN_SESSIONS, tmp_path, str(tmp_path))
    expected = f"True True True\n{_COMPLAINT}\n"
    assert (code, out, err) == (0, expected, "")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C goes to the whole group: one word, exit code 130, no process, no file."""
    require_spark()
    call = "import rewake.cli; rewake.cli.main()"
    arguments = ["-c", call, "demo", "--seconds", "60", "--rate", "50000", "--kill", "cheap@1s"]
    demo = start_program(arguments, tmp_path, PYTHONUNBUFFERED="1", COLUMNS="200")
    try:
        assert demo.stdout is not None
        assert demo.stderr is not None
        said = ""
        while "kill -9" not in said:
            line = demo.stdout.readline()
            assert line, demo.stderr.read()
            said += line
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.wait(60.0) == 130
        assert demo.stderr.read() == "interrupted\n"
        until(lambda: not offspring(demo.pid), 30.0)
    finally:
        end_offspring(demo.pid)
        demo.communicate()
    assert list((tmp_path / "temporary").iterdir()) == []
