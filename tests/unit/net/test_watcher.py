"""Threads that watch over something tell of their own death."""

import threading

import pytest

from rewake.net.watcher import watcher


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [ValueError, MemoryError, SystemExit, KeyboardInterrupt])
def test_the_death_of_a_watcher_is_told(kind: type[BaseException]) -> None:
    """Whatever it dies of: who it was, and what it met."""

    def run() -> None:
        raise kind("no more")

    told: list[str] = []
    thread = watcher(run, "what starts the nodes", told.append, name="watcher")
    thread.start()
    thread.join()
    assert told == [f"what starts the nodes failed: {kind.__name__}: no more"]


def test_a_watcher_that_is_done_says_nothing() -> None:
    """Its end was asked for."""
    told: list[str] = []
    done = threading.Event()
    thread = watcher(done.set, "it", told.append, name="watcher")
    thread.start()
    thread.join()
    assert done.is_set()
    assert told == []
