"""Upstream backup with real processes and SIGKILL: nodes alone, together, in a row, and the driver.

The results are compared with those of a run to which nothing happens.
"""

import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import backed_up as query_module
import pyarrow as pa
import pytest
from backed_up import TUPLES, backed_up
from drill_vocabulary import Drill, processes_of, until
from gated_source import open_gate

import rewake
from rewake import StreamSource
from rewake.graph.query import Query
from rewake.log.files.sealed import sealed, unsealed
from rewake.model.errors import HistoryMismatch
from rewake.net.queries.backup import make_backup
from rewake.net.queries.restore import restore_backup
from rewake.net.queries.running import RunningQuery
from rewake.operators.windows.specs import time_window
from rewake.recovery.upstream_backup import UpstreamBackup

NODES = ("windows", "longer")
NUMBERS = pa.schema([("number", pa.int64())])


def trickle(folder: Path, before: float, fraction: float) -> None:
    """Let so much of the input pass little by little, so that there are bookmarks on the way."""
    for step in range(1, 16):
        open_gate(folder / "gate", int(TUPLES * (before + (fraction - before) * step / 15)))
        time.sleep(0.06)


class BackedUp(Drill):
    """The drill."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, backed_up(folder / "gate"), tuples=TUPLES)


def bookmarks(folder: Path) -> dict[str, list[int]]:
    """What the coordinator has made durable."""
    state = folder / "query" / "coordinator.json"
    if not state.exists():
        return {}
    return unsealed(state.read_bytes(), state.name, "").get("bookmarks", {})


def epochs(folder: Path) -> set[int]:
    """Those that the nodes were given last."""
    state = folder / "query" / "coordinator.json"
    found = unsealed(state.read_bytes(), state.name, "") if state.exists() else {"epochs": {}}
    return set(found["epochs"].values())


def bookmarked(folder: Path, position: int) -> None:
    """Wait until every node has a bookmark, that of the first behind so much of its input."""
    until(lambda: bookmarks(folder).keys() >= set(NODES))
    until(lambda: bookmarks(folder)["windows"][0] >= position)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Of a run to which nothing happens."""
    with BackedUp(tmp_path_factory.mktemp("untouched")) as drill:
        drill.finish()
        assert drill.running.status()["windows"]["replaced"] == {}
    results = drill.results()
    assert results.num_rows > 1000
    return results


def test_a_node_that_is_killed_goes_on_from_its_bookmark(
    tmp_path: Path, expected: pa.Table
) -> None:
    """It reads input again from where its oldest window opened, and sends nothing twice."""
    with BackedUp(tmp_path) as drill:
        trickle(tmp_path, 0.0, 0.4)
        bookmarked(tmp_path, TUPLES // 10)
        drill.let(0.6)
        drill.kill("windows")
        drill.back("windows")
        drill.flow(0.8)
        assert drill.epoch("longer") == 1, "nobody else goes back"
        drill.finish()
    assert drill.results() == expected


def test_nodes_in_a_row_may_be_killed_at_once_and_one_after_the_other(
    tmp_path: Path, expected: pa.Table
) -> None:
    """Trap 1: who is brought back itself asks for more than it had consumed."""
    with BackedUp(tmp_path) as drill:
        for fraction in (0.3, 0.5, 0.7):
            trickle(tmp_path, fraction - 0.2, fraction)
            drill.kill(*NODES)
            drill.let(fraction + 0.1)
            for node in NODES:
                drill.back(node)
            drill.kill("longer")
            drill.back("longer", drill.epoch("longer"))
            drill.kill("windows", "dear")
        drill.finish()
    assert drill.results() == expected


def test_a_driver_that_is_killed_finds_the_bookmarks_when_it_starts_again(
    tmp_path: Path, expected: pa.Table
) -> None:
    """All processes end, and nothing is lost: the bookmarks are in `coordinator.json`."""
    with (tmp_path / "driver.txt").open("w") as output:
        for step in (1, 2):
            command = [sys.executable, query_module.__file__, str(tmp_path)]
            driver = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            try:
                until(lambda step=step: epochs(tmp_path) >= {step})
                trickle(tmp_path, (step - 1) / 3, step / 3)
                bookmarked(tmp_path, TUPLES // 3 * step - TUPLES // 6)
            finally:
                driver.kill()
                driver.wait()
            until(lambda: not processes_of(tmp_path))
    assert bookmarks(tmp_path)["windows"][4] > 0, "it would begin anew"
    with BackedUp(tmp_path) as drill:
        drill.finish()
        assert drill.epoch("windows") == 3
    assert drill.results() == expected


# --- copies --------------------------------------------------------------------------------------


def counted() -> Query:
    """What producers send, which nobody can ask for twice; windows of it; a log of these."""
    query = Query("counted")
    named = query.entry("one", NUMBERS).map(k="number % 7", t="number", name="named")
    windows = named.aggregate(
        by="k", time="t", window=time_window(20), sum="t", name="windows",
        approach=UpstreamBackup(every="20ms"),
    )  # fmt: skip
    windows.filter("k >= 0", name="totals").to_stream("totals")
    return query


def send(query: RunningQuery, through: int) -> None:
    """The numbers from where the entry is on, a few at a time."""
    with query.produce("one") as producer:
        for first in range(producer.position, through, 40):
            rows = range(first, min(first + 40, through))
            producer.send(pa.record_batch([rows], schema=NUMBERS))
            producer.flush()


def totals(folder: Path) -> list[tuple[int, int, int]]:
    """What the log has, in its order."""
    plan = counted().plan()
    ((node, output),) = plan.streams["totals"]
    schema = plan.node(node).outputs[output].schema
    if not list((folder / "nodes" / node).glob("segment-*")):
        return []
    source = StreamSource(folder / "nodes" / node, output=output, follow=False, schema=schema)
    reader = source.open(0, 1)
    found = []
    while not reader.ended:
        event = reader.read(0.0)
        found += [] if event is None else event.batch.to_pylist()
    reader.close()
    return [(each["window_start"], each["k"], each["sum_t"]) for each in found]


def right(through: int) -> list[tuple[int, int, int]]:
    """What there is to be once all before this number have come."""
    return [
        (start, k, sum(at for at in range(start, start + 20) if at % 7 == k))
        for start in range(0, (through - 1) // 20 * 20, 20)
        for k in range(7)
    ]


def goes_on(folder: Path, through: int) -> None:
    """The query runs there, and comes to what it must."""
    with rewake.start_processes(counted(), folder) as query:
        send(query, through)
        until(lambda: query.await_end(0.0) or len(totals(folder)) >= len(right(through)))
    assert sorted(totals(folder)) == sorted(right(through))


def test_a_copy_that_is_made_while_the_query_runs_is_of_one_history(tmp_path: Path) -> None:
    """Its bookmark is behind nothing that a log of the copy lacks, nor before what one needs."""
    folder, copies = tmp_path / "query", [tmp_path / f"copy-{number}" for number in range(3)]
    with rewake.start_processes(counted(), folder) as query:
        send(query, 2_000)
        until(lambda: bookmarks(tmp_path).get("windows", [0])[0] >= 1_000)
        sending = threading.Thread(target=send, args=(query, 12_000))
        sending.start()
        for copy in copies:
            make_backup(folder, copy)
            time.sleep(0.1)
        query.signal_node("windows", signal.SIGKILL)
        sending.join()
    for copy in copies:
        restore_backup(copy, copy.with_suffix(".again"))
        goes_on(copy.with_suffix(".again"), 13_000)
    goes_on(folder, 13_000)


def test_a_bookmark_that_is_older_than_the_logs_is_refused(tmp_path: Path) -> None:
    """A `coordinator.json` of another time: the logs have seen later epochs than it gives."""
    folder = tmp_path / "query"
    goes_on(folder, 2_000)
    older = (folder / "coordinator.json").read_bytes()
    goes_on(folder, 4_000)
    (folder / "coordinator.json").write_bytes(older)
    with (
        pytest.raises(HistoryMismatch, match="epoch"),
        rewake.start_processes(counted(), folder) as query,
    ):
        query.await_end(30.0)


def test_a_log_that_is_older_than_the_bookmark_is_refused(tmp_path: Path) -> None:
    """What the bookmark is about would come again as something else."""
    folder = tmp_path / "query"
    goes_on(folder, 2_000)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    goes_on(folder, 4_000)
    shutil.rmtree(folder / "nodes/one")
    shutil.copytree(copy / "nodes/one", folder / "nodes/one")
    # What the coordinator knows of that log is of its time; of the bookmark, it is of the other.
    then, state = (
        unsealed((each / "coordinator.json").read_bytes(), "", "") for each in (copy, folder)
    )
    state["logs"]["one"] = then["logs"]["one"]
    state["bookmarks"]["windows"][0] = 3_990
    (folder / "coordinator.json").write_bytes(sealed(state))
    with (
        pytest.raises(HistoryMismatch, match=r"'windows' has consumed .* up to position 3990"),
        rewake.start_processes(counted(), folder) as query,
    ):
        query.await_end(30.0)
