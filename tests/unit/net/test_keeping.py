"""How much history a stream keeps: all of it, or as a user says."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from log_vocabulary import sample_turn

import rewake
from rewake.graph.query import Query
from rewake.log.retention import Retention
from rewake.model.errors import OutOfRange, UsageError
from rewake.net.nodes.log import LIMITS, NodeLog
from rewake.stores import open_log_reader

TIMES = pa.table({"k": [1, 2], "at": pa.array([0, 1], pa.timestamp("ms"))})


def until(happened: Callable[[], object]) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + 40.0
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


def planned(**kept: Any) -> Any:
    """The plan of the node behind a kept stream."""
    query = Query("kept")
    rows = query.source("rows", rewake.Batches(TIMES, time_column="at"))
    others = query.source("others", rewake.Batches(TIMES, time_column="at"))
    others.union(rows, name="all").to_stream("all", **kept)
    return query.plan()


def test_a_stream_keeps_all_of_its_history_unless_somebody_says() -> None:
    """For so long in the stream's own unit, or so many bytes, or both."""
    assert planned().node("all").retention == Retention()
    assert planned(keep_for="2 hours").node("all").retention == Retention(max_age=7_200_000)
    assert planned(keep_for=17, keep_bytes=5).node("all").retention == Retention(17, 5)


def test_how_much_is_kept_does_not_make_it_another_query() -> None:
    """It can be changed while there is history already."""
    assert planned(keep_bytes=5).fingerprint == planned().fingerprint


def test_of_two_streams_of_one_log_the_one_that_keeps_more_counts() -> None:
    """One that keeps everything has both keep it."""
    for first, second, kept in ((5, 9, Retention(max_bytes=9)), (5, None, Retention())):
        query = Query("kept")
        entry = query.entry("entry", TIMES.schema)
        entry.to_stream("one", keep_bytes=first).to_stream("two", keep_bytes=second)
        assert query.plan().node("entry").retention == kept


def test_a_duration_needs_a_time_whose_unit_is_known() -> None:
    """An entry's producers may tell time in any."""
    query = Query("kept")
    query.entry("entry", TIMES.schema).to_stream("kept", keep_for="2 hours")
    with pytest.raises(UsageError, match=r"stream 'kept': keep_for='2 hours'.*or keep_bytes"):
        query.plan()


def written(folder: Path, turns: int, **kept: Any) -> NodeLog:
    """A node's log of many small segments."""
    plan = planned(**kept)
    log = NodeLog(
        folder, plan.node("all"), plan.fingerprint, 1, lambda _sequence: None,
        limits=replace(LIMITS, segment_bytes=2_000),
    )  # fmt: skip
    for number in range(turns):
        log.append(sample_turn(number))
        if number % 50 == 49:  # what is written at once is one segment, however long
            until(lambda done=number + 1: log.durable() == done)
    return log


@pytest.mark.parametrize(("keep_bytes", "goes"), [(None, False), (4_000, True)])
def test_a_node_trims_what_nobody_wants_to_keep(
    tmp_path: Path, keep_bytes: int | None, goes: bool
) -> None:
    """By whole segments, which are small here; never what recovery needs."""
    turns = 600
    log = written(tmp_path, turns, keep_bytes=keep_bytes)
    log.trim(turns - 100)
    log.close()
    with open_log_reader(tmp_path) as reader:
        kept = [frame.sequence for frame in reader.frames_backwards()]
    assert (kept[-1] > 0) == goes
    assert kept[0] == turns - 1
    assert kept[-1] <= turns - 100


def test_a_reader_that_fell_behind_what_is_kept_is_told(tmp_path: Path) -> None:
    """Not given what comes after, as if nothing were missing."""
    log = written(tmp_path, 600, keep_bytes=4_000)
    slow, position = 7, 0
    for frame in log.read_back(slow, position, 0)[:3]:
        position, sequence = frame.position + frame.tuples, frame.sequence + 1
    log.trim(500)
    with pytest.raises(OutOfRange, match=f"position {position} is not in the log"):
        log.read_back(slow, position, sequence)
    log.close()
