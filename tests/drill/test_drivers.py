"""Drivers that stop, die, collide, or are interrupted: the folder is all that a query needs."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from drill_queries import TUPLES, averages, files_to_files
from drill_vocabulary import (
    Drill,
    alive,
    children,
    driver_command,
    durable_results,
    processes_of,
    until,
    verdict,
)
from gated_source import open_gate

from rewake import read_parts
from rewake.model.errors import QueryFailed, UsageError
from rewake.net.clients.client import ENDPOINT_FILE
from rewake.net.queries.processes import Processes
from rewake.net.queries.running import RunningQuery


def test_a_query_that_is_stopped_goes_on_when_started_again(tmp_path: Path) -> None:
    """Four times on one folder; whoever reads goes on where it was."""
    for step in range(1, 5):
        with Drill(tmp_path) as drill:
            drill.flow(0.2 * step)
            assert drill.epoch("averages") == step
    with Drill(tmp_path) as drill:
        drill.finish()
    drill.check()


def test_a_driver_that_is_killed_leaves_nothing_running_and_can_be_replaced(
    tmp_path: Path,
) -> None:
    """Its nodes find out by themselves, within seconds."""
    for step in range(1, 3):
        open_gate(tmp_path / "gate", TUPLES // 3 * step)
        with started_driver(tmp_path):
            until(lambda: "started" in (tmp_path / "driver.txt").read_text())
            assert len(processes_of(tmp_path)) >= 4, "three nodes and a driver at the least"
            until(lambda step=step: results_of(tmp_path) > 1000 * step)
        until(lambda: not processes_of(tmp_path), 10.0)
    with Drill(tmp_path) as drill:
        drill.finish()
    drill.check()


@contextmanager
def started_driver(folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A driver in a session of its own; what it says is in a file; it does not outlive the test."""
    with (folder / "driver.txt").open("w") as output:
        driver = subprocess.Popen(
            driver_command(folder), stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()


def results_of(folder: Path) -> int:
    """How many results are durable."""
    if not list(folder.glob("query/nodes/averages/segment-*")):
        return 0
    return durable_results(folder).num_rows


def test_ctrl_c_ends_driver_and_nodes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The signal reaches every process of the terminal; the driver stops its nodes in order."""
    open_gate(tmp_path / "gate", TUPLES // 2)
    with started_driver(tmp_path) as driver:
        until(lambda: results_of(tmp_path) > 1000)
        os.killpg(driver.pid, signal.SIGINT)
        assert driver.wait(60.0) != 0
    until(lambda: not processes_of(tmp_path), 10.0)
    said = (tmp_path / "driver.txt").read_text()
    assert said.count("Traceback") == 1, said
    assert "KeyboardInterrupt" in said
    assert not (tmp_path / "query" / ENDPOINT_FILE).exists()
    with Drill(tmp_path) as drill:
        drill.finish()
    drill.check()


@pytest.mark.soak
def test_a_driver_that_sleeps_for_a_while_goes_on(tmp_path: Path) -> None:
    """Longer than its nodes may be silent; data flows without it."""
    open_gate(tmp_path / "gate", TUPLES // 2)
    with started_driver(tmp_path) as driver:
        until(lambda: results_of(tmp_path) > 1000)
        driver.send_signal(signal.SIGSTOP)
        open_gate(tmp_path / "gate", TUPLES)
        time.sleep(1.0)
        driver.send_signal(signal.SIGCONT)
        assert driver.wait(60.0) == 0
    found = verdict(durable_results(tmp_path), TUPLES)
    assert found.right, found


def test_a_query_may_be_stopped_before_it_has_started(tmp_path: Path) -> None:
    """Nodes that come later are sent away."""
    before = set(children())
    with Drill(tmp_path, reading=False):
        pass
    assert set(children()) <= before
    with Drill(tmp_path) as drill:
        drill.finish()
    drill.check()


def test_a_query_that_has_ended_changes_nothing_when_started_again(tmp_path: Path) -> None:
    """Its files are all there, and stay as they are."""
    tuples = 80_000
    query = files_to_files(tmp_path, tuples)
    written = []
    for _ in range(2):
        with Drill(tmp_path, query, tuples=tuples, reading=False) as drill:
            drill.finish()
        files = sorted((tmp_path / "out").iterdir())
        written.append([(each.name, each.stat().st_mtime_ns) for each in files])
    assert written[0] == written[1]
    found = verdict(read_parts(tmp_path / "out"), tuples)
    assert found.right, found


def test_another_query_is_refused_and_the_right_one_is_not(tmp_path: Path) -> None:
    """A folder belongs to the query that began there."""
    with Drill(tmp_path) as drill:
        drill.flow(0.2)
    other = averages(tmp_path / "gate", approach="instant").plan()
    with pytest.raises(UsageError, match="holds the state of another query"):
        RunningQuery(other, tmp_path / "query", Processes())
    with Drill(tmp_path) as drill:
        drill.finish()
    drill.check()


def test_two_drivers_on_one_folder_are_refused(tmp_path: Path) -> None:
    """The one that runs does not notice."""
    with Drill(tmp_path) as drill:
        drill.flow(0.2)
        with pytest.raises(UsageError, match="another driver runs a query in"):
            RunningQuery(drill.plan, tmp_path / "query", Processes())
        drill.finish()
    drill.check()


def test_a_launcher_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """Half of the nodes had been started."""
    plan = averages(tmp_path / "gate").plan()
    with pytest.raises(RuntimeError, match="no more"):
        RunningQuery(plan, tmp_path / "query", Failing(RuntimeError("no more")))
    assert not (tmp_path / "query" / ENDPOINT_FILE).exists()
    with Drill(tmp_path) as drill:
        drill.finish()
    drill.check()


def test_processes_that_cannot_be_started_for_a_while_end_the_query(tmp_path: Path) -> None:
    """The machine may have room for them in a moment; after three attempts in vain it is told."""
    plan = averages(tmp_path / "gate").plan()
    with (
        RunningQuery(plan, tmp_path / "query", Failing(OSError("no more"))) as running,
        pytest.raises(QueryFailed, match=r"no process can be started.*OSError: no more"),
    ):
        running.await_end(60.0)
    assert not (tmp_path / "query" / ENDPOINT_FILE).exists()


class Failing(Processes):
    """Starts all nodes but one."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def _launch(self, name: str) -> None:
        if name == "averages":
            raise self._error
        super()._launch(name)


def test_nothing_is_left_behind_after_a_stop(tmp_path: Path) -> None:
    """No process, no open port, no endpoint, no lock, no draft."""
    before = set(children())
    with Drill(tmp_path) as drill:
        drill.flow(0.2)
        pids = drill.pids()
        port = drill.running.endpoint.address[1]
        assert port in listening()
    assert not any(alive(pid) for pid in pids)
    assert set(children()) <= before
    assert port not in listening()
    assert not (tmp_path / "query" / ENDPOINT_FILE).exists()
    assert not [each for each in tmp_path.rglob("*") if each.name.endswith(".tmp")]


def listening() -> set[int]:
    """The ports of this machine that somebody listens at."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return {int(each[1].rpartition(":")[2], 16) for each in fields if each[3] == "0A"}
