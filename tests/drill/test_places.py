"""A node in two places, under Rewake's standbys and one from outside: either process is killed.

There is no log: what the windows are made of is in the memory of two processes.  Behind them, a
step with a log keeps the stream that is compared with the oracle.
"""

import os
import signal
from pathlib import Path

import pytest
from drill_queries import HIGHEST, WINDOW, item_source
from drill_vocabulary import Drill, alive, until, verdict
from gated_source import GatedSource
from mirrored import Mirrored

from rewake.graph.query import Query
from rewake.model.errors import QueryFailed
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import Approach
from rewake.recovery.standby.active import ActiveStandby
from rewake.recovery.standby.passive import PassiveStandby

TUPLES = 120_000


def averages(gate: Path, approach: Approach) -> Query:
    """Averages over windows of ten in the memory of two processes, then a stream of them."""
    query = Query("averages")
    items = query.source("items", GatedSource(item_source(tuples=TUPLES), str(gate)))
    windows = items.filter(f"item_price <= {HIGHEST}", name="cheap").aggregate(
        by="item_id", window=count_window(WINDOW), avg="item_price", max="item_time",
        name="windows", approach=approach,
    )  # fmt: skip
    windows.filter("item_id >= 0", name="averages").to_stream("averages")
    return query


class Places(Drill):
    """The drill, with two processes of one of its nodes."""

    def __init__(self, folder: Path, approach: Approach) -> None:
        super().__init__(folder, averages(folder / "gate", approach), tuples=TUPLES)

    @property
    def standby(self) -> int | None:
        """The process that may be promoted, if there is one now."""
        standbys = self.running.status()["windows"]["standbys"]
        return next((each["pid"] for each in standbys.values() if each["in_sync"]), None)

    def in_sync(self, after: int | None = None) -> int:
        """Wait until a place holds all that it takes to go on; its process, not that `after`."""
        until(lambda: self.standby not in (None, after))
        return self.standby or 0

    def promoted(self, pid: int) -> None:
        """Wait until the node runs in this process."""
        until(lambda: self.running.status()["windows"]["pid"] == pid)

    def check(self) -> None:
        """Nothing lost, repeated, reordered or wrong."""
        found = verdict(self.results(), TUPLES)
        assert found.right, found
        assert found.expected > 0


@pytest.mark.parametrize(
    "approach",
    [Mirrored(), PassiveStandby(), PassiveStandby(output="at_once"), ActiveStandby()],
    ids=["mirrored", "passive", "passive, at once", "active"],
)
def test_the_standby_goes_on_where_the_node_ran_and_another_stands_by(
    tmp_path: Path, approach: Approach
) -> None:
    """The primary is killed while input flows: no process has to be started for it to go on."""
    with Places(tmp_path, approach) as drill:
        drill.flow(0.3)
        standby = drill.in_sync()
        drill.let(0.6)
        drill.kill("windows")
        drill.promoted(standby)
        drill.in_sync(after=standby)
        drill.finish()
        assert drill.running.status()["windows"]["replaced"] == {"died": 1}
    drill.check()


def test_without_its_standby_a_node_goes_on_alone_until_another_is_in_sync(tmp_path: Path) -> None:
    """Output that waited for the standby leaves, and the node has its epoch still."""
    with Places(tmp_path, PassiveStandby()) as drill:
        drill.flow(0.3)
        standby = drill.in_sync()
        pid = drill.running.status()["windows"]["pid"]
        os.kill(standby, signal.SIGKILL)
        drill.flow(0.6)
        drill.in_sync(after=standby)
        assert drill.running.status()["windows"]["pid"] == pid
        drill.finish()
    drill.check()


def test_both_places_may_be_lost_one_after_the_other(tmp_path: Path) -> None:
    """Whenever a place is in sync the other may go: first to last, the node has four processes."""
    with Places(tmp_path, ActiveStandby()) as drill:
        drill.flow(0.1)
        for fraction in (0.3, 0.5, 0.7):
            standby = drill.in_sync()
            drill.let(fraction)
            drill.kill("windows")
            drill.promoted(standby)
        drill.in_sync()
        drill.finish()
    drill.check()


def test_a_zombie_that_wakes_is_not_believed(tmp_path: Path) -> None:
    """The primary sleeps and is replaced; what it says when it wakes counts for nothing."""
    with Places(tmp_path, ActiveStandby()) as drill:
        drill.flow(0.3)
        standby = drill.in_sync()
        (sleeper,) = drill.kill("windows", sign=signal.SIGSTOP)
        drill.let(0.6)
        drill.promoted(standby)
        if alive(sleeper):
            os.kill(sleeper, signal.SIGCONT)
        drill.in_sync()
        drill.finish()
    drill.check()


def test_when_no_place_that_was_in_sync_is_left_the_query_ends_in_words(tmp_path: Path) -> None:
    """An empty place is no successor: what was in the windows would be lost without a word."""
    with Places(tmp_path, PassiveStandby()) as drill:
        drill.flow(0.3)
        both = [drill.in_sync(), drill.running.status()["windows"]["pid"]]
        for pid in both:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(QueryFailed, match=r"node .windows. is lost: .* no place .* in sync"):
            drill.running.await_end(60.0)
