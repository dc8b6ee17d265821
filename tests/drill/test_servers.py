"""Nodes that share a server: one process, which dies as one; what comes out is the same."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from drill_queries import ITEMS, TUPLES, WINDOW, averages, entered, failing, united
from drill_vocabulary import PATIENCE_SECONDS, Drill, expected, until, verdict

import rewake
from rewake import ItemStream
from rewake.drill.queries import built_in
from rewake.drill.run import run_drill
from rewake.drill.when import Strike
from rewake.graph.query import Query
from rewake.model.errors import QueryFailed
from rewake.net.kill_points import Fault
from rewake.net.queries.processes import Processes

LISTENING, ESTABLISHED = "0A", "01"


def on(servers: int) -> dict[str, int]:
    return {"servers": servers}


def sockets(pid: int, state: str) -> int:
    """How many TCP sockets a process has in a state."""
    mine = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        target = str(each.readlink())
        if target.startswith("socket:["):
            mine.add(target[8:-1])
    found = 0
    for table in ("tcp", "tcp6"):
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        found += sum(line.split()[9] in mine and line.split()[3] == state for line in lines)
    return found


def all_back(drill: Drill, nodes: Iterable[str], epoch: int = 2) -> None:
    for node in nodes:
        drill.back(node, epoch)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_killed_server_comes_back_with_all_its_nodes(tmp_path: Path, servers: int) -> None:
    """They die together, come back together, and nothing is lost or there twice."""
    with Drill(tmp_path, shards=2, settings=on(servers)) as drill:
        drill.flow(0.3)
        drill.let(0.6)
        status = drill.running.status()
        home = status["averages-0"]["server"]
        together = [name for name, each in status.items() if each["server"] == home]
        assert {status[name]["pid"] for name in together} == set(drill.kill("averages-0"))
        all_back(drill, together)
        drill.finish()
        assert {drill.epoch(each) for each in set(status) - set(together)} <= {1}
        assert len(together) == 4 // servers
    drill.check()


@pytest.mark.parametrize("name", ["items", "items-sharded"])
@pytest.mark.parametrize("servers", [1, 2])
def test_built_in_drills_are_right_on_few_servers(tmp_path: Path, name: str, servers: int) -> None:
    """The oracle does not know how many there are."""
    drill = built_in(name, tuples=200_000, items=2_000, rate=100_000.0, gun=str(tmp_path / "gun"))
    victim = drill.build().plan().streams["averages"][0][0]
    result = run_drill(
        drill, tmp_path / "query", Processes(),
        strikes=[Strike(victim, "kill", at_fraction=0.4)], servers=servers,
    )  # fmt: skip
    assert result.verdict is not None
    assert result.verdict.right, result.verdict
    assert len(result.blows) == 1


def test_between_the_nodes_of_a_server_there_is_no_socket(tmp_path: Path) -> None:
    """One listener, one word with the coordinator, and who reads from outside."""
    with Drill(tmp_path, shards=2, settings=on(1)) as drill:
        drill.flow(0.3)
        (pid,) = set(drill.pids())
        assert sockets(pid, LISTENING) == 1
        assert sockets(pid, ESTABLISHED) == 1 + len(drill.readers)
        drill.finish()
    drill.check()


@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 2), (2, None)])
def test_a_folder_goes_on_with_another_number_of_servers(
    tmp_path: Path, first: int, second: int | None
) -> None:
    """How many there are is no part of what the query is."""
    with Drill(tmp_path, settings=on(first)) as drill:
        drill.flow(0.4)
        seen = drill.rows
        drill.running.stop()
    assert seen
    with Drill(tmp_path, settings={} if second is None else on(second)) as drill:
        assert {each["epoch"] for each in drill.running.status().values()} <= {1, 2}
        drill.finish()
    drill.check()


def test_a_union_and_what_feeds_it_share_a_server(tmp_path: Path) -> None:
    """In which order sources meet is chance there, too, and recorded."""
    tuples = 60_000
    query = united(tmp_path / "gate", tuples)
    with Drill(tmp_path, query, tuples=tuples, settings=on(1)) as drill:
        drill.flow(0.5)
        drill.let(0.7)
        drill.kill("union")
        all_back(drill, ["union", "averages"])
        drill.finish()
    found = np.bincount(drill.results().column("item_id").to_numpy(), minlength=2 * ITEMS)
    for source in range(2):
        batch = ItemStream(source + 1, ITEMS).batch(0, tuples)
        windows = np.bincount(batch.column(0).to_numpy(), minlength=ITEMS) // WINDOW
        assert np.array_equal(found[source * ITEMS : (source + 1) * ITEMS], windows)


def test_producers_and_subscribers_find_their_node_on_a_server_of_several(tmp_path: Path) -> None:
    """All of them come to one address and say to whom; also while the server dies."""
    batch = ItemStream(1, ITEMS).batch(0, TUPLES // 4)
    with (
        rewake.start_processes(entered(), tmp_path / "q", servers=1) as running,
        running.subscribe("entry") as entry,
        running.subscribe("averages") as stream,
        running.produce("entry") as producer,
    ):
        running.await_start()
        for first in range(0, batch.num_rows, 5_000):
            producer.send(batch.slice(first, 5_000))
            if first == 20_000:
                producer.flush()
                running.signal_node("averages")
        producer.end()
        producer.flush()
        entered_rows = sum(event.batch.num_rows for event in entry)
        results = pa.Table.from_batches([each.batch for each in stream if each.batch.num_rows])
        assert running.await_end(PATIENCE_SECONDS)
        assert {each["epoch"] for each in running.status().values()} == {2}
    assert entered_rows == batch.num_rows
    found = verdict(results, batch.num_rows)
    assert found.right, found
    assert results.num_rows == expected(batch.num_rows).items.size


def test_an_error_names_the_node_whose_it_is(tmp_path: Path) -> None:
    """Not another one that happens to share its server."""
    query = failing(tmp_path / "gate")
    with Drill(tmp_path, query, reading=False, settings=on(1)) as drill:
        drill.let(1.0)
        with pytest.raises(QueryFailed, match=r"node 'priced': .* cannot price the item"):
            drill.running.await_end(PATIENCE_SECONDS)


def test_a_loop_inside_one_server_goes_round(tmp_path: Path) -> None:
    """Whoever sends is never called by whom it sends to, and a crash repeats no round."""
    numbers = pa.table({"n": [number % 10 for number in range(2_000)]})
    query = Query("rounds")
    items = query.source("items", rewake.Batches(numbers, event_tuples=50))
    loop = query.loop("again", numbers.schema)
    both = items.union(loop, name="both")
    both.to_stream("both")
    loop.close_with(both.filter("n > 0", name="some").map({"n": "n - 1"}, name="less"))
    found: list[int] = []
    with (
        rewake.start_processes(query, tmp_path / "q", servers=1) as running,
        running.subscribe("both") as stream,
    ):
        while len(found) < 11_000:
            event = stream.read(PATIENCE_SECONDS)
            assert event is not None, f"no more than {len(found)}"
            killed = len(found) > 1_000
            found += event.batch.column(0).to_pylist()
            if not killed and len(found) > 1_000:
                running.signal_node("both")
    assert np.bincount(found).tolist() == [200 * (10 - number) for number in range(10)]


def test_a_server_that_is_started_twice_leaves_as_a_whole(tmp_path: Path) -> None:
    """The later life has all its nodes; the earlier neither says nor writes anything more."""
    with Drill(tmp_path, settings=on(2)) as drill:
        drill.flow(0.3)
        before = set(drill.pids())
        drill.launch("server-0")
        hosted = [str(seat) for seat in drill.plan.hosting[0].seats]
        all_back(drill, hosted)
        drill.finish()
        assert len(before) == 2
        replaced = [drill.running.status()[each]["replaced"] for each in hosted]
        assert all("superseded" in each for each in replaced)
    drill.check()


@pytest.mark.parametrize("point", ["recovery.after_loading", "channel.after_Send"])
def test_kill_points_of_a_node_strike_its_server(tmp_path: Path, point: str) -> None:
    """While one of its nodes is being opened, or has just sent something to another."""
    fault = Fault("averages-1", point)
    with Drill(
        tmp_path, averages(tmp_path / "gate", shards=2), faults=[fault], settings=on(1)
    ) as drill:
        drill.let(0.5)
        all_back(drill, ["items", "cheap", "averages-0", "averages-1"])
        until(lambda: drill.rows)
        drill.finish()
    drill.check()
