"""Servers as plain processes of this machine: how tests and quick drills run a query without Spark.

A launcher starts every server and starts it again when it ends; who may run is decided by epochs,
and whether a node may leave by the coordinator, not here and not by exit codes.  Processes are
forked from another (multiprocessing's fork server) that has imported what they need, so that a
restart takes tens of milliseconds.  That one may die as well (an out-of-memory killer takes what it
likes): then nobody tells any more how its processes end, so all of them are started again from a
new one; what is left of them is superseded.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import Protocol

from rewake.model.errors import OperatingFault, RewakeError
from rewake.net.nodes.task import ServerTask
from rewake.net.servers.server import run_server
from rewake.net.watcher import watcher
from rewake.node.coordinator.supervision import Supervision

_PRELOAD = ["rewake.net.nodes.small_pages", "rewake.net.nodes.warm", "rewake.net.servers.server"]
_LOOK_SECONDS = 0.01
_JOIN_SECONDS = 15.0
# How a server ends when another attempt may fare better (EX_TEMPFAIL of sysexits.h).
_TRY_AGAIN = 75
# What multiprocessing answers when the fork server, which would know, is gone.
_NOBODY_KNOWS = 255
# Signals that a process brings upon itself.
_OWN_FAULTS = {
    signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS,
}  # fmt: skip
# What cannot be run at all is not tried for ever.
_ATTEMPTS_IN_VAIN = 3
_FORK_SERVER = "the fork server"
# When it has died, let what killed it pass by.
_REST_MS = 200.0
# It is given up when none has forked anything for so long; each lives for a moment.
_NO_SERVER_MS = 5_000.0


class Driver(Protocol):
    """What a launcher knows of the query whose nodes it runs."""

    @property
    def over(self) -> bool:
        """Whether the query has ended: until then every node is wanted."""

    def fail(self, error: str) -> None:
        """The query cannot go on: its nodes cannot be run."""

    def reached(self, node: str) -> float | None:
        """How far a node has come, where that is known."""


class Launcher(Protocol):
    """Starts the servers of a query, and starts them again when they end before the query does."""

    def start(self, tasks: Sequence[ServerTask], driver: Driver) -> None:
        """Start all; the driver is told when they cannot be run at all."""

    def stop(self) -> None:
        """All have been told to leave: wait for them, then end those that have not."""


class Processes:
    """A launcher of local processes."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)
        self._tasks: dict[str, ServerTask] = {}
        self._running: dict[str, BaseProcess] = {}
        self._due: list[str] = []
        self._launched = 0
        self._rest_until_ms = float("-inf")
        self._supervision = Supervision(_ATTEMPTS_IN_VAIN)
        self._fork_servers = Supervision(_ATTEMPTS_IN_VAIN, _NO_SERVER_MS)
        self._stopping = threading.Event()

    def start(self, tasks: Sequence[ServerTask], driver: Driver) -> None:
        """Start all."""
        self._driver = driver
        self._tasks = {task.name: task for task in tasks}
        self._fork_servers.started(_FORK_SERVER, _now_ms())
        self._fork_servers.heard(_FORK_SERVER, _now_ms(), self._launched)
        self._due = list(self._tasks)
        self._launch_due()
        self._thread = watcher(
            self._watch, "what starts the nodes", driver.fail, name="rewake-processes"
        )
        self._thread.start()

    def _launch_due(self) -> None:
        """Start what is due, as long as there is a fork server."""
        while self._due and _now_ms() >= self._rest_until_ms and not self._stopping.is_set():
            try:
                self._launch(self._due[0])
            except (OSError, EOFError) as error:
                self._lost_server(f"{type(error).__name__}: {error}")
                return
            self._due.pop(0)

    def _launch(self, name: str) -> None:
        process = self._context.Process(target=run_attempt, args=(self._tasks[name],), name=name)
        process.daemon = True
        process.start()
        self._running[name] = process
        self._launched += 1
        self._supervision.started(name, _now_ms())

    def _lost_server(self, how: str) -> None:
        """The fork server died: rest, and let `_launch` start another one.

        It got somewhere if it forked a process; only one that never does is given up.
        """
        now = _now_ms()
        if now < self._rest_until_ms:
            return  # the same death, seen by another of its processes
        self._rest_until_ms = now + _REST_MS
        self._fork_servers.heard(_FORK_SERVER, now, self._launched)
        if self._fork_servers.ended(_FORK_SERVER):
            times = self._fork_servers.in_vain(_FORK_SERVER)
            self._driver.fail(
                f"no process can be started: {_FORK_SERVER} died {times} times in a row ({how}); "
                "look for what ends it (memory that is short, limits of processes)"
            )
        self._fork_servers.started(_FORK_SERVER, now)

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS) and not self._driver.over:
            for name, process in list(self._running.items()):
                if process.exitcode is not None:
                    process.join()
                    self._ended(name, process.exitcode)
            self._launch_due()

    def _ended(self, name: str, exit_code: int) -> None:
        """Have it started again, unless it ends by itself, again and again, and gets nowhere."""
        if self._driver.over:
            return
        del self._running[name]
        if exit_code == _NOBODY_KNOWS:
            self._lost_server("its processes went out of sight")
        task = self._tasks[name]
        self._supervision.heard(name, _now_ms(), reached(task, self._driver))
        if _by_itself(exit_code) and self._supervision.ended(name):
            self._driver.fail(
                f"{task.words} cannot be run: its process ended {_ATTEMPTS_IN_VAIN} times in a "
                f"row with exit code {exit_code}, before it got any further; what it printed says "
                "why, or a function of the query ends the process (sys.exit, os._exit)"
            )
        else:
            self._due.append(name)

    def stop(self) -> None:
        """Wait for all, then end those that do not leave."""
        self._stopping.set()
        if hasattr(self, "_thread"):
            self._thread.join()
        deadline = time.monotonic() + _JOIN_SECONDS
        for process in self._running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()


def _by_itself(exit_code: int) -> bool:
    """Whether a process ended by its own doing, and neither was killed nor asks for another."""
    if exit_code < 0:
        return -exit_code in _OWN_FAULTS
    return exit_code not in (_TRY_AGAIN, _NOBODY_KNOWS)


def _now_ms() -> float:
    return time.monotonic() * 1e3


def reached(task: ServerTask, driver: Driver) -> float | None:
    """How far the nodes of a server have come together, as far as that is known."""
    known = [driver.reached(each.plan.name) for each in task.nodes]
    return sum(each or 0.0 for each in known) if any(each is not None for each in known) else None


def run_attempt(task: ServerTask) -> None:
    """What the process of a server does, from its first line to its exit code."""
    # Ctrl-C goes to every process of a terminal.  It means the driver, which then stops its nodes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run_server(task)
    except RewakeError as error:
        sys.stderr.write(f"rewake {task.words}: {error}\n")
        sys.exit(_TRY_AGAIN if isinstance(error, OperatingFault) else 1)
