"""What a running query does about people and peers who err: typed errors, nothing lost.

Mistakes in the graph (a cycle that an approach cannot have, an unknown column, two steps of one
name) are in tests/unit/graph; a taken port is in test_listener, and each malformed message in
test_wire.  Here are whole queries, their nodes real processes.
"""

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from google_crc32c import value as crc32c

import rewake
from rewake import FileSink, read_parts
from rewake.drill.queries import ItemDrill
from rewake.graph.query import Query
from rewake.model.errors import OperatingFault, QueryFailed, StorageFault, UsageError
from rewake.net.clients.client import Endpoint, Subscription
from rewake.net.queries.running import RunningQuery
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop
from rewake.node.messages import Find, Found, Subscribe

PATIENCE_SECONDS = 40.0
DRILL = ItemDrill(tuples=40_000, items=400, event_tuples=1_000, rate=40_000)


def until(happened: Callable[[], object]) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def results(running: RunningQuery) -> pa.Table:
    """All results, in order."""
    with running.subscribe("averages") as subscription:
        return pa.Table.from_batches([event.batch for event in subscription])


def check(running: RunningQuery) -> None:
    """Let the query end; its results are the right ones."""
    assert DRILL.check([results(running)]).right
    assert running.await_end(PATIENCE_SECONDS)
    assert {status["epoch"] for status in running.status().values()} == {1}, "a node died"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningQuery]:
    """A query with a second's worth of input, just started."""
    with rewake.start_processes(DRILL.build(), tmp_path / "query") as query:
        query.await_start(PATIENCE_SECONDS)
        yield query


# --- peers that are none ---------------------------------------------------------------------


class Stranger:
    """Somebody with a socket, and perhaps the token."""

    def __init__(self, running: RunningQuery, token: Token | None = None) -> None:
        self.loop = Loop()
        self.heard: list[object] = []
        self.known = False
        self._endpoint = running.endpoint
        self._token = token or running.endpoint.token

    def authenticated(self, connection: Connection) -> None:  # noqa: ARG002
        self.known = True

    def received(self, connection: Connection, messages: list[object]) -> None:  # noqa: ARG002
        self.heard += messages

    def closed(self, connection: Connection) -> None:
        pass

    def connect(self, address: tuple[str, int], token: Token | None = None) -> Connection:
        connection = Connection.connect(address, token or self._token, self.loop.now())
        self.loop.add(connection, self)
        return connection

    def node(self) -> tuple[str, int]:
        """Where the node of the averages listens."""
        asked = self.connect(self._endpoint.address, self._endpoint.token)
        asked.send(Find("averages"))
        self.until(lambda: self.heard)
        found = self.heard.pop()
        assert isinstance(found, Found)
        asked.close()
        _, _, host, port, *_ = found.places[0]
        return host, port

    def until(self, happened: Callable[[], object]) -> None:
        until(lambda: self.loop.run_once(0.01) or happened())

    def say(self, connection: Connection, data: bytes) -> None:
        """Bytes that no message is made of, after authentication."""
        self.known = False
        self.until(lambda: self.known or connection.closed)
        with socket.socket(fileno=os.dup(connection.fileno())) as raw:
            raw.setblocking(True)
            raw.sendall(data)

    def close(self) -> None:
        self.loop.close()


@pytest.fixture
def stranger(running: RunningQuery) -> Iterator[Stranger]:
    """Somebody who knows the token."""
    made = Stranger(running)
    yield made
    made.close()


def oversized() -> bytes:
    """The beginning of a packet of four gigabytes, with a correct checksum."""
    head = struct.pack("<4sBBHII", b"RWKN", 1, 1, 0, 32, 0xFFFF_FFF0)
    header = struct.pack("<qqqq", 0, 1, 1, 0)
    return head + struct.pack("<I", crc32c(head + header)) + header


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n" * 40, bytes(5000), oversized()],
    ids=["http", "zeros", "oversized"],
)
def test_garbage_of_a_stranger_ends_its_connection_and_nothing_else(
    running: RunningQuery, stranger: Stranger, data: bytes
) -> None:
    """Sent to a node before any authentication."""
    with socket.create_connection(stranger.node(), timeout=PATIENCE_SECONDS) as raw:
        raw.sendall(data)
        # The challenge, then the end; a reset when bytes were still under way.
        with raw.makefile("rb") as answers, suppress(ConnectionResetError):
            assert answers.read().startswith(b"RWKN")
    check(running)


@pytest.mark.parametrize("data", [b"garbage" * 100, oversized()], ids=["garbage", "oversized"])
def test_garbage_of_a_peer_with_the_token_ends_its_connection_and_nothing_else(
    running: RunningQuery, stranger: Stranger, data: bytes
) -> None:
    """A bug or damage on the way: nothing of it is believed, nothing is allocated for it."""
    connection = stranger.connect(stranger.node())
    stranger.say(connection, data)
    stranger.until(lambda: connection.closed)
    check(running)


def test_a_message_out_of_turn_ends_its_connection_and_nothing_else(
    running: RunningQuery, stranger: Stranger
) -> None:
    """An output that the node does not have, and acks of nobody."""
    connection = stranger.connect(stranger.node())
    connection.send(Subscribe("averages", 77, "me", 0, 0))
    stranger.until(lambda: connection.closed)
    assert "has 1 outputs" in str(stranger.heard)
    check(running)


def test_the_wrong_token_is_refused_by_nodes_and_coordinator(running: RunningQuery) -> None:
    """With an error that says so; the token is never told."""
    wrong = Token(bytes(32))
    stranger = Stranger(running)
    connection = stranger.connect(stranger.node(), wrong)
    stranger.until(lambda: connection.closed)
    assert "the token of another query" in str(connection.ended)
    stranger.close()
    schema = running.plan.node("averages").outputs[0].schema
    endpoint = Endpoint(running.endpoint.address, wrong)
    with (
        Subscription(endpoint, "averages", schema) as subscription,
        pytest.raises(OperatingFault, match="token of another query") as caught,
    ):
        subscription.read(PATIENCE_SECONDS)
    assert running.endpoint.token.reveal() not in str(caught.value)
    check(running)


def test_a_reader_who_comes_after_the_end_reads_the_log(tmp_path: Path) -> None:
    """The nodes of a finite query have left by then; from any position, the same tuples."""
    small = ItemDrill(tuples=3_000, items=30, event_tuples=500)
    with rewake.start_processes(small.build(), tmp_path) as query:
        assert query.await_end(PATIENCE_SECONDS)
        until(lambda: not query.running)
        everything = results(query)
        assert small.check([everything]).right
        with query.subscribe("averages", begin=100) as subscription:
            rest = pa.Table.from_batches([event.batch for event in subscription])
        assert rest.equals(everything.slice(100))


# --- folders ---------------------------------------------------------------------------------


def test_a_second_driver_is_refused_and_the_first_goes_on(running: RunningQuery) -> None:
    """One driver owns a folder."""
    with pytest.raises(UsageError, match=r"another driver runs a query in .*; stop it, or use"):
        rewake.start_processes(DRILL.build(), running.folder)
    assert (running.folder / "endpoint.json").exists()
    check(running)


def test_the_folder_of_another_query_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    """And the query that it belongs to can be started there afterwards."""
    small = ItemDrill(tuples=3_000, items=30)
    with rewake.start_processes(small.build(), tmp_path / "query") as first:
        before = results(first)
    other = ItemDrill(tuples=3_000, items=31)
    state = (tmp_path / "query" / "coordinator.json").read_bytes()
    with pytest.raises(UsageError, match=r"the state of another query .*; use another folder"):
        rewake.start_processes(other.build(), tmp_path / "query")
    assert (tmp_path / "query" / "coordinator.json").read_bytes() == state
    with rewake.start_processes(small.build(), tmp_path / "query") as again:
        assert results(again).equals(before)


def test_a_log_of_another_query_is_refused_by_its_node(tmp_path: Path) -> None:
    """Somebody has moved a log: the query fails with the reason, and the log is unchanged."""
    folders = [tmp_path / name for name in ("one", "two")]
    for items, folder in zip((30, 31), folders, strict=True):
        with rewake.start_processes(ItemDrill(tuples=3_000, items=items).build(), folder) as query:
            results(query)
    (folders[0] / "nodes" / "averages").rename(tmp_path / "aside")
    (folders[1] / "nodes" / "averages").rename(folders[0] / "nodes" / "averages")
    log = folders[0] / "nodes" / "averages"
    before = {path.name: path.read_bytes() for path in log.glob("segment-*0000.log")}
    with (
        rewake.start_processes(ItemDrill(tuples=3_000, items=30).build(), folders[0]) as query,
        pytest.raises(QueryFailed, match="the log of averages is another one"),
    ):
        query.await_end(PATIENCE_SECONDS)
    assert {name: (log / name).read_bytes() for name in before} == before


def test_a_damaged_state_of_the_coordinator_is_refused(tmp_path: Path) -> None:
    """Epochs that nobody can trust would let two attempts write."""
    (tmp_path / "coordinator.json").write_text('{"epochs": []')
    with pytest.raises(rewake.RewakeError, match=r"coordinator\.json is damaged .*; bring"):
        rewake.start_processes(DRILL.build(), tmp_path)
    (tmp_path / "coordinator.json").unlink()
    rewake.start_processes(DRILL.build(), tmp_path).stop()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "query").write_text("a file")
    with pytest.raises(UsageError, match="a file is in its way"):
        rewake.start_processes(DRILL.build(), tmp_path / "query" / "state")


# --- disks -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four mebibytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room but a little."""
    ballast = folder / "ballast"
    there = os.statvfs(folder)
    ballast.write_bytes(bytes(there.f_bavail * there.f_frsize - 16_384))
    return ballast


def test_a_read_only_folder_is_refused_with_the_remedy(small_disk: Path) -> None:
    """Before anything runs; also one that would have to be made."""
    for folder in (small_disk / "there", small_disk / "new"):
        if folder.name == "there":
            folder.mkdir()
            subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        with pytest.raises(StorageFault, match="read-only"):
            rewake.start_processes(DRILL.build(), folder)


def test_a_full_log_stalls_its_node_until_there_is_room(small_disk: Path) -> None:
    """Nothing is lost, nothing dies, and the node says why it waits."""
    with rewake.start_processes(DRILL.build(), small_disk / "query") as running:
        running.await_start(PATIENCE_SECONDS)
        ballast = fill(small_disk)
        until(lambda: running.status()["averages"].get("stalled"))
        ballast.unlink()
        check(running)


def test_a_full_sink_stalls_its_node_until_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    """The sink keeps what it has, takes no more, and commits it when it can."""
    numbers = pa.table({"n": pa.array(range(200_000), pa.int64())})
    query = Query("copy")
    source = query.source("numbers", rewake.Batches(numbers, event_tuples=1_000))
    source.to(FileSink(small_disk / "files"), name="files")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(3_500_000))
    with rewake.start_processes(query, tmp_path / "query") as running:
        until(lambda: running.status()["files"].get("stalled"))
        assert not running.await_end(0.5)
        ballast.unlink()
        assert running.await_end(PATIENCE_SECONDS)
        assert running.status()["files"]["epoch"] == 1, "the node died"
    assert read_parts(small_disk / "files").column("n").to_pylist() == list(range(200_000))


def test_the_endpoint_is_its_owners_alone_and_gone_afterwards(tmp_path: Path) -> None:
    """It holds the token."""
    with rewake.start_processes(DRILL.build(), tmp_path) as running:
        path = tmp_path / "endpoint.json"
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text())["token"] == running.endpoint.token.reveal()
    assert not path.exists()
    with pytest.raises(UsageError, match="no query runs in"):
        Endpoint.of(tmp_path)
