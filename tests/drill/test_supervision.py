"""Nodes that end unasked, and the deaths of those who start them: nobody waits in vain."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from drill_queries import failing
from drill_vocabulary import Drill, alive, fork_servers, until
from node_functions import WAYS, LeavesWhenLoaded, leaving
from test_silence import ByHand

from rewake.model.errors import QueryFailed


@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_leaves_unasked_comes_back(tmp_path: Path, way: str) -> None:
    """Whatever a function of the query does to its process: only the coordinator lets nodes go."""
    mark = tmp_path / "mark"
    query = failing(tmp_path / "gate", partial(leaving, way, str(mark)))
    with Drill(tmp_path, query) as drill:
        drill.finish()
        assert mark.exists()
        assert drill.running.status()["priced"]["replaced"]
    drill.check()


def test_a_node_that_leaves_before_it_begins_comes_back(tmp_path: Path) -> None:
    """As by `sys.exit` in a module that its process imports."""
    mark = tmp_path / "mark"
    query = failing(tmp_path / "gate", LeavesWhenLoaded(str(mark)))
    with Drill(tmp_path, query) as drill:
        drill.finish()
        assert mark.exists()
    drill.check()


@pytest.mark.parametrize("way", ["sys.exit(0)", "os._exit(0)", "a fault of memory"])
def test_a_node_that_leaves_again_and_again_ends_the_query(tmp_path: Path, way: str) -> None:
    """At the same tuple, in vain: the error says how its process ended."""
    query = failing(tmp_path / "gate", partial(leaving, way, ""))
    with Drill(tmp_path, query, reading=False) as drill:
        drill.let(1.0)
        with pytest.raises(QueryFailed, match=r"node 'priced' cannot be run: .* with exit code"):
            drill.running.await_end(60.0)


def test_the_fork_server_may_die_as_often_as_it_likes(tmp_path: Path) -> None:
    """Each time all processes come back: deaths after which things went on never add up."""
    with Drill(tmp_path) as drill:
        for death in range(4):
            drill.running.await_start()
            before = {node.name: drill.epoch(node.name) for node in drill.plan.nodes}
            drill.let((death + 1) / 10)
            (server,) = fork_servers()
            os.kill(server, signal.SIGKILL)
            for name, epoch in before.items():
                drill.back(name, epoch + 1)
        drill.finish()
    drill.check()


def test_a_fork_server_that_dies_while_a_process_is_started_hangs_nobody(tmp_path: Path) -> None:
    """The one who waits for the new process finds nobody at the other end, and tries again."""
    with Drill(tmp_path) as drill:
        drill.flow(0.2)
        (first,) = fork_servers()
        os.kill(first, signal.SIGKILL)
        # The next one imports what nodes need, which takes it a while: it is asked for a process.
        until(lambda: set(fork_servers()) - {first})
        (second,) = set(fork_servers()) - {first}
        os.kill(second, signal.SIGKILL)
        for node in drill.plan.nodes:
            drill.back(node.name)
        drill.finish()
    drill.check()


def test_a_node_that_nobody_starts_again_is_an_error(tmp_path: Path) -> None:
    """Whoever starts nodes has stopped to: the query ends, and its message names the node."""
    settings = {"missing_after": 1.0}
    with Drill(tmp_path, launcher=ByHand(), settings=settings, reading=False) as drill:
        drill.kill("cheap")
        with pytest.raises(QueryFailed, match="node 'cheap' is missing: for 1 s no process or"):
            drill.running.await_end(60.0)


def is_made(folder: Path) -> bool:
    """Make a folder, unless a file of this name is there for a moment."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_death_of_the_coordinator_is_an_error_and_ends_the_nodes(tmp_path: Path) -> None:
    """Something lies where it drafts its state: its thread meets it at the next epoch."""
    with Drill(tmp_path, reading=False) as drill:
        pids = drill.pids()
        until(lambda: is_made(tmp_path / "query" / "coordinator.json.tmp"))
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(QueryFailed, match="the coordinator failed"):
            drill.running.await_end(60.0)
        assert not any(alive(pid) for pid in pids)
