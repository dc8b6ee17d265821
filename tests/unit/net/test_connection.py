"""Messages over real sockets: whole, in order, both ways, and ends that are told."""

import os
import socket
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from net_vocabulary import SAMPLES, TOKEN, Recorder, World, world

from rewake.model.errors import UsageError
from rewake.net.wire.codec import AUTHENTICATED, Message
from rewake.net.wire.connection import Connection, prepare
from rewake.node.messages import Ack, Packet, Refused, Stop


def packets(sizes: list[int], seed: int) -> list[Packet]:
    """Packets with bytes that no other has."""
    random = np.random.default_rng(seed)
    return [Packet(at, at + 1, 1, None, random.bytes(size)) for at, size in enumerate(sizes)]


def same(found: list[Message], sent: list[Message]) -> bool:
    """Whether the messages are equal, bytes included."""
    return found == sent


def test_messages_arrive_in_order_both_ways() -> None:
    """Also those that were sent before the connection was authenticated."""
    with world() as there:
        client = Recorder()
        connection = there.connect(client)
        for message in SAMPLES:
            connection.send(message)
        there.until(lambda: there.server.connections)
        for message in SAMPLES:
            there.server.connections[0].send(message)
        there.until(lambda: len(there.server.messages) == len(client.messages) == len(SAMPLES))
        assert same(there.server.messages, list(SAMPLES))
        assert same(client.messages, list(SAMPLES))
        assert there.server.ended == client.ended == []


@settings(max_examples=15)
@given(
    up=st.lists(st.integers(1, 3_000_000), max_size=6),
    down=st.lists(st.integers(1, 3_000_000), max_size=6),
    seed=st.integers(0, 1000),
)
def test_large_packets_are_intact_both_ways_at_once(
    up: list[int], down: list[int], seed: int
) -> None:
    """Neither end may wait for the other to read first."""
    sent, answered = packets(up, seed), packets(down, seed + 1)
    with world() as there:
        client, connection = there.joined()
        for packet in sent:
            connection.send(packet)
        for packet in answered:
            there.server.connections[0].send(packet)
        there.until(
            lambda: (
                len(there.server.messages) == len(sent) and len(client.messages) == len(answered)
            )
        )
        assert same(there.server.messages, sent)
        assert same(client.messages, answered)
        assert connection.queued_bytes == 0
        assert not connection.wants_write


def test_thousands_of_small_messages_arrive_in_order() -> None:
    """Many of them come with one call, cut anywhere."""
    with world() as there:
        _, connection = there.joined()
        sent = [Ack(number, 0) for number in range(20_000)]
        for message in sent:
            connection.send(message)
        there.until(lambda: len(there.server.messages) == len(sent))
        assert same(there.server.messages, sent)


def test_a_peer_that_does_not_read_blocks_nobody() -> None:
    """What it does not take is queued; others are served meanwhile."""
    with world() as there:
        sleeping = socket.create_connection(there.listener.address)
        _, connection = there.joined()
        there.joined_and_asleep()  # nobody reads what is sent to it
        full = there.server.connections[1]
        for packet in packets([4_000_000] * 8, 0):
            full.send(packet)
        assert full.queued_bytes > 0
        assert full.wants_write
        connection.send(Stop("I am here"))
        there.until(lambda: there.server.messages)
        sleeping.close()


# --- ends ----------------------------------------------------------------------------------------


def test_a_peer_that_hangs_up_is_told_once_after_its_last_message() -> None:
    """Nothing that it said before is lost."""
    with world() as there:
        _, connection = there.joined()
        connection.send(Stop("goodbye"))
        connection.close()
        connection.close()
        there.until(lambda: there.server.ended)
        there.rounds()
        assert there.server.messages == [Stop("goodbye")]
        assert "hung up" in str(there.server.ended[0].ended)
        assert there.server.ended[0].fault is None


def test_who_closes_is_not_told() -> None:
    """It knows."""
    with world() as there:
        client, connection = there.joined()
        connection.close()
        there.until(lambda: there.server.ended)
        assert client.ended == []
        connection.send(Stop("too late"))
        assert connection.queued_bytes == 0


def test_a_peer_that_is_killed_in_the_middle_of_a_message_is_an_end_not_an_error() -> None:
    """As SIGKILL does it: the kernel resets the connection."""
    with world() as there:
        _, connection = there.joined()
        accepted = there.server.connections[0]
        for packet in packets([4_000_000] * 8, 0):
            connection.send(packet)
        assert connection.queued_bytes
        with socket_of(connection) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        there.until(lambda: there.server.ended == [accepted])
        assert accepted.fault is None
        assert "in the middle of a message" in str(accepted.ended) or "lost" in str(accepted.ended)


def test_finishing_lets_the_peer_read_what_was_said_last() -> None:
    """A refusal that is lost would look like a crash."""
    with world() as there:
        client, connection = there.joined()
        # Unread input at a close makes the kernel throw away what was sent.
        for packet in packets([100_000] * 10, 1):
            connection.send(packet)
        accepted = there.server.connections[0]
        accepted.send(Packet(0, 1, 1, None, bytes(3_000_000)))
        accepted.send(Refused("no such output"))
        accepted.finish(there.loop.now())
        accepted.send(Stop("dropped"))
        there.until(lambda: client.ended)
        assert client.messages[-1] == Refused("no such output")
        there.until(lambda: accepted.closed)
        assert there.server.ended == []


def test_a_peer_that_does_not_go_is_closed_at_the_deadline() -> None:
    """Finishing takes seconds at most."""
    with world() as there:
        there.joined_and_asleep()
        accepted = there.server.connections[0]
        accepted.finish(there.loop.now() - 100.0)
        there.until(lambda: accepted.closed)
        assert there.server.ended == []


def test_connecting_to_nobody_ends_with_the_reason() -> None:
    """The loop tells it like any other end."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = unused.getsockname()
        with world() as there:
            client = Recorder()
            there.loop.add(Connection.connect(address, TOKEN, there.loop.now()), client)
            there.until(lambda: client.ended)
            assert f"cannot connect to 127.0.0.1:{address[1]}" in str(client.ended[0].ended)
            assert "refused" in str(client.ended[0].ended)


@pytest.mark.parametrize("address", [("no such host.", 1), ("127.0.0.1", 99_999), ("", 0)])
def test_an_impossible_address_ends_with_the_reason(address: tuple[str, int]) -> None:
    """Not with an exception."""
    with world() as there:
        client = Recorder()
        there.loop.add(Connection.connect(address, TOKEN, there.loop.now()), client)
        there.until(lambda: client.ended)
        assert "cannot connect" in str(client.ended[0].ended)


def test_a_silent_acceptor_is_left_at_the_deadline() -> None:
    """Somebody listens there and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent, world() as there:
        client = Recorder()
        connection = Connection.connect(silent.getsockname(), TOKEN, there.loop.now() - 4.9)
        there.loop.add(connection, client)
        there.until(lambda: client.ended)
        assert "did not authenticate within 5 s" in str(connection.ended)


def test_garbage_after_authentication_ends_that_connection_alone() -> None:
    """With the error that says what was received and from whom."""
    with world() as there:
        _, good = there.joined()
        _, bad = there.joined()
        os.write(bad.fileno(), b"garbage")
        there.until(lambda: there.server.ended)
        assert str(there.server.ended[0].fault).startswith("127.0.0.1:")
        good.send(Stop("still here"))
        there.until(lambda: there.server.messages == [Stop("still here")])


def test_a_packet_over_the_receivers_limit_ends_the_connection() -> None:
    """Limits can be set; nothing is allocated for what is over them."""
    with world(limits=AUTHENTICATED._replace(payload_bytes=1000)) as there:
        _, connection = there.joined()
        connection.send(Packet(0, 1, 1, None, bytes(1001)))
        there.until(lambda: there.server.ended)
        assert "the limit is 1000" in str(there.server.ended[0].fault)


def test_what_cannot_be_sent_is_the_callers_error_also_before_authentication() -> None:
    """And the connection goes on."""
    with world() as there:
        small = AUTHENTICATED._replace(payload_bytes=10)
        connection = Connection.connect(
            there.listener.address, TOKEN, there.loop.now(), limits=small
        )
        there.loop.add(connection, Recorder())
        with pytest.raises(UsageError):
            connection.send(Packet(0, 1, 1, None, bytes(11)))
        connection.send(Stop("fine"))
        there.until(lambda: there.server.messages == [Stop("fine")])


def test_the_world_shows_nothing_secret() -> None:
    """A connection's repr is for logs."""
    with world() as there:
        _, connection = there.joined()
        assert "open" in repr(connection)
        assert TOKEN.reveal()[:8] not in repr(connection)
        assert isinstance(there, World)


def socket_of(connection: Connection) -> socket.socket:
    """The connection's own socket once more, to set or ask what the kernel knows of it."""
    return socket.socket(fileno=os.dup(connection.fileno()))


def _congestion_control(connection: Connection) -> bytes:
    with socket_of(connection) as same:
        option = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return option.rstrip(b"\0")


def test_within_a_machine_nothing_is_paced_whatever_the_system_is_set_to() -> None:
    """BBR holds bytes back by timers; both ends of a connection are told not to."""
    with world() as there:
        _, connection = there.joined()
        ends = [connection, there.server.connections[0]]
        assert [_congestion_control(each) for each in ends] == [b"reno", b"reno"]


def test_towards_other_machines_the_systems_choice_stays() -> None:
    with socket.socket() as untouched, socket.socket() as prepared:
        prepare(prepared, "192.0.2.1")
        option = socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16
        assert prepared.getsockopt(*option) == untouched.getsockopt(*option)
