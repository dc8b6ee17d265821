"""The coordinator's host: a folder that outlives it, and attempts that come and go over sockets."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from net_vocabulary import OTHER_TOKEN, PATIENCE_SECONDS, Recorder

from rewake.connectors.streams.ended import STREAMS_FILE
from rewake.graph.plan.plan import Plan
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.net.clients.client import ENDPOINT_FILE
from rewake.net.queries.coordinator_host import CoordinatorHost
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop
from rewake.node.messages import Failed, Find, Found, Heartbeat, Register, Stop, Superseded, Welcome

SCHEMA = pa.schema([("k", pa.int64())])


def planned(column: str = "k") -> Plan:
    query = Query("coordinated")
    query.entry("entry", pa.schema([(column, pa.int64())])).to_stream("entry")
    return query.plan()


@contextmanager
def serving(folder: Path, plan: Plan | None = None, **settings: Any) -> Iterator[CoordinatorHost]:
    """A host that runs meanwhile."""
    host = CoordinatorHost(plan or planned(), folder, **settings)
    host.start()
    try:
        yield host
    finally:
        host.close()


class Attempt:
    """An attempt of a node, as far as its coordinator can tell."""

    def __init__(self, host: CoordinatorHost, token: Token | None = None) -> None:
        self.loop, self.heard = Loop(), Recorder()
        self.line = Connection.connect(host.address, token or host.token, self.loop.now())
        self.loop.add(self.line, self.heard)

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()
        self.loop.close()

    def hears(self, kind: type) -> Any:
        """The next message of this kind; all others before it are passed over."""
        for _ in range(2_000):
            for number, message in enumerate(self.heard.messages):
                if isinstance(message, kind):
                    del self.heard.messages[: number + 1]
                    return message
            self.loop.run_once(0.02)
        pytest.fail(f"no {kind.__name__} came: {self.line.ended}")

    def registers(self) -> Welcome:
        self.line.send(Register("entry", ("127.0.0.1", 4711)))
        welcome = self.hears(Welcome)
        assert isinstance(welcome, Welcome)
        return welcome


def test_epochs_rise_over_attempts_and_over_drivers(tmp_path: Path) -> None:
    """One that somebody has heard of is never given again: it is durable before."""
    with serving(tmp_path) as host, Attempt(host) as first:
        assert first.registers().epoch == 1
        with Attempt(host) as second:
            assert second.registers().epoch == 2
    with serving(tmp_path) as host, Attempt(host) as third:
        assert third.registers().epoch == 3


def test_a_folder_that_is_deleted_meanwhile_ends_the_query_in_words(tmp_path: Path) -> None:
    """As soon as something is to be kept: which folder, and what to do."""
    folder = tmp_path / "query"
    with serving(folder) as host, Attempt(host) as first:
        first.registers()
        shutil.rmtree(folder)
        with Attempt(host) as second:
            second.line.send(Register("entry", ("127.0.0.1", 4711)))
            end = second.loop.now() + PATIENCE_SECONDS
            while not host.ended.is_set() and second.loop.now() < end:
                second.loop.run_once(0.02)
    assert re.fullmatch(
        rf"the coordinator failed: cannot keep coordinator\.json: the folder "
        rf"{folder} was deleted while it was in use; restore it from a backup, or start anew.*",
        host.error or "",
    )


def test_an_attempt_that_was_replaced_is_told_to_leave(tmp_path: Path) -> None:
    """When it says anything, and whoever has its place goes on."""
    with serving(tmp_path) as host, Attempt(host) as first, Attempt(host) as second:
        first.registers()
        second.registers()
        first.line.send(Heartbeat("entry", 1, {}))
        assert first.hears(Superseded).epoch == 2
        assert host.status()["entry"]["epoch"] == 2


def test_what_an_attempt_says_of_itself_is_in_the_status(tmp_path: Path) -> None:
    """Its progress as it is, where it listens, and that it runs."""
    with serving(tmp_path) as host, Attempt(host) as attempt:
        assert not host.status()["entry"]["running"]
        epoch = attempt.registers().epoch
        attempt.line.send(Heartbeat("entry", epoch, {"tuples_in": 17}))
        attempt.line.send(Find("entry"))
        assert isinstance(attempt.hears(Found), Found)
        status = host.status()["entry"]
        assert (status["running"], status["tuples_in"]) == (True, 17)
        assert status["address"] == ("127.0.0.1", 4711)
        assert next(each.what for each in host.history if each.node == "entry") == "registered"


def test_a_stop_reaches_every_node(tmp_path: Path) -> None:
    """With the reason."""
    with serving(tmp_path) as host, Attempt(host) as attempt:
        attempt.registers()
        host.stop("enough")
        assert attempt.hears(Stop).reason == "enough"


def test_an_error_that_would_come_again_ends_the_query(tmp_path: Path) -> None:
    """With its words, for whoever waits."""
    with serving(tmp_path) as host, Attempt(host) as attempt:
        epoch = attempt.registers().epoch
        attempt.line.send(Failed("entry", epoch, "it broke", fatal=True))
        assert host.ended.wait(40.0)
        assert host.error is not None
        assert "it broke" in host.error
        assert host.over


def test_strangers_are_not_heard(tmp_path: Path) -> None:
    """Without the token nobody registers."""
    with serving(tmp_path) as host, Attempt(host, OTHER_TOKEN) as stranger:
        for _ in range(2_000):
            if stranger.line.ended is not None:
                break
            stranger.loop.run_once(0.02)
        assert stranger.line.ended is not None
        assert host.status()["entry"]["epoch"] == 0


def test_one_driver_at_a_time_owns_a_folder(tmp_path: Path) -> None:
    """The next one may have it when the first has left, for the same query alone."""
    with serving(tmp_path) as host, Attempt(host) as attempt:
        attempt.registers()
        with pytest.raises(UsageError, match="another driver runs a query in"):
            CoordinatorHost(planned(), tmp_path)
    with pytest.raises(UsageError):
        CoordinatorHost(planned("other"), tmp_path)
    with serving(tmp_path) as host:
        assert not host.over


def test_clients_find_it_while_it_runs_and_streams_for_ever(tmp_path: Path) -> None:
    """The address goes with the driver; which output is which stream is for readers of logs."""
    with serving(tmp_path) as host:
        assert json.loads((tmp_path / ENDPOINT_FILE).read_text())
        assert host.endpoint.address == host.address
    assert not (tmp_path / ENDPOINT_FILE).exists()
    assert json.loads((tmp_path / STREAMS_FILE).read_text())["streams"] == {"entry": [["entry", 0]]}


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_an_address_that_nobody_can_connect_to_is_refused(tmp_path: Path, address: str) -> None:
    """Nodes on other machines are given it."""
    with pytest.raises(UsageError, match="nodes cannot connect to"):
        CoordinatorHost(planned(), tmp_path, host=address, allow_remote=True)
