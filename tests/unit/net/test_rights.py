"""Who may say what: nodes everything, clients only what reads and produces; and who may be killed.

A client's token is derived from the query's; the query's own cannot be had from it.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from net_vocabulary import SAMPLES, TOKEN, Recorder

import rewake
from rewake.drill.queries import ItemDrill
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.net.clients.client import Endpoint
from rewake.net.nodes.task import ServerTask
from rewake.net.queries.running import RunningQuery
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop
from rewake.node.messages import Find, Found, Heartbeat, Refused, Register, Subscribe
from rewake.node.rights import Right, refusal

PATIENCE_SECONDS = 40.0
ALLOWED_TO_CLIENTS = {"Find", "Subscribe", "Ack", "Produce", "Packet", "Peek"}
READER = Subscribe("averages", 0, "a reader", 0, 0)
AS_A_NODE = Subscribe("averages", 0, "averages", 3, 0)


def until(happened: Callable[[], object]) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Peer:
    """Somebody with a token."""

    def __init__(self, address: tuple[str, int], token: Token) -> None:
        self.loop, self.heard = Loop(), Recorder()
        self.connection = Connection.connect(address, token, self.loop.now())
        self.loop.add(self.connection, self.heard)

    def says(self, message: Any) -> "Peer":
        self.connection.send(message)
        return self

    def hears(self, kind: type) -> Any:
        until(lambda: self.loop.run_once(0.01) or self.heard.messages or self.heard.ended)
        assert self.heard.messages, self.connection.ended
        message = self.heard.messages[0]
        assert isinstance(message, kind), message
        return message

    def is_cut_off(self) -> bool:
        until(lambda: self.loop.run_once(0.01) or self.connection.closed)
        return self.connection.closed

    def close(self) -> None:
        self.loop.close()


# --- the rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", SAMPLES, ids=lambda each: type(each).__name__)
def test_a_client_may_read_and_produce_and_nothing_else(message: Any) -> None:
    """Every message there is; a node may say them all."""
    allowed = type(message).__name__ in ALLOWED_TO_CLIENTS and getattr(message, "epoch", 0) == 0
    assert refusal(Right.NODE, message) is None
    assert (refusal(Right.CLIENT, message) is None) == allowed


def test_a_client_cannot_pass_for_a_node_that_reads() -> None:
    """Who subscribes with an epoch takes the place of a node, and holds its upstream's log."""
    assert refusal(Right.CLIENT, READER) is None
    assert "as a node" in str(refusal(Right.CLIENT, AS_A_NODE))


def test_a_clients_token_does_not_show_the_querys() -> None:
    """It is derived one way, and the same each time."""
    mine = TOKEN.for_clients()
    assert mine == TOKEN.for_clients() != TOKEN
    assert mine.for_clients() != mine
    assert TOKEN.reveal()[:16] not in mine.reveal()


# --- on a running query --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQuery]:
    """A query that goes on for as long as it is looked at."""
    drill = ItemDrill(tuples=10_000_000, items=400, event_tuples=100, rate=1_000)
    folder = tmp_path_factory.mktemp("rights")
    with rewake.start_processes(drill.build(), folder) as query:
        query.await_start(PATIENCE_SECONDS)
        yield query


@pytest.fixture(params=["coordinator", "node"])
def door(request: pytest.FixtureRequest, running: RunningQuery) -> tuple[str, int]:
    """Where the coordinator or a node listens."""
    endpoint = running.endpoint
    if request.param == "coordinator":
        return endpoint.address
    asking = Peer(endpoint.address, endpoint.token).says(Find("averages"))
    _, _, host, port, *_ = asking.hears(Found).places[0]
    asking.close()
    return host, port


def test_the_endpoint_has_a_clients_token(running: RunningQuery) -> None:
    """Whoever can read the file can read and produce, and cannot run the query."""
    said = json.loads((running.folder / "endpoint.json").read_text())
    assert Token.from_text(said["token"]) == running.endpoint.token
    assert Endpoint.of(running.folder) == running.endpoint


@pytest.mark.parametrize(
    "message",
    [each for each in SAMPLES if type(each).__name__ not in ALLOWED_TO_CLIENTS] + [AS_A_NODE],
    ids=lambda each: type(each).__name__,
)
def test_what_a_client_may_not_say_is_refused_in_words(
    running: RunningQuery, door: tuple[str, int], message: Any
) -> None:
    """The connection ends, and the query goes on as if nothing had been said."""
    hostile = Peer(door, running.endpoint.token).says(message)
    assert "may not" in hostile.hears(Refused).reason
    assert hostile.is_cut_off()
    hostile.close()
    assert {each["epoch"] for each in running.status().values()} == {1}
    assert running.active
    assert "sum#0" not in running.status()


# --- who may be killed ---------------------------------------------------------------------------


class Nobody:
    """A launcher that starts nothing, and remembers what it was to start."""

    def __init__(self) -> None:
        self.tasks: list[ServerTask] = []

    def start(self, tasks: Sequence[ServerTask], _failed: Callable[[str], None]) -> None:
        self.tasks = list(tasks)

    def stop(self) -> None:
        """Nothing runs."""


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any query."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_a_message_names_is_not_killed(
    tmp_path: Path, innocent: subprocess.Popen[bytes]
) -> None:
    """Not even a node's token makes somebody else's process ours: it lives."""
    query, launcher = Query("small"), Nobody()
    query.entry("entry", pa.schema([("k", pa.int64())])).to_stream("entry")
    with RunningQuery(query.plan(), tmp_path, launcher) as running:
        task = launcher.tasks[0]
        hostile = Peer(task.coordinator, Token.from_text(task.token))
        me = ("127.0.0.1", 9)
        hostile.says(Register("entry", me, innocent.pid, socket.gethostname()))
        until(lambda: hostile.loop.run_once(0.01) or running.running)
        # Alive once, and from then on silent.
        hostile.says(Heartbeat("entry", 1, {"recovering": False}))
        with pytest.raises(UsageError, match="'entry' is not a process of this machine"):
            running.signal_node("entry", signal.SIGTERM)
        until(lambda: any(each.what == "silent" for each in running.history))
        until(lambda: not running.running)
        assert innocent.poll() is None
        hostile.close()
