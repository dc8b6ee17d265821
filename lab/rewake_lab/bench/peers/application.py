"""A contender that runs: its processes, what it says, and how it is killed.

What always holds: when `kill` returns, none of its processes is left, and every whole line that it
had written before is at hand.
"""

from __future__ import annotations

import queue
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rewake.model.errors import OperatingFault
from rewake_lab.bench.peers.lines import Line, parsed
from rewake_lab.bench.structured.restart import descendants, killed

_LAST_WORDS: Final = 400
# Lines of a stack trace, in Java and in Python.
_PLACE: Final = re.compile(r"\s+(at |\.\.\. \d+ more|File \"|\^)|\s{4}")
_POLL_SECONDS: Final = 0.05


class Application:
    """One life of a contender; a context manager that kills it."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self._errors = folder / "stderr.txt"
        self._said: queue.Queue[str | None] = queue.Queue()
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=dict(environ),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._alive = True

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self._said.put(line)
        self._said.put(None)

    @property
    def pids(self) -> list[int]:
        """All its processes."""
        return [self._process.pid, *descendants(self._process.pid)]

    def lines(self, until: float) -> Iterator[Line]:
        """What it says until that moment of `time.monotonic()`; raises if it ends by itself."""
        while (wait := until - time.monotonic()) > 0:
            try:
                said = self._said.get(timeout=min(wait, _POLL_SECONDS))
            except queue.Empty:
                continue
            if said is None:
                raise OperatingFault(f"it ended by itself: {self.last_words()}")
            line = parsed(said)
            if line is not None:
                yield line

    def last_words(self) -> str:
        """The end of what it wrote on standard error, without the places where it happened."""
        text = self._errors.read_text(errors="replace")
        told = [line.strip() for line in text.splitlines() if not _PLACE.match(line)]
        return " / ".join(line for line in told if line)[-_LAST_WORDS:] or "without a word"

    def kill(self) -> tuple[float, list[Line]]:
        """SIGKILL to all its processes; when, in wall-clock ms, and what it had still said."""
        at_ms = time.time() * 1e3
        if not self._alive:
            return at_ms, []
        self._alive = False
        doomed = self._process
        # Closing the pipe while the thread reads would wait for it: the lines first.
        stdout, doomed.stdout = doomed.stdout, None
        killed(doomed)
        self._reader.join(timeout=10)
        if stdout is not None and not self._reader.is_alive():
            stdout.close()
        rest: list[Line] = []
        while not self._said.empty():
            said = self._said.get()
            line = None if said is None else parsed(said)
            if line is not None:
                rest.append(line)
        return at_ms, rest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
