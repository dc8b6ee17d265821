"""Reading frames one after another from a segment, in large chunks.

A `Window` is a piece of one file held in memory; it moves as the reader asks for other bytes.  A
frame is believed only if both its checksums are right and it names this log and this segment's
epoch: bytes of another log, or of a recycled block, are no frames here.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from rewake.log.files.layout import SegmentId
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import (
    FRAME_ALIGNMENT,
    HEADER_SIZE,
    MAGIC,
    Frame,
    FrameHeader,
    check_body,
    decode_frame,
    decode_header,
)
from rewake.log.store import Store
from rewake.model.errors import DamagedFrame

__all__ = ["CHUNK_BYTES", "FoundFrame", "Window", "frames_in", "headers_in"]

CHUNK_BYTES: Final = 1 << 20


class FoundFrame(NamedTuple):
    """A valid frame and where it begins."""

    header: FrameHeader
    offset: int

    @property
    def end(self) -> int:
        """The byte behind the frame."""
        return self.offset + self.header.length


class Window:
    """A movable view of one segment, bounded by `stop`: bytes from there on are never looked at."""

    def __init__(
        self,
        store: Store,
        segment: SegmentId,
        *,
        log_id: int,
        stop: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.segment = segment
        self.name = segment.name
        self.stop = stop
        self.buffer = b""
        self.start = 0
        self._store = store
        self._log_id = log_id
        self._chunk_bytes = chunk_bytes

    def locate(self, offset: int, size: int) -> int:
        """Make [offset, offset + size) available, as far as there is; its place in `buffer`."""
        if offset < self.start or offset + size > self.start + len(self.buffer):
            room = max(0, self.stop - offset)
            wanted = min(room, max(size, self._chunk_bytes))
            self.buffer = self._store.read(self.name, offset, wanted) if wanted else b""
            self.start = offset
        return offset - self.start

    def check(self, offset: int) -> FoundFrame:
        """The verified frame at `offset`; raises DamagedFrame when there is none."""
        header = self._header(offset)
        place = self.locate(offset, header.length)
        check_body(self.buffer, place, header)
        return FoundFrame(header, offset)

    def frame(self, offset: int) -> Frame:
        """The verified frame at `offset`, with its sections."""
        header = self._header(offset)
        place = self.locate(offset, header.length)
        return decode_frame(self.buffer, place, header, segment=self.name, base=self.start)

    def _header(self, offset: int) -> FrameHeader:
        place = self.locate(offset, HEADER_SIZE)
        return self.checked(decode_header(self.buffer, place))

    def checked(self, header: FrameHeader) -> FrameHeader:
        """The header, if it names this log and this segment's writer."""
        if header.log_id != self._log_id or header.epoch != self.segment.epoch:
            raise DamagedFrame(
                f"{self.name} holds a frame of log {header.log_id:#x}, epoch {header.epoch}"
            )
        return header


def frames_in(window: Window, offset: int) -> Iterator[FoundFrame]:
    """The frames from `offset` up to the window's stop; raises DamagedFrame at one that is none."""
    while offset < window.stop:
        found = window.check(offset)
        yield found
        offset = found.end


def headers_in(window: Window, offset: int) -> Iterator[FoundFrame]:
    """Every valid frame header behind `offset`, whatever lies between: for judging damage."""
    begin = SEGMENT_HEADER_SIZE
    offset += -(offset - begin) % FRAME_ALIGNMENT
    while offset + HEADER_SIZE <= window.stop:
        place = window.locate(offset, HEADER_SIZE)
        hit = window.buffer.find(MAGIC, place)
        if hit < 0 or hit + HEADER_SIZE > len(window.buffer):
            # The next chunk begins where a header cut by this one's end could begin.
            behind = window.start + len(window.buffer) - HEADER_SIZE + 1
            offset = behind + -(behind - begin) % FRAME_ALIGNMENT
            if len(window.buffer) - place < HEADER_SIZE:
                return
            continue
        at = window.start + hit
        if (at - begin) % FRAME_ALIGNMENT == 0:
            with suppress(DamagedFrame):
                yield FoundFrame(window.checked(decode_header(window.buffer, hit)), at)
        offset = at + FRAME_ALIGNMENT - (at - begin) % FRAME_ALIGNMENT
