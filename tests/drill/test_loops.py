"""Loops of real processes come to their end, with all that had to go around, whoever is killed."""

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from rewake import Batches
from rewake.graph import Query
from rewake.model.errors import QueryFailed, UsageError
from rewake.net.queries.running import RunningQuery, start_processes
from rewake.node.limits import NodeLimits

NUMBERS = pa.schema([("of", pa.int64()), ("number", pa.int64())])
TUPLES = 4_000


def numbers() -> pa.Table:
    """Some that are halved often, and some that never are."""
    return pa.table({"of": range(TUPLES), "number": range(TUPLES)}, schema=NUMBERS)


def halving() -> Query:
    """Every number comes back as its half until that is below one."""
    query = Query("halving")
    again = query.loop("again", NUMBERS)
    mixed = query.source("numbers", Batches(numbers(), event_tuples=100)).union(again, name="mixed")
    halves = mixed.filter("number >= 2", name="large").map(
        {"of": "of", "number": "CAST((number - number % 2) / 2 AS BIGINT)"}, name="halves"
    )
    again.close_with(halves)
    mixed.to_stream("mixed")
    return query


def halved(number: int) -> list[int]:
    """What a number is when it has gone around so often."""
    found = [number]
    while found[-1] >= 2:
        found.append(found[-1] // 2)
    return found


def multiplying() -> Query:
    """Every number comes back twice, for ever."""
    query = Query("multiplying")
    again = query.loop("again", NUMBERS, at_most=50_000)
    mixed = query.source("numbers", Batches(numbers().slice(0, 100))).union(again, name="mixed")
    more = mixed.filter("number >= 0", name="one").union(
        mixed.filter("number > -1", name="other"), name="both"
    )
    again.close_with(more)
    mixed.to_stream("mixed")
    return query


def kill(running: RunningQuery, node: str) -> None:
    """SIGKILL, once it has done something."""
    end = time.monotonic() + 60
    while not running.status().get(node, {}).get("turns"):
        assert time.monotonic() < end, f"{node} never took a turn"
        time.sleep(0.01)
    with suppress(UsageError):  # it has died meanwhile
        running.signal_node(node)


@pytest.mark.parametrize("victims", [[], ["mixed"], ["halves"], ["mixed", "halves", "mixed"]])
def test_a_loop_that_halves_numbers_ends(tmp_path: Path, victims: list[str]) -> None:
    """Each number is there once for each time that it went around."""
    with start_processes(halving(), tmp_path) as running:
        for victim in victims:
            kill(running, victim)
        found: Counter[tuple[int, int]] = Counter()
        for event in running.subscribe("mixed"):
            of, number = (column.to_pylist() for column in event.batch.columns)
            found.update(zip(of, number, strict=True))
        running.await_end(120)
    assert found == Counter((each, number) for each in range(TUPLES) for number in halved(each))


def test_a_loop_that_grows_for_ever_ends_the_query(tmp_path: Path) -> None:
    """The error names the node, and says what to do."""
    with (
        start_processes(multiplying(), tmp_path, limits=NodeLimits(lag_tuples=1_000)) as running,
        pytest.raises(QueryFailed, match=r"has added .* tuples to its loop .* raise at_most"),
    ):
        running.await_end(300)
