"""Processes that begin together, for experiments in which the papers have several nodes.

They are forked from a server that has imported what they need, so that starting eight of them takes
less time than measuring them.  What always holds: none of them is left when the gang is closed, and
one that fails makes the experiment fail.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from rewake.model.errors import OperatingFault, RewakeError

# Nodes of whole queries are forked from the same server: what they need is there, too.
_PRELOAD = [
    "rewake.net.nodes.warm",
    "rewake.net.servers.server",
    "rewake_lab.reproduce.thesis.chain",
    "rewake_lab.reproduce.thesis.fig37",
]
_PATIENCE_SECONDS = 120.0
_HERE, _GO = b"here", b"go"

# Called by each process when it is ready to begin, and perhaps again when it is done.
Together = Callable[[], None]


class Gang:
    """Some processes and the one that watches them."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)
        self._members: list[tuple[BaseProcess, Connection]] = []

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        """Start one; `work` gets a `Together` before its arguments."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_run, args=(work, theirs, arguments), daemon=True)
        process.start()
        theirs.close()
        self._members.append((process, ours))

    def together(self) -> None:
        """Wait until all have come to the same point as this one."""
        try:
            for process, member in self._members:
                if not member.poll(_PATIENCE_SECONDS):
                    raise OperatingFault(
                        f"process {process.pid} of the experiment is not ready within "
                        f"{_PATIENCE_SECONDS:g} s: this machine is too slow for it, or busy"
                    )
                member.recv_bytes()
            for _, member in self._members:
                member.send_bytes(_GO)
        except (EOFError, OSError) as error:
            raise OperatingFault(
                "a process of the experiment ended early; what it printed says why"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process, member in self._members:
            if error is None:
                process.join(_PATIENCE_SECONDS)
            if process.exitcode is None:
                process.kill()
                process.join()
            member.close()
        failed = [process.exitcode for process, _ in self._members if process.exitcode]
        if failed and error is None:
            raise OperatingFault(f"processes of the experiment failed, with exit codes {failed}")


def _run(work: Callable[..., None], watcher: Connection, arguments: tuple[Any, ...]) -> None:
    # Ctrl-C goes to every process of a terminal.  It means the one that watches.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def together() -> None:
        watcher.send_bytes(_HERE)
        watcher.recv_bytes()

    try:
        work(together, *arguments)
    except (RewakeError, OSError, EOFError) as error:
        sys.stderr.write(f"rewake reproduce: {error}\n")
        sys.exit(1)
