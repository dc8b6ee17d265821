"""Both ends prove that they know the token; strangers get nothing."""

import pickle
import socket
from collections.abc import Iterator

import pytest
from net_vocabulary import OTHER_TOKEN, TOKEN, Recorder, World, as_bytes, frame_of, world

from rewake.model.errors import BadPeer, UsageError
from rewake.net.wire.authentication import Handshake, Token
from rewake.net.wire.codec import Frame, Kind, encode_frame
from rewake.node.messages import Stop


def conversation(acceptor: Handshake, connector: Handshake) -> Iterator[bytes]:
    """What the two say until both are done."""
    challenge = acceptor.begin()
    yield challenge
    response = connector.receive(frame_of(challenge))
    yield response
    confirmation = acceptor.receive(frame_of(response))
    yield confirmation
    assert connector.receive(frame_of(confirmation)) == b""


def handshake(number: int, *, accepting: bool, token: Token = TOKEN) -> Handshake:
    return Handshake(token, bytes([number]) * 32, "a peer", accepting=accepting)


def test_two_ends_with_the_same_token_accept_each_other() -> None:
    """And the token is in nothing that they say."""
    acceptor, connector = handshake(1, accepting=True), handshake(2, accepting=False)
    said = list(conversation(acceptor, connector))
    assert acceptor.done
    assert connector.done
    assert bytes.fromhex(TOKEN.reveal()) not in b"".join(said)


def test_an_acceptor_refuses_a_connector_with_another_token() -> None:
    """And it proves nothing to it."""
    acceptor = handshake(1, accepting=True)
    connector = handshake(2, accepting=False, token=OTHER_TOKEN)
    with pytest.raises(BadPeer, match="not made with this query's token"):
        list(conversation(acceptor, connector))
    assert not acceptor.done


def test_a_connector_refuses_an_acceptor_that_does_not_know_the_token() -> None:
    """A program that took over the port cannot pose as ours."""
    connector = handshake(2, accepting=False)
    connector.receive(frame_of(handshake(1, accepting=True).begin()))
    forged = encode_frame(Kind.CONFIRMATION, bytes(32))
    with pytest.raises(BadPeer, match="not made with"):
        connector.receive(frame_of(forged))
    assert not connector.done


def test_a_recorded_response_is_worthless_later() -> None:
    """It answers a nonce that no other connection has."""
    recorded = list(conversation(handshake(1, accepting=True), handshake(2, accepting=False)))
    later = handshake(3, accepting=True)
    with pytest.raises(BadPeer):
        later.receive(frame_of(recorded[1]))


def test_a_proof_cannot_be_sent_back_to_its_maker() -> None:
    """The two roles prove different things, or a stranger could let us answer ourselves."""
    acceptor, connector = handshake(1, accepting=True), handshake(2, accepting=False)
    response = connector.receive(frame_of(acceptor.begin()))
    reflected = encode_frame(Kind.CONFIRMATION, frame_of(response).header[32:])
    with pytest.raises(BadPeer):
        connector.receive(frame_of(reflected))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 63, 65, 4096])
@pytest.mark.parametrize("kind", [Kind.CHALLENGE, Kind.RESPONSE, Kind.CONFIRMATION])
def test_a_proof_of_another_size_or_out_of_turn_is_refused(kind: Kind, size: int) -> None:
    """Truncated or padded, it is no proof."""
    with pytest.raises(BadPeer):
        handshake(1, accepting=True).receive(Frame(kind, 0, bytes(size)))


def test_a_token_is_shown_only_on_request() -> None:
    """Not in logs, errors or debuggers' listings."""
    secret = TOKEN.reveal()
    assert secret not in repr(TOKEN)
    assert secret not in str([TOKEN])
    assert Token.from_text(f" {secret}\n") == TOKEN
    assert TOKEN != OTHER_TOKEN
    assert pickle.loads(pickle.dumps(TOKEN)) == TOKEN
    with pytest.raises(UsageError, match="64 hexadecimal digits") as caught:
        Token.from_text(secret[:-2])
    assert secret[:20] not in str(caught.value)
    assert caught.value.__cause__ is None


# --- on real sockets -----------------------------------------------------------------------------


def hung_up(there: World, client: socket.socket) -> bytes:
    """Run until the other end hangs up; what it said."""
    client.setblocking(False)
    said = b""
    closed = False

    def look() -> bool:
        nonlocal said, closed
        try:
            while piece := client.recv(4096):
                said += piece
            closed = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            closed = True
        return closed

    there.until(look)
    return said


def test_the_wrong_token_ends_the_connection_with_an_error_that_says_so() -> None:
    """On both ends, and no message passes."""
    with world() as there:
        client = Recorder()
        there.connect(client, OTHER_TOKEN).send(Stop("let me in"))
        there.until(lambda: client.ended and there.server.ended)
        assert there.server.messages == []
        assert "this query's token" in str(there.server.ended[0].fault)
        assert "token of another query" in str(client.ended[0].ended)
        assert OTHER_TOKEN.reveal()[:8] not in str(there.server.ended[0].fault)


@pytest.mark.parametrize(
    "said",
    [
        as_bytes(Stop("no token")),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0",
        encode_frame(Kind.RESPONSE, bytes(63)),
        encode_frame(Kind.RESPONSE, bytes(64)),
        encode_frame(Kind.RESPONSE, bytes(4096)),
        encode_frame(Kind.CONFIRMATION, bytes(32)),
        b"RWKN" + bytes(10_000),
    ],
    ids=lambda said: repr(said[:24]),
)
def test_without_a_proof_the_connection_ends(said: bytes) -> None:
    """Whatever is said instead; and all that a stranger hears is one challenge."""
    with world() as there, socket.create_connection(there.listener.address) as client:
        client.sendall(said)
        assert len(hung_up(there, client)) in (0, 52)
        assert there.server.messages == []
        assert there.server.connections == []


def test_a_recorded_conversation_cannot_be_replayed_to_a_listener() -> None:
    """Every connection has a challenge of its own."""
    with world() as there:
        with socket.create_connection(there.listener.address) as first:
            there.rounds()
            recorder = handshake(2, accepting=False)
            response = recorder.receive(frame_of(first.recv(52)))
            first.sendall(response)
            there.until(lambda: there.server.connections)
        there.until(lambda: there.server.ended)
        with socket.create_connection(there.listener.address) as second:
            second.sendall(response)
            hung_up(there, second)
        assert len(there.server.connections) == 1
