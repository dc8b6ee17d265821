"""A real server of PostgreSQL that can be stopped and started again while others use it.

server.stop()       # as an operator does: sessions are ended
server.kill()       # as an accident does
server.start()      # the same data at the same address
"""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import servers


class Server:
    """A server that only a socket in its folder leads to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs, self._identity = servers._postgres_programs(folder)
        self._data = folder / "data"
        command = [self._programs / "initdb", "-D", self._data, "-U", "postgres", "--auth=trust"]
        command.append("--no-sync")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **self._identity)
        self._running: ExitStack | None = None
        self._process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """Where it is, or was, or will be."""
        return f"postgresql://postgres@/postgres?host={self._folder}"

    def start(self) -> None:
        """Run it, and wait until it answers."""
        if self._running is not None:
            return
        self._running = ExitStack()
        log, state = self._folder / "log", self._data / "postmaster.pid"
        command = [self._programs / "postgres", "-D", self._data, "-k", self._folder, "-h", ""]
        running = servers._running([*command, "-F"], log, self._identity)
        self._process = self._running.enter_context(running)
        servers.wait_until(self._process, log, lambda: self._is_ready(state))

    def _is_ready(self, state: Path) -> bool:
        """Whether this process, not the one before, says so: its file may be half written."""
        lines = state.read_text().splitlines() if state.exists() else []
        return lines[:1] == [str(self._process.pid)] and lines[-1].strip() == "ready"

    def stop(self) -> None:
        """End it and all of its sessions, and wait for that."""
        if self._running is not None:
            self._running.close()
        self._running = None

    def kill(self) -> None:
        """End it as a power cut does; its data are what was committed."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        self.stop()

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run something on a connection of its own."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server that runs, with an empty database."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
