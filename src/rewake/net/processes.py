"""Nodes as plain processes of this machine: how tests and quick drills run a query without Spark.

A launcher starts every node's process and starts it again when it dies; who may run is decided by
epochs, not here.  Processes are forked from a server that has imported what they need, so that a
restart takes tens of milliseconds.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Protocol

from rewake.model.errors import OperatingFault, RewakeError
from rewake.net.node_host import NodeTask, run_node

_PRELOAD = ["rewake.net.small_pages", "rewake.net.warm", "rewake.net.node_host"]
_LOOK_SECONDS = 0.01
_JOIN_SECONDS = 15.0
# How a node's process ends when another attempt may fare better (EX_TEMPFAIL of sysexits.h).
_TRY_AGAIN = 75
# A node that cannot be run at all is not tried for ever.
_ATTEMPTS_IN_VAIN = 3


class Launcher(Protocol):
    """Starts the nodes of a query, and starts them again when they die."""

    def start(self, tasks: Sequence[NodeTask], on_failure: Callable[[str], None]) -> None:
        """Start all; `on_failure` is told when they cannot be run at all."""

    def stop(self) -> None:
        """All nodes have been told to leave: wait for them, then end those that have not."""


class Processes:
    """A launcher of local processes."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)
        self._tasks: dict[str, NodeTask] = {}
        self._running: dict[str, BaseProcess] = {}
        self._in_vain: dict[str, int] = {}
        self._on_failure: Callable[[str], None] = lambda _error: None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rewake-processes", daemon=True)

    def start(self, tasks: Sequence[NodeTask], on_failure: Callable[[str], None]) -> None:
        """Start all."""
        self._on_failure = on_failure
        self._tasks = {task.plan.name: task for task in tasks}
        for name in self._tasks:
            self._launch(name)
        self._thread.start()

    def _launch(self, name: str) -> None:
        process = self._context.Process(target=_run, args=(self._tasks[name],), name=name)
        process.daemon = True
        process.start()
        self._running[name] = process

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            for name, process in list(self._running.items()):
                if process.exitcode is not None and not self._stopping.is_set():
                    process.join()
                    self._ended(name, process.exitcode)

    def _ended(self, name: str, exit_code: int) -> None:
        """Start it again, unless it left as told, or fails again and again without being killed."""
        failed = exit_code > 0 and exit_code != _TRY_AGAIN
        self._in_vain[name] = self._in_vain.get(name, 0) + 1 if failed else 0
        if exit_code != 0 and self._in_vain[name] < _ATTEMPTS_IN_VAIN:
            self._launch(name)
            return
        del self._running[name]
        if exit_code != 0:
            self._on_failure(
                f"node {name!r} cannot be run: its process ended {_ATTEMPTS_IN_VAIN} times in a "
                f"row with exit code {exit_code}; what it printed says why"
            )

    def stop(self) -> None:
        """Wait for all, then end those that do not leave."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        deadline = time.monotonic() + _JOIN_SECONDS
        for process in self._running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()


def _run(task: NodeTask) -> None:
    # Ctrl-C goes to every process of a terminal.  It means the driver, which then stops its nodes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run_node(task)
    except RewakeError as error:
        sys.stderr.write(f"rewake node {task.plan.name}: {error}\n")
        sys.exit(_TRY_AGAIN if isinstance(error, OperatingFault) else 1)
