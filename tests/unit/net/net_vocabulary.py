"""Two ends of a real connection in one loop, and bytes fed to a decoder piece by piece."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rewake.net.wire.authentication import Token
from rewake.net.wire.codec import (
    AUTHENTICATED,
    UNAUTHENTICATED,
    Frame,
    Limits,
    Message,
    decode_message,
    encode,
)
from rewake.net.wire.connection import Connection
from rewake.net.wire.decoder import Decoder
from rewake.net.wire.listener import Listener
from rewake.net.wire.loop import Loop
from rewake.node.channels.reception import Reception
from rewake.node.messages import (
    Ack,
    Begins,
    Failed,
    Find,
    Finished,
    Follow,
    Found,
    Heartbeat,
    InSync,
    KeepBookmark,
    Packet,
    Peek,
    Peer,
    PeerMoved,
    PlaceLost,
    Produce,
    Refused,
    Register,
    Stop,
    Subscribe,
    Superseded,
    Welcome,
    Words,
)
from rewake.recovery.bookmark import Bookmark

TOKEN = Token(bytes(range(32)))
OTHER_TOKEN = Token(bytes(32))
PATIENCE_SECONDS = 20.0

_PEER = Peer(("127.0.0.1", 4711), 3)
SAMPLES: tuple[Message, ...] = (
    Packet(0, 0),
    Packet(3, 9, 2, None, b"arrow bytes"),
    Packet(3, 9, -1, -(2**63), b"x", final=True),
    Packet(2**63 - 1, 2**63 - 1, 0, 2**63 - 1),
    Packet(7, 7, marker=b"round 7"),
    Subscribe("sum#0", 1, "print#0", 2, -1, 7),
    Peek("sum#0"),
    Follow("sum#0", 1, 4),
    Words(b""),
    Words(b"what an approach says"),
    InSync("sum#0", 3, 1, 4),
    PlaceLost("sum#0", 1, 4),
    Begins(12, 1),
    Refused('no "such" output\n', fenced=True),
    Ack(5, -1),
    Produce("sum#0", "orders", "me\u00fc\\udata"),
    Register("sum#0", ("10.0.0.1", 65535), 77, "host", "server-3", 1),
    Welcome("sum#0", 1, {"a": _PEER, "b": Peer(("::1", 1), 0)}),
    Welcome("sum#0", 2, standby=True),
    Welcome("sum#0", 3, bookmark=Bookmark(9, -(2**63), 4, 0, 7, -(2**63), -(2**63))),
    KeepBookmark("sum#0", 3, Bookmark(9, 50, 4, 2, 9, 50, 2**62)),
    PeerMoved("a", _PEER),
    PeerMoved("a", None),
    Heartbeat("a", 1, {"rate": 1.5, "open": 3, "list": [1, None, True], "deep": {"x": "y"}}),
    Finished("a", 2),
    Failed("a", 2, "it broke", fatal=False),
    Stop("enough"),
    Superseded(9, "sum#0"),
    Find("totals"),
    Found("totals", 1, [["sum#0", 0, "127.0.0.1", 4711, 3, 0]]),
    Found("totals", 1, [], True, "node 'sum' is older than it was", True),
)


def as_bytes(message: Message) -> bytes:
    """A message as it is on the wire."""
    return b"".join(bytes(each) for each in encode(message))


def feed(decoder: Decoder, data: bytes) -> list[Message]:
    """What comes out of a decoder when `data` goes in, in the largest pieces that it takes."""
    messages: list[Message] = []
    while data:
        count = 0
        for buffer in decoder.buffers():
            piece = data[count : count + len(buffer)]
            buffer[: len(piece)] = piece
            count += len(piece)
        assert count, "a decoder that takes nothing"
        decoder.received(count)
        data = data[count:]
        while (frame := decoder.next_frame()) is not None:
            messages.append(decode_message(frame, "a peer"))
    return messages


def decoded(pieces: Iterable[bytes], limits: Limits = AUTHENTICATED) -> list[Message]:
    """What comes out of a new decoder."""
    decoder = Decoder("a peer", limits)
    return [message for piece in pieces for message in feed(decoder, piece)]


def frame_of(data: bytes) -> Frame:
    """The frame in bytes of the handshake."""
    decoder = Decoder("a peer", UNAUTHENTICATED)
    decoder.buffers()[0][: len(data)] = data
    decoder.received(len(data))
    frame = decoder.next_frame()
    assert frame is not None
    return frame


class Recorder:
    """A handler that remembers."""

    def __init__(self, on_message: Callable[[Connection, Message], None] | None = None) -> None:
        self.connections: list[Connection] = []
        self.messages: list[Message] = []
        self.ended: list[Connection] = []
        self._on_message = on_message

    def authenticated(self, connection: Connection) -> None:
        self.connections.append(connection)

    def received(self, connection: Connection, messages: list[Message]) -> None:
        assert connection in self.connections, "a message of a stranger"
        assert connection not in self.ended, "a message after the end"
        assert messages
        self.messages += messages
        if self._on_message is not None:
            for message in messages:
                self._on_message(connection, message)

    def closed(self, connection: Connection) -> None:
        assert connection not in self.ended, "told twice"
        self.ended.append(connection)


class World:
    """A loop with a listener in it."""

    def __init__(self, **settings: int) -> None:
        self.loop = Loop()
        self.server = Recorder()
        self.listener = Listener(TOKEN, **settings)
        self.loop.listen(self.listener, self.server)
        self._apart: list[Loop] = []

    def connect(self, handler: Recorder, token: Token = TOKEN) -> Connection:
        connection = Connection.connect(self.listener.address, token, self.loop.now())
        self.loop.add(connection, handler)
        return connection

    def until(self, happened: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, "it did not happen"
            self.loop.run_once(0.05)

    def rounds(self, count: int = 5) -> None:
        for _ in range(count):
            self.loop.run_once(0.01)

    def joined(self) -> tuple[Recorder, Connection]:
        """A client that is connected and authenticated."""
        client = Recorder()
        connection = self.connect(client)
        before = len(self.server.connections)
        self.until(lambda: client.connections and len(self.server.connections) > before)
        return client, connection

    def joined_and_asleep(self) -> Connection:
        """A client of another loop, which nobody runs any more: it reads and says nothing."""
        asleep, before = Loop(), len(self.server.connections)
        self._apart.append(asleep)
        connection = Connection.connect(self.listener.address, TOKEN, asleep.now())
        asleep.add(connection, Recorder())
        self.until(lambda: asleep.run_once(0.0) or len(self.server.connections) > before)
        return connection

    def close(self) -> None:
        self.loop.stop_listening(self.listener)
        for each in (self.loop, *self._apart):
            each.close()


class Building:
    """A server as far as a node's share matters; what is said to the coordinator is kept."""

    def __init__(self, loop: Loop | None = None) -> None:
        self.loop = loop or Loop()
        self.token = TOKEN
        self.address = ("127.0.0.1", 1)
        self.reception: Reception[Any] = Reception((), self._never, self._never)
        self.told: list[Any] = []
        self.open: list[str] = []
        self.tell = self.told.append
        self.opened = self.open.append

    def _never(self, *_arguments: Any) -> None:
        raise AssertionError("nobody comes")


@contextmanager
def world(**settings: int) -> Iterator[World]:
    """A world that is closed afterwards."""
    made = World(**settings)
    try:
        yield made
    finally:
        made.close()
