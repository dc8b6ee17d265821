"""A node's log: one epoch owns it, a later one goes on behind it, and no other query gets in."""

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from log_vocabulary import number_of, sample_turn

from rewake.graph.plan.plan import Plan
from rewake.graph.query import Query
from rewake.model.errors import Fenced, HistoryMismatch, UsageError
from rewake.net.nodes.log import NodeLog

SCHEMA = pa.schema([("k", pa.int64())])


def until(happened: Callable[[], object]) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + 40.0
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


def planned(name: str = "logged") -> Plan:
    query = Query(name)
    query.entry("entry", SCHEMA).to_stream("entry")
    return query.plan()


def opened(folder: Path, epoch: int, plan: Plan | None = None, **more: object) -> NodeLog:
    plan = plan or planned()
    return NodeLog(
        folder, plan.node("entry"), plan.fingerprint, epoch, lambda _sequence: None, **more
    )


def with_turns(folder: Path, epoch: int, numbers: range) -> NodeLog:
    """A log whose newest frames are these, all durable."""
    log = opened(folder, epoch)
    for number in numbers:
        log.append(sample_turn(number))
    log.hurry()
    until(lambda: log.durable() == log.next_sequence)
    return log


def test_a_successor_begins_behind_what_its_predecessor_made_durable(tmp_path: Path) -> None:
    """Frames come newest first; positions and sequences go on."""
    with_turns(tmp_path, 1, range(5)).close()
    log = with_turns(tmp_path, 2, range(5, 7))
    assert [number_of(frame) for frame in log.frames_backwards()] == [4, 3, 2, 1, 0]
    assert (log.next_sequence, log.next_position) == (7, 21)
    log.close()
    third = opened(tmp_path, 3)
    assert [number_of(frame) for frame in third.frames_backwards()] == [6, 5, 4, 3, 2, 1, 0]
    assert third.record.sequence == 7
    third.close()


def test_it_says_who_wrote_what(tmp_path: Path) -> None:
    """The lineage has every epoch that wrote, and where it began; a record names the newest."""
    with_turns(tmp_path, 1, range(5)).close()
    log = with_turns(tmp_path, 4, range(5, 7))
    assert log.record.epoch == 4
    assert log.lineage.log_id == log.record.log_id
    log.close()


def test_a_predecessor_that_goes_on_is_fenced(tmp_path: Path) -> None:
    """Nothing that it appends afterwards is ever durable."""
    old = with_turns(tmp_path, 1, range(3))
    new = opened(tmp_path, 2)
    old.append(sample_turn(100))
    with pytest.raises(Fenced, match="a later attempt"):
        until(lambda: old.durable() > 3)
    assert [number_of(frame) for frame in new.frames_backwards()] == [2, 1, 0]
    new.close()
    with pytest.raises(Fenced):
        old.close()


def test_an_epoch_that_the_log_has_overtaken_is_of_another_history(tmp_path: Path) -> None:
    """No coordinator gives a lower epoch than one that has written: its state is an older copy."""
    with_turns(tmp_path, 5, range(3)).close()
    with pytest.raises(HistoryMismatch, match="newer than the coordinator's state"):
        opened(tmp_path, 2)


def test_the_log_of_another_query_is_refused(tmp_path: Path) -> None:
    """Unless it is this query's from before its sinks moved."""
    with_turns(tmp_path, 1, range(3)).close()
    other = Query("other")
    other.entry("entry", SCHEMA).map(k="k + 1", name="more").to_stream("more")
    plan = other.plan()
    with pytest.raises(UsageError, match="belongs to another query"):
        opened(tmp_path, 2, plan)
    former = planned().fingerprint
    opened(tmp_path, 3, plan, former_fingerprint=former).close()


def test_what_a_subscriber_is_owed_is_read_back_from_its_position(tmp_path: Path) -> None:
    """From past into present, each frame once; who has gone may come back and begin anew."""
    log = with_turns(tmp_path, 1, range(6))
    found = log.read_back(1, 4, 0)
    assert [number_of(frame) for frame in found] == [1, 2, 3, 4, 5], "position 4 is in frame 1"
    assert log.read_back(1, 18, 6) == []
    log.append(sample_turn(6))
    log.hurry()
    until(lambda: log.durable() == 7)
    until(lambda: [number_of(frame) for frame in log.read_back(1, 18, 6)] == [6])
    log.forget(1)
    assert [number_of(frame) for frame in log.read_back(1, 16, 0)] == [5, 6]
    assert log.read_back(2, 1_000, 0) == [], "not written yet"
    log.close()
