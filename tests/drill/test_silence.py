"""Nodes that fall silent, and zombies: an attempt that wakes up when another has its place."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from drill_vocabulary import Drill, alive, until

from rewake.net.nodes.task import ServerTask
from rewake.net.queries.processes import run_attempt


class ByHand:
    """A launcher that starts attempts when it is told to, and never by itself."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["rewake.net.nodes.warm", "rewake.net.servers.server"])
        self._tasks: dict[str, ServerTask] = {}
        self.attempts: list[BaseProcess] = []

    def start(self, tasks: Sequence[ServerTask], _failed: Callable[[str], None]) -> None:
        self._tasks = {task.name: task for task in tasks}
        for name in self._tasks:
            self.launch(name)

    def launch(self, name: str) -> BaseProcess:
        """One more attempt, whatever others there are."""
        process = self._context.Process(target=run_attempt, args=(self._tasks[name],), daemon=True)
        process.start()
        self.attempts.append(process)
        return process

    def stop(self) -> None:
        for process in self.attempts:
            process.join(15.0)
            if process.exitcode is None:
                process.kill()
                process.join()


@pytest.mark.parametrize("node", ["items", "cheap", "averages"])
def test_a_node_that_falls_silent_is_ended_and_replaced(tmp_path: Path, node: str) -> None:
    """It is killed, so that its place is free; what it was replaced for is counted."""
    with Drill(tmp_path) as drill:
        drill.flow(0.3)
        until(lambda: "tuples_in" in drill.running.status()[node])
        drill.let(0.6)
        (pid,) = drill.kill(node, sign=signal.SIGSTOP)
        drill.back(node)
        until(lambda: not alive(pid))
        drill.finish()
        assert any(each.what == "silent" for each in drill.running.history)
        assert drill.running.status()[node]["replaced"]["silent"] >= 1
    drill.check()


@pytest.mark.parametrize("node", ["items", "cheap", "averages"])
def test_a_zombie_that_wakes_up_says_and_writes_nothing(tmp_path: Path, node: str) -> None:
    """It runs on for a while in the belief that nothing happened; the output shows none of it."""
    launcher = ByHand()
    with Drill(tmp_path, launcher=launcher) as drill:
        drill.flow(0.3)
        drill.let(0.5)  # it has work at hand, and a log that it believes to own
        (pid,) = drill.kill(node, sign=signal.SIGSTOP)
        zombie = next(each for each in launcher.attempts if each.pid == pid)
        launcher.launch(node)
        drill.back(node)
        drill.flow(0.7)
        os.kill(pid, signal.SIGCONT)
        zombie.join(10.0)
        assert zombie.exitcode not in (0, None), "it left as if all were well, or not at all"
        assert drill.epoch(node) == 2
        drill.finish()
    drill.check()


@pytest.mark.parametrize("node", ["cheap", "averages"])
def test_a_second_attempt_takes_over_from_one_that_is_well(tmp_path: Path, node: str) -> None:
    """As speculation would: the earlier one leaves at once, and nothing is said twice."""
    launcher = ByHand()
    with Drill(tmp_path, launcher=launcher) as drill:
        drill.flow(0.3)
        drill.let(0.6)
        first = next(
            each for each in launcher.attempts if each.pid == drill.running.status()[node]["pid"]
        )
        launcher.launch(node)
        drill.back(node)
        first.join(10.0)
        assert first.exitcode not in (0, None)
        drill.finish()
    drill.check()
