"""Honest peers get in while programs that know no token flood every port we listen at."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from net_vocabulary import TOKEN, Recorder, frame_of, world
from shard_vocabulary import executors

import rewake
from rewake.drill.queries import ItemDrill
from rewake.model.errors import OperatingFault
from rewake.net.clients.client import Endpoint, Subscription, subscribe
from rewake.net.wire.authentication import Handshake
from rewake.net.wire.connection import Connection, Unanswered
from rewake.net.wire.doorway import Doorway
from rewake.net.wire.loop import Loop
from rewake.node.messages import Find, Stop

PATIENCE_SECONDS = 40.0
FLOOD = Path(__file__).with_name("flood_child.py")
# For minutes: a query that ends meanwhile, on a busy machine, would have no nodes left to reach.
LASTING = ItemDrill(tuples=4_000_000, items=400, event_tuples=1_000, rate=10_000)


def until(happened: Callable[[], object]) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextmanager
def flood(address: tuple[str, int], said: str = "", held: int = 6_000) -> Iterator[None]:
    """Two programs that connect as fast as they can; they end with the block."""
    host, port = address
    command = [sys.executable, str(FLOOD), host, str(port), str(held), said]
    pipe = subprocess.PIPE
    floods = [subprocess.Popen(command, stdin=pipe, stdout=pipe) for _ in range(2)]
    try:
        for each in floods:
            assert each.stdout is not None
            assert each.stdout.readline() == b"flooding\n"
        yield
        assert [each.poll() for each in floods] == [None, None], "the flood had ended before"
    finally:
        for each in floods:
            each.communicate()


# --- the doorway ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drawn", range(4))
def test_a_full_doorway_drops_one_by_lot(drawn: int) -> None:
    """Each with the same chance: neither age nor youth is a way to stay."""
    doorway = Doorway[str](4, lambda _stranger: True, lambda below: min(drawn, below - 1))
    standing = ["a", "b", "c", "d"]
    assert [doorway.admit(each) for each in standing] == [None] * 4
    assert doorway.admit("e") == standing[drawn]
    assert (len(doorway), doorway.dropped) == (4, 1)


@pytest.mark.parametrize("lot", range(3))
def test_nobody_is_dropped_while_a_place_is_held_by_one_who_is_a_stranger_no_more(lot: int) -> None:
    """And such a one is never dropped: neither for a newcomer nor for want of room."""
    strangers = {"a", "b", "c"}
    doorway = Doorway[str](3, strangers.__contains__, lambda below: min(lot, below - 1))
    for each in ("a", "b", "c"):
        doorway.admit(each)
    strangers -= {"a", "c"}
    strangers.add("d")
    assert doorway.admit("d") is None, "there is a place that nobody needs"
    assert {doorway.drop(), doorway.drop()} == {"b", "d"}
    assert doorway.drop() is None


@given(seed=st.integers(0, 2**32), places=st.integers(2, 64))
def test_an_honest_peer_gets_in_however_many_come(seed: int, places: int) -> None:
    """It comes again when it was dropped; each time it needs twice as many arrivals as places.

    Were the oldest dropped, it never would.  By lot it stays with probability
    (1 - 1/places)^(2 places), a sixteenth or more.
    """
    lot = Random(seed)
    doorway = Doorway[int](places, lambda _stranger: True, lot.randrange)
    for stranger in range(places):
        doorway.admit(stranger)
    for attempt in range(400):
        honest = -1 - attempt
        doorway.admit(honest)
        if all(doorway.admit(stranger) != honest for stranger in range(2 * places)):
            return
    pytest.fail("it was dropped four hundred times")


# --- one door ------------------------------------------------------------------------------------


def test_who_has_answered_is_let_in_before_anybody_else_comes() -> None:
    """A burst of newcomers cannot push out a peer whose proof has arrived."""
    with world(strangers=8) as there, ExitStack() as stack:
        honest = stack.enter_context(socket.create_connection(there.listener.address))
        there.until(lambda: there.listener.strangers == 1)
        handshake = Handshake(TOKEN, bytes(32), "the listener", accepting=False)
        for _ in range(100):
            stack.enter_context(socket.create_connection(there.listener.address))
        honest.sendall(handshake.receive(frame_of(honest.recv(100))))
        there.until(lambda: there.listener.dropped)
        assert len(there.server.connections) == 1


def test_known_peers_are_served_between_bursts_of_strangers() -> None:
    """The loop takes a bounded number of strangers at a time, however many wait."""
    with world(strangers=8) as there, ExitStack() as stack:
        _, known = there.joined()
        for _ in range(200):
            stack.enter_context(socket.create_connection(there.listener.address))
        known.send(Stop("hello"))
        there.until(lambda: there.server.messages)
        assert there.listener.dropped < 100


# --- who asks ------------------------------------------------------------------------------------


def test_who_gets_no_answer_asks_anew_and_ever_later() -> None:
    """A full queue of the system answers nothing; one that has answered is left alone."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        address = full.getsockname()[:2]
        taken = stack.enter_context(socket.create_connection(address))
        asking = Connection.connect(address, TOKEN, 0.0)
        stack.callback(asking.close)
        unanswered = Unanswered(0.0)
        asked = [tenth for tenth in range(20) if unanswered.is_late(asking, tenth / 10)]
        assert asked == [2, 5, 10, 19]
        taken.close()
        asking.close()
        assert not unanswered.is_late(asking, 100.0)


def test_a_client_whom_nobody_says_a_word_to_asks_again() -> None:
    """In a flood its turn may not come for as long as an attempt lasts."""
    with socket.create_server(("127.0.0.1", 0)) as door, ThreadPoolExecutor() as pool:
        door.settimeout(PATIENCE_SECONDS)

        def hang_up_on_the_second() -> None:
            with door.accept()[0], door.accept()[0]:
                door.close()

        closed = pool.submit(hang_up_on_the_second)
        endpoint = Endpoint(door.getsockname()[:2], TOKEN)
        with (
            Subscription(endpoint, "averages", pa.schema([])) as subscription,
            pytest.raises(OperatingFault, match="averages"),
        ):
            subscription.read(PATIENCE_SECONDS)
        assert closed.result() is None


# --- whole queries -------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["", "RWKN"], ids=["silent", "slow"])
def test_a_killed_node_comes_back_while_the_coordinator_is_flooded(
    tmp_path: Path, said: str
) -> None:
    """It registers, and a client finds it and reads from it, before the flood is over."""
    with rewake.start_processes(LASTING.build(), tmp_path) as running:
        running.await_start(PATIENCE_SECONDS)
        with flood(running.endpoint.address, said):
            running.signal_node("averages")
            until(lambda: running.status()["averages"]["epoch"] > 1)
            until(lambda: "averages" in running.running)
            with subscribe(tmp_path, "averages") as subscription:
                assert subscription.read(PATIENCE_SECONDS) is not None


def test_a_client_reaches_a_node_that_is_flooded(tmp_path: Path) -> None:
    """The port of a node is as open as the coordinator's."""
    with rewake.start_processes(LASTING.build(), tmp_path) as running:
        running.await_start(PATIENCE_SECONDS)
        with (
            flood(address_of(running.endpoint, "averages")),
            subscribe(tmp_path, "averages") as subscription,
        ):
            assert subscription.read(PATIENCE_SECONDS) is not None


def address_of(endpoint: Endpoint, stream: str) -> tuple[str, int]:
    """Where the node behind a stream listens."""
    loop, asking = Loop(), Recorder()
    connection = Connection.connect(endpoint.address, endpoint.token, loop.now())
    connection.send(Find(stream))
    loop.add(connection, asking)
    until(lambda: loop.run_once(0.01) or asking.messages)
    loop.close()
    _, _, host, port, *_ = asking.messages[0].places[0]
    return host, port


def test_a_task_reaches_its_shard_while_the_host_is_flooded(tmp_path: Path) -> None:
    """The owner keeps its shard: nobody has to take it over."""
    with executors(tmp_path) as (one,):
        one.ask(tmp_path, 0, [(1, 10)])
        (path,) = (tmp_path / "hosts").glob("*.json")
        host, port = json.loads(path.read_text())["address"]
        before = one.host(tmp_path)
        with flood((host, port)):
            assert one.ask(tmp_path, 1, [(1, 20)]) == [(1, 30)]
        assert one.host(tmp_path) == before
