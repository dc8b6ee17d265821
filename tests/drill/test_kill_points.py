"""Every place where a process can be made to die: the output is what it would have been.

`make soak` goes through all of them, once with a second kill during the recovery.
"""

import os
import signal
from pathlib import Path

import pytest
import strength
from drill_queries import ITEMS, TUPLES, averages, entered, files_to_files
from drill_vocabulary import Drill, Reader, durable_results, run_driver, until, verdict
from kill_table import DRIVER_PLACES, NODE_PLACES, SAMPLE, Place, fired

from rewake import ItemStream, read_parts
from rewake.net.kill_points import POINTS, Fault

FILES_TUPLES = 80_000


def places(table: tuple[Place, ...]) -> list[object]:
    """A test for each place: the sample in every run, one more by the commit, all in a soak."""
    others = [each.point for each in table if each.point not in SAMPLE]
    tried = SAMPLE | {others[strength.commit() % len(others)]}
    return [
        pytest.param(each, id=each.point, marks=[] if each.point in tried else [pytest.mark.soak])
        for each in table
    ]


def test_every_kill_point_has_a_scenario(record_property) -> None:
    """Points that nothing can reach would be promises of drills that never happen."""
    known = [place.point for place in NODE_PLACES + DRIVER_PLACES]
    assert sorted(known) == sorted(POINTS)
    assert len(set(known)) == len(known) >= 40
    assert set(known) >= SAMPLE
    record_property("enumeration", f"kill points: {len(known)}, {len(SAMPLE)} of them in every run")


@pytest.mark.parametrize("place", places(NODE_PLACES))
def test_a_node_dies_at_a_point(tmp_path: Path, place: Place) -> None:
    """It comes back, and nobody can tell from the output."""
    run(tmp_path, place, place.faults)
    assert place.point in fired(tmp_path / "query")


@pytest.mark.soak
@pytest.mark.parametrize("place", [pytest.param(each, id=each.point) for each in NODE_PLACES])
def test_a_node_dies_at_a_point_and_again_while_it_recovers(tmp_path: Path, place: Place) -> None:
    """The second death is no different from the first."""
    run(tmp_path, place, place.twice)
    points = fired(tmp_path / "query")
    assert place.point in points
    # A query that is over does not wait for a node to recover.
    over = place.point in ("node.stopping", "channel.after_Finish")
    assert "recovery.after_loading" in points or over


def run(folder: Path, place: Place, faults: list[Fault]) -> None:
    """Run the place's query with these faults, and compare what is durable with the oracle."""
    if place.query == "entered":
        return run_entered(folder, place, faults)
    of_files = place.query == "files"
    tuples = FILES_TUPLES if of_files else TUPLES
    query = files_to_files(folder, tuples) if of_files else averages(folder / "gate")
    with Drill(folder, query, tuples=tuples, faults=faults, reading=False) as drill:
        drill.let(0.5)
        if place.needs == "late reader":
            drill.back("averages")
            reader = Reader(drill.running.subscribe("averages", name="late"))
        elif place.needs == "second attempt":
            supersede(drill, "averages")
        if place.point not in ("node.after_source_ended", "channel.before_Finish",
                               "channel.after_Finish", "node.stopping"):  # fmt: skip
            until(lambda: place.point in fired(folder / "query"))
        drill.finish()
        if place.needs == "late reader":
            until(lambda: reader.ended)
            reader.leave()
    found = verdict(durable_results(drill), tuples)
    assert found.right, found
    if of_files:
        found = verdict(read_parts(folder / "out"), tuples)
        assert found.right, found
    return None


def run_entered(folder: Path, place: Place, faults: list[Fault]) -> None:
    """The same for a query whose tuples a producer sends; it knows of no death."""
    with (
        Drill(folder, entered(), tuples=FILES_TUPLES, faults=faults, reading=False) as drill,
        drill.running.produce("entry") as producer,
    ):
        stream = ItemStream(1, ITEMS)
        while producer.position < FILES_TUPLES:
            first = producer.position
            producer.send(stream.batch(first, min(first + 1_000, FILES_TUPLES)))
            if producer.position < place.hit * 1_000:
                producer.flush()  # however busy the machine is, so many are confirmed one by one
        producer.end()
        producer.flush()
        assert place.point in fired(folder / "query")
        drill.finish()
    found = verdict(durable_results(drill), FILES_TUPLES)
    assert found.right, found


def supersede(drill: Drill, node: str) -> None:
    """Start another attempt of a node whose present one has been put to sleep; then end that."""
    until(lambda: drill.running.status()[node].get("tuples_in"))
    (pid,) = drill.kill(node, sign=signal.SIGSTOP)
    drill.launch(node)
    drill.back(node)
    until(lambda: drill.epoch("cheap") > 1)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("place", places(DRIVER_PLACES))
def test_a_driver_dies_at_a_point(tmp_path: Path, place: Place) -> None:
    """Its nodes leave; run again on the same folder, the query goes on where it stopped."""
    died = run_driver(tmp_path, place.faults)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert fired(tmp_path / "query")[-1] == place.point
    again = run_driver(tmp_path, place.faults)
    assert again.returncode == 0, again.stderr
    found = verdict(durable_results(tmp_path), TUPLES)
    assert found.right, found
