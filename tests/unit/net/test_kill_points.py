"""Kill points: a fault fires once, in the life that it names, and leaves a note."""

import os
from pathlib import Path

import pytest

from rewake.model.errors import UsageError
from rewake.net.kill_points import FIRED_FILE, POINTS, Fault, KillPoints


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that this process would have sent itself."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, sign: sent.append(sign))
    return sent


def test_a_fault_fires_at_the_passing_that_it_names(kills: list[int]) -> None:
    """Of its node, its point and its life alone."""
    points = KillPoints("a", [Fault("a", "node.after_work", hit=3), Fault("b", "node.after_tick")])
    for _ in range(2):
        points.hit("node.after_work")
        points.hit("node.after_tick")
    assert kills == []
    points.hit("node.after_work")
    points.hit("node.after_work")
    assert kills == [9]


def test_a_fault_before_an_attempt_has_an_epoch_hits_one_attempt(
    kills: list[int], tmp_path: Path
) -> None:
    """Such attempts leave no epoch behind; without a count, all of them would die."""
    for _ in range(3):
        KillPoints("a", [Fault("a", "node.start")], tmp_path).hit("node.start")
    assert kills == [9]
    assert (tmp_path / FIRED_FILE).read_text() == "a node.start 1 1\n"


def test_without_faults_nothing_is_written(kills: list[int], tmp_path: Path) -> None:
    """A query that nobody breaks on purpose has no folder of faults."""
    points = KillPoints("a", [Fault("b", "node.start")], tmp_path)
    for point in POINTS:
        points.hit(point)
    assert kills == []
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_point_is_refused() -> None:
    """A drill that could never happen would look like one that was survived."""
    with pytest.raises(UsageError, match="there is no kill point"):
        Fault("a", "node.before_lunch")
