"""One non-blocking socket that sends and receives messages.

`send` queues and sends what the kernel takes at once; the rest goes when the socket is writable
again.  `on_readable` returns the messages that have arrived.  Buffers are handed to the kernel as
they are: a packet's payload is never copied here.

What always holds: no method blocks or raises because of the peer or the network.  A connection that
ends by itself is `closed` and says why in `ended`; `fault` is set when the peer misbehaved.
Messages are held back until the peer has been authenticated; none is returned before, and none that
the peer may not say (`right`).

The host: calls `on_readable` and `on_writable` when a selector says so (see `wire.loop`),
closes the connection when it is not authenticated by `deadline`, and calls all methods from one
thread.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from contextlib import suppress
from itertools import islice
from os import strerror
from secrets import token_bytes
from typing import Final, Protocol

from rewake.log.frame import Buffer
from rewake.model.errors import BadPeer, NotAllowed
from rewake.net.wire.addresses import leave_unpaced
from rewake.net.wire.authentication import NONCE_BYTES, Handshake, Token
from rewake.net.wire.codec import (
    AUTHENTICATED,
    UNAUTHENTICATED,
    Limits,
    Message,
    decode_message,
    encode,
)
from rewake.net.wire.decoder import Decoder
from rewake.node.messages import Address, Refused
from rewake.node.rights import Right, refusal

__all__ = ["AUTHENTICATION_SECONDS", "Connection", "Unanswered", "Watcher"]

AUTHENTICATION_SECONDS: Final = 5.0
# How long the peer's system may take to answer before it is asked anew.
_ANSWER_SECONDS: Final = 0.1
# After `finish`: how long the peer may take to read what was said last.
FINISHING_SECONDS: Final = 5.0
SOCKET_BUFFER_BYTES: Final = 4 << 20
# All that an unauthenticated peer may send, ever.
_STRANGER_BYTES: Final = UNAUTHENTICATED.header_bytes
# One connection with much to say must leave room for the others; and what has been received is
# worked on while it is still in the processor's cache (measured: 2.5 times faster than 16 MiB).
_BYTES_PER_EVENT: Final = 1 << 20
_BUFFERS_PER_CALL: Final = 64
_MAY_COME_LATER: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})


class Watcher(Protocol):
    """Who waits for the socket to become readable or writable: the loop."""

    def changed(self, connection: Connection) -> None:
        """`wants_write` or `closed` is not what it was."""

    def closing(self, connection: Connection) -> None:
        """The socket is about to be closed: forget its number."""


class Connection:
    """A connection to a peer; see the module."""

    def __init__(
        self,
        connected: socket.socket,
        peer: str,
        token: Token,
        deadline: float,
        *,
        accepting: bool,
        connecting: bool = False,
        limits: Limits = AUTHENTICATED,
        clients: Token | None = None,
    ) -> None:
        self.peer = peer
        self.right = Right.NODE
        self.deadline = deadline
        self.ended: str | None = None
        self.fault: BadPeer | None = None
        self.watcher: Watcher | None = None
        self._socket = connected
        self._limits = limits
        self._connecting = connecting
        self._finishing = False
        self._decoder = Decoder(peer)
        self._handshake: Handshake | None = Handshake(
            token, token_bytes(NONCE_BYTES), peer, accepting=accepting, clients=clients
        )
        self._stranger_bytes = 0
        self._queue: deque[memoryview] = deque()
        self._held: list[Buffer] = []
        self.queued_bytes = 0
        # What the watcher was told last.
        self._watched_for_write = False
        self._enqueue([self._handshake.begin()])

    @classmethod
    def connect(
        cls, address: Address, token: Token, now: float, *, limits: Limits = AUTHENTICATED
    ) -> Connection:
        """Begin to connect.  An address that nobody listens at gives a connection that ends."""
        peer = f"{address[0]}:{address[1]}"
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        connecting = socket.socket(family, socket.SOCK_STREAM)
        prepare(connecting, address[0])
        connection = cls(
            connecting, peer, token, now + AUTHENTICATION_SECONDS,
            accepting=False, connecting=True, limits=limits,
        )  # fmt: skip
        try:
            code = connecting.connect_ex(address)
        except (OSError, OverflowError) as error:  # a name that is none, a port that is none
            connection._end(f"cannot connect to {peer}: {error}")
            return connection
        if code not in (0, errno.EINPROGRESS):
            connection._end(f"cannot connect to {peer}: {_words(code)}")
        return connection

    # --- what the loop asks ----------------------------------------------------------------------

    def fileno(self) -> int:
        """The number of the socket; -1 when closed."""
        return self._socket.fileno()

    @property
    def closed(self) -> bool:
        """Whether it has ended, by itself or by `close`."""
        return self._socket.fileno() < 0

    @property
    def ends(self) -> tuple[Address, Address] | None:
        """The address of this end and of the other; None when it is not connected."""
        try:
            return self._socket.getsockname()[:2], self._socket.getpeername()[:2]
        except OSError:
            return None

    @property
    def authenticated(self) -> bool:
        """Whether both ends have proven that they belong to the query."""
        return self._handshake is None

    @property
    def connecting(self) -> bool:
        """Whether the peer's system has not answered yet."""
        return self._connecting and not self.closed

    @property
    def turned_away(self) -> bool:
        """Of one that has ended: the peer was there, and did not let us in.  It may next time."""
        return not self.authenticated and not self._connecting

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the socket to become writable."""
        return not self.closed and (self._connecting or bool(self._queue))

    def watch(self) -> bool:
        """The same, for the watcher: it is called again when the answer changes."""
        self._watched_for_write = self.wants_write
        return self._watched_for_write

    # --- sending ---------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send a message after all earlier ones; dropped silently when the connection is closed.

        Its payload must not change until the peer has it.
        """
        if self.closed or self._finishing:
            return
        buffers = encode(message, self._limits)
        if not self.authenticated:
            self._held += buffers
            return
        idle = not self._queue
        self._enqueue(buffers)
        if idle:
            self._send_some()

    def _enqueue(self, buffers: list[Buffer]) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            if view.nbytes:
                self._queue.append(view)
                self.queued_bytes += view.nbytes

    def on_writable(self) -> None:
        """The socket takes bytes again, or a connection attempt has come to an end."""
        if self._connecting and not self._connected():
            return
        self._send_some()

    def _connected(self) -> bool:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end(f"cannot connect to {self.peer}: {_words(code)}")
            return False
        with suppress(OSError):
            # A port that nobody listens at may be given to the very socket that connects to it.
            if self._socket.getsockname() == self._socket.getpeername():
                self._end(f"cannot connect to {self.peer}: nobody listens there")
                return False
        self._connecting = False
        return True

    def _send_some(self) -> None:
        """Send until nothing is left or the kernel takes no more."""
        try:
            while self._queue and not self._connecting:
                self._sent(self._socket.sendmsg(list(islice(self._queue, _BUFFERS_PER_CALL))))
        except OSError as error:
            if error.errno not in _MAY_COME_LATER:
                self._lost(error)
                return
        if self._finishing and not self._queue:
            # The peer must be able to read what was said last: an abrupt end may take it away.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        if self.watcher is not None and self.wants_write != self._watched_for_write:
            self.watcher.changed(self)

    def _sent(self, count: int) -> None:
        self.queued_bytes -= count
        queue = self._queue
        while count and count >= queue[0].nbytes:
            count -= queue.popleft().nbytes
        if count:
            queue[0] = queue[0][count:]

    # --- receiving -------------------------------------------------------------------------------

    def on_readable(self) -> list[Message]:
        """The messages that have arrived.  Afterwards the connection may be `closed`."""
        messages: list[Message] = []
        try:
            self._receive(messages)
        except NotAllowed as error:
            self.fault, self.ended = error, str(error)
            self.send(Refused(str(error)))  # the loop hangs up once it is told
        except BadPeer as error:
            self.fault = error
            self._end(str(error))
        except OSError as error:
            if error.errno not in _MAY_COME_LATER:
                self._lost(error)
        return messages

    def _receive(self, messages: list[Message]) -> None:
        decoder, budget = self._decoder, _BYTES_PER_EVENT
        while budget > 0 and not self.closed:
            buffers = decoder.buffers()
            count = self._socket.recvmsg_into(buffers)[0]
            if count == 0:
                self._hung_up()
                return
            decoder.received(count)
            self._take_frames(count, messages)
            budget -= count
            if count < sum(each.nbytes for each in buffers):
                return  # the kernel has no more: asking would cost a call

    def _take_frames(self, count: int, messages: list[Message]) -> None:
        self._stranger_bytes += count
        while not self.closed and (frame := self._decoder.next_frame()) is not None:
            if self._handshake is None:
                if not self._finishing:
                    messages.append(self._allowed(decode_message(frame, self.peer)))
                continue
            self._enqueue([self._handshake.receive(frame)])
            if self._handshake.done:
                self._authenticated()
            self._send_some()
        # Afterwards: behind the last frame of the handshake there may be honest messages.
        if not self.authenticated and self._stranger_bytes > _STRANGER_BYTES:
            raise BadPeer(
                f"{self.peer} sent more than {_STRANGER_BYTES} bytes before authentication; "
                "the connection is closed"
            )

    def _allowed(self, message: Message) -> Message:
        refused = refusal(self.right, message)
        if refused is not None:
            raise NotAllowed(f"{self.peer}: {refused}; the connection is closed")
        return message

    def _authenticated(self) -> None:
        assert self._handshake is not None
        self.right = self._handshake.right
        self._handshake = None
        self._decoder.limits = self._limits
        held, self._held = self._held, []
        self._enqueue(held)

    def _lost(self, error: OSError) -> None:
        if self.turned_away:
            self._hung_up()  # by a reset
        else:
            self._end(f"the connection to {self.peer} is lost: {_words(error.errno)}")

    def _hung_up(self) -> None:
        if not self.authenticated:
            self._end(
                f"{self.peer} hung up before authentication: it is busy or stopping, it is none "
                "of ours, or it has the token of another query"
            )
        elif self._decoder.between_frames:
            self._end(f"{self.peer} hung up")
        else:
            self._end(f"{self.peer} hung up in the middle of a message")

    # --- ending ----------------------------------------------------------------------------------

    def finish(self, now: float) -> None:
        """Send what is queued, then close; whatever the peer still says is dropped.

        The loop closes it at the latest at `deadline`.
        """
        if self.closed or not self.authenticated:
            self.close()
            return
        self._finishing = True
        self.deadline = now + FINISHING_SECONDS
        self._send_some()
        if self.watcher is not None:
            self.watcher.changed(self)

    @property
    def finishing(self) -> bool:
        """Whether `finish` was called."""
        return self._finishing

    def expire(self) -> None:
        """The deadline has passed."""
        if self._finishing and self.ended is None:
            self.close()
        else:
            self._end(f"{self.peer} did not authenticate within {AUTHENTICATION_SECONDS:g} s")

    def close(self) -> None:
        """Close at once; what is queued is lost.  Closing twice is harmless."""
        if self.closed:
            return
        if self.watcher is not None:
            self.watcher.closing(self)
        self._socket.close()
        self._queue.clear()
        self._held.clear()
        self.queued_bytes = 0

    def _end(self, reason: str) -> None:
        # Whoever called `finish` does not ask how it ended.
        if self.ended is None and not self._finishing:
            self.ended = reason
        self.close()
        if self.watcher is not None:
            self.watcher.changed(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self.authenticated else "unauthenticated"
        return f"<Connection to {self.peer}, {state}, {self.queued_bytes} bytes queued>"


class Unanswered:
    """When to ask anew a peer whose system answers nothing, as one whose queue is full in a flood.

    Sooner than the system would, and ever later where the way is long.
    """

    def __init__(self, now: float) -> None:
        self._asked, self._within = now, _ANSWER_SECONDS

    def is_late(self, connection: Connection, now: float) -> bool:
        """Whether to close this one and ask anew; then that counts as done."""
        if not connection.connecting or now <= self._asked + self._within:
            return False
        self._asked, self._within = now, self._within * 2
        return True


def prepare(fresh: socket.socket, host: str) -> None:
    """Set the options of a connection to this host, or of a socket that listens there."""
    fresh.setblocking(False)
    # Not on sockets of other families, which some tests use.
    with suppress(OSError):
        fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        fresh.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    leave_unpaced(fresh, host)


def _words(code: int | None) -> str:
    """A system error in words, with its name."""
    if code is None:
        return "unknown error"
    return f"{strerror(code)} ({errno.errorcode.get(code, code)})"
