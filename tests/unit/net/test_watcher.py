"""Threads that watch over something tell of their own death."""

import threading

import pytest

from rewake.model.errors import StorageFault
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


def test_an_error_of_ours_is_told_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """It says what happened, to what, and what to do."""

    def run() -> None:
        raise StorageFault("the folder is gone; restore it")

    told: list[str] = []
    thread = watcher(run, "the coordinator", told.append, name="watcher")
    thread.start()
    thread.join()
    assert told == ["the coordinator failed: the folder is gone; restore it"]
    assert capfd.readouterr().err == ""


def test_a_watcher_that_is_done_says_nothing() -> None:
    """Its end was asked for."""
    told: list[str] = []
    done = threading.Event()
    thread = watcher(done.set, "it", told.append, name="watcher")
    thread.start()
    thread.join()
    assert done.is_set()
    assert told == []
