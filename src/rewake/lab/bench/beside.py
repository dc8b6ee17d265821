"""A process that takes a share of one processor, for as long as something is measured beside it.

    python -m rewake.lab.bench.beside 0.5

It ends when its standard input does, so it never outlives whoever started it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rewake.model.errors import UsageError

__all__ = ["taking"]

_PERIOD_SECONDS = 0.02


@contextmanager
def taking(share: float) -> Iterator[None]:
    """While this lasts, another process takes a share of one processor; nothing at 0."""
    if not 0 <= share <= 1:
        raise UsageError(f"a process takes a share of one processor, 0 to 1, not {share:g}")
    if share == 0:
        yield
        return
    command = [sys.executable, "-m", "rewake.lab.bench.beside", str(share)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _take(share: float) -> None:
    over = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=await_end, daemon=True).start()
    while not over.is_set():
        until = time.perf_counter() + share * _PERIOD_SECONDS
        while time.perf_counter() < until:
            pass
        time.sleep((1 - share) * _PERIOD_SECONDS)


if __name__ == "__main__":
    _take(float(sys.argv[1]))
