"""What tasks and shard hosts say to each other, over real sockets."""

import socket
import struct
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from rewake.model.errors import BadPeer, UsageError
from rewake.net.shards import wire as shard_wire
from rewake.net.shards.wire import Disconnected, ShardConnection, messages_of
from rewake.net.wire.authentication import Token

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
TOKEN = Token(bytes(range(32)))


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"n": list(range(rows)), "text": [f"text {n}" for n in range(rows)]}, schema=SCHEMA
    )


def messages(*batches: pa.RecordBatch) -> list[pa.Buffer]:
    return [message for each in batches for message in messages_of(each)]


Joined = tuple[ShardConnection, ShardConnection, socket.socket]


@pytest.fixture
def joined() -> Iterator[Joined]:
    """Return both ends of an authenticated connection, and the bare socket of the second."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        ends: list[ShardConnection] = []
        accepting = threading.Thread(
            target=lambda: ends.append(
                ShardConnection(far, "task", TOKEN, accepting=True, silence_seconds=10.0)
            )
        )
        accepting.start()
        connecting = ShardConnection(near, "host", TOKEN, accepting=False, silence_seconds=10.0)
        accepting.join()
        yield connecting, ends[0], far
        connecting.close()


@pytest.fixture
def raw(joined: Joined) -> tuple[ShardConnection, socket.socket]:
    """Return an authenticated end, and the bare socket of the other."""
    return joined[0], joined[2]


@pytest.fixture
def ends(joined: Joined) -> tuple[ShardConnection, ShardConnection]:
    """Return both ends of an authenticated connection."""
    return joined[0], joined[1]


def test_headers_and_tuples_arrive_as_they_were_sent(
    ends: tuple[ShardConnection, ShardConnection],
) -> None:
    """Empty batches are left out; a sign of life between frames is not news."""
    near, far = ends
    near.send_header({"shard": 3, "who": "späte"})
    near.send_working()
    near.send_tuples(messages(batch(5), batch(0), batch(3).slice(1)))
    near.send_header({"next": True})
    assert far.receive_header() == {"shard": 3, "who": "späte"}
    assert list(far.receive_tuples(SCHEMA)) == [batch(5), batch(3).slice(1)]
    assert far.receive_header() == {"next": True}


def test_large_batches_are_sent_in_pieces(
    ends: tuple[ShardConnection, ShardConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is over the limit, and nothing is lost."""
    near, far = ends
    monkeypatch.setattr(shard_wire, "MAX_TUPLES_BYTES", 4096)
    near.send_tuples(messages(batch(1000)))
    pieces = list(far.receive_tuples(SCHEMA))
    assert len(pieces) > 2
    assert pa.Table.from_batches(pieces) == pa.Table.from_batches([batch(1000)])


def test_what_is_too_large_is_not_sent(
    ends: tuple[ShardConnection, ShardConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer would cut the connection."""
    monkeypatch.setattr(shard_wire, "MAX_HEADER_BYTES", 10)
    with pytest.raises(UsageError, match="over the limit"):
        ends[0].send_header({"name": "x" * 20})
    monkeypatch.setattr(shard_wire, "MAX_TUPLES_BYTES", 10)
    with pytest.raises(UsageError, match="too large"):
        messages(batch(1))


def test_a_connection_that_breaks_is_not_the_end_of_the_tuples(
    ends: tuple[ShardConnection, ShardConnection],
) -> None:
    """A task that was killed must not have its half batch processed."""
    near, far = ends
    near.send_message(*messages(batch(3)))
    near.close()
    arriving = far.receive_tuples(SCHEMA)
    assert next(arriving) == batch(3)
    with pytest.raises(Disconnected):
        next(arriving)


def test_a_peer_that_says_nothing_is_gone(raw: tuple[ShardConnection, socket.socket]) -> None:
    """After the time that it was given."""
    connection, _ = raw
    connection.silence(0.05)
    with pytest.raises(Disconnected):
        connection.receive_header()


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        struct.pack("<4sBBHII", b"RWKS", 2, 1, 0, 2, 0) + b"{}",
        struct.pack("<4sBBHII", b"RWKS", 1, 9, 0, 2, 0) + b"{}",
        struct.pack("<4sBBHII", b"RWKS", 1, 1, 0, 1 << 30, 0),
        struct.pack("<4sBBHII", b"RWKS", 1, 1, 0, 2, 0) + b"{}",
        shard_wire.prefix_of(1, 2, b"[]") + b"[]",
        shard_wire.prefix_of(1, 2, b"{{") + b"{{",
        shard_wire.prefix_of(3, 0),
    ],
)
def test_bytes_that_no_honest_peer_sends_are_refused(
    raw: tuple[ShardConnection, socket.socket], sent: bytes
) -> None:
    """Where a header is due; nothing of a stated size is allocated first."""
    connection, far = raw
    far.sendall(sent)
    with pytest.raises(BadPeer):
        connection.receive_header()


def test_tuples_that_cannot_be_read_are_refused(
    raw: tuple[ShardConnection, socket.socket],
) -> None:
    """Bytes that are no Arrow message, or one of other columns."""
    connection, far = raw
    far.sendall(shard_wire.prefix_of(2, 16) + bytes(16))
    with pytest.raises(BadPeer):
        next(connection.receive_tuples(SCHEMA))


def test_an_end_with_another_token_is_refused() -> None:
    """By both ends, before anything else is said."""
    failures: list[BaseException] = []

    def accept(server: socket.socket) -> None:
        connected, _ = server.accept()
        with connected:
            try:
                ShardConnection(connected, "task", TOKEN, accepting=True)
            except (BadPeer, Disconnected) as error:
                failures.append(error)

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept, args=(server,))
        accepting.start()
        with (
            socket.create_connection(server.getsockname()) as connected,
            pytest.raises((BadPeer, Disconnected)),
        ):
            ShardConnection(connected, "host", Token(bytes(32)), accepting=False)
        accepting.join()
    assert isinstance(failures[0], BadPeer)
