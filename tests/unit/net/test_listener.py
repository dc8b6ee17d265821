"""Who may connect, from where, and how many strangers there are at a time."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from net_vocabulary import TOKEN, world

from rewake.model.errors import UsageError
from rewake.net.wire.addresses import is_loopback
from rewake.net.wire.listener import CannotListen, Listener, PortTaken
from rewake.node.messages import Stop


def test_a_listener_is_on_loopback_with_a_free_port_by_default() -> None:
    """Two of them never meet."""
    first, second = Listener(TOKEN), Listener(TOKEN)
    assert first.address[0] == second.address[0] == "127.0.0.1"
    assert first.address[1] != second.address[1]
    first.close()
    second.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_listening_elsewhere_must_be_said(host: str) -> None:
    """Nobody opens a door by accident."""
    with pytest.raises(UsageError, match="allow_remote=True"):
        Listener(TOKEN, host)


def test_listening_elsewhere_works_when_it_is_said() -> None:
    """For clusters."""
    listener = Listener(TOKEN, "0.0.0.0", allow_remote=True)
    with socket.create_connection(("127.0.0.1", listener.address[1])):
        pass
    listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_known_by_its_names(host: str) -> None:
    """These need no permission."""
    assert is_loopback(host)


def test_a_taken_port_is_named_with_what_to_do() -> None:
    """Not an errno."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} of 127.0.0.1 is taken.*port 0"):
            Listener(TOKEN, port=port)


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("127.0.0.1", 99_999)])
def test_an_impossible_address_is_a_typed_error(host: str, port: int) -> None:
    """192.0.2.1 is no address of any machine."""
    with pytest.raises(CannotListen, match=f"cannot listen at {host}:{port}"):
        Listener(TOKEN, host, port, allow_remote=True)


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """Room for 500 sockets with both their ends here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_five_hundred_slow_strangers_disturb_nobody(many_descriptors: int) -> None:
    """Each says one byte and waits; one of us comes before them, one in their midst, one after."""
    with world() as there, ExitStack() as strangers:
        connections = [there.joined()[1]]
        for number in range(many_descriptors):
            stranger = socket.create_connection(there.listener.address)
            strangers.enter_context(stranger)
            stranger.send(b"R")
            if number % 50 == 0:
                there.loop.run_once(0)
            if number == many_descriptors // 2:
                connections.append(there.joined()[1])
        connections.append(there.joined()[1])
        there.until(lambda: there.listener.dropped >= many_descriptors - 256)
        assert there.listener.strangers <= 256
        began = time.monotonic()
        for connection in connections:
            connection.send(Stop("hello"))
        there.until(lambda: len(there.server.messages) == 3)
        assert time.monotonic() - began < 5.0
        assert there.server.ended == []


def test_a_stranger_makes_room_for_a_new_one() -> None:
    """Else a few silent sockets would keep everybody out until their deadline."""
    with world(strangers=2) as there, ExitStack() as stack:
        strangers = []
        for _ in range(3):
            strangers.append(stack.enter_context(socket.create_connection(there.listener.address)))
            there.until(lambda: there.listener.strangers + there.listener.dropped == len(strangers))
        assert there.listener.dropped == 1
        hung_up = []
        for stranger in strangers:
            stranger.settimeout(20.0)
            assert len(stranger.recv(100)) == 52
            stranger.setblocking(False)
            with suppress(BlockingIOError):
                hung_up.append(stranger.recv(100))
        assert hung_up == [b""]
        assert there.server.ended == []


def test_a_stranger_is_dropped_at_its_deadline() -> None:
    """Five seconds, which the clock of this test skips."""
    with world() as there, socket.create_connection(there.listener.address) as stranger:
        there.until(lambda: there.listener.strangers == 1)
        clock = there.loop.now
        there.loop.now = lambda: clock() + 5.1
        there.until(lambda: there.listener.strangers == 0)
        stranger.settimeout(20.0)
        assert len(stranger.recv(100)) == 52
        assert stranger.recv(100) == b""


def test_a_process_without_descriptors_goes_on_and_accepts_later() -> None:
    """The listener rests instead of spinning or failing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with world() as there, ExitStack() as stack:
        _, good = there.joined()
        waiting = stack.enter_context(socket.socket())
        try:
            # The next descriptor is the first that is over the limit.
            resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
            waiting.connect(there.listener.address)
            there.until(lambda: there.listener.exhausted)
            good.send(Stop("served meanwhile"))
            there.until(lambda: there.server.messages)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        there.until(lambda: there.listener.strangers == 1)
