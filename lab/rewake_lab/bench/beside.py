"""A process that takes a share of one processor, for as long as something is measured beside it.

    python -m rewake_lab.bench.beside 0.5

It ends when its standard input does, so it never outlives whoever started it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewake.model.errors import UsageError

__all__ = ["pace", "taking"]

_PERIOD_SECONDS = 0.02


@contextmanager
def taking(share: float) -> Iterator[None]:
    """While this lasts, another process takes a share of one processor; nothing at 0."""
    if not 0 <= share <= 1:
        raise UsageError(f"a process takes a share of one processor, 0 to 1, not {share:g}")
    if share == 0:
        yield
        return
    command = [sys.executable, "-m", "rewake_lab.bench.beside", str(share)]
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
    pace(share, over.is_set, _work, time.sleep)


def pace(
    share: float,
    over: Callable[[], bool],
    work: Callable[[float], None],
    rest: Callable[[float], None],
) -> None:
    """Work for a share of every period, in seconds, and rest for what is left of it."""
    while not over():
        work(share * _PERIOD_SECONDS)
        rest((1 - share) * _PERIOD_SECONDS)


def _work(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


if __name__ == "__main__":
    _take(float(sys.argv[1]))
