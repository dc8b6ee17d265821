"""What a driver is told of its nodes: Python's `logging`, under the name "rewake", and `status`."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rewake
from rewake.drill.queries import ItemDrill

PATIENCE_SECONDS = 40.0


def until(happened: Callable[[], object]) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_deaths_and_recoveries_are_logged_and_a_clean_end_is_no_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the query and the node; `status` has the pid of each."""
    caplog.set_level(logging.INFO, "rewake")
    drill = ItemDrill(tuples=40_000, items=400, event_tuples=1_000, rate=20_000)
    with rewake.start_processes(drill.build(), tmp_path) as running:
        running.await_start(PATIENCE_SECONDS)
        before = running.status()["averages"]["pid"]
        assert running.signal_node("averages") == before
        until(lambda: running.status()["averages"]["epoch"] > 1)
        until(lambda: "averages" in running.running)
        after = running.status()["averages"]["pid"]
        assert after not in (before, os.getpid(), None)
        alarms = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert [each.getMessage() for each in alarms] == [
            "query items: node averages lost, epoch 1"
        ]
        assert "query items: node averages registered" in caplog.text
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == alarms
    lost = [each.getMessage() for each in caplog.records if " lost" in each.getMessage()]
    assert lost == [each.getMessage() for each in alarms], "others were told to leave"
    assert caplog.text.count(" left, epoch") == len(running.plan.nodes)


def test_a_program_that_asks_for_nothing_hears_warnings_and_no_more() -> None:
    """On stderr, as Python does: a warning that nobody could hear would be none."""
    program = (
        "import logging, rewake; log = logging.getLogger('rewake'); "
        "log.info('a node came back'); log.warning('tuples were late')"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stderr == "tuples were late\n"
