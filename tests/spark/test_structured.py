"""`rewake.aggregate` inside Structured Streaming: exactly once, whatever dies and is repeated."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keyed_functions
import pytest
from query_vocabulary import run_program
from structured_vocabulary import (
    averages,
    closed_sessions,
    died,
    dying,
    end_hosts,
    expected,
    forget_commit,
    host_pids,
    read_input,
    results,
    run_query,
    write_input,
)
from task_vocabulary import require_spark, until

import rewake
from rewake.model.errors import UsageError
from rewake.spark.structured import waking
from rewake.spark.structured.metrics import export_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose shard hosts are gone at the end."""
    yield tmp_path
    if (tmp_path / "state" / "hosts").exists():
        end_hosts(tmp_path)


_PLACES = ("before", "during", "after", "dividing")


@pytest.mark.parametrize("victim", ["worker", "host"])
def test_results_are_exactly_once_whatever_dies_in_a_batch(
    node_session: "SparkSession", folder: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """While it is divided, before, during and after it is handed over; the shard has state."""
    deaths = {f"{batch}.{place}": victim for batch, place in enumerate(_PLACES, 1)}
    dying(monkeypatch, folder, deaths)
    write_input(folder, 5)
    run_query(node_session, folder)
    assert died(folder) == deaths.keys()
    assert results(folder) == expected(5)


def test_rows_without_a_key_are_left_out_where_that_is_asked_for(
    node_session: "SparkSession", folder: Path
) -> None:
    """Null is no item: the others' results are as if such rows had never been there."""
    write_input(folder, 2)
    for path in (folder / "input").iterdir():
        nobody = '{"item": null, "price": 5, "seq": 7}\n' * 9
        path.write_text(nobody + path.read_text())
    run_query(node_session, folder, averages(folder, null_keys="drop"), files=2)
    everything = sorted(row for rows in expected(2).values() for row in rows)
    assert results(folder) == {0: everything}


def test_sessions_survive_their_host_and_come_out_once(
    node_session: "SparkSession", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Session windows fit where other windows do."""
    dying(monkeypatch, folder, {"1.during": "host", "3.before": "worker"})
    write_input(folder, 5)
    windows = {"window": rewake.session_window(4), "time": "seq", "count": True, "order_by": None}
    run_query(node_session, folder, averages(folder, shards=1, **windows))
    found = sorted(row for rows in results(folder).values() for row in rows)
    assert found == closed_sessions(5, gap=4)
    assert len(found) > 20


def by_hand(folder: Path, function: Any = keyed_functions.sessions, **settings: Any) -> Any:
    """Sessions by a function of the user's."""
    options = {"on_timer": keyed_functions.silent, "time": "seq", "shards": 2} | settings
    return rewake.process(
        function,
        by="item",
        state=keyed_functions.STATE,
        output=keyed_functions.OUTPUT,
        each_key=True,
        at=folder / "state",
        **options,
    )


def test_a_function_over_keys_survives_its_host_and_its_worker(
    node_session: "SparkSession", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and timers of each key are where they were; rows come out once."""
    node_session.sparkContext.addPyFile(str(Path(keyed_functions.__file__)))
    deaths = {"1.during": "host", "2.after": "host", "3.before": "worker"}
    dying(monkeypatch, folder, deaths)
    write_input(folder, 5)
    run_query(node_session, folder, by_hand(folder, shards=1))
    assert died(folder) == deaths.keys()
    found = sorted(row for rows in results(folder).values() for row in rows)
    assert found == closed_sessions(5, gap=keyed_functions.GAP)


def test_a_function_that_fails_is_named_with_its_key(
    node_session: "SparkSession", folder: Path
) -> None:
    """The query stops; the batch has changed nothing."""
    node_session.sparkContext.addPyFile(str(Path(keyed_functions.__file__)))
    write_input(folder, 2)
    with pytest.raises(Exception, match=r"function fails failed .* of key \d+ with ValueError"):
        run_query(node_session, folder, by_hand(folder, keyed_functions.fails, on_timer=None))


def test_functions_that_nobody_could_import_are_refused(tmp_path: Path) -> None:
    """Where they are defined decides, so it is said before anything starts."""

    def local(item: int, tuples: Any, state: Any) -> Any:
        return [], state

    with pytest.raises(UsageError, match="at the top of a module"):
        by_hand(tmp_path, local)
    with pytest.raises(UsageError, match="at the top of a module"):
        by_hand(tmp_path, on_timer=lambda _item, _time, state: ([], state))
    with pytest.raises(UsageError, match="give a duration"):
        by_hand(tmp_path, slack="watermarks")
    with pytest.warns(rewake.OrderMatters, match="in any"):
        by_hand(tmp_path, time=None, on_timer=None)


def test_a_batch_that_spark_repeats_gives_the_same_results(
    node_session: "SparkSession", folder: Path
) -> None:
    """Spark forgets that it committed the last batch; the host is the same, then another one."""
    write_input(folder, 3)
    run_query(node_session, folder)
    for host_survives in (True, False):
        if not host_survives:
            end_hosts(folder)
        forget_commit(folder, 2)
        shutil.rmtree(folder / "output" / "batch=2")
        run_query(node_session, folder)
        assert results(folder) == expected(3)
    write_input(folder, 1, start=3)
    run_query(node_session, folder)
    assert results(folder) == expected(4)


def test_a_host_is_woken_when_a_query_is_built_again(
    node_session: "SparkSession", folder: Path
) -> None:
    """Its imports are done when the first batch needs it; a new folder is left alone."""
    write_input(folder, 2)
    read_input(node_session, folder).transform(averages(folder))
    assert not (folder / "state").exists()
    run_query(node_session, folder)
    ended = end_hosts(folder)
    read_input(node_session, folder).transform(averages(folder))
    # What the dead one has left in the folder goes when the next one starts.
    until(lambda: set(host_pids(folder)) - set(ended))
    woken = host_pids(folder)
    write_input(folder, 1, start=2)
    run_query(node_session, folder)
    assert host_pids(folder) == woken
    assert results(folder) == expected(3)


def test_no_host_is_woken_for_functions_that_may_come_later(
    node_session: "SparkSession", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with the user's function may be given to Spark after the query was built."""
    woken: list[str] = []
    monkeypatch.setattr(waking, "wake_host", lambda at, *_: woken.append(at))
    node_session.sparkContext.addPyFile(str(Path(keyed_functions.__file__)))
    write_input(folder, 1)
    run_query(node_session, folder, by_hand(folder))
    read_input(node_session, folder).transform(by_hand(folder))
    assert not woken


def test_figures_of_every_shard_are_in_the_progress_and_among_the_metrics(
    node_session: "SparkSession", folder: Path
) -> None:
    """While the query runs; the rows that carried them are in nobody's results."""
    pytest.importorskip("prometheus_client")
    exporter = export_metrics(node_session)
    names = ("open_windows", "extent_records", "extent_bytes", "replay_tuples", "checkpoint_bytes",
             "predicted_recovery_seconds")  # fmt: skip

    def shards() -> set[str]:
        """Those of which every figure is there."""
        samples = [each for family in exporter.registry.collect() for each in family.samples]
        found = {(each.name, each.labels["shard"]) for each in samples if each.value > 0}
        return {
            shard for _, shard in found if all((f"rewake_shard_{n}", shard) in found for n in names)
        }

    def reached(number: int, place: str) -> None:
        if number == 1:
            until(lambda: shards() == {"0", "1"}, 20.0)

    write_input(folder, 2)
    try:
        query = run_query(node_session, folder, reached=reached)
        until(lambda: shards() == set(), 20.0)
    finally:
        exporter.close()
    figures = rewake.progress(query)["state"]
    assert figures.keys() == {0, 1}
    assert all(each["batch"] == 1 for each in figures.values())
    assert len(host_pids(folder)) == 1
    assert results(folder) == expected(2)


_REFUSALS = """
import shutil
from pathlib import Path
import rewake
from rewake.spark import local_session
from structured_vocabulary import averages, expected, forget_commit, results, run_query, write_input

folder = Path(sys.argv[1])

def refused(**settings):
    written = folder / "output"
    shutil.move(written, folder / "kept")
    try:
        run_query(session, folder, averages(folder, **settings))
    except Exception as error:
        text = f"{error!r} {error}"
    else:
        text = "nothing"
    shutil.rmtree(written, ignore_errors=True)
    shutil.move(folder / "kept", written)
    names = ("OtherOperator", "OtherQuery", "CheckpointBehindLog", "CheckpointWithoutLog")
    print(*[name for name in names if name in text])

session = local_session(cores=2)
try:
    write_input(folder, 2)
    run_query(session, folder)
    shutil.copytree(folder / "checkpoint", folder / "old")
    refused(shards=3)
    refused(window=rewake.count_window(5))
    write_input(folder, 1, start=2)
    run_query(session, folder)
    shutil.move(folder / "checkpoint", folder / "new")
    shutil.copytree(folder / "old", folder / "checkpoint")
    forget_commit(folder, 1)
    refused()
    shutil.rmtree(folder / "checkpoint")
    refused()
    shutil.rmtree(folder / "checkpoint")
    shutil.move(folder / "new", folder / "checkpoint")
    write_input(folder, 1, start=3)
    run_query(session, folder)
    print(results(folder) == expected(4))
    shutil.move(folder / "state", folder / "lost")
    write_input(folder, 1, start=4)
    refused()
finally:
    session.stop()
"""


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    """Log and checkpoint of different queries or ages, and another operator; nothing changes."""
    require_spark()
    code, out, err = run_program(_REFUSALS, tmp_path, str(tmp_path))
    assert code == 0, err
    assert out.split() == [
        "OtherOperator",
        "OtherOperator",
        "CheckpointBehindLog",
        "OtherQuery",
        "True",
        "CheckpointWithoutLog",
    ]


_APPLICATION = """
import os
import signal
from pathlib import Path
from rewake.spark import local_session
from structured_vocabulary import run_query

folder, fatal = Path(sys.argv[1]), sys.argv[2]

def reached(number, place):
    if f"{number}.{place}" == fatal:
        os.killpg(0, signal.SIGKILL)

session = local_session(cores=2)
run_query(session, folder, reached=reached)
session.stop()
"""


@pytest.mark.slow
@pytest.mark.soak
def test_the_whole_application_is_killed_twice_and_goes_on(tmp_path: Path) -> None:
    """Before a batch is written and after another was; no process is left by the dead ones."""
    require_spark()
    write_input(tmp_path, 4)
    for fatal, ending in (("1.before", -9), ("2.after", -9), ("none", 0)):
        code, _, err = run_program(_APPLICATION, tmp_path, str(tmp_path), fatal)
        assert code == ending, err
        until(lambda: host_pids(tmp_path) == [], 30.0)
    assert results(tmp_path) == expected(4)


def test_columns_and_settings_are_checked_when_the_transform_is_built(
    node_session: "SparkSession", folder: Path
) -> None:
    """The errors name the column, and nothing is written."""
    frame = node_session.readStream.format("rate").load()
    for settings, words in (
        ({"by": "item"}, "no column 'item'; there are timestamp, value"),
        ({"by": "value", "avg": "timestamp"}, "timestamp"),
        ({"by": "value", "count": True, "order_by": "nowhere"}, "no column 'nowhere'"),
        ({"by": "valeu", "count": True}, "no column 'valeu'; did you mean 'value'?"),
        ({"by": "value", "count": True, "shards": 0}, "shards is a number from 1"),
        ({"by": "value", "count": True, "gaps": "maybe"}, "gaps is"),
    ):
        options = {"window": rewake.count_window(3), "order_by": False} | settings
        if "avg" not in options:
            options["count"] = True
        with pytest.raises(rewake.RewakeError, match=words):
            frame.transform(rewake.aggregate(at=folder / "state", **options))
    finite = rewake.aggregate(
        by="id", window=rewake.count_window(3), count=True, order_by=False, at=folder / "state"
    )
    with pytest.raises(rewake.RewakeError, match="needs a streaming DataFrame"):
        node_session.range(3).transform(finite)
    assert not (folder / "state").exists()


def test_a_warning_says_when_the_order_of_rows_matters(tmp_path: Path) -> None:
    """Not when an order is given, any order will do, or results do not depend on it."""
    with pytest.warns(rewake.OrderMatters, match="order_by"):
        rewake.aggregate(by="k", window=rewake.count_window(3), count=True, at=tmp_path)
    for settings in (
        {"window": rewake.count_window(3), "order_by": "at"},
        {"window": rewake.count_window(3), "order_by": False},
        {"window": rewake.running_window()},
        {"window": rewake.time_window("1s"), "time": "at"},
    ):
        rewake.aggregate(by="k", count=True, at=tmp_path, **settings)


def test_spark_is_there() -> None:
    """The tests above need it; this one says why they are skipped."""
    require_spark()
