"""A demo worker seen from its parent: started, listened to, killed, and never left behind.

What always holds: a worker ends with the `with` block that started it, and with the parent however
the parent ends, because its stdin is a pipe that only the parent holds.  It is in a session of its
own, so Ctrl-C reaches the parent alone, which decides.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from rewake.lab.demo_worker import WorkerSettings
from rewake.model.errors import OperatingFault

__all__ = ["WorkerDied", "WorkerProcess"]

_LINES_OF_ERROR = 12


class WorkerDied(OperatingFault):
    """A worker of the demo ended by itself, before its time."""


class WorkerProcess:
    """A running `rewake.lab.demo_worker`."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rewake.lab.demo_worker", settings.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the worker says, until it has ended; lines that a kill cut short are left out."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                yield json.loads(line)

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        self._process.kill()
        self._process.wait()

    def check_ended_well(self) -> None:
        """Raise `WorkerDied`, with the end of its stderr, unless it ended with 0."""
        code = self._process.wait()
        if code == 0:
            return
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").splitlines()[-_LINES_OF_ERROR:]
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        raise WorkerDied(
            "\n".join([f"worker {self.pid} ended {how}, not by the demo; it said:", *said])
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                stream.close()
