"""An attempt of a node on its server, before and after it is open: what it hears and holds."""

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from net_vocabulary import TOKEN, Building, World, world

sys.path.insert(0, str(Path(__file__).parents[2] / "drill"))

from mirrored import Mirrored

from rewake.graph.plan.plan import NodePlan
from rewake.graph.query import Query
from rewake.model.errors import GaveUp, OperatingFault, Unavailable
from rewake.net.nodes.host import NodeHost
from rewake.net.nodes.share import Share
from rewake.net.nodes.task import NodeTask, ServerTask
from rewake.net.servers.server import run_server
from rewake.node.channels.lane import lane
from rewake.node.messages import Failed, Follow, Heartbeat, Peer, Refused, Register, Stop, Welcome
from rewake.operators.windows.specs import count_window

SCHEMA = pa.schema([("k", pa.int64())])


class Caller:
    """Another place, on a lane to the node."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        _, self.line = lane(lambda call: call(), self, self)

    def received(self, _line: Any, messages: list[Any]) -> None:
        self.said += messages

    def closed(self, _line: Any) -> None:
        """It was turned away."""


class Aloof:
    """A sink that opens and does not say how far it is; and a source of nothing."""

    schema = SCHEMA

    def __init__(self, answer: Unavailable | None = None, *, broken: bool = False) -> None:
        self.opened = self.closed = 0
        self._answer = answer or Unavailable("the sink does not answer")
        self._broken = broken

    def open(self, _shard: int, _shards: int, _schema: Any = None) -> "Aloof":
        self.opened += 1
        return self

    def position(self, _channel: int) -> int:
        raise self._answer

    def close(self) -> None:
        self.closed += 1
        if self._broken:
            raise OperatingFault("the disk is gone")


def planned(name: str = "counts", **approach: Any) -> NodePlan:
    """Counts of what comes from an entry."""
    query = Query("q")
    entry = query.entry("entry", SCHEMA)
    counts = entry.aggregate(by="k", window=count_window(2), count=True, name="counts", **approach)
    counts.to_stream("c") if not approach else counts.filter("k >= 0", name="f").to_stream("c")
    return query.plan().node(name)


def waiting(name: str, sink: Aloof, source: Aloof) -> NodePlan:
    """A node with a log that cannot begin, because its sink does not answer."""
    plan = planned("entry")
    inputs = (replace(plan.inputs[0], source=source),)
    return replace(plan, name=name, sink=sink, inputs=inputs)


def task(folder: Path, plan: NodePlan) -> NodeTask:
    return NodeTask(plan, str(folder), "f", "", ("127.0.0.1", 1), TOKEN.reveal())


@pytest.fixture
def outside() -> Iterator[World]:
    """Other servers."""
    with world() as made:
        yield made


def hosted(folder: Path, outside: World, plan: NodePlan) -> tuple[NodeHost, Building]:
    building = Building(outside.loop)
    return NodeHost(task(folder, plan), Share(building)), building


def test_a_place_that_is_lost_while_the_node_is_not_open_is_not_heard(
    tmp_path: Path, outside: World
) -> None:
    """Before its promotion is known here, or while it opens; the line may have come already."""
    host, building = hosted(tmp_path, outside, planned(approach=Mirrored()))
    host.welcomed(Welcome("counts", 1, standby=True))
    host.place_lost(1, 2)
    host.welcomed(Welcome("counts", 5))
    assert host.step()
    assert building.open == ["counts"]
    dead, alive = Caller(), Caller()
    host.admit(dead.line, [Follow("counts", 1, 2)])
    host.admit(alive.line, [Follow("counts", 1, 6)])
    assert [each.fenced for each in dead.said if isinstance(each, Refused)] == [True]
    assert not any(isinstance(each, Refused) for each in alive.said)
    host.leave()


def test_an_upstream_that_is_lost_while_the_node_opens_is_not_asked(
    tmp_path: Path, outside: World
) -> None:
    """It waits for word of the next one."""
    host, _ = hosted(tmp_path, outside, planned())
    host.welcomed(Welcome("counts", 1, {"entry": Peer(outside.listener.address, 1)}))
    host.moved("entry", None)
    assert host.step()
    outside.rounds()
    assert outside.server.connections == []
    host.moved("entry", Peer(outside.listener.address, 2))
    outside.until(lambda: outside.server.connections)
    host.leave()


def test_what_was_opened_is_closed_when_the_server_leaves_before_the_node_is_open(
    tmp_path: Path, outside: World
) -> None:
    """Its process may be used again: nobody writes the log, and nobody holds the sink."""
    sink, source = Aloof(), Aloof()
    plan = waiting("entry", sink, source)
    threads = set(threading.enumerate())
    host, building = hosted(tmp_path, outside, plan)
    host.welcomed(Welcome("entry", 1))
    assert not host.step()
    assert building.told == [Heartbeat("entry", 1, building.told[0].progress)]
    assert (sink.opened, source.opened) == (1, 1)
    assert set(threading.enumerate()) > threads, "the log has no writer"
    host.leave()
    assert (sink.closed, source.closed) == (1, 1)
    assert set(threading.enumerate()) == threads


def test_a_sink_that_stays_away_is_given_up_however_often_it_is_asked(
    tmp_path: Path, outside: World
) -> None:
    """Each look at it begins anew; its patience counts from the first one that was in vain."""
    sink = Aloof(Unavailable("no such file", 60.0, GaveUp("no such file; given up after 60 s")))
    host, _ = hosted(tmp_path, outside, waiting("entry", sink, Aloof()))
    host.welcomed(Welcome("entry", 1))
    for now in (0.0, 20.0, 40.0, 60.0):
        host.share.now = lambda now=now: now  # type: ignore[misc]
        assert not host.step()
    host.share.now = lambda: 61.0
    with pytest.raises(GaveUp, match="given up after 60 s"):
        host.step()
    host.leave()


def test_an_open_node_that_has_left_gives_no_more_signs_of_life(
    tmp_path: Path, outside: World
) -> None:
    """The server may still wait for the coordinator to hear its last word."""
    host, building = hosted(tmp_path, outside, planned())
    host.welcomed(Welcome("counts", 1))
    assert host.step()
    host.leave()
    said = len(building.told)
    end = outside.loop.now() + 0.3
    while outside.loop.now() < end:
        outside.loop.run_once(0.05)
    assert len(building.told) == said


class Broken(Mirrored):
    """Cannot stand by."""

    def stand_by(self, make: Any, emit: Any) -> Any:  # noqa: ARG002
        raise OperatingFault("no memory to stand by")


class Run:
    """A server of these nodes in a thread; `outside` is its coordinator."""

    def __init__(self, folder: Path, outside: World, *plans: NodePlan) -> None:
        tasks = [task(folder, each) for each in plans]
        there = outside.listener.address
        self._task = ServerTask("s", tuple(replace(each, coordinator=there) for each in tasks))
        self._outside = outside
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.hears(Register, len(plans))

    def _run(self) -> None:
        try:
            run_server(self._task)
        except OperatingFault as error:
            self._error = error

    def hears(self, kind: type, number: int = 1) -> list[Any]:
        """So many nodes have said something of this kind."""

        def heard() -> dict[str, Any]:
            said = self._outside.server.messages
            return {each.node: each for each in said if isinstance(each, kind)}

        self._outside.until(lambda: len(heard()) >= number)
        return list(heard().values())

    def tell(self, *messages: Any) -> None:
        for each in messages:
            self._outside.server.connections[0].send(each)

    def ends(self) -> str:
        """What it ended with."""
        self._outside.until(lambda: not self._thread.is_alive())
        return str(self._error)


def test_what_fails_when_a_node_is_welcomed_is_that_nodes_doing(
    tmp_path: Path, outside: World
) -> None:
    """Not of the first that its server happens to host."""
    broken = replace(planned(approach=Mirrored()), approach=object.__new__(Broken))
    run = Run(tmp_path, outside, planned("entry"), broken)
    run.tell(Welcome("counts", 3, standby=True))
    assert run.hears(Failed) == [Failed("counts", 3, "no memory to stand by", fatal=False)]
    assert run.ends() == "no memory to stand by"


def test_one_node_that_cannot_leave_does_not_keep_the_others_from_it(
    tmp_path: Path, outside: World
) -> None:
    """What they have open is closed all the same, and the error is told."""
    sinks = Aloof(broken=True), Aloof()
    plans = [waiting(name, sink, Aloof()) for name, sink in zip("ab", sinks, strict=True)]
    run = Run(tmp_path, outside, *plans)
    run.tell(Welcome("a", 1), Welcome("b", 1))
    run.hears(Heartbeat, 2)
    run.tell(Stop("enough"))
    assert run.hears(Failed) == [Failed("a", 1, "the disk is gone", fatal=False)]
    assert run.ends() == "the disk is gone"
    assert [each.closed for each in sinks] == [1, 1]
