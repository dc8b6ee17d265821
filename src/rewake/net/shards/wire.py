"""How tasks and shard hosts talk: blocking sockets, small JSON headers, Arrow batches.

Both ends first prove that they know the token (`net.wire.authentication`).  Then every frame is,
little-endian,

    offset  size  field
         0     4  magic    "RWKS"
         4     1  version  2
         5     1  kind     1 header, 2 tuples, 3 end of the tuples, 4 still working
         6     2  zero
         8     4  length   of what follows the prefix
        12     4  crc      CRC-32C of bytes 0..11 and, of a header, of what follows
        16     .  header: a JSON object; tuples: a record batch as an Arrow IPC message

A request is a header.  For a batch, the host answers with a header that it is the one to ask; then
come tuples, their end, and a header that says which rows the batch has, all shards' together.  An
answer is a header, tuples and their end.

What always holds: a length is checked before anything of that size is allocated; a connection that
breaks is never taken for the end of the tuples; a peer causes `BadPeer` and `Disconnected` alone.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator
from secrets import token_bytes
from struct import Struct
from typing import Any, Final

import pyarrow as pa
from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from rewake.model.batches import read_batch
from rewake.model.errors import BadPeer, OperatingFault, UsageError
from rewake.net.wire.authentication import NONCE_BYTES, Handshake, Token
from rewake.net.wire.codec import (
    PREFIX_BYTES,
    UNAUTHENTICATED,
    Frame,
    check_header,
    decode_prefix,
)

__all__ = ["Disconnected", "HungUp", "ShardConnection", "messages_of"]

_MAGIC: Final = b"RWKS"
_VERSION: Final = 2
_UNSEALED: Final = Struct("<4sBBHI")
_PREFIX: Final = Struct("<4sBBHII")
_HEADER, _TUPLES, _END, _WORKING = 1, 2, 3, 4
MAX_HEADER_BYTES: Final = 1 << 20
MAX_TUPLES_BYTES: Final = 256 << 20
AUTHENTICATION_SECONDS: Final = 10.0
_BUFFER_BYTES: Final = 4 << 20


class Disconnected(OperatingFault):
    """The other end is gone, or has not said anything for too long."""


class HungUp(Disconnected):
    """The other end has closed the connection."""


def messages_of(batch: pa.RecordBatch) -> Iterator[pa.Buffer]:
    """The tuples of a batch as Arrow messages, each small enough to be sent; none without any."""
    if batch.num_rows == 0:
        return
    if batch.nbytes > MAX_TUPLES_BYTES // 2 and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from messages_of(batch.slice(0, half))
        yield from messages_of(batch.slice(half))
        return
    message = batch.serialize()
    if message.size > MAX_TUPLES_BYTES:
        raise UsageError(f"one tuple of {message.size} bytes is too large to be sent")
    yield message


class ShardConnection:
    """One authenticated connection; `silence_seconds` is how long the peer may say nothing."""

    def __init__(
        self,
        connected: socket.socket,
        peer: str,
        token: Token,
        *,
        accepting: bool,
        silence_seconds: float | None = None,
    ) -> None:
        self.peer = peer
        self._socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        deadline = time.monotonic() + AUTHENTICATION_SECONDS
        handshake = Handshake(token, token_bytes(NONCE_BYTES), peer, accepting=accepting)
        self._send(handshake.begin())
        while not handshake.done:
            connected.settimeout(max(0.01, deadline - time.monotonic()))
            self._send(handshake.receive(self._authentication_frame()))
        self.silence(silence_seconds)

    def _authentication_frame(self) -> Frame:
        first = self._receive(PREFIX_BYTES)
        prefix = decode_prefix(first, UNAUTHENTICATED, self.peer)
        header = bytes(self._receive(prefix.header_length))
        check_header(first, prefix, header, self.peer)
        return Frame(prefix.kind, prefix.flags, header)

    def silence(self, seconds: float | None) -> None:
        """From now on the peer may say nothing for so long."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Leave; idempotent."""
        self._socket.close()

    # --- sending -----------------------------------------------------------------------------

    def send_header(self, value: dict[str, Any]) -> None:
        """Send a JSON object."""
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        if len(body) > MAX_HEADER_BYTES:
            raise UsageError(f"a header of {len(body)} bytes is over the limit; use fewer columns")
        self._send(prefix_of(_HEADER, len(body), body), body)

    def send_tuples(self, messages: Iterable[pa.Buffer]) -> None:
        """Send what `messages_of` made of batches of one schema, and their end."""
        for message in messages:
            self.send_message(message)
        self.end_tuples()

    def send_message(self, message: pa.Buffer) -> None:
        """Send some tuples; more, or their end, follow."""
        self._send(prefix_of(_TUPLES, message.size), memoryview(message))

    def end_tuples(self) -> None:
        """Say that there are no more."""
        self._send(prefix_of(_END, 0))

    def send_working(self) -> None:
        """Say that the answer takes longer."""
        self._send(prefix_of(_WORKING, 0))

    def _send(self, *buffers: Any) -> None:
        try:
            for buffer in buffers:
                if len(buffer):
                    self._socket.sendall(buffer)
        except ConnectionError as error:
            raise HungUp(f"{self.peer} is gone ({error})") from error
        except OSError as error:
            raise Disconnected(f"{self.peer} is gone ({error})") from error

    # --- receiving ---------------------------------------------------------------------------

    def receive_header(self) -> dict[str, Any]:
        """The JSON object that comes next."""
        kind, length, crc, first = self._next_prefix()
        if kind != _HEADER:
            raise self._bad("tuples where a header was due")
        body = bytes(self._receive(length))
        if extend_crc32c(crc32c(first), body) != crc:
            raise self._bad("a header whose checksum is wrong")
        try:
            value = json.loads(body)
        except ValueError as error:
            raise self._bad("a header that is not JSON") from error
        if type(value) is not dict:
            raise self._bad("a header that is not a JSON object")
        return value

    def receive_tuples(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The batches up to their end."""
        while True:
            kind, length, crc, first = self._next_prefix()
            if crc32c(first) != crc or kind == _HEADER:
                raise self._bad("something else where tuples were due")
            if kind == _END:
                return
            buffer = pa.allocate_buffer(length)
            self._receive_into(memoryview(buffer).cast("B"))
            wrong = f"{self.peer} sent tuples that cannot be read; the connection is closed"
            yield read_batch(buffer, schema, wrong, BadPeer, full=False)

    def _next_prefix(self) -> tuple[int, int, int, bytes]:
        """Kind, length, checksum and the bytes that it covers, of the next frame with news."""
        while True:
            prefix = bytes(self._receive(_PREFIX.size))
            magic, version, kind, zero, length, crc = _PREFIX.unpack(prefix)
            limits = {_HEADER: MAX_HEADER_BYTES, _TUPLES: MAX_TUPLES_BYTES, _END: 0, _WORKING: 0}
            if magic != _MAGIC or version != _VERSION or zero or length > limits.get(kind, -1):
                raise self._bad("bytes that are no frame of this version")
            if kind != _WORKING:
                return kind, length, crc, prefix[: _UNSEALED.size]

    def _receive(self, length: int) -> bytearray:
        buffer = bytearray(length)
        self._receive_into(memoryview(buffer))
        return buffer

    def _receive_into(self, view: memoryview) -> None:
        while len(view):
            try:
                count = self._socket.recv_into(view)
            except ConnectionError as error:
                raise HungUp(f"{self.peer} has closed the connection ({error})") from error
            except OSError as error:
                raise Disconnected(f"{self.peer} does not answer ({error})") from error
            if count == 0:
                raise HungUp(f"{self.peer} has closed the connection")
            view = view[count:]

    def _bad(self, what: str) -> BadPeer:
        return BadPeer(f"{self.peer} sent {what}; the connection is closed")


def prefix_of(kind: int, length: int, covered: bytes = b"") -> bytes:
    """What comes before a header or tuples: kind, length, a checksum of itself and the header."""
    unsealed = _UNSEALED.pack(_MAGIC, _VERSION, kind, 0, length)
    checksum: int = extend_crc32c(crc32c(unsealed), covered)
    return unsealed + checksum.to_bytes(4, "little")
