"""Bytes as they arrive, cut into frames, with payloads that are received where they stay.

The host receives into `buffers()`, says how much with `received`, and takes frames with
`next_frame` until there is none.  While a payload is incomplete the first buffer is the rest of it,
so the kernel writes it to its final place; the small buffer behind it takes the beginning of the
next frame with the same system call.

What always holds: at most `SMALL_BYTES` of a payload are copied; the small buffer grows only for a
header whose length is within the limits; a payload gets its memory only after the header's checksum
was right.  After a `BadPeer` the decoder must not be used again.
"""

from typing import Final

import pyarrow as pa

from rewake.model.errors import BadPeer
from rewake.net.wire.codec import (
    MAGIC,
    PREFIX_BYTES,
    UNAUTHENTICATED,
    Frame,
    Limits,
    Prefix,
    check_header,
    decode_prefix,
)

__all__ = ["Decoder"]

SMALL_BYTES: Final = 4096


class Decoder:
    """The receiving end of one connection.  `limits` may be raised between two frames."""

    def __init__(self, peer: str, limits: Limits = UNAUTHENTICATED) -> None:
        self.peer = peer
        self.limits = limits
        self._small = memoryview(bytearray(SMALL_BYTES))
        # What has been received and not yet taken is small[begin:end].
        self._begin = self._end = 0
        self._waiting: Frame | None = None
        self._payload = memoryview(b"")
        self._filled = 0

    def buffers(self) -> list[memoryview]:
        """Where to put what is received next: never empty."""
        if self._waiting is not None:
            return [self._payload[self._filled :], self._small]
        return [self._small[self._end :]]

    def received(self, count: int) -> None:
        """Take note that the first `count` bytes of `buffers()` have been filled."""
        if self._waiting is not None:
            into_payload = min(count, len(self._payload) - self._filled)
            self._filled += into_payload
            count -= into_payload
        self._end += count

    @property
    def between_frames(self) -> bool:
        """Whether nothing of an unfinished frame has been received."""
        return self._waiting is None and self._begin == self._end

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None when more must be received first."""
        if self._waiting is not None:
            return self._finished()
        available = self._end - self._begin
        if available < PREFIX_BYTES:
            self._refuse_strangers(available)
            self._make_room(PREFIX_BYTES)
            return None
        prefix_bytes = self._small[self._begin : self._begin + PREFIX_BYTES]
        prefix = decode_prefix(prefix_bytes, self.limits, self.peer)
        length = PREFIX_BYTES + prefix.header_length
        if available < length:
            self._make_room(length)
            return None
        header = bytes(self._small[self._begin + PREFIX_BYTES : self._begin + length])
        check_header(prefix_bytes, prefix, header, self.peer)
        self._begin += length
        if prefix.payload_length == 0:
            return Frame(prefix.kind, prefix.flags, header)
        self._begin_payload(prefix, header)
        return self._finished()

    def _begin_payload(self, prefix: Prefix, header: bytes) -> None:
        self._waiting = Frame(prefix.kind, prefix.flags, header)
        self._payload = _fresh(prefix.payload_length)
        self._filled = min(self._end - self._begin, prefix.payload_length)
        taken = self._small[self._begin : self._begin + self._filled]
        self._payload[: self._filled] = taken
        self._begin += self._filled
        if self._begin == self._end:
            # `buffers` offers the small buffer from its start.
            self._begin = self._end = 0

    def _finished(self) -> Frame | None:
        assert self._waiting is not None
        if self._filled < len(self._payload):
            return None
        frame = self._waiting._replace(payload=self._payload)
        self._waiting, self._payload, self._filled = None, memoryview(b""), 0
        return frame

    def _refuse_strangers(self, available: int) -> None:
        """Do not wait for 20 bytes of something that is no frame from its first byte on."""
        first = bytes(self._small[self._begin : self._begin + min(available, len(MAGIC))])
        if not MAGIC.startswith(first):
            raise BadPeer(
                f"{self.peer} sent bytes that are no frame of Rewake ({first!r}); "
                "the connection is closed"
            )

    def _make_room(self, length: int) -> None:
        """Let `length` bytes from `begin` on fit, with room behind what is there already."""
        kept = self._small[self._begin : self._end]
        if len(self._small) < length:
            self._small = memoryview(bytearray(length))
        # Views of one buffer may overlap here: the copy allows for it.
        self._small[: len(kept)] = kept
        self._begin, self._end = 0, len(kept)


def _fresh(length: int) -> memoryview:
    """Memory that nobody has filled, aligned for Arrow.

    From Arrow's pool: memory fresh from the system costs a page fault per 4 KiB, which is dearer
    than the copy out of the socket.
    """
    return memoryview(pa.allocate_buffer(length)).cast("B")
